"""Comparisons of methods along the epochs and of their spread, for the tables about the paper."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import numpy as np

from llpkit.experiments import Record
from llpkit.experiments.summary import (
    FEWEST,
    LEVEL,
    Runs,
    around,
    by_fold,
    interval,
    paired,
    variance_of_mean,
)
from llpkit.report import Interval

# Accuracy


def unpaired(one: Sequence[Record], other: Sequence[Record]) -> Interval:
    """The mean accuracy of one minus another, in points, with Welch's interval."""
    parts = [(list(by_fold(its).values()), its) for its in (one, other)]
    mean = fmean(parts[0][0]) - fmean(parts[1][0])
    if min(len(values) for values, _ in parts) < FEWEST:
        return Interval(mean)
    variances = [(variance_of_mean(values, its), len(values) - 1) for values, its in parts]
    # Welch and Satterthwaite's degrees of freedom.
    total = sum(variance for variance, _ in variances)
    spent = sum(variance**2 / degrees for variance, degrees in variances)
    return around(mean, total, total**2 / spent if spent else 1.0)


def along(
    one: Sequence[Record], other: Sequence[Record]
) -> tuple[Interval | None, int | None, int | None]:
    """One minus another, averaged over all epochs; where it is positive; and the epochs.

    All are ``None`` if the two have different numbers of epochs.
    """
    ours, theirs = paired(one, other)
    mine, rivals = ([r.history["test_accuracy"] for r in records] for records in (ours, theirs))
    epochs = len(mine[0])
    if len(rivals[0]) != epochs:
        return None, None, None
    gaps = [
        [100 * (m - o) for m, o in zip(first, second, strict=True)]
        for first, second in zip(mine, rivals, strict=True)
    ]
    ahead = sum(fmean(at_epoch) > 0 for at_epoch in zip(*gaps, strict=True))
    return interval([fmean(its) for its in gaps], theirs), ahead, epochs


# Spread


def sampling_sd(records: Sequence[Record]) -> float:
    r"""The deviation expected from sampling the test instances alone, in points.

    It is the mean over folds of :math:`\sqrt{p (1 - p) / n}`.
    """
    each = ((r.final["accuracy"], r.data.test_instances) for r in records if r.data)
    return 100 * fmean(math.sqrt(p * (1 - p) / number) for p, number in each)


def band(records: Sequence[Record]) -> float:
    """The standard deviation over folds, averaged over all epochs."""
    curves = [record.history["test_accuracy"] for record in records]
    return 100 * fmean(stdev(values) for values in zip(*curves, strict=True))


def pitman_morgan(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The p-value of equal variances of paired values, by the correlation of sum and difference."""
    from scipy.stats import pearsonr

    sums = [a + b for a, b in zip(one, other, strict=True)]
    gaps = [a - b for a, b in zip(one, other, strict=True)]
    # A constant sum or difference has no correlation.
    flat = any(len(set(values)) < 2 or stdev(values) < 1e-9 for values in (sums, gaps))
    return None if len(one) < 3 or flat else float(pearsonr(sums, gaps).pvalue)


# Epochs to an accuracy

BELOW = 0.01
"""Distance of the target below a method's own last accuracy."""
_DRAWS = 2000


@dataclass(frozen=True)
class TimeToAccuracy:
    """The epochs a method takes to one point below its last accuracy, and a reference to the same.

    Epochs are those of the mean curve over folds, with intervals bootstrapped over folds. ``None``
    means never, or too few folds for an interval.

    Args:
        method: Its name.
        target: The accuracy.
        epochs: The first epoch at the target, with its interval.
        reference_epochs: The first epoch at which the reference reaches the target.
        ratio: Ratio of these epochs, method over reference, with its interval.
        own_ratio: The same ratio, each to one point below its *own* last accuracy.
    """

    method: str
    target: float
    epochs: Interval
    reference_epochs: int | None = None
    ratio: Interval | None = None
    own_ratio: Interval | None = None


def times_to_accuracy(runs: Runs, reference: str) -> list[TimeToAccuracy]:
    """A row for every method, over the folds that it shares with the reference.

    Supervised training is not compared.
    """
    rows = []
    for name, records in runs.items():
        ours, theirs = paired(runs.get(reference, []), records)
        if ours:
            compared = name != reference and not records[0].sees_labels
            rows.append(_compared(name, _curves(theirs), _curves(ours) if compared else None))
    return rows


def _curves(records: Sequence[Record]) -> Any:
    return np.array([r.history["test_accuracy"] for r in records], dtype=float)  # (folds, epochs)


def _compared(name: str, own: Any, reference: Any | None) -> TimeToAccuracy:
    folds = len(own)
    # A bootstrap over folds. Both methods use the same draws, so that they stay paired by fold.
    draws = np.random.default_rng(0).integers(folds, size=(_DRAWS, folds))
    target, epochs = _to_own(own.mean(0, keepdims=True))
    targets, drawn = _to_own(own[draws].mean(1))  # (draws,) each
    # A curve always reaches one point below its own end.
    reached = Interval(int(epochs[0]), *map(_whole, _ends(drawn, folds)))
    row = TimeToAccuracy(name, float(target[0]), reached)
    if reference is None:
        return row
    ours, redrawn = reference.mean(0, keepdims=True), reference[draws].mean(1)
    same = _whole(_first(ours, target)[0])
    ratios = _ends(drawn / _first(redrawn, targets), folds)
    own_ratios = _ends(drawn / _to_own(redrawn)[1], folds)
    own_ratio = float(epochs[0] / _to_own(ours)[1][0])
    return replace(
        row,
        reference_epochs=same,
        ratio=None if same is None else Interval(epochs[0] / same, *map(_number, ratios)),
        own_ratio=Interval(own_ratio, *map(_number, own_ratios)),
    )


def _to_own(curves: Any) -> tuple[Any, Any]:
    """For each curve, one point below its end, and the first epoch that reaches it."""
    targets = curves[:, -1] - BELOW
    return targets, _first(curves, targets)


def _first(curves: Any, targets: Any) -> Any:
    """The first epoch at which each curve reaches its target; infinite if never."""
    there = curves >= targets[:, None]  # (curves, epochs)
    return np.where(there.any(1), there.argmax(1) + 1.0, np.inf)


def _ends(drawn: Any, folds: int) -> tuple[Any, Any]:
    if folds < FEWEST:
        return np.inf, np.inf
    tail = (1 - LEVEL) / 2
    # No interpolation between draws: epochs are whole numbers, and some are infinite.
    low, high = np.quantile(drawn, (tail, 1 - tail), method="inverted_cdf")
    return low, high


def _whole(value: Any) -> int | None:
    return int(value) if np.isfinite(value) else None


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
