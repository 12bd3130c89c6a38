"""The encoder of a table, from raw columns to features, as ONNX nodes and as a torch module."""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from llpkit.export.graph import OUTPUTS, Graph, Name
from llpkit.tables import FeatureEncoder, Table
from llpkit.tables.columns import CategoryColumn, NumberColumn, VectorColumn
from llpkit.tables.features import Column
from llpkit.tables.parsing import MISSING

Feeds = dict[str, np.ndarray]


def columns_by_input(encoder: FeatureEncoder) -> dict[str, Column]:
    """The columns by the names of their inputs: the columns' names, made unique."""
    columns: dict[str, Column] = {}
    for column in encoder.columns:
        name = column.name or "column"
        while name in columns or name in OUTPUTS:
            name += "_"
        columns[name] = column
    return columns


def feeds_of(encoder: FeatureEncoder, table: Table) -> Feeds:
    """The inputs of a table, one per column.

    Missing numbers and lists are NaN, float64; missing strings are empty.
    """
    feeds = {}
    for name, column in columns_by_input(encoder).items():
        if isinstance(column, NumberColumn):
            values = table.numbers(column.name, decimal_commas=column.decimal_commas)
            feeds[name] = np.asarray(values, np.float64)
        elif isinstance(column, VectorColumn):
            feeds[name] = table.vectors(column.name, len(column.mean)).astype(np.float64)
        else:
            feeds[name] = np.array(table.words(column.name).fill_null("").to_pylist(), object)
    return feeds


def add_encoder(graph: Graph, encoder: FeatureEncoder) -> Name:
    """Add one input per column and return the features, float32 ``(n, D)``."""
    parts: list[Name] = []
    for name, column in columns_by_input(encoder).items():
        if isinstance(column, NumberColumn):
            parts += _number(graph, graph.input(name, np.float64), column)
        elif isinstance(column, VectorColumn):
            shape = (len(column.mean),)
            parts += _vector(graph, graph.input(name, np.float64, shape), column)
        else:
            parts.append(_category(graph, graph.input(name, object), column))
    return graph.add("Concat", *parts, axis=1)


def _number(graph: Graph, x: Name, column: NumberColumn) -> list[Name]:
    missing = graph.add("IsNaN", x)
    return [graph.column(part) for part in _standardised(graph, x, missing, column)]


def _vector(graph: Graph, x: Name, column: VectorColumn) -> list[Name]:
    # A list with a missing entry is missing.
    entries = graph.cast(graph.add("IsNaN", x), np.float32)
    any_missing = graph.add("ReduceMax", entries, graph.constant([1], np.int64), keepdims=1)
    return _standardised(graph, x, graph.cast(any_missing, np.bool_), column)


def _standardised(
    graph: Graph, x: Name, missing: Name, column: NumberColumn | VectorColumn
) -> list[Name]:
    """Standardised values, zero where missing, and an indicator of missing values, if any."""
    # In float64 like the encoder: dates in seconds, for example, need the digits.
    centred = graph.add("Sub", x, graph.constant(column.mean))
    scaled = graph.add("Div", centred, graph.constant(column.scale))
    bounded = graph.add("Clip", scaled, graph.constant(-1e30), graph.constant(1e30))
    value = graph.add("Where", missing, graph.constant(0.0), bounded)
    features = [value, missing] if column.missing else [value]
    return [graph.cast(feature, np.float32) for feature in features]


def _category(graph: Graph, text: Name, column: CategoryColumn) -> Name:
    width, levels = len(column.feature_names), len(column.levels)
    none = width  # beyond the last feature, so all features are zero
    missing = width - 1 if column.missing else none
    positions = dict.fromkeys(_spellings(MISSING), missing)
    positions |= {level: i for i, level in enumerate(column.levels)}
    code = graph.add(
        "LabelEncoder",
        text,
        domain="ai.onnx.ml",
        keys_strings=list(positions),
        values_int64s=list(positions.values()),
        default_int64=levels if column.rare else none,
    )
    hot = graph.add("Equal", graph.column(code), graph.constant(np.arange(width), np.int64))
    return graph.cast(hot, np.float32)


def _spellings(words: Sequence[str]) -> list[str]:
    """These words in every mix of upper and lower case, because ONNX cannot change the case."""
    cases = (itertools.product(*({c.lower(), c.upper()} for c in word)) for word in words)
    return sorted("".join(letters) for word in cases for letters in word)


class ColumnEncoder(nn.Module):
    """The encoder of a table as a module; categories are given as the numbers of their levels."""

    def __init__(self, encoder: FeatureEncoder) -> None:
        super().__init__()
        self.columns = columns_by_input(encoder)
        for i, column in enumerate(encoder.columns):
            if not isinstance(column, CategoryColumn):
                self.register_buffer(f"mean_{i}", torch.tensor(column.mean, dtype=torch.float64))
                self.register_buffer(f"scale_{i}", torch.tensor(column.scale, dtype=torch.float64))

    def forward(self, columns: dict[str, Tensor]) -> Tensor:
        """Features ``(n, D)``, float32, of the columns that :func:`tensors_of` returns."""
        parts: list[Tensor] = []
        for i, (name, column) in enumerate(self.columns.items()):
            x = columns[name]
            if isinstance(column, CategoryColumn):
                levels, width = len(column.levels), len(column.feature_names)
                none = width  # beyond the last feature
                missing = width - 1 if column.missing else none
                other = levels if column.rare else none
                code = torch.where(x < 0, missing, torch.where(x >= levels, other, x))
                parts.append((code[:, None] == torch.arange(width)).float())
                continue
            each = x[:, None] if isinstance(column, NumberColumn) else x
            gone = each.isnan().any(1, keepdim=True)
            scaled = (each - getattr(self, f"mean_{i}")) / getattr(self, f"scale_{i}")
            parts.append(torch.where(gone, 0.0, scaled.clamp(-1e30, 1e30)).float())
            parts += [gone.float()] if column.missing else []
        return torch.cat(parts, 1)


def tensors_of(encoder: FeatureEncoder, feeds: Feeds) -> dict[str, Tensor]:
    """The inputs of :class:`ColumnEncoder`: feeds with levels as numbers.

    Levels are numbered in order; -1 is a missing value, and the number of levels is any other.
    """
    tensors = {}
    for name, column in columns_by_input(encoder).items():
        values = feeds[name]
        if isinstance(column, CategoryColumn):
            number = {level: i for i, level in enumerate(column.levels)}
            other = len(column.levels)
            codes = [-1 if v.lower() in MISSING else number.get(v, other) for v in values]
            values = np.array(codes, np.int64)
        tensors[name] = torch.tensor(values)
    return tensors


def empty_columns(encoder: FeatureEncoder, rows: int) -> dict[str, Tensor]:
    """Inputs of :class:`ColumnEncoder` with this many rows."""
    tensors = {}
    for name, column in columns_by_input(encoder).items():
        shape = (rows, len(column.mean)) if isinstance(column, VectorColumn) else (rows,)
        dtype = torch.int64 if isinstance(column, CategoryColumn) else torch.float64
        tensors[name] = torch.zeros(shape, dtype=dtype)
    return tensors
