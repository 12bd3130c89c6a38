"""The summary table as a reader sees it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llpkit.report._data import BOUND, SummaryRow, decimals


@dataclass(frozen=True)
class Column:
    """A column: its heading, what it means, its cells, and which of them are best."""

    head: str
    about: str
    cells: Sequence[str]
    best: Sequence[bool]


@dataclass(frozen=True)
class _Kind:
    """How to print one field of the rows, and whether more or less of it is better."""

    head: str
    about: str
    field: str
    better: Callable[[Sequence[float]], float] | None
    digits: int
    scale: float = 1
    sign: str = ""
    unit: str = ""
    sd: str = ""

    def shown(self, row: SummaryRow) -> str:
        """The number alone, as printed."""
        value = getattr(row, self.field)
        return "" if value is None else f"{self.scale * value:{self.sign}.{self.digits}f}"

    def cell(self, row: SummaryRow) -> str:
        """The whole cell."""
        if not self.shown(row):
            return "–"
        sd = getattr(row, self.sd) if self.sd else None
        around = "" if sd is None else f" ± {self.scale * sd:.{self.digits}f}"
        return f"{self.shown(row)}{around}{self.unit}".replace("-", "−")


def table(rows: Sequence[SummaryRow], measured: str = "") -> list[Column]:
    """The columns that hold anything; in each, the best learners from counts are marked.

    Those that are equal to the printed digit are equally good. ``measured`` says how the
    log-likelihoods were measured, such as ``"exact"``.
    """
    columns = []
    for kind in _kinds(rows, measured) if rows else []:
        shown = [kind.shown(row) for row in rows]
        if not any(shown):
            continue
        rival = [bool(s) and row.method != BOUND for s, row in zip(shown, rows, strict=True)]
        values = [float(s) for s, counts in zip(shown, rival, strict=True) if counts]
        top = kind.better(values) if kind.better and len(values) > 1 else None
        best = [counts and float(s) == top for s, counts in zip(shown, rival, strict=True)]
        columns.append(Column(kind.head, kind.about, [kind.cell(row) for row in rows], best))
    return columns


def _kinds(rows: Sequence[SummaryRow], measured: str) -> list[_Kind]:
    likelihood_of, error_of = rows[0].log_likelihood_of, rows[0].proportion_error_of
    how = f"{measured}, " if measured else ""
    likelihood_about = f"{how}mean of {likelihood_of} bags; higher is better"
    second = decimals([row.epoch_seconds or 0.0 for row in rows])
    far = "mean distance of predicted from"
    return [
        _Kind("Accuracy", "of test instances", "accuracy", max, 1, 100, "", " %", "accuracy_sd"),
        _Kind("Gap", f"points from {BOUND}", "gap", max, 1, 100, "+"),
        _Kind("Epoch", "time it takes", "epoch_seconds", min, second, unit=" s"),
        _Kind("Ratio", f"epoch time over that of {BOUND}", "epoch_ratio", min, 2, unit="×"),
        _Kind(
            "Bag log-likelihood",
            likelihood_about,
            "log_likelihood",
            max,
            2,
            sd="log_likelihood_sd",
        ),
        _Kind(
            "Constant rate",
            "log-likelihood of the same bags if every instance had one probability",
            "baseline_log_likelihood",
            None,
            2,
        ),
        _Kind("Proportion error", f"{far} true, {error_of} bags", "proportion_error", min, 3),
        _Kind("Calibration error", f"{far} observed frequency", "calibration_error", min, 3),
    ]
