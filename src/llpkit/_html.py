"""Small tables as HTML, for notebooks. They take the colours of the notebook, light or dark."""

from collections.abc import Sequence
from html import escape

SHOWN = 5
"""Bags that a table of them shows."""


def html_table(
    title: str,
    facts: Sequence[tuple[str, str]],
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
) -> str:
    """A title, facts in a line, a table whose first column holds names, and notes.

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
