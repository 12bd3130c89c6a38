"""Arrow IPC files, which Feather files are: bounded, because a small file may unpack to much."""

import struct
from pathlib import Path
from typing import Any

from llpkit._limits import check_unpacked
from llpkit.errors import LLPError

FILE, STREAM, FEATHER_1 = b"ARROW1", b"\xff\xff\xff\xff", b"FEA1"
"""The first bytes of a file, of a stream, and of the first version of Feather."""


def read_arrow(path: Path, content: bytes) -> Any:
    """A pyarrow table; ``path`` names the file in errors."""
    import pyarrow as pa

    if content.startswith(FEATHER_1):
        raise LLPError(f"{path} is a Feather file of version 1; write it again as version 2")
    if content.startswith(FILE) and not content.endswith(FILE):
        raise LLPError(f"{path} is not a valid Arrow file: its end is missing; write it again")
    # A file is a stream with a head and a foot. The foot, which may point anywhere, is not used.
    stream = pa.py_buffer(content)[8 if content.startswith(FILE) else 0 :]
    try:
        unpacked = 0
        for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(stream)):
            unpacked += _unpacked(message)
            check_unpacked(path, unpacked)
        table = pa.ipc.open_stream(pa.BufferReader(stream)).read_all()
        table.validate(full=True)
        table.column_names  # noqa: B018
        return table
    except LLPError:
        raise
    except (pa.ArrowException, OSError, ValueError, struct.error, EOFError) as error:
        raise LLPError(f"{path} is not a valid Arrow file: {error}; write it again") from error


def _unpacked(message: Any) -> int:
    """The bytes that a message takes in memory, which its head states, or one per row if more."""
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
    """The head of a message: a FlatBuffer, of which only a few numbers are needed."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.root = self.number("<I", 0)

    def number(self, kind: str, place: int) -> int:
        if place < 0:
            raise ValueError("the head of a message is damaged")
        return int(struct.unpack_from(kind, self.data, place)[0])

    def field(self, table: int, index: int) -> int | None:
        """The place of a field of a table, if the table has it."""
        fields = table - self.number("<i", table)
        if 4 + 2 * index >= self.number("<H", fields):
            return None
        offset = self.number("<H", fields + 4 + 2 * index)
        return table + offset if offset else None

    def table(self, table: int, index: int) -> int:
        """The place of a table that a field refers to."""
        place = self.field(table, index)
        if place is None:
            raise ValueError("the head of a message is damaged")
        return place + self.number("<I", place)

    def buffers(self, table: int, index: int) -> list[tuple[int, int]]:
        """Start and length of every buffer."""
        if self.field(table, index) is None:
            return []
        vector = self.table(table, index)
        places = range(vector + 4, vector + 4 + 16 * self.number("<I", vector), 16)
        return [(self.number("<q", place), self.number("<q", place + 8)) for place in places]
