"""A run in the form that figures need: one row per epoch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


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
    >>> run.points("loss")
    {1: 0.7, 2: 0.4}
    """

    method: str
    run: int
    history: Sequence[Mapping[str, Any]]
    selected_epoch: int | None = None

    def points(self, key: str) -> dict[int, float]:
        """Finite values of ``key`` by epoch."""
        found = {int(row["epoch"]): row.get(key) for row in self.history}
        known = {epoch: float(value) for epoch, value in found.items() if value is not None}
        return {epoch: value for epoch, value in known.items() if math.isfinite(value)}

    def epoch_seconds(self) -> float | None:
        """Median time of an epoch, without the first, which also warms up, if there are more."""
        seconds = list(self.points("seconds").values())
        return median(seconds[1:] or seconds) if seconds else None


def by_method(series: Sequence[Series]) -> dict[str, list[Series]]:
    """Runs by method, in order of first appearance."""
    methods = dict.fromkeys(run.method for run in series)
    return {method: [run for run in series if run.method == method] for method in methods}
