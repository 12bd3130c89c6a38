"""Tables of numbers as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from llpkit._package import package

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
    width = max([len(lines[0]), len(title) + 4, *map(len, pairs), 10])
    double, single = "=" * width, "-" * width
    columns = 2 if width >= 60 else 1
    column = (width - 4 * (columns - 1)) // columns
    cells = [name + value.rjust(column - len(name)) for name, value in facts]
    fact_lines = ["    ".join(cells[i : i + columns]) for i in range(0, len(cells), columns)]
    parts = [double, title.center(width).rstrip(), double, *fact_lines]
    parts += [single] * bool(facts)
    parts += [lines[0].rstrip(), single, *(line.rstrip() for line in lines[1:]), double]
    return "\n".join([*parts, *(f"* {note}" for note in notes)])


def interval_heads(level: float) -> tuple[str, str]:
    """The heads of the columns of an interval's ends.

    >>> interval_heads(0.95)
    ('[0.025', '0.975]')
    """
    return f"[{(1 - level) / 2:.3g}", f"{(1 + level) / 2:.3g}]"


def as_records(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """One mapping per row of a table."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def frame(records: Sequence[Mapping[str, Any]]) -> Any:
    """Records as a pandas table."""
    return package("pandas", "pandas").DataFrame(records)
