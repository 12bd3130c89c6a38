"""Arrow IPC files, such as Feather: size-limited, because a small file may unpack to a huge one.

Sizes are read from the headers, because pyarrow unpacks a whole batch at once, and a file may have
only one.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llpkit.errors import LLPError
from llpkit.files import check_unpacked

FILE, STREAM, FEATHER_1 = b"ARROW1", b"\xff\xff\xff\xff", b"FEA1"
"""The first bytes of a file, of a stream, and of the first version of Feather."""


def read_arrow(path: Path, content: bytes) -> Any:
    """A pyarrow table; ``path`` names the file in errors."""
    import pyarrow as pa

    if content.startswith(FEATHER_1):
        raise LLPError(f"{path} is a Feather file of version 1; write it again as version 2")
    if content.startswith(FILE) and not content.endswith(FILE):
        raise LLPError(f"{path} is not a valid Arrow file: its end is missing; write it again")
    buffer = pa.py_buffer(content)
    try:
        # A file is read by its footer, because what precedes it need not be a stream (with polars
        # it is not).
        is_file = content.startswith(FILE)
        messages = _of_file(buffer) if is_file else pa.ipc.MessageReader.open_stream(buffer)
        unpacked = 0
        for message in messages:
            unpacked += _unpacked(message)
            check_unpacked(path, unpacked)
        table = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(buffer).read_all()
        table.validate(full=True)
        table.column_names  # noqa: B018
        return table
    except LLPError:
        raise
    except (pa.ArrowException, OSError, ValueError, struct.error, EOFError) as error:
        raise LLPError(f"{path} is not a valid Arrow file: {error}; write it again") from error


def without_views(table: Any) -> Any:
    """The table with text views as plain text: polars writes views, which few functions support."""
    import pyarrow as pa

    for i, name in enumerate(table.column_names):
        column = table.column(i)
        if pa.types.is_dictionary(column.type) and str(column.type.value_type) == "string_view":
            kind = pa.dictionary(column.type.index_type, pa.large_string(), column.type.ordered)
            parts = [
                pa.DictionaryArray.from_arrays(
                    part.indices, part.dictionary.cast(pa.large_string()), ordered=kind.ordered
                )
                for part in column.chunks
            ]
            table = table.set_column(i, name, pa.chunked_array(parts, kind))
        elif str(column.type) == "string_view":
            table = table.set_column(i, name, column.cast(pa.large_string()))
    return table


def _of_file(buffer: Any) -> Iterator[Any]:
    """The messages that the footer of a file lists: dictionaries and batches of rows."""
    import pyarrow as pa

    end = len(buffer) - len(FILE) - 4  # the footer's length comes after it
    length = struct.unpack_from("<i", buffer[end:].to_pybytes())[0]
    if not 0 < length <= end - len(FILE):
        raise ValueError("its footer is damaged")
    foot = _Head(buffer[end - length : end].to_pybytes())
    for index in (2, 3):  # the fields "dictionaries" and "recordBatches"
        for offset in foot.structs(foot.root, index, 24):
            start, size = foot.number("<q", offset), foot.number("<i", offset + 8)
            size += foot.number("<q", offset + 16)
            if start < 0 or size < 0 or start + size > len(buffer):
                raise ValueError("its footer points beyond the end of the file")
            yield pa.ipc.read_message(buffer[start : start + size])


def _unpacked(message: Any) -> int:
    """The bytes that a message takes in memory, as its header states, or one per row if more."""
    if message.type not in ("record batch", "dictionary"):
        return 0
    head, body = _Head(message.metadata.to_pybytes()), message.body
    batch = head.table(head.root, 2)  # the field "header" of a message
    if message.type == "dictionary":
        batch = head.table(batch, 1)  # its field "data"
    rows = head.field(batch, 0)
    total = 0 if rows is None else head.number("<q", rows)
    compressed = head.field(batch, 3) is not None
    for start, length in head.buffers(batch, 2):
        if compressed and length:
            # A buffer begins with its size before compression, or -1 if it is not compressed.
            size = struct.unpack_from("<q", body[start : start + 8].to_pybytes())[0]
            length = length if size == -1 else size
        if length < 0:
            raise ValueError(f"a buffer has {length} bytes")
        total += length
    return total


class _Head:
    """The header of a message or the footer of a file: a FlatBuffer, which is read only in part."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.root = self.number("<I", 0)

    def number(self, kind: str, offset: int) -> int:
        if offset < 0:
            raise ValueError("the header of a message is damaged")
        return int(struct.unpack_from(kind, self.data, offset)[0])

    def field(self, table: int, index: int) -> int | None:
        """The offset of a field of a table, if the table has it."""
        fields = table - self.number("<i", table)
        if 4 + 2 * index >= self.number("<H", fields):
            return None
        found = self.number("<H", fields + 4 + 2 * index)
        return table + found if found else None

    def table(self, table: int, index: int) -> int:
        """The offset of a table that a field refers to."""
        offset = self.field(table, index)
        if offset is None:
            raise ValueError("the header of a message is damaged")
        return offset + self.number("<I", offset)

    def buffers(self, table: int, index: int) -> list[tuple[int, int]]:
        """Start and length of every buffer."""
        offsets = self.structs(table, index, 16)
        return [(self.number("<q", offset), self.number("<q", offset + 8)) for offset in offsets]

    def structs(self, table: int, index: int, size: int) -> range:
        """The offsets of the entries of a list, each of this many bytes."""
        if self.field(table, index) is None:
            return range(0)
        vector = self.table(table, index)
        return range(vector + 4, vector + 4 + size * self.number("<I", vector), size)
