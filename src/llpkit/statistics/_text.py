"""Tables of numbers as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from llpkit.errors import LLPError

Facts = Sequence[tuple[str, str]]


def text_table(
    title: str,
    facts: Facts,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
) -> str:
    """A title, facts in two columns, a table whose first column holds names, and notes.

    >>> print(text_table("Title", [("Bags", "3")], ["", "coef"], [["age", "0.5"]]))
    ==========
      Title
    ==========
    Bags     3
    ----------
          coef
    ----------
    age    0.5
    ==========
    """
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (heads, *rows)
    ]
    pairs = [f"{name}  {value}" for name, value in facts]
    wide = max([len(lines[0]), len(title) + 4, *map(len, pairs), 10])
    double, single = "=" * wide, "-" * wide
    two = 2 if wide >= 60 else 1
    column = (wide - 4 * (two - 1)) // two
    cells = [name + value.rjust(column - len(name)) for name, value in facts]
    shown = ["    ".join(cells[i : i + two]) for i in range(0, len(cells), two)]
    parts = [double, title.center(wide).rstrip(), double, *shown]
    parts += [single] * bool(shown)
    parts += [lines[0].rstrip(), single, *(line.rstrip() for line in lines[1:]), double]
    return "\n".join([*parts, *(f"* {note}" for note in notes)])


def as_records(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """One mapping per row of a table."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def frame(records: Sequence[Mapping[str, Any]]) -> Any:
    """Records as a pandas table."""
    try:
        import pandas as pd
    except ImportError as error:
        raise LLPError("a table needs the package pandas; install it, or use records()") from error
    return pd.DataFrame(records)
