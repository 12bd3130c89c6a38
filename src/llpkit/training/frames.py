"""Data frames as inputs of a network."""

import warnings
from typing import Any

import numpy as np
from torch import Tensor

from llpkit._text import several
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.tables import FeatureEncoder, Table
from llpkit.tables.frames import is_frame
from llpkit.tables.selection import choose_features
from llpkit.training.check import check_table
from llpkit.training.inputs import Inputs, as_inputs


def check_ids(table: Table, bags: Bags, name: str = "bags") -> None:
    """Check that the rows of a frame are those of the bags, by the bag column if it has one.

    Numbers are equal however they are written: 007 in a file is 7 in a frame read from it.
    """
    check_table(bags, len(table), name)
    column = bags.bag_column
    if column is None or column not in table.names:
        return
    text = table.text(column).dictionary_encode()
    codes: dict[Any, int] = {}
    values = [codes.setdefault(_key(v), len(codes)) for v in text.dictionary.to_pylist()]
    expected = np.array([codes.get(_key(one), -2) for one in bags.ids])
    rows, sizes = bags.rows.cpu().numpy(), bags.sizes.cpu().numpy()
    actual = np.array([*values, -1])[text.indices.fill_null(-1).to_numpy()[rows]]
    wrong = np.flatnonzero(actual != np.repeat(expected, sizes))
    wrong = wrong[~np.isin(rows[wrong], bags.known_rows)]
    if len(wrong):
        of = bags.bag_index.cpu().numpy()
        first = wrong[rows[wrong].argmin()]
        value = table.text(column)[int(rows[first])].as_py()
        raise LLPError(
            f"{table.cell(int(rows[first]), column)} = {value!r}, but in {name} this row is in "
            f"{bags.ids[of[first]]!r} ({several(len(wrong), 'such row')} in all); pass the frame "
            "that the bags were made from, with its rows in the same order"
        )


def _key(value: Any) -> Any:
    """A bag id for comparison: a number if it is one."""
    for kind in (int, float):
        try:
            number = kind(value)
        except ValueError:
            continue
        return number if number == number else value  # NaN is not equal to itself
    return value


def checked_inputs(
    inputs: Any, bags: Bags, *, stacklevel: int, held_out: Any = None
) -> tuple[Inputs, FeatureEncoder | None]:
    """Inputs of any kind, one per row of the bags' table; and for a data frame its encoder."""
    encoder = None
    if is_frame(inputs):
        inputs, encoder = _encode(inputs, bags, stacklevel + 1, held_out)
    inputs = as_inputs(inputs)
    check_table(bags, len(inputs))
    return inputs, encoder


def _encode(
    frame: Any, bags: Bags, stacklevel: int, held_out: Any
) -> tuple[Tensor, FeatureEncoder]:
    """The features of a data frame ``(R, D)``, and the encoder fitted to it.

    All columns are features, except those that bags and counts came from and those that cannot be
    used; a warning gives the reason.
    """
    table = Table.of(frame)
    check_ids(table, bags)
    if isinstance(held_out, Bags):
        check_ids(table, held_out, "held_out")
    taken = dict.fromkeys(bags.columns, "bag ids or counts")
    chosen, notes = choose_features(table, taken=taken, bags=bags, droppable=False)
    if not chosen:
        raise LLPError("; ".join(["the data frame has no column to learn from", *notes]))
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=stacklevel)
    encoder = FeatureEncoder.fit(table, chosen)
    return encoder.apply(table), encoder
