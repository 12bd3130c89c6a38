"""Data frames as inputs of a network."""

import warnings
from typing import Any

from torch import Tensor

from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.tables import FeatureEncoder, Table
from llpkit.tables.selection import same_in_bags, usable
from llpkit.training.check import check_table


def encode(frame: Any, bags: Bags, stacklevel: int) -> tuple[Tensor, FeatureEncoder]:
    """The features of a data frame ``(R, D)``, and the encoder fitted to it.

    All columns are features, except those that bags and counts came from and those that cannot be
    used, of which a warning gives the reason.
    """
    table = Table.of(frame)
    check_table(bags, len(table))
    rest = [name for name in table.names if name not in bags.columns]
    chosen, notes = usable(table, rest)
    for name in chosen:
        if same_in_bags(table, name, bags):
            notes.append(
                f"column {name!r} is the same in all rows of every bag: it describes the bag, not "
                "the instance; drop it if it is a bag id or a count"
            )
    if not chosen:
        raise LLPError("; ".join(["the data frame has no column to learn from", *notes]))
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=stacklevel)
    encoder = FeatureEncoder.fit(table, chosen)
    return encoder.apply(table), encoder
