"""The partitions of a table that need not fit into memory: Parquet files or Dask collections."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from llpkit.errors import LLPError
from llpkit.tables import CountColumns
from llpkit.tables.files import parquet_files

ROWS_PER_PARTITION = 500_000
"""Larger Parquet files are read as several partitions, of whole row groups."""


INDEX = "__index_level_"
"""How pandas names the index of a frame in a file, which is not a column of the table."""


@dataclass(frozen=True)
class Partitions:
    """Where the rows are: one piece and one name per partition.

    A piece is a :class:`RowGroups`, or a Dask object that becomes a table when it is computed.
    """

    pieces: Sequence[Any]
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.pieces)


class RowGroups:
    """Some row groups of a Parquet file, read where they are needed."""

    def __init__(self, path: str, groups: Sequence[int]) -> None:
        self.path = path
        self.groups = list(groups)

    def read(self, columns: Sequence[str] | None = None) -> Any:
        """A ``pyarrow.Table`` of these columns, without any that the file lacks."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self.path) as file:
                wanted = columns and [c for c in columns if c in file.schema_arrow.names]
                return file.read_row_groups(self.groups, columns=wanted, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise LLPError(f"{self.path} cannot be read: {error}; write it again") from error


def table_of(piece: Any, columns: Sequence[str] | None = None) -> Any:
    """The rows of a partition as a ``pyarrow.Table``; Dask has computed its own pieces before."""
    import pyarrow as pa

    if isinstance(piece, RowGroups):
        return piece.read(columns)
    if isinstance(piece, pa.Table):
        return piece
    return pa.Table.from_pandas(piece, preserve_index=False)


def parquet(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Partitions:
    """The partitions of Parquet files: a path, a folder, a pattern such as ``data/*.parquet``.

    A file is one partition, or several if it has more than :data:`ROWS_PER_PARTITION` rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    entries = [files] if isinstance(files, str | os.PathLike) else files
    pieces: list[Any] = []
    names: list[str] = []
    for path in map(str, chain.from_iterable(map(parquet_files, entries))):
        try:
            with pq.ParquetFile(path) as file:
                about = file.metadata
                sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
        except FileNotFoundError as error:
            raise LLPError(
                f"{path}: there is no such Parquet file; check the path or the pattern"
            ) from error
        except (pa.ArrowException, OSError) as error:
            raise LLPError(
                f"{path} is not a valid Parquet file: {error}; write it again"
            ) from error
        runs = _runs(sizes)
        for groups in runs:
            part = "" if len(runs) == 1 else f", row groups {groups[0]} to {groups[-1]}"
            names.append(f"partition {len(names)} ({path}{part})")
            pieces.append(RowGroups(path, groups))
    return Partitions(pieces, names)


def _runs(sizes: Sequence[int]) -> list[list[int]]:
    """Consecutive row groups with at most :data:`ROWS_PER_PARTITION` rows together."""
    runs: list[list[int]] = []
    rows = 0
    for group, size in enumerate(sizes):
        if not runs or rows + size > ROWS_PER_PARTITION:
            runs.append([])
            rows = 0
        runs[-1].append(group)
        rows += size
    return runs or [[]]


def frame_partitions(frame: Any) -> Partitions:
    """The partitions of a Dask dataframe."""
    pieces = frame.to_delayed()
    return Partitions(pieces, [f"partition {i}" for i in range(len(pieces))])


def array_partitions(X: Any, bag: Any, count: Any) -> tuple[Partitions, str, CountColumns]:
    """The chunks of Dask arrays ``(N, D)``, ``(N,)`` and ``(N,)`` or ``(N, K)``, as tables."""
    import dask

    for name, array in (("bag", bag), ("count", count)):
        if getattr(array, "chunks", None) is None:
            raise LLPError(f"{name} is a {type(array).__name__}; give a Dask array, as for X")
        if array.chunks[0] != X.chunks[0]:
            raise LLPError(
                f"{name} has chunks {array.chunks[0][:3]}… along the rows but X has "
                f"{X.chunks[0][:3]}…; rechunk them alike"
            )
    # One chunk per partition in every direction but that of the rows.
    blocks = [array.rechunk(dict.fromkeys(range(1, array.ndim), -1)) for array in (X, bag, count)]
    pieces = [
        dask.delayed(_as_table)(*parts)
        for parts in zip(*(block.to_delayed().ravel() for block in blocks), strict=True)
    ]
    classes = [f"count {k}" for k in range(count.shape[1])] if count.ndim == 2 else "count"
    names = [f"partition {i}" for i in range(len(pieces))]
    return Partitions(pieces, names), "bag", CountColumns(classes)


def _as_table(X: Any, bag: Any, count: Any) -> Any:
    import pyarrow as pa

    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])} | {"bag": bag}
    if count.ndim == 1:
        return pa.table(columns | {"count": count})
    return pa.table(columns | {f"count {k}": count[:, k] for k in range(count.shape[1])})


def repartition_by_bag(frame: Any, bag: str, npartitions: int | None = None) -> Any:
    """A Dask dataframe in which every bag is in one partition, by a shuffle on the bag column.

    A fit rejects partitions without rows: ask for fewer if there are few bags. Shuffling
    moves every row once. If the result is needed more than once, as in a fit, write it
    with ``to_parquet`` or ``persist`` it first.

    Args:
        frame: The Dask dataframe.
        bag: The column of bag ids.
        npartitions: Number of partitions; by default as many as before.

    >>> import dask.dataframe as dd, pandas as pd
    >>> frame = dd.from_pandas(pd.DataFrame({"bag": [1, 2, 1, 2]}), npartitions=2)
    >>> whole = repartition_by_bag(frame, "bag")
    >>> sum(whole.map_partitions(lambda part: part["bag"].nunique()).compute())
    2
    """
    if bag not in frame.columns:
        raise LLPError(
            f"the dataframe has no column {bag!r}; its columns are {list(frame.columns)}"
        )
    return frame.shuffle(on=bag, npartitions=npartitions or frame.npartitions)
