"""Comparing an exported file with its model, on rows of the run's data and on random rows."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from llpkit._arrays import Array
from llpkit._text import several
from llpkit.datasets import ImageFiles
from llpkit.errors import LLPError
from llpkit.export.encoder import Feeds, feeds_of
from llpkit.export.source import Source
from llpkit.runs import is_long, load_data, take
from llpkit.tables import FeatureEncoder, Table
from llpkit.tables.columns import NumberColumn, VectorColumn
from llpkit.training import Fitted

TOLERANCE = 1e-5
"""Largest accepted difference between the probabilities of a file and its model."""
_ROWS, _IMAGES = 1000, 16
_OWN_ROWS, _OWN_IMAGES = 10_000, 64
_BATCH = 500
_NEW = "never seen before — ☃"


class ComparedRows(NamedTuple):
    """Rows to compare on: inputs of the file and of the model."""

    feeds: Feeds
    inputs: Any

    def batches(self) -> Iterator["ComparedRows"]:
        """The rows in batches of different sizes; the first is a single row."""
        ends = [0, 1, *range(1 + _BATCH, len(self.inputs), _BATCH), len(self.inputs)]
        for i, j in itertools.pairwise(ends):
            if i < j:
                yield ComparedRows({k: v[i:j] for k, v in self.feeds.items()}, self.inputs[i:j])


Predict = Callable[[ComparedRows], tuple[Array, Array]]
"""Probabilities ``(n, K)`` and labels ``(n,)`` of an exported model."""


@dataclass(frozen=True)
class Compared:
    """The result of a comparison."""

    rows: int
    own_rows: int
    """How many of them come from the run's data or from the caller."""
    difference: float
    """The largest difference of a probability."""


def compare(source: Source, predict: Predict, name: str, dtype: Any, rows: Any = None) -> Compared:
    """Compare a file with its model, and raise an error if they differ.

    Args:
        source: The model.
        predict: The exported model.
        name: The name of its input, unless the inputs are the columns of a table.
        dtype: The type of that input.
        rows: Further inputs to compare on.
    """
    own = [] if rows is None else [_of_caller(source, rows, name, dtype)]
    own += _of_run(source, name, dtype)
    parts = [*own, _random(source, name, dtype)]
    largest = 0.0
    for batch in (batch for part in parts for batch in part.batches()):
        expected = source.predict_proba(batch.inputs)
        p, label = predict(batch)
        if p.shape != expected.shape:
            raise LLPError(
                f"the file returns probabilities of shape {p.shape}, but the model returns "
                f"{expected.shape}"
            )
        gap = np.abs(p - expected)
        largest = max(largest, float(gap.max()))
        if not gap.max() <= TOLERANCE:  # larger, or not a number
            row = int(gap.max(1).argmax())
            raise LLPError(
                f"the file differs from the model by {gap.max():.2g} in probability, more than "
                f"{TOLERANCE:g}: {p[row]} instead of {expected[row]}; no file was written"
            )
        _check_labels(label, expected)
    number, number_own = (sum(len(part.inputs) for part in group) for group in (parts, own))
    return Compared(number, number_own, largest)


def _check_labels(label: Array, expected: Array) -> None:
    """Check labels against probabilities; where two are nearly equal, either label may win."""
    ordered = np.sort(expected, 1)
    clear = ordered[:, -1] - ordered[:, -2] > 2 * TOLERANCE
    wrong = clear & (label != expected.argmax(1))
    if wrong.any():
        raise LLPError(
            f"the file's labels differ from the model's in {several(int(wrong.sum()), 'row')}; "
            "no file was written"
        )


def _of_caller(source: Source, rows: Any, name: str, dtype: Any) -> ComparedRows:
    if source.encoder is None:
        values = np.asarray(rows, dtype)
        return ComparedRows({name: values}, values)
    return _of_table(source, rows if isinstance(rows, Table) else Table.of(rows))


def _of_table(source: Source, table: Table) -> ComparedRows:
    assert source.encoder is not None
    return ComparedRows(feeds_of(source.encoder, table), source.encoder.apply(table))


def _of_run(source: Source, name: str, dtype: Any) -> Iterator[ComparedRows]:
    """Rows of the run's data, if they can still be read."""
    if source.run is None:
        return
    data = source.run.config.data
    try:
        if source.encoder is None:
            inputs = load_data(data, source.run.config.recipe.seed).inputs
            most = _OWN_IMAGES if len(inputs.shape) == 4 else _OWN_ROWS
            first = take(inputs, torch.arange(min(most, len(inputs))))
            values = first.load(range(len(first))) if isinstance(first, ImageFiles) else first
            yield ComparedRows({name: values.numpy().astype(dtype)}, values)
        elif data.table is not None and not is_long(source.run, data):
            table = Table.read(data.table)
            part = Table(table.path, table.data.slice(0, _OWN_ROWS), table.delimiter)
            yield _of_table(source, part)
    except LLPError:  # moved or changed: random rows must do
        return


def _random(source: Source, name: str, dtype: Any) -> ComparedRows:
    """Random rows, including missing values and new categories."""
    random = np.random.default_rng(0)
    if source.encoder is not None:
        return _of_table(source, _random_table(source.encoder, random))
    if isinstance(source.model, Fitted):
        shape = source.model.input_shape
        if dtype == np.uint8:
            values = random.integers(0, 256, (_IMAGES, *shape), dtype)
        else:
            preprocess = source.model.preprocess
            mean, scale = preprocess.mean.cpu().numpy(), preprocess.scale.cpu().numpy()
            number = _IMAGES if len(shape) == 3 else _ROWS
            values = (mean + scale * random.normal(size=(number, *shape))).astype(dtype)
    else:
        values = random.normal(size=(_ROWS, source.estimator.n_features_in_)).astype(dtype)
    return ComparedRows({name: values}, values)


def _random_table(encoder: FeatureEncoder, random: np.random.Generator) -> Table:
    import pyarrow as pa

    columns = {}
    for column in encoder.columns:
        missing = random.random(_ROWS) < 0.1
        if isinstance(column, NumberColumn):
            values = column.mean + column.scale * 2 * random.standard_t(4, _ROWS)
            columns[column.name] = pa.array(values, mask=missing)
        elif isinstance(column, VectorColumn):
            lists = np.array(column.mean) + np.array(column.scale) * random.normal(
                size=(_ROWS, len(column.mean))
            )
            columns[column.name] = pa.array([*lists.astype(np.float32)], mask=missing)
        else:
            words = np.array([*column.levels, _NEW], object)
            chosen = words[random.integers(len(words), size=_ROWS)]
            columns[column.name] = pa.array(chosen, pa.large_string(), mask=missing)
    return Table(Path("random rows"), pa.table(columns))
