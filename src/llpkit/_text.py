"""Phrases for messages, rows as CSV, and small HTML tables for notebooks."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

SHOWN = 5
"""Bags that a table of bags shows."""


def several(number: int, noun: str) -> str:
    """A number with its noun.

    >>> several(1, "row"), several(1913, "bag")
    ('1 row', '1,913 bags')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(low: int, high: int) -> str:
    """A range of whole numbers.

    >>> span(3, 3), span(3, 7)
    ('3', '3 to 7')
    """
    return str(low) if low == high else f"{low} to {high}"


def a_few(values: Sequence[Any]) -> str:
    """The first five values, and how many more there are.

    >>> a_few(range(7))
    '0, 1, 2, 3, 4 and 2 more'
    """
    more = f" and {len(values) - 5:,} more" if len(values) > 5 else ""
    return ", ".join(map(repr, values[:5])) + more


def csv_text(records: Iterable[Mapping[str, object]]) -> str:
    """Rows as CSV; a key that some rows lack is empty there.

    >>> print(csv_text([{"a": 1}, {"a": 2, "b": 3}]).replace(chr(13), ""), end="")
    a,b
    1,
    2,3
    """
    rows = list(records)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def html_table(
    title: str,
    facts: Sequence[tuple[str, str]],
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
) -> str:
    """A title, facts in a line, a table whose first column holds names, and notes.

    It adopts the colours of the notebook, light or dark.

    >>> html_table("Bags", [("bags", "2")], [], [])
    '<p><b>Bags</b><br>bags 2</p>'
    """
    about = " · ".join(f"{escape(name)} {escape(value)}" for name, value in facts)
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join(
        "<tr>"
        + f"<th style='text-align:left'>{escape(row[0])}</th>"
        + "".join(f"<td style='text-align:right'>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    remarks = "".join(f"<p><small>{escape(note)}</small></p>" for note in notes)
    return f"<p><b>{escape(title)}</b><br>{about}</p>{table}{remarks}"
