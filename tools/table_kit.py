"""What the tables of the pages share: the registry, cells, and Markdown."""

import re
from collections.abc import Callable

from llpkit.report.spread import true_minus

Rows = list[list[str]]
TABLES: dict[str, Callable[[], Rows]] = {}


def table(function: Callable[[], Rows]) -> Callable[[], Rows]:
    """Make a function known as a table, by its name with dashes."""
    TABLES[function.__name__.replace("_", "-")] = function
    return function


def signed(value: float) -> str:
    """A difference with its sign."""
    return true_minus(f"{value:+z.1f}")


def code(method: str) -> str:
    """A name in backticks."""
    return f"`{method}`"


def markdown(rows: Rows) -> str:
    """A table whose first column is text and whose other columns are numbers, if they are."""
    head, *below = rows
    columns = list(zip(*below, strict=True))
    numbers = [all(not cell or cell[0] in "0123456789+−–" for cell in col) for col in columns]
    line = "|".join("---:" if number else "---" for number in numbers)
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (head, *below)]
    lines = [re.sub(r"\|  (?=\|)", "| ", each) for each in lines]
    return "\n".join([lines[0], f"|{line}|", *lines[1:]]) + "\n"
