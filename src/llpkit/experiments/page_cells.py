"""Small parts of the pages' tables and figures."""

from collections.abc import Mapping, Sequence

from llpkit._text import several
from llpkit.experiments.records import Record
from llpkit.experiments.statistics import Runs
from llpkit.report import Series
from llpkit.report.spread import Spread


def mean(value: Spread | None) -> float | None:
    """The mean alone."""
    return None if value is None else value.mean


def series(runs: Runs, seconds: Mapping[str, float] | None = None) -> list[Series]:
    """Every run as a curve; ``seconds`` replaces the time per epoch and selects the methods."""
    return [
        Series(name, record.fold, _history(record, None if seconds is None else seconds[name]))
        for name, records in runs.items()
        if seconds is None or name in seconds
        for record in records
    ]


def _history(record: Record, seconds: float | None) -> list[dict[str, object]]:
    columns = dict(record.history)
    if seconds is not None:
        columns["seconds"] = [seconds] * len(columns["epoch"])
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def folds(groups: Sequence[Sequence[Record]]) -> str:
    """The number of folds in some groups of records, in words.

    >>> folds([[None] * 3, [None] * 3]), folds([[None], [None] * 5])
    ('3 folds', '1 to 5 folds')
    """
    numbers = sorted({len(group) for group in groups})
    if len(numbers) == 1:
        return several(numbers[0], "fold")
    return f"{numbers[0]} to {several(numbers[-1], 'fold')}"
