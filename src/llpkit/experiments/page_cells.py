"""Small parts of the pages' tables and figures."""

from collections.abc import Sequence

from llpkit._text import several
from llpkit.experiments.records import Record
from llpkit.experiments.statistics import Runs
from llpkit.report.curves import History


def histories(runs: Runs) -> dict[str, list[History]]:
    """The runs as figures take them."""
    return {name: [_rows(record) for record in records] for name, records in runs.items()}


def _rows(record: Record) -> History:
    columns = record.history
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
