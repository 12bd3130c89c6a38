"""One partition in the form that the engine takes: features in the order of the bags."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from llpkit._arrays import Array
from llpkit.bags import Bags
from llpkit.distributed.partitions import table_of
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.likelihood.classes import as_binary
from llpkit.tables import CountColumns, FeatureEncoder, Table


@dataclass(frozen=True)
class Layout:
    """Which columns hold what.

    Args:
        bag: The column of bag ids.
        counts: The columns of counts.
        features: Columns of numbers, or an encoder for columns of any kind.
    """

    bag: str
    counts: CountColumns
    features: tuple[str, ...] | FeatureEncoder

    @property
    def feature_columns(self) -> list[str]:
        """The columns that are learned from."""
        if isinstance(self.features, FeatureEncoder):
            return [column.name for column in self.features.columns]
        return list(self.features)

    @property
    def columns(self) -> list[str]:
        """All columns that are read."""
        return [self.bag, *self.counts.names, *self.feature_columns]

    def numbers(self, table: Any, name: str) -> Array:
        """The features of all rows, ``(n, D)``; ``name`` is how errors name the partition."""
        if isinstance(self.features, FeatureEncoder):
            return self.features.apply(Table(Path(name), table)).numpy()
        columns = []
        for feature in self.features:
            column = table.column(feature)
            try:
                columns.append(column.to_numpy().astype(_float_type(column.type), copy=False))
            except (TypeError, ValueError) as error:
                raise LLPError(
                    f"{name}: column {feature!r} is {column.type}, but features must be numbers; "
                    "name the columns to learn from in features, or encode it first"
                ) from error
        return np.stack(columns, 1)


def _float_type(kind: Any) -> type[np.floating[Any]]:
    """Float32 for types that it represents exactly, else float64."""
    import pyarrow as pa

    small = (pa.float16(), pa.float32(), pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.bool_())
    return np.float32 if kind in small else np.float64


class Grouping(NamedTuple):
    """The bags of one partition."""

    order: Array | None  # (n,) rows in the order of the bags; None if they are in it already
    offsets: Array  # (B + 1,)
    evidence: Evidence


class Part(NamedTuple):
    """One partition: rows in the order of its bags."""

    X: Array  # (n, D)
    bags: Bags


def group(table: Any, layout: Layout, name: str) -> Grouping:
    """The bags of a partition, with every check that a table in memory gets.

    Integers in plain columns take a fast path. Anything unusual or wrong is left to the code for
    tables in memory, which reads all kinds of counts and names the wrong cell.
    """
    plain = _plain_grouping(table, layout)
    if plain is not None:
        return plain
    bags = layout.counts.bags(Table(Path(name), table), layout.bag)
    rows = bags.rows.numpy()
    ordered = bool((rows[1:] > rows[:-1]).all())
    evidence = bags.evidence
    if evidence.num_classes == 2:  # one logit per row, as for tables in memory
        evidence = as_binary(evidence, bags.offsets)
    return Grouping(None if ordered else rows, bags.offsets.numpy(), evidence)


def _plain_grouping(table: Any, layout: Layout) -> Grouping | None:
    """The bags if ids and counts are in plain columns and valid, else ``None``."""
    import pyarrow as pa

    counts = layout.counts
    simple = counts.counts_table is None and replace(counts, class_names=None) == CountColumns(
        counts.count
    )
    if not simple or not isinstance(counts.count, str) or not len(table):
        return None
    ids, y = (table.column(name).combine_chunks() for name in (layout.bag, counts.count))
    plain = pa.types.is_integer(ids.type) or pa.types.is_string(ids.type)
    plain = plain or pa.types.is_large_string(ids.type)
    if ids.null_count or y.null_count or not plain or not pa.types.is_integer(y.type):
        return None
    encoded = ids.dictionary_encode()
    # The dictionary is in order of appearance: bags are contiguous if the codes never fall.
    codes = encoded.indices.to_numpy().astype(np.int64)
    if encoded.type.value_type != pa.int64() and "" in encoded.dictionary.to_pylist():
        return None
    sizes = np.bincount(codes)
    offsets = np.append(0, np.cumsum(sizes))
    order = None if (codes[1:] >= codes[:-1]).all() else np.argsort(codes, kind="stable")
    values = y.to_numpy().astype(np.int64)
    if order is not None:
        values = values[order]
    first = values[offsets[:-1]]
    if (values != np.repeat(first, sizes)).any() or (first < 0).any() or (first > sizes).any():
        return None
    return Grouping(order, offsets, Evidence.exact(first))


def read_part(piece: Any, name: str, layout: Layout) -> Part:
    """Read a partition; ``name`` is how errors name it."""
    table = table_of(piece, layout.columns)
    grouping = group(table, layout, name)
    X = layout.numbers(table, name)
    X = X if grouping.order is None else X[grouping.order]
    return Part(X, Bags(grouping.offsets, grouping.evidence))
