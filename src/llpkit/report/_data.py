"""The records that a page draws, and the table that sums them up."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any, Literal

from numpy.typing import NDArray
from torch import Tensor

from llpkit.errors import LLPError

Which = Literal["held-out", "training"]
Numbers = Sequence[float] | NDArray[Any] | Tensor

BOUND = "supervised"  # the method that the others are measured against


@dataclass(frozen=True)
class Series:
    """One run, epoch by epoch.

    Args:
        method: The method's key, such as ``"mle"``.
        seed_or_fold: What tells the runs of one method apart.
        history: One mapping an epoch: ``epoch``, ``seconds`` (of that epoch alone) and any of
            ``loss``, ``log_likelihood``, ``held_out_log_likelihood``, ``proportion_error``,
            ``held_out_proportion_error``, ``test_accuracy``; ``baseline_log_likelihood`` and
            ``held_out_baseline_log_likelihood`` are those of a constant rate. A value may be
            missing or ``None``.
        selected_epoch: The epoch whose weights were kept; the last one unless given.

    >>> run = Series("mle", 0, [{"epoch": 1, "loss": 0.7}, {"epoch": 2, "loss": 0.4}])
    >>> run.value("loss")
    0.4
    """

    method: str
    seed_or_fold: int
    history: Sequence[Mapping[str, Any]]
    selected_epoch: int | None = None

    def __post_init__(self) -> None:
        for i, row in enumerate(self.history):
            if "epoch" not in row:
                raise LLPError(
                    f"history[{i}] of {self.method}, run {self.seed_or_fold}, has no 'epoch' but "
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
            f"{self.seed_or_fold}, has no such epoch; pass one of its {len(self.history)} epochs"
        )

    def epoch_seconds(self) -> float | None:
        """Median time of an epoch; the first, which also warms up, is left out if it can be."""
        seconds = list(self.points("seconds").values())
        return median(seconds[1:] or seconds) if seconds else None


@dataclass(frozen=True)
class Calibration:
    """A reliability curve: for each bin its mean prediction, its positives and its size.

    ``Calibration(method, *llpkit.evaluation.calibration(probability, truth))`` makes one. Bins of
    size 0 are left out, whatever their other two values.

    >>> Calibration("mle", [0.1, 0.9], [0.2, 0.9], [30, 10]).error
    0.075
    """

    method: str
    mean_predicted: Numbers
    fraction_positive: Numbers
    count: Numbers

    def __post_init__(self) -> None:
        sizes = {len(self.mean_predicted), len(self.fraction_positive), len(self.count)}
        if len(sizes) != 1:
            raise LLPError(
                f"the calibration of {self.method} has {len(self.mean_predicted)} mean "
                f"predictions, {len(self.fraction_positive)} fractions and {len(self.count)} "
                "counts; pass one of each a bin"
            )

    @property
    def bins(self) -> list[tuple[float, float, int]]:
        """``(mean predicted, fraction positive, count)`` of the bins that hold something."""
        rows = zip(self.mean_predicted, self.fraction_positive, self.count, strict=True)
        return [(float(p), float(f), int(n)) for p, f, n in rows if n]

    @property
    def error(self) -> float | None:
        """Expected calibration error, ``Σ n |p - f| / Σ n``."""
        total = sum(n for *_, n in self.bins)
        return math.fsum(n * abs(p - f) for p, f, n in self.bins) / total if total else None


@dataclass(frozen=True)
class SummaryRow:
    """One method in the summary table: means over its runs; ``None`` where nothing is known.

    ``accuracy``, its ``accuracy_sd`` and the ``gap`` to ``supervised`` are fractions, not points.
    A standard deviation is ``None`` for a single run.
    """

    method: str
    runs: int
    accuracy: float | None
    accuracy_sd: float | None
    gap: float | None
    epoch_seconds: float | None
    epoch_seconds_sd: float | None
    epoch_ratio: float | None
    log_likelihood: float | None
    log_likelihood_sd: float | None
    log_likelihood_of: Which
    proportion_error: float | None
    proportion_error_of: Which
    calibration_error: float | None
    baseline_log_likelihood: float | None = None
    """That of the same bags if every instance had the same probability."""


def summarise(
    series: Sequence[Series], calibrations: Sequence[Calibration] = ()
) -> list[SummaryRow]:
    """Sum up runs: a row a method, in order of first appearance, at each run's selected epoch.

    The log-likelihood is that of held-out bags if every run has it, of training bags otherwise;
    so with the proportion error.

    >>> runs = [
    ...     Series("supervised", 0, [{"epoch": 1, "seconds": 2.0, "test_accuracy": 0.9}]),
    ...     Series("mle", 0, [{"epoch": 1, "seconds": 2.2, "test_accuracy": 0.8}]),
    ...     Series("mle", 1, [{"epoch": 1, "seconds": 2.2, "test_accuracy": 0.9}]),
    ... ]
    >>> row = summarise(runs)[1]
    >>> f"{row.method} {row.accuracy:.2f} ± {row.accuracy_sd:.2f} {row.gap:+.2f} {row.epoch_ratio}"
    'mle 0.85 ± 0.07 -0.05 1.1'
    """
    likelihood_key, likelihood_of = _held_out_if_all(series, "log_likelihood")
    baseline_key = likelihood_key.replace("log_likelihood", "baseline_log_likelihood")
    error_key, error_of = _held_out_if_all(series, "proportion_error")
    bound = [s for s in series if s.method == BOUND]
    bound_accuracy, _ = mean_and_sd([s.value("test_accuracy") for s in bound])
    bound_seconds, _ = mean_and_sd([s.epoch_seconds() for s in bound])
    errors = {c.method: c.error for c in calibrations}

    rows = []
    for method in dict.fromkeys(s.method for s in series):
        runs = [s for s in series if s.method == method]
        accuracy, accuracy_sd = mean_and_sd([s.value("test_accuracy") for s in runs])
        seconds, seconds_sd = mean_and_sd([s.epoch_seconds() for s in runs])
        likelihood, likelihood_sd = mean_and_sd([s.value(likelihood_key) for s in runs])
        baseline, _ = mean_and_sd([s.value(baseline_key) for s in runs])
        proportion_error, _ = mean_and_sd([s.value(error_key) for s in runs])
        gap = ratio = None
        if accuracy is not None and bound_accuracy is not None and method != BOUND:
            gap = accuracy - bound_accuracy
        if seconds is not None and bound_seconds:
            ratio = seconds / bound_seconds
        rows.append(
            SummaryRow(
                method=method,
                runs=len(runs),
                accuracy=accuracy,
                accuracy_sd=accuracy_sd,
                gap=gap,
                epoch_seconds=seconds,
                epoch_seconds_sd=seconds_sd,
                epoch_ratio=ratio,
                log_likelihood=likelihood,
                log_likelihood_sd=likelihood_sd,
                log_likelihood_of=likelihood_of,
                proportion_error=proportion_error,
                proportion_error_of=error_of,
                calibration_error=errors.get(method),
                baseline_log_likelihood=baseline,
            )
        )
    return rows


def _held_out_if_all(series: Sequence[Series], key: str) -> tuple[str, Which]:
    if all(run.value(f"held_out_{key}") is not None for run in series):
        return f"held_out_{key}", "held-out"
    return key, "training"


def mean_and_sd(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation of what is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    return fmean(known), stdev(known) if len(known) > 1 else None


def decimals(values: Sequence[float]) -> int:
    """Decimal places that give the largest of some positive numbers three figures.

    >>> decimals([0.31, 1.12]), decimals([640.0])
    (2, 0)
    """
    largest = max(values, default=0.0)
    return max(0, 2 - math.floor(math.log10(largest))) if largest > 0 else 0


def as_number(value: Any) -> float | None:
    """A finite float, or ``None``."""
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None
