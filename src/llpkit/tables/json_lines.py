"""JSON tables: one object per line, or one array of objects.

Python's parser is used rather than pyarrow's, which a deeply nested value crashes.
"""

import json
from pathlib import Path
from typing import Any

from llpkit.errors import LLPError
from llpkit.tables.parsing import half_character


def read_json(path: Path, content: bytes) -> Any:
    """A pyarrow table; ``path`` names the file in errors."""
    import pyarrow as pa

    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LLPError(f"{path} is not UTF-8; save the table as UTF-8") from error
    rows = _rows(path, text)
    if not rows:
        raise LLPError(f"{path} is empty; give one object per line")
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def _rows(path: Path, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if text.lstrip().startswith("["):
        for i, row in enumerate(_parsed(path, "", text), 1):
            found.append(_checked(f"{path}: entry {i}", row))
        return found
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"line {number} of "
            found.append(_checked(f"{path}: line {number}", _parsed(path, place, line)))
    return found


def _parsed(path: Path, place: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise LLPError(
            f"{place}{path} is not JSON: {error}; give one object per line, or an array of objects"
        ) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, in which every name must be new: Python would keep the last of two values."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice")
    return found


def _checked(place: str, row: Any) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise LLPError(f'{place} is not an object; give one per row, such as {{"age": 30}}')
    if (half := half_character(row)) is not None:
        raise LLPError(f"{place}: {half!r} has an unpaired surrogate; correct it, or remove it")
    return row


def _column(values: list[Any]) -> Any:
    """A pyarrow array: numbers, text or lists of them; as text where the types differ."""
    import pyarrow as pa

    nested = any(isinstance(v, dict) or (isinstance(v, list) and _is_deep(v)) for v in values)
    if not nested:
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError, TypeError):
            pass
    return pa.array(
        [v if v is None or isinstance(v, str) else json.dumps(v) for v in values], pa.string()
    )


def _is_deep(value: list[Any]) -> bool:
    return any(isinstance(entry, list | dict) for entry in value)
