"""Parsing text as numbers, including decimal commas."""

import contextlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from llpkit._arrays import Array

MISSING = ("", "?", "na", "n/a", "#n/a", "nan", "none", "null")
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_DECIMAL_COMMA = r"^[+-]?\d+(,\d+)?([eE][+-]?\d+)?$"
# Numbers as people write them: 1,311.5; then 30,5 or 1.311,5; 1 311 or 1'311,5; $30 or 30 %.
_THOUSANDS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?$"
_COMMAS = rf"^[+-]?\d+,\d+([eE][+-]?\d+)?$|{_THOUSANDS}|^[+-]?\d{{1,3}}(\.\d{{3}})+,\d+$"
_SPACES = "^[+-]?\\d{1,3}([ '\u00a0\u2009\u202f]\\d{3})+([.,]\\d+)?$"
_MONEY = "[$\u20ac\u00a3\u00a5]"
_SIGNS = rf"^[+-]?{_MONEY} ?[+-]?\d[\d.,]*$|^[+-]?\d[\d.,]*\s?(%|{_MONEY})$"
_FORMATTED = f"{_COMMAS}|{_SPACES}|{_SIGNS}"
PLAIN_NUMBERS = "write 1311 or 30.5, not 1,311, 30,5 or 30 %"
"""The remedy for numbers with commas, spaces, percent or currency signs."""


class NotNumbers(NamedTuple):
    """Values of a column that are not finite numbers: the first one, and their number."""

    row: int
    written: str
    total: int


class Parsed(NamedTuple):
    """A column as numbers; NaN if a value is missing or not a finite number."""

    values: Array
    bad: NotNumbers | None = None
    decimal_comma: str | None = None
    """A value with a decimal comma as written, if the column was read with decimal commas."""


def parse(column: Any, words: Callable[[], Any], decimal_commas: bool, likely: bool) -> Parsed:
    """A pyarrow column as float64.

    Args:
        column: The raw column.
        words: Returns the column as text, null where a value is missing.
        decimal_commas: Whether commas are known to be decimal commas.
        likely: Whether commas are decimal if all values can be read that way, because the columns
            are separated by another character.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if any(test(kind) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)):
        values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return _finite(values, np.isinf(values), lambda i: str(values[i]))
    if pa.types.is_large_string(kind):
        with contextlib.suppress(pa.ArrowInvalid):  # the fast path: most columns are plain numbers
            values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
            if np.isfinite(values).all():
                return Parsed(values)
    text, comma = words(), None
    try:
        numbers = text.cast(pa.float64())
    except pa.ArrowInvalid:
        if decimal_commas or likely:
            comma = _decimal_comma(text, decimal_commas)
        if comma is not None:
            text = pc.replace_substring(text, ",", ".")
        numeric = pc.match_substring_regex(text, _NUMBER)
        # Other strings become null here and are reported by the caller.
        numbers = pc.if_else(numeric, text, None).cast(pa.float64())
    values = numbers.to_numpy(zero_copy_only=False)
    given = text.is_valid().to_numpy(zero_copy_only=False)
    found = _finite(values, given & ~np.isfinite(values), lambda i: text[i].as_py())
    return found._replace(decimal_comma=comma)


def _finite(values: Array, bad: Array, written: Callable[[int], str]) -> Parsed:
    if not bad.any():
        return Parsed(values)
    first = int(bad.argmax())
    return Parsed(np.where(bad, np.nan, values), NotNumbers(first, written(first), int(bad.sum())))


def _decimal_comma(text: Any, known: bool) -> str | None:
    """The first value that must have a decimal comma, if all values can be read with one.

    If commas are known to be decimal, the first value with a comma.
    """
    import pyarrow.compute as pc

    if not pc.all(pc.match_substring_regex(text, _DECIMAL_COMMA)).as_py():
        return None
    comma = pc.match_substring(text, ",")
    thousands = pc.match_substring_regex(text, _THOUSANDS)
    sure = (comma if known else pc.and_not(comma, thousands)).fill_null(False)
    row = pc.index(sure, True).as_py()
    return None if row < 0 else text[row].as_py()


def formatted(text: Any) -> Array:
    """Which of these strings are numbers with commas, spaces or signs, bool ``(R,)``."""
    import pyarrow.compute as pc

    found = pc.match_substring_regex(text, _FORMATTED).fill_null(False)
    mask: Array = found.to_numpy(zero_copy_only=False)
    return mask


def is_formatted(text: str) -> bool:
    """Whether a text is a number with commas, spaces or signs."""
    return re.match(_FORMATTED, text) is not None


def half_character(value: Any) -> str | None:
    r"""A text in a value, or in its entries, with half a surrogate pair, which no file can hold.

    >>> half_character({"a": ["b", "\ud800"]})
    '\ud800'
    """
    if isinstance(value, str):
        # Almost all text is plain, which is quick to see.
        return value if not value.isascii() and re.search("[\ud800-\udfff]", value) else None
    if isinstance(value, dict):
        value = [*value, *value.values()]
    entries = value if isinstance(value, list | tuple) else ()
    return next(filter(None, map(half_character, entries)), None)
