"""Encoded images in a column of Parquet files, read by row groups, so they may exceed memory.

A row group is a *block*. Training shuffles within a window of blocks at a time (see
:func:`llpkit.training.batches.shuffled`), so a reader needs only those blocks in memory. Bags that
lie within one row group are read once per epoch; a bag that continues in the next row group is
correct, but costs a second read.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit._validation import option, whole
from llpkit.datasets.images import BadImage, ImageFiles, Pixels, Size, read_image
from llpkit.errors import LLPError
from llpkit.files import check_regular
from llpkit.tables import Table
from llpkit.tables.files import parquet_files

_IN_MEMORY = 2**27
"""Bytes of encoded images that a reader keeps, unless there are fewer than two row groups in it."""


class ParquetImages(ImageFiles):
    """Images that stay in Parquet files until they are loaded, one per row.

    Args:
        path: The file; or several with the same columns: a folder of them, or a pattern such as
            ``shards/*.parquet``, in the order of their names.
        column: The column of encoded images (JPEG, PNG, …): binary, or a struct with a field
            ``bytes``.
        size: ``(height, width)`` to resize images to. Without it all must have the size of the
            first readable image.
        channels: 3 for colour, 1 for grey.
        window: Row groups that are shuffled together; by default as many as hold 128 MiB.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        column: str,
        *,
        size: Size | None = None,
        channels: int = 3,
        window: int | None = None,
    ) -> None:
        import pyarrow.parquet as pq

        self.path, self.column = Path(os.path.expanduser(path)), column
        files = parquet_files(self.path)
        lengths: list[int] = []
        self.groups: list[tuple[int, int]] = []  # of every block: its file, its row group there
        total = 0
        for i, file in enumerate(files):
            if not is_image_column(file, column):
                raise LLPError(f"{file} has no column {column!r} of encoded images")
            about = pq.read_metadata(file)
            lengths += [about.row_group(j).num_rows for j in range(about.num_row_groups)]
            self.groups += [(i, j) for j in range(about.num_row_groups)]
            total += _column_bytes(about, column)
        self.starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        number = max(1, len(self.groups))
        if window is None:
            window = max(2, _IN_MEMORY // max(1, total // number))
        self.window = min(whole("window", window), number)
        self._lock, self._process = threading.Lock(), -1
        super().__init__(files, size=size, channels=channels, rows=range(int(self.starts[-1])))

    def _check_length(self) -> None:
        if not len(self):
            raise LLPError(f"{self.path} has no rows; give one row per image")

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        height, width = self.size
        shape = f"{len(self)} images, {self.channels} x {height} x {width}"
        return f"ParquetImages({shape}, {len(self.starts) - 1} row groups)"

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens the file itself.
        return {k: v for k, v in vars(self).items() if k not in ("_lock", "_opened", "_kept")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock, self._process = threading.Lock(), -1

    @cached_property
    def blocks(self) -> Tensor:
        """The row group of every row, int64 ``(R,)``."""
        rows = np.asarray(self.rows, np.int64)
        return torch.from_numpy(np.searchsorted(self.starts, rows, side="right") - 1)

    def select(self, rows: Iterable[int] | Tensor) -> "ParquetImages":
        """Only these rows; messages keep their original row numbers."""
        part = ParquetImages.__new__(ParquetImages)
        part.__setstate__(self.__getstate__())
        vars(part).pop("blocks", None)
        part.rows = np.asarray(self.rows, np.int64)[np.asarray(rows, np.int64)]  # type: ignore[assignment]
        return part

    def _pixels(self, row: int, size: Size | None, remedy: str) -> tuple[str, Pixels]:
        number = int(self.rows[row])
        block = int(np.searchsorted(self.starts, number, side="right")) - 1
        file, group = self.groups[block]
        first = int(self.starts[block - group])  # the first row of its file
        name = f"{self.paths[file]}: row {number - first + 1}, column {self.column!r}"
        encoded = self._block(block)[number - int(self.starts[block])].as_py()
        if encoded is None:
            raise BadImage(f"{name} is empty{remedy}")
        return name, read_image(encoded, name, self.channels, size, remedy=remedy)

    def _block(self, block: int) -> Any:
        """The images of a row group, from memory if it was read recently."""
        with self._lock:
            if self._process != os.getpid():  # a fork must not share the position in the file
                self._opened: tuple[int, Any] = (-1, None)
                self._process = os.getpid()
                self._kept: OrderedDict[int, Any] = OrderedDict()
            if block not in self._kept:
                column = self._read_group(*self.groups[block]).combine_chunks()
                self._kept[block] = column.field("bytes") if hasattr(column, "field") else column
                while len(self._kept) > self.window + 1:  # a batch may touch the next window
                    self._kept.popitem(last=False)
            self._kept.move_to_end(block)
            return self._kept[block]

    def _read_group(self, file: int, group: int) -> Any:
        import pyarrow.parquet as pq

        if self._opened[0] != file:  # one at a time: there may be thousands
            self._opened = file, pq.ParquetFile(self.paths[file])
        return self._opened[1].read_row_group(group, columns=[self.column]).column(0)


def is_image_column(path: Path, column: str) -> bool:
    """Whether a file is Parquet and has a column of encoded images of this name."""
    schema = _schema(path)
    return schema is not None and column in schema.names and _is_encoded(schema.field(column).type)


def table_without_images(path: str | os.PathLike[str], column: str) -> Table:
    """A table without its column of encoded images, which is not read; perhaps in several files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = parquet_files(path)
    if not is_image_column(files[0], column):
        return Table.read(path)
    others = [name for name in pq.read_schema(files[0]).names if name != column]
    tables = []
    for file in files:
        try:
            tables.append(pq.ParquetFile(file).read(columns=others))
            pa.concat_tables([tables[0], tables[-1]])
        except (OSError, pa.ArrowException) as error:
            raise LLPError(f"{file} does not fit the first file, {files[0]}: {error}") from error
    return Table(Path(os.path.expanduser(path)), pa.concat_tables(tables))


def _schema(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        check_regular(path)
        with path.open("rb") as file:
            if file.read(4) != b"PAR1":
                return None
        return pq.ParquetFile(path).schema_arrow
    except (OSError, ValueError, pa.ArrowException):
        return None  # reading the table raises the precise error


def _is_encoded(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):  # as in Hugging Face data sets
        return any(field.name == "bytes" and _is_encoded(field.type) for field in kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _column_bytes(about: Any, column: str) -> int:
    """Bytes of a column in all row groups, from the file's index."""
    total = 0
    for i in range(about.num_row_groups):
        group = about.row_group(i)
        for j in range(group.num_columns):
            chunk = group.column(j)
            if chunk.path_in_schema.split(".")[0] == column:
                total += chunk.total_uncompressed_size
    return total


def write_images(
    path: str | os.PathLike[str],
    images: Iterable[bytes],
    columns: dict[str, Sequence[Any]],
    *,
    bag: str,
    image: str = "image",
    rows: int = 1024,
) -> Path:
    """Write encoded images and other columns to Parquet, whole bags in every row group.

    Args:
        path: The file to write.
        images: The content of image files, one per row, in the order of the columns.
        columns: All other columns, bag and counts among them.
        bag: The column of the bags; rows of a bag must follow each other.
        image: The name for the column of images.
        rows: Rows per row group, more where a bag would be cut.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = np.asarray(columns[bag])
    changes = np.flatnonzero(ids[1:] != ids[:-1]) + 1  # the first rows of all bags but one
    if len(changes) + 1 != len(np.unique(ids)):
        raise LLPError(f"the rows of a bag do not follow each other; sort them by {option('bag')}")
    table = pa.table(columns)
    schema = table.schema.append(pa.field(image, pa.binary()))
    given, start = iter(images), 0
    with pq.ParquetWriter(path, schema) as writer:
        while start < len(ids):
            later = changes[changes >= start + rows]
            stop = int(later[0]) if len(later) else len(ids)
            content = pa.array([next(given) for _ in range(start, stop)], pa.binary())
            writer.write_table(
                table.slice(start, stop - start).append_column(schema.field(image), content)
            )
            start = stop
    return Path(path)
