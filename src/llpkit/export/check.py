"""Comparing an exported file with its model: on the run's own rows and on made-up ones."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from llpkit._text import several
from llpkit.datasets import ImageFiles
from llpkit.errors import LLPError
from llpkit.export.encoder import Feeds, feeds_of
from llpkit.export.source import Source
from llpkit.runs import is_long, load_data, take
from llpkit.tables import Table
from llpkit.tables.columns import NumberColumn, VectorColumn
from llpkit.training import Fitted

Array = NDArray[Any]
TOLERANCE = 1e-5
"""Largest difference between the probabilities of a file and its model."""
_ROWS, _IMAGES = 1000, 16
_OWN_ROWS, _OWN_IMAGES = 10_000, 64
_BATCH = 500
_NEW = "never seen before — ☃"


class Rows(NamedTuple):
    """Rows to compare on: the inputs of the file, and those of the model."""

    feeds: Feeds
    inputs: Any

    def batches(self) -> Iterator["Rows"]:
        """The rows in batches of different sizes; the first is a single row."""
        ends = [0, 1, *range(1 + _BATCH, len(self.inputs), _BATCH), len(self.inputs)]
        for i, j in itertools.pairwise(ends):
            if i < j:
                yield Rows({k: v[i:j] for k, v in self.feeds.items()}, self.inputs[i:j])


Predict = Callable[[Rows], tuple[Array, Array]]
"""Probabilities ``(n, K)`` and labels ``(n,)`` of an exported model."""


@dataclass(frozen=True)
class Compared:
    """What a comparison found."""

    rows: int
    own_rows: int
    """How many of them are from the run's own data, or were given."""
    difference: float
    """The largest difference of a probability."""


def compare(source: Source, predict: Predict, name: str, dtype: Any, rows: Any = None) -> Compared:
    """Compare a file with its model; raises if they differ.

    Args:
        source: The model.
        predict: The exported model.
        name: Its input, if it is not a table's columns.
        dtype: The type of that input.
        rows: Further inputs to compare on.
    """
    given = [] if rows is None else [_given(source, rows, name, dtype)]
    own = [*given, *_own(source, name, dtype)]
    parts = [*own, _made_up(source, name, dtype)]
    largest = 0.0
    for batch in (batch for part in parts for batch in part.batches()):
        wanted = source.predict_proba(batch.inputs)
        found, label = predict(batch)
        if found.shape != wanted.shape:
            raise LLPError(f"the file gives probabilities {found.shape}, the model {wanted.shape}")
        gap = np.abs(found - wanted)
        largest = max(largest, float(gap.max()))
        if not gap.max() <= TOLERANCE:  # larger, or not a number
            row = int(gap.max(1).argmax())
            raise LLPError(
                f"the file differs from the model by {gap.max():.2g} in probability, more than "
                f"{TOLERANCE:g}: {found[row]} instead of {wanted[row]}; no file was written"
            )
        _check_labels(label, wanted)
    return Compared(_number(parts), _number(own), largest)


def _number(parts: list[Rows]) -> int:
    return sum(len(part.inputs) for part in parts)


def _check_labels(label: Array, wanted: Array) -> None:
    """Labels follow from the probabilities, unless two are as good as equal."""
    ordered = np.sort(wanted, 1)
    clear = ordered[:, -1] - ordered[:, -2] > 2 * TOLERANCE
    wrong = clear & (label != wanted.argmax(1))
    if wrong.any():
        raise LLPError(
            f"the file gives other labels than the model in {several(int(wrong.sum()), 'row')}; "
            "no file was written"
        )


def _given(source: Source, rows: Any, name: str, dtype: Any) -> Rows:
    if source.encoder is None:
        values = np.asarray(rows, dtype)
        return Rows({name: values}, values)
    return _of_table(source, rows if isinstance(rows, Table) else Table.of(rows))


def _of_table(source: Source, table: Table) -> Rows:
    assert source.encoder is not None
    return Rows(feeds_of(source.encoder, table), source.encoder.apply(table))


def _own(source: Source, name: str, dtype: Any) -> Iterator[Rows]:
    """The rows of the run's own data, if they can still be read."""
    if source.run is None:
        return
    data = source.run.config.data
    try:
        if source.encoder is None:
            inputs = load_data(data, source.run.config.recipe.seed).inputs
            most = _OWN_IMAGES if len(inputs.shape) == 4 else _OWN_ROWS
            some = take(inputs, torch.arange(min(most, len(inputs))))
            values = some.load(range(len(some))) if isinstance(some, ImageFiles) else some
            yield Rows({name: values.numpy().astype(dtype)}, values)
        elif data.table is not None and not is_long(source.run, data):
            table = Table.read(data.table)
            part = Table(table.path, table.data.slice(0, _OWN_ROWS), table.delimiter)
            yield _of_table(source, part)
    except LLPError:  # moved or changed: made-up rows must do
        return


def _made_up(source: Source, name: str, dtype: Any) -> Rows:
    """Random rows, with missing values and new categories."""
    random = np.random.default_rng(0)
    if source.encoder is not None:
        return _of_table(source, _made_up_table(source, random))
    if isinstance(source.model, Fitted):
        shape = source.model.input_shape
        if dtype == np.uint8:
            values = random.integers(0, 256, (_IMAGES, *shape), dtype)
        else:
            known = source.model.preprocess
            mean, scale = known.mean.cpu().numpy(), known.scale.cpu().numpy()
            number = _IMAGES if len(shape) == 3 else _ROWS
            values = (mean + scale * random.normal(size=(number, *shape))).astype(dtype)
    else:
        values = random.normal(size=(_ROWS, source.estimator.n_features_in_)).astype(dtype)
    return Rows({name: values}, values)


def _made_up_table(source: Source, random: np.random.Generator) -> Table:
    import pyarrow as pa

    assert source.encoder is not None
    columns = {}
    for column in source.encoder.columns:
        gone = random.random(_ROWS) < 0.1
        if isinstance(column, NumberColumn):
            values = column.mean + column.scale * 2 * random.standard_t(4, _ROWS)
            columns[column.name] = pa.array(values, mask=gone)
        elif isinstance(column, VectorColumn):
            lists = np.array(column.mean) + np.array(column.scale) * random.normal(
                size=(_ROWS, len(column.mean))
            )
            columns[column.name] = pa.array([*lists.astype(np.float32)], mask=gone)
        else:
            words = np.array([*column.levels, _NEW], object)
            chosen = words[random.integers(len(words), size=_ROWS)]
            columns[column.name] = pa.array(chosen, pa.large_string(), mask=gone)
    return Table(Path("made-up rows"), pa.table(columns))
