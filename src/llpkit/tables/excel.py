"""Excel files, read as tables of text: the first sheet, whose first row is the header."""

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

from llpkit._package import package
from llpkit.errors import LLPError
from llpkit.files import check_limit, check_unpacked


def read_excel(path: Path, content: bytes) -> Any:
    """A pyarrow table of text columns; ``path`` names the file in errors."""
    import pyarrow as pa

    openpyxl = package("openpyxl", "excel")
    _check_size(path, content)
    try:
        with warnings.catch_warnings():  # about styles and validations, which are not read
            warnings.simplefilter("ignore")
            book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # they may be wrong, or huge
            rows, cells = [], 0
            for row in sheet.iter_rows(values_only=True):
                cells += len(row)  # a cell far to the right brings many empty ones
                check_unpacked(path, 8 * cells)
                rows.append(list(map(_text, row)))
            book.close()
    except LLPError:
        raise
    except Exception as error:  # openpyxl raises all kinds of errors for damaged files
        raise LLPError(
            f"{path} cannot be read as an Excel file: {error!r}; save it again"
        ) from error
    while rows and not any(rows[-1]):
        rows.pop()
    if not rows:
        raise LLPError(f"{path} is empty: its first sheet has no rows; give a header and rows")
    header, *body = rows
    width = max(map(len, rows))
    columns = [[row[i] if i < len(row) else None for row in body] for i in range(width)]
    names = [(header[i] if i < len(header) else None) or "" for i in range(width)]
    kept = [i for i in range(width) if names[i] or any(columns[i])]
    arrays = [pa.array(columns[i], pa.large_string()) for i in kept]
    return pa.Table.from_arrays(arrays, names=[names[i] for i in kept])


def _check_size(path: Path, content: bytes) -> None:
    """Refuse an archive that unpacks to too much; openpyxl reads no more than is stated here."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise LLPError(
            f"{path} is not an .xlsx file: {error}; save the table as .xlsx or CSV"
        ) from error
    check_limit("LLPKIT_MAX_MEMBERS", len(members), f"{path} has", "files in it")
    check_unpacked(path, sum(member.file_size for member in members))


def _text(value: Any) -> str | None:
    """A cell as it would be in a CSV."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)
