"""A run in the form that figures need: one row per epoch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from llpkit.errors import LLPError


@dataclass(frozen=True)
class Series:
    """One run, epoch by epoch.

    Args:
        method: The method's key, such as ``"mle"``.
        run: The seed or fold, which distinguishes runs of one method.
        history: One mapping per epoch: ``epoch``, ``seconds`` (of that epoch alone) and any
            measures. A value may be missing or ``None``.
        selected_epoch: The epoch whose weights were kept; by default the last.

    >>> run = Series("mle", 0, [{"epoch": 1, "loss": 0.7}, {"epoch": 2, "loss": 0.4}])
    >>> run.value("loss")
    0.4
    """

    method: str
    run: int
    history: Sequence[Mapping[str, Any]]
    selected_epoch: int | None = None

    def __post_init__(self) -> None:
        for i, row in enumerate(self.history):
            if "epoch" not in row:
                raise LLPError(
                    f"history[{i}] of {self.method}, run {self.run}, has no 'epoch' but "
                    f"{sorted(row)}; number every row"
                )

    def points(self, key: str) -> dict[int, float]:
        """Finite values of ``key`` by epoch."""
        found = ((int(row["epoch"]), as_number(row.get(key))) for row in self.history)
        return {epoch: value for epoch, value in found if value is not None}

    def value(self, key: str) -> float | None:
        """The value of ``key`` at the selected epoch."""
        if not self.history:
            return None
        if self.selected_epoch is None:
            return as_number(self.history[-1].get(key))
        for row in self.history:
            if int(row["epoch"]) == self.selected_epoch:
                return as_number(row.get(key))
        raise LLPError(
            f"selected_epoch = {self.selected_epoch}, but the history of {self.method}, run "
            f"{self.run}, has no such epoch; pass one of its {len(self.history)} epochs"
        )

    def epoch_seconds(self) -> float | None:
        """Median time of an epoch, without the first, which also warms up, if there are more."""
        seconds = list(self.points("seconds").values())
        return median(seconds[1:] or seconds) if seconds else None


def as_number(value: Any) -> float | None:
    """A finite float, or ``None``."""
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def by_method(series: Sequence[Series]) -> dict[str, list[Series]]:
    """Runs by method, in order of first appearance."""
    methods = dict.fromkeys(run.method for run in series)
    return {method: [run for run in series if run.method == method] for method in methods}
