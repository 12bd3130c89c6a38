"""Table files: format and content, size-limited so that a small file cannot fill the memory."""

import base64
import glob
import os
from pathlib import Path
from typing import Any

from llpkit.errors import LLPError
from llpkit.files import check_regular, check_unpacked

PARQUET = (".parquet", ".pq")
ARROW = (".feather", ".arrow", ".ipc")
JSON = (".jsonl", ".ndjson", ".json")
EXCEL = (".xlsx", ".xlsm")
COMPRESSED = (".gz", ".bz2", ".zst")
TABLES = (".csv", ".tsv", ".txt", *PARQUET, *ARROW, *JSON, *EXCEL, *COMPRESSED)
"""How the names of tables end."""
FORMATS = "CSV, Parquet, Feather, JSON lines or Excel"


def ending(file: Path) -> str:
    """The end of a file's name in lower case, without that of its compression.

    >>> ending(Path("survey.jsonl.gz"))
    '.jsonl'
    """
    last = file.suffix.lower()
    return file.with_suffix("").suffix.lower() if last in COMPRESSED else last


def content(file: Path) -> bytes:
    """The bytes of a file, unpacked if it is compressed."""
    import pyarrow as pa

    check_regular(file)

    def opened() -> Any:
        return pa.input_stream(str(file), compression="detect")

    unpacked = 0
    with opened() as stream:  # a first pass measures only, so a zip bomb never fills the memory
        if not isinstance(stream, pa.CompressedInputStream):
            return bytes(stream.read())
        while part := stream.read(2**20):
            unpacked += len(part)
            check_unpacked(file, unpacked)
    with opened() as stream:
        return bytes(stream.read(unpacked))


def parquet_files(path: str | os.PathLike[str]) -> list[Path]:
    """The Parquet files of a folder or of a pattern such as ``data/*.parquet``, or this file."""
    file = Path(os.path.expanduser(path))
    if file.is_dir():
        files = sorted(file.glob("*.parquet"))
    elif file.exists() or not set("*?[") & set(str(file)):
        return [file]
    else:
        files = sorted(map(Path, glob.glob(str(file))))
    if not files:
        raise LLPError(f"{path}: there is no such Parquet file; check the path or the pattern")
    return files


def read_parquet(path: Path, content: bytes) -> Any:
    """A pyarrow table; ``path`` names the file in errors."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source = pq.ParquetFile(pa.BufferReader(content))
        unpacked = 0
        for batch in source.iter_batches():  # measured first, as above
            unpacked += batch.nbytes
            check_unpacked(path, unpacked)
        table = pa.Table.from_batches(list(source.iter_batches()), source.schema_arrow)
        table.validate(full=True)  # damage may show only when text is decoded
        table.column_names  # noqa: B018
        return _with_categories(table, (source.metadata.metadata or {}).get(b"ARROW:schema"))
    except LLPError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise LLPError(f"{path} is not a valid Parquet file: {error}; write it again") from error


def _with_categories(table: Any, schema: bytes | None) -> Any:
    """The table with its categories of numbers, of which a Parquet file keeps only the schema."""
    import pyarrow as pa

    if schema is None:
        return table
    written = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))
    for i, name in enumerate(table.column_names):
        index = written.get_field_index(name)
        if index >= 0 and pa.types.is_dictionary(written.field(index).type):
            column = table.column(i)
            if not pa.types.is_dictionary(column.type):
                table = table.set_column(i, name, column.dictionary_encode())
    return table
