"""Tables of typed columns."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

from llpkit.report.spread import Interval, Spread, true_minus

PHONE = 345  # width of a table on a phone, in pixels
LETTER, SMALL_LETTER, PADDING = 9.0, 7.0, 12.0  # upper bounds in pixels, as fonts differ


Cell = str | int | float | Spread | Interval | None


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Args:
        head: Its heading.
        about: What it means, in small print.
        spec: How numbers are formatted, such as ``".1f"``; a column without one holds text.
        better: Which numbers are better; the best are bold.
    """

    head: str
    about: str = ""
    spec: str = ""
    better: Literal["higher", "lower", ""] = ""


class CellText(NamedTuple):
    """A cell on the page: its text, a remark in small print, whether it is the best."""

    text: str
    small: str
    best: bool


@dataclass(frozen=True)
class PageTable:
    """A table whose rows are methods, or whatever ``of`` names.

    Args:
        columns: All but the first. One without any value is not shown.
        rows: For each row its head and its cells.
        about: How to read it.
        of: The heading of the first column.
        apart: Rows that cannot be the best, such as an upper bound.

    >>> accuracy = Column("Accuracy", "%", ".1f")
    >>> table = PageTable([accuracy], [("mle", [Spread(97.71, 0.4)])])
    >>> table.body[0][1][0].text
    '97.7 ± 0.4'
    """

    columns: Sequence[Column]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    about: str = ""
    of: str = "Method"
    apart: Sequence[str] = ()
    kind: ClassVar[str] = "table"

    @property
    def shown(self) -> list[Column]:
        """The columns that have a value in some row."""
        return [self.columns[i] for i in self._known]

    @cached_property
    def _known(self) -> list[int]:
        rows = [cells for _, cells in self.rows]
        return [i for i in range(len(self.columns)) if any(row[i] is not None for row in rows)]

    @cached_property
    def body(self) -> list[tuple[str, list[CellText]]]:
        """Heads and cells as they are printed."""
        best = {i: self._best(i) for i in self._known}
        shown = []
        for head, cells in self.rows:
            row = []
            for i in self._known:
                column, cell, top = self.columns[i], cells[i], best[i]
                rival = top is not None and head not in self.apart
                text, small = _text(cell, column.spec)
                row.append(CellText(text, small, rival and _printed(column, cell) == top))
            shown.append((head, row))
        return shown

    def _best(self, i: int) -> float | None:
        """The best number of a column as printed; equal printed digits count as a tie."""
        column = self.columns[i]
        if not column.better:
            return None
        rivals = [cells[i] for head, cells in self.rows if head not in self.apart]
        numbers = [x for x in (_printed(column, cell) for cell in rivals) if x is not None]
        if len(numbers) < 2:
            return None
        return max(numbers) if column.better == "higher" else min(numbers)

    @property
    def wide(self) -> bool:
        """Whether the columns are too wide for a phone."""
        pixels = 20.0 + max((LETTER * len(head) for head, _ in self.rows), default=0.0)
        for i, column in enumerate(self.shown):
            cells = [row[i] for _, row in self.body]
            texts = [LETTER * len(cell.text) for cell in cells]
            small = [SMALL_LETTER * len(cell.small) for cell in cells]
            head = [LETTER * len(word) for word in column.head.split()]
            pixels += PADDING + max(texts + small + head)
        return pixels > PHONE


def _text(cell: Cell, spec: str) -> tuple[str, str]:
    """A cell as it is printed, and the ends of an interval apart."""
    if isinstance(cell, Interval):
        return cell.parts(spec)
    if cell is None or isinstance(cell, str):
        return cell or "–", ""
    return true_minus(f"{cell:{spec}}"), ""


def _printed(column: Column, cell: Cell) -> float | None:
    """The number of a cell, rounded as it is printed."""
    number = cell.mean if isinstance(cell, Spread | Interval) else cell
    if number is None or isinstance(number, str):
        return None
    return float(f"{number:{column.spec}}".rstrip("%"))


def decimals(values: Iterable[float]) -> int:
    """Decimal places that give the largest of some positive numbers three digits.

    >>> decimals([0.31, 1.12]), decimals([640.0])
    (2, 0)
    """
    largest = max(values, default=0.0)
    return max(0, 2 - math.floor(math.log10(largest))) if largest > 0 else 0
