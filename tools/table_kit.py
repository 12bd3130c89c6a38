"""What the tables of the pages share: the registry, records of benchmarks, cells, and Markdown."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from llpkit.report.spread import true_minus

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import records

ROOT = Path(__file__).parents[1]
Rows = list[list[str]]
TABLES: dict[str, Callable[[], Rows]] = {}


def table(function: Callable[[], Rows]) -> Callable[[], Rows]:
    """Make a function known as a table, by its name with dashes."""
    TABLES[function.__name__.replace("_", "-")] = function
    return function


def recorded(file: str, **wanted: object) -> list[records.Row]:
    """The rows of a benchmark's record that have some values."""
    rows = records.read(ROOT / "results" / file)
    return [row for row in rows if wanted.items() <= row.items()]


def numbers(file: str) -> dict[str, float]:
    """A benchmark's record that is one number per name."""
    found: dict[str, float] = json.loads((ROOT / "results" / file).read_text(encoding="utf-8"))
    return found


def signed(value: float) -> str:
    """A difference with its sign."""
    return true_minus(f"{value:+z.1f}")


def code(method: str) -> str:
    """A name in backticks."""
    return f"`{method}`"


def markdown(rows: Rows) -> str:
    """A table with its columns of numbers aligned to the right."""
    head, *below = rows
    columns = list(zip(*below, strict=True))
    line = "|".join("---:" if all(map(_is_number, column)) else "---" for column in columns)
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (head, *below)]
    lines = [re.sub(r"\|  (?=\|)", "| ", each) for each in lines]
    return "\n".join([lines[0], f"|{line}|", *lines[1:]]) + "\n"


def _is_number(cell: str) -> bool:
    """Or empty, or a number with a word, such as "8 of 12"; but not "200 bags of 8"."""
    words = re.findall("[a-z]{2,}", cell.partition("(")[0])
    return not cell or (cell[0] in "0123456789+−–" and len(words) < 2)
