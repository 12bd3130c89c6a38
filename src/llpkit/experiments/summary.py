"""Statistics over the folds of one results folder: from records to rows, with no side effects.

Accuracy is that of the last epoch. With held-out bags, *selected* is the accuracy after the epoch
with their best likelihood; no epoch is selected by test labels. Each method is averaged over its
own folds; two methods are compared over the folds that both have. Different bag sizes have
different bags, and fold k tests different instances: nothing is paired across sizes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression, stdev
from typing import Any

import torch

from llpkit.evaluation import Calibration
from llpkit.experiments.records import Record
from llpkit.experiments.statistics import (
    BOUND,
    FEWEST,
    REFERENCE,
    Runs,
    around,
    by_fold,
    difference,
    interval,
    overlap,
    paired,
    pitman_morgan,
)
from llpkit.report.spread import Interval, Spread

MEASURES = ("log_likelihood", "baseline_log_likelihood", "proportion_error", "log_loss", "brier")
"""Of test bags, except the last two: of test instances. The baseline is a model that gives every
instance the rate of the training bags."""
_BINS = 10


@dataclass(frozen=True)
class Accuracy:
    """One method over its folds; accuracies in per cent.

    Args:
        method: Its name.
        accuracy: Accuracy of the last epoch; its ``number`` is that of the folds.
        selected: Accuracy of the epoch selected by held-out bags, if there were any.
        sampling_sd: The deviation expected from sampling the test instances alone.
        band: The deviation over folds, averaged over all epochs.
        gap: Points from supervised training on the same folds.
        measures: Means over folds of other :data:`MEASURES` of the test fold, where known.
        calibration_error: Of the pooled test instances of all folds.
        recipe: The settings that its runs share.
    """

    method: str
    accuracy: Spread
    selected: Spread | None
    sampling_sd: float
    band: float | None
    gap: float | None
    measures: Mapping[str, float | None]
    calibration_error: float
    recipe: Mapping[str, Any]


def accuracies(runs: Runs) -> list[Accuracy]:
    """A row for every method."""
    bound = by_fold(runs.get(BOUND, []))
    found = []
    for name, records in runs.items():
        own = by_fold(records)
        # The gap is over the folds that supervised training has, too.
        shared = [fold for fold in own if fold in bound] if name != BOUND else []
        selected = [record.selected for record in records]
        found.append(
            Accuracy(
                method=name,
                accuracy=Spread.of(own.values()),
                selected=Spread.of(by_fold(records, True).values()) if all(selected) else None,
                sampling_sd=_sampling_sd(records),
                band=_band(records),
                gap=fmean(own[fold] - bound[fold] for fold in shared) if shared else None,
                measures={key: _final(records, key) for key in MEASURES},
                calibration_error=calibration(records).error,
                recipe=records[0].recipe,
            )
        )
    return found


def _final(records: Sequence[Record], key: str) -> float | None:
    known = [value for r in records if (value := r.final.get(key)) is not None]
    return fmean(known) if known else None


def _sampling_sd(records: Sequence[Record]) -> float:
    r"""The mean over folds of :math:`\sqrt{p (1 - p) / n}`, in points."""
    each = ((r.final["accuracy"], r.data.test_instances) for r in records if r.data)
    return 100 * fmean(math.sqrt(p * (1 - p) / number) for p, number in each)


def _band(records: Sequence[Record]) -> float | None:
    if len(records) < 2:
        return None
    curves = [record.history["test_accuracy"] for record in records]
    return 100 * fmean(stdev(values) for values in zip(*curves, strict=True))


@dataclass(frozen=True)
class Difference:
    """Reference minus rival in points, paired by fold.

    Args:
        rival: The other method.
        folds: Number of folds that both have.
        last: Difference after the last epoch.
        along: Mean difference over all epochs; ``None`` if the two have different numbers of them.
        ahead: Number of epochs after which the reference's mean over folds is above the rival's.
        epochs: Number of all epochs.
        equal_spread: The p-value of equal deviations over these folds (Pitman and Morgan).
    """

    rival: str
    folds: int
    last: Interval
    along: Interval | None
    ahead: int | None
    epochs: int | None
    equal_spread: float | None


def differences(runs: Runs, reference: str = REFERENCE) -> list[Difference]:
    """The reference minus each other method, over the folds that both have."""
    rows = []
    for name, records in runs.items():
        ours, theirs = paired(runs.get(reference, []), records)
        last = difference(ours, theirs)
        if name == reference or last is None:
            continue
        mine, other = list(by_fold(ours).values()), list(by_fold(theirs).values())
        along, ahead, epochs = _along(ours, theirs)
        rows.append(
            Difference(
                rival=name,
                folds=len(ours),
                last=last,
                along=along,
                ahead=ahead,
                epochs=epochs,
                equal_spread=pitman_morgan(mine, other),
            )
        )
    return rows


def _along(
    ours: Sequence[Record], theirs: Sequence[Record]
) -> tuple[Interval | None, int | None, int | None]:
    """The mean difference over all epochs, the number of epochs where it is positive, and all."""
    mine, other = ([r.history["test_accuracy"] for r in records] for records in (ours, theirs))
    epochs = len(mine[0])
    if len(other[0]) != epochs:
        return None, None, None
    gaps = [
        [100 * (m - o) for m, o in zip(first, second, strict=True)]
        for first, second in zip(mine, other, strict=True)
    ]
    ahead = sum(fmean(at_epoch) > 0 for at_epoch in zip(*gaps, strict=True))
    return interval([fmean(its) for its in gaps], theirs), ahead, epochs


def calibration(records: Sequence[Record]) -> Calibration:
    """The reliability of all folds together, in ten bins."""
    # Records have 20 bins, pairs of which make up one of the ten.
    bins: dict[int, list[tuple[float, float, int]]] = {}
    for found in (r.calibration for r in records if r.calibration):
        columns = (found[key] for key in ("mean_predicted", "fraction_positive", "number"))
        for p, observed, number in zip(*columns, strict=True):
            bins.setdefault(min(int(_BINS * p), _BINS - 1), []).append((p, observed, int(number)))
    rows = [
        (
            sum(p * n for p, _, n in its) / sum(n for *_, n in its),
            sum(f * n for _, f, n in its) / sum(n for *_, n in its),
            sum(n for *_, n in its),
        )
        for _, its in sorted(bins.items())
    ]
    return Calibration(*torch.tensor(rows, dtype=torch.float64).reshape(-1, 3).T)


# Accuracy against bag size


def size_accuracies(runs: Runs, selected: bool = False) -> dict[str, dict[int, Spread]]:
    """Accuracy in per cent by method and size: of the last epoch, or of the selected one.

    Training on the labels of an official split does not depend on bags: it has the same accuracy at
    every size.
    """
    found = {}
    sizes = sorted({record.bag_size or 0 for records in runs.values() for record in records})
    for name, every in runs.items():
        own = by_size(every)
        if name == BOUND and all(r.data and r.data.redrawn for r in every) and len(own) == 1:
            own = {size: list(every) for size in sizes}
        found[name] = {n: Spread.of(by_fold(its, selected).values()) for n, its in own.items()}
    return found


def slopes(runs: Runs, selected: bool = False) -> dict[str, Interval]:
    r"""For every method with several sizes, the change in points per doubling of the bag size.

    It is the slope of a line through all runs against the logarithm of the size. The t interval is
    that of the regression, with :math:`(1/k + n_{test}/n_{train}) s^2` as the variance of the mean
    of :math:`k` folds of one size, whose training sets overlap.
    """
    sizes = {name: by_size(records) for name, records in runs.items()}
    return {name: _slope(its, selected) for name, its in sizes.items() if len(its) > 1}


def _slope(sizes: dict[int, list[Record]], selected: bool) -> Interval:
    x = {size: math.log2(size) for size in sizes}
    points = [
        (x[size], value) for size, its in sizes.items() for value in by_fold(its, selected).values()
    ]
    fitted = linear_regression(*zip(*points, strict=True))
    if min(map(len, sizes.values())) < FEWEST:
        return Interval(fitted.slope)
    degrees, middle = len(points) - 2, fmean(at for at, _ in points)
    rest = sum((y - fitted.intercept - fitted.slope * at) ** 2 for at, y in points) / degrees
    width = sum((at - middle) ** 2 for at, _ in points)
    # The slope is a weighted sum of the means at each size, so its variance is the sum of theirs.
    variance = rest * sum(
        (len(its) * (x[size] - middle) / width) ** 2 * (1 / len(its) + overlap(its))
        for size, its in sizes.items()
    )
    return around(fitted.slope, variance, degrees)


def by_size(records: Sequence[Record]) -> dict[int, list[Record]]:
    """Records by the size of their bags, smallest first."""
    found: dict[int, list[Record]] = {}
    for record in sorted(records, key=lambda r: r.bag_size or 0):
        found.setdefault(record.bag_size or 0, []).append(record)
    return found
