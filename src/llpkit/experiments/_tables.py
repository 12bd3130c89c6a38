"""Numbers on their way to tables: rows for CSV files, and cells for a reader."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llpkit.experiments import _summary as summary
from llpkit.experiments._groups import Group
from llpkit.report import styles


class Tables:
    """Rows for CSV files, by the name of the file; and one look for each method's name.

    Args:
        names: All names of methods that will appear.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.look = styles(names)
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def add(self, name: str, group: Group, **values: Any) -> None:
        """A row of a table, below the heading of its group."""
        head = {"dataset": group.dataset, "setting": group.told}
        self.rows.setdefault(name, []).append(head | values)

    def write(self, out: Path) -> None:
        """All tables."""
        out.mkdir(parents=True, exist_ok=True)
        for name, rows in self.rows.items():
            with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
                heads = list(dict.fromkeys(key for row in rows for key in row))
                writer = csv.DictWriter(file, heads)
                writer.writeheader()
                writer.writerows(rows)


def two(name: str, value: summary.Spread | None) -> dict[str, float | None]:
    """Mean and deviation as two columns."""
    if value is None:
        return {name: None, f"{name}_sd": None}
    return {name: value.mean, f"{name}_sd": value.sd}


def cell(value: summary.Spread | None, spec: str, unit: str = "") -> str:
    """Mean ± deviation, or a dash."""
    return "–" if value is None else f"{value:{spec}}{unit}".replace("-", "−")


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"{value:+.1f}".replace("-", "−")


def or_dash(value: float | None, spec: str = "d") -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else f"{value:{spec}}".replace("-", "−")


def ratio(rival: float | None, reference: float | None) -> str:
    """How many times as much, or a dash."""
    return "–" if not rival or not reference else f"{rival / reference:.2f}×"
