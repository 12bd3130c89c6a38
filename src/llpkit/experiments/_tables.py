"""Numbers on their way to tables: rows for CSV files, and cells for a reader."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llpkit._files import write_text
from llpkit.experiments import _summary as summary
from llpkit.experiments._groups import Group
from llpkit.experiments._run import Record
from llpkit.report._style import styles


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
        head = {"dataset": group.dataset, "setting": group.told_but_source}
        head["hyper_parameters"] = group.source
        if group.comparison:
            head["comparison"] = group.comparison
        self.add_row(name, **head | values)

    def add_row(self, name: str, **values: Any) -> None:
        """A row of a table that has no group."""
        self.rows.setdefault(name, []).append(values)

    def write(self, out: Path) -> list[Path]:
        """All tables; where they are."""
        for name, rows in self.rows.items():
            table = io.StringIO(newline="")
            writer = csv.DictWriter(table, list(dict.fromkeys(key for row in rows for key in row)))
            writer.writeheader()
            writer.writerows(rows)
            write_text(out / f"{name}.csv", table.getvalue())
        return self.files(out)

    def files(self, out: Path) -> list[Path]:
        """Where they are, or will be."""
        return [out / f"{name}.csv" for name in self.rows]


def counted(number: int | str, word: str) -> str:
    """A number of things.

    >>> counted(1, "fold"), counted(3, "fold")
    ('1 fold', '3 folds')
    """
    return f"{number} {word}{'' if str(number) == '1' else 's'}"


def commands_of(records: Iterable[Record]) -> list[str]:
    """The commands that made some records, each once."""
    return list(dict.fromkeys(record["command"] for record in records if record["command"]))


def two(name: str, value: summary.Spread | None) -> dict[str, float | None]:
    """Mean and deviation as two columns."""
    if value is None:
        return {name: None, f"{name}_sd": None}
    return {name: value.mean, f"{name}_sd": value.sd}


def cell(value: summary.Spread | None, spec: str, unit: str = "") -> str:
    """Mean ± deviation, or a dash."""
    return "–" if value is None else f"{value:{spec}}{unit}".replace("-", "−")


def signed(value: float) -> str:
    """A difference with its sign.

    >>> signed(-1.25), signed(-0.04)
    ('−1.2', '+0.0')
    """
    return f"{value:+z.1f}".replace("-", "−")


def between(mean: float, low: float | None, high: float | None) -> str:
    """A difference, and its interval where there is one.

    >>> between(1.0, -0.5, 2.5)
    '+1.0 (−0.5 to +2.5)'
    """
    if low is None or high is None:
        return signed(mean)
    return f"{signed(mean)} ({signed(low)} to {signed(high)})"


def or_dash(value: float | None, spec: str = "d") -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else f"{value:{spec}}".replace("-", "−")


def ratio(rival: float | None, reference: float | None) -> str:
    """How many times as much, where both are known."""
    return "" if not rival or not reference else f"{rival / reference:.2f}×"
