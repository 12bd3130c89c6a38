"""CSV files: reading them as tables of text, explaining errors in them, and writing them."""

import contextlib
import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from llpkit._text import several
from llpkit.errors import LLPError

_BLOCK = 2**25
_MANY = 20
"""A quoted value with at least this many lines that look like rows must have an unclosed quotation
mark; one with fewer may be prose, which has commas too."""


def read_csv(path: Path, content: bytes) -> tuple[Any, str]:
    """A pyarrow table of text columns, and the separator; ``path`` names the file in errors."""
    import pyarrow as pa

    start = content[:4096]
    if not start.strip() and not content.strip():
        raise LLPError(f"{path} is empty; give a header line and one row per instance")
    if b"\0" in start:
        raise LLPError(
            f"{path} is not a CSV: it starts with {content[:8]!r}; save the table as CSV in UTF-8 "
            "or as Parquet"
        )
    if not content.endswith((b"\n", b"\r")):
        content += b"\n"  # pyarrow reads a lone header only if its line is complete
    # Separators inside quotation marks do not count.
    bare = re.sub(rb'"[^"]*"', b"", start).strip(b" \r\n") or start
    header = bare.splitlines()[0].decode("latin-1")
    delimiter = max(",;\t", key=header.count)
    if delimiter not in header and "|" in header:  # column names may contain it too
        delimiter = "|"
    width = header.count(delimiter) + 1
    try:
        table = _text_columns(content, delimiter)
    except (pa.ArrowException, ValueError) as error:
        _check_encoding(path, content)
        _check_quotes(path, content, delimiter, width)
        _check_widths(path, content, delimiter)
        raise LLPError(f"{path} cannot be read as a CSV: {error}") from error
    # More lines than rows, or an odd number of marks: a value spans lines, or the last one never
    # ends, perhaps because a quotation mark is missing.
    marks = content.count(b'"')
    if marks % 2 or (marks and content.count(b"\n") > len(table) + 1):
        _check_quotes(path, content, delimiter, width)
    return table, delimiter


def lines_of(content: bytes, delimiter: str) -> list[int]:
    """The line, counted from 1, on which each row begins; only up to the first error."""
    lines: list[int] = []
    with contextlib.suppress(csv.Error, ValueError):
        text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="")
        reader, begins = csv.reader(text, delimiter=delimiter), 1
        for values in reader:
            if values:
                lines.append(begins)
            begins = reader.line_num + 1
    return lines[1:]  # the first is the header


def row_name(row: int, lines: Sequence[int]) -> str:
    """How messages name a row of a file, counted from 0, given the lines on which rows begin."""
    line = lines[row] if row < len(lines) else row + 2
    more = "" if line == row + 2 else f", line {line} of the file"
    return f"row {row + 1} (header not counted{more})"


def _text_columns(content: bytes, delimiter: str, wrong: Callable[[Any], str] | None = None) -> Any:
    """A table of text columns; ``wrong`` is called with a row of the wrong length."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    threads = wrong is None  # pyarrow numbers rows only without threads
    parsing = arrow_csv.ParseOptions(
        delimiter=delimiter, newlines_in_values=True, invalid_row_handler=wrong
    )
    reading = arrow_csv.ReadOptions(use_threads=threads)
    # Read the names first, so that all columns can then be read as text.
    with arrow_csv.open_csv(pa.BufferReader(content), reading, parsing) as stream:
        names = stream.schema.names
    reading = arrow_csv.ReadOptions(use_threads=threads, block_size=_BLOCK)
    converting = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    return arrow_csv.read_csv(pa.BufferReader(content), reading, parsing, converting)


def _check_encoding(path: Path, content: bytes) -> None:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise LLPError(
            f"{path} is not UTF-8: byte 0x{content[error.start]:02x} in line {line}; save the "
            "table as UTF-8"
        ) from error


def _check_quotes(path: Path, content: bytes, delimiter: str, width: int) -> None:
    """Refuse a quotation mark that turns several rows into one value."""
    mark = re.escape(delimiter.encode())
    # The end of a value is matched by lookahead only, because it also begins the next value.
    quoted = (
        rb'(?:\A(?:\xef\xbb\xbf)?|[\r\n%b])"([^"]*(?:""[^"]*)*)("?)(?:(?=( *(?:[\r\n%b]|\Z)))|)'
    )
    for found in re.finditer(quoted % (mark, mark), content):
        value, closed, ended = found.groups()
        if b"\n" not in value:
            continue
        between = value.split(b"\n")[1:-1]
        rows = sum(line.count(delimiter.encode()) == width - 1 for line in between)
        if closed and ended is not None and (len(between) < _MANY or rows < 0.8 * len(between)):
            continue
        first = content.count(b"\n", 0, found.start(1)) + 1
        where = f"{path}: a quotation mark is opened in line {first} and"
        if not closed:
            raise LLPError(f"{where} never closed; close it, or remove it")
        last = first + value.count(b"\n")
        fault = "the lines between look like rows" if ended is not None else "inside a value"
        raise LLPError(f"{where} closed only in line {last}, {fault}; close it, or remove it")


def _check_widths(path: Path, content: bytes, delimiter: str) -> None:
    import pyarrow as pa

    wrong: list[Any] = []

    def stop(row: Any) -> str:
        wrong.append(row)
        return "error"

    with contextlib.suppress(pa.ArrowException, ValueError):
        _text_columns(content, delimiter, stop)
    if wrong:
        row = wrong[0]  # pyarrow counts the header as row 1
        raise LLPError(
            f"{path}: {row_name(row.number - 2, lines_of(content, delimiter))} has "
            f"{several(row.actual_columns, 'value')} but the header has "
            f"{several(row.expected_columns, 'column')}; the row begins {row.text[:40]!r}; check "
            "its separators and quotation marks, and that the file is complete"
        )


def write_csv(data: Any, path: Path) -> None:
    """Write a CSV like pyarrow, but with quotation marks only where needed, and lists as JSON."""
    with path.open("w", encoding="utf-8", newline="") as file:
        # csv.writer does not quote a semicolon, which a reader may take for the separator.
        file.write(",".join(map(_quoted, data.column_names)) + "\n")
        writer = csv.writer(_ShortEnds(file))
        for batch in data.to_batches(max_chunksize=10**5):
            columns = [_texts(column) for column in batch.columns]
            writer.writerows(zip(*columns, strict=True))


def _texts(column: Any) -> list[str | None]:
    import pyarrow as pa

    if pa.types.is_nested(column.type) and not pa.types.is_dictionary(column.type):
        values = column.to_pylist()
        return [None if value is None else json.dumps(value, default=str) for value in values]
    texts: list[str | None] = column.cast(pa.large_string()).to_pylist()
    return texts


def _quoted(name: str) -> str:
    """A name in the header, quoted if it contains a possible separator."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"' if not name or re.search('[,;|\t"\r\n\ufeff]', name) else name


class _ShortEnds:
    r"""Ends lines with ``\n``.

    Before Python 3.13, ``csv.writer`` quotes only its own line ends. It therefore has to write
    ``\r\n``, or a bare ``\r`` in a cell would begin a new row.
    """

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def write(self, row: str) -> None:
        self.file.write(row[:-2] + "\n")
