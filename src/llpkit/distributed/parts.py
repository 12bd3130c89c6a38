"""One partition in the form that the engine takes: features in the order of the bags."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit.distributed.partitions import table_of
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.likelihood.classes import as_binary
from llpkit.tables import CountColumns, FeatureEncoder, Table

Array = NDArray[Any]


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
                columns.append(column.to_numpy().astype(_kind(column.type), copy=False))
            except (TypeError, ValueError) as error:
                raise LLPError(
                    f"{name}: column {feature!r} is {column.type}, and features are numbers; "
                    "name the columns to learn from in features, or encode it first"
                ) from error
        return np.stack(columns, 1)


def _kind(kind: Any) -> type[np.floating[Any]]:
    """Float32 for types that it holds exactly, else float64."""
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
    offsets: Tensor  # (B + 1,)
    evidence: Evidence


def group(table: Any, layout: Layout, name: str) -> Grouping:
    """The bags of a partition, with every check that a table in memory gets.

    Whole numbers in a plain column take a short way; whatever is unusual or wrong takes the way of
    tables in memory, which knows all kinds of counts and names the cell that is wrong.
    """
    found = _quickly(table, layout)
    if found is not None:
        return found
    bags = layout.counts.bags(Table(Path(name), table), layout.bag)
    rows = bags.rows.numpy()
    ordered = bool((rows[1:] > rows[:-1]).all())
    evidence = bags.evidence
    if evidence.num_classes == 2:  # one logit per row, as for tables in memory
        evidence = as_binary(evidence, bags.offsets)
    return Grouping(None if ordered else rows, bags.offsets.numpy(), evidence)


def _quickly(table: Any, layout: Layout) -> Grouping | None:
    import pyarrow as pa

    counts = layout.counts
    if counts.names != [counts.count] or counts.table is not None or not len(table):
        return None
    ids, y = (table.column(name).combine_chunks() for name in (layout.bag, counts.names[0]))
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


def build(piece: Any, name: str, layout: Layout) -> Part:
    """Read a partition."""
    table = table_of(piece, layout.columns)
    found = group(table, layout, name)
    X = layout.numbers(table, name)
    X = X if found.order is None else X[found.order]
    return Part(X, torch.from_numpy(found.offsets), found.evidence)


def joined(parts: Sequence[Part]) -> Part:
    """Several parts as one."""
    sizes = torch.cat([part.offsets.diff() for part in parts])
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    evidence = Evidence.concat([part.evidence for part in parts])
    return Part(np.concatenate([part.X for part in parts]), offsets, evidence)
