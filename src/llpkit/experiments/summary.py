"""Means, deviations and intervals over folds: from records to numbers, with no side effects.

Accuracy is that of the last epoch, in percent. Each method is averaged over its own folds; two
methods are compared over the folds that both have. Different bag sizes have different bags, and
fold k tests different instances: nothing is paired across sizes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression, stdev

from llpkit.experiments.protocol import WARM_UP
from llpkit.experiments.records import Record
from llpkit.report import Interval, Spread

Runs = Mapping[str, Sequence[Record]]
"""The records of one experiment by method, as from :meth:`Results.by_method`."""

LEVEL, FEWEST = 0.95, 3
"""Level of intervals, and the fewest folds for one: two say little about a deviation."""


# Accuracy


def by_fold(records: Sequence[Record]) -> dict[int, float]:
    """The accuracy in each fold."""
    return {r.fold: 100 * r.final["accuracy"] for r in records}


def accuracies(runs: Runs) -> dict[str, Spread]:
    """The accuracy of every method over its folds."""
    return {name: Spread.of(by_fold(records).values()) for name, records in runs.items()}


def final_mean(records: Sequence[Record], key: str) -> float | None:
    """The mean over folds of another metric of the last epoch, where known."""
    known = [value for r in records if (value := r.final.get(key)) is not None]
    return fmean(known) if known else None


def bounds(runs: Runs) -> list[str]:
    """The methods that see every label: upper bounds for the others."""
    return [name for name, records in runs.items() if records[0].sees_labels]


def reference(runs: Runs) -> str | None:
    """The method that the others are compared with: the first one that learns from counts."""
    return next((name for name in runs if name not in bounds(runs)), None)


def paired(one: Sequence[Record], other: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """The records of two methods in the folds that both have."""
    first, second = ({record.fold: record for record in records} for records in (one, other))
    folds = [fold for fold in second if fold in first]
    return [first[fold] for fold in folds], [second[fold] for fold in folds]


def difference(one: Sequence[Record], other: Sequence[Record]) -> Interval | None:
    """The accuracy of one minus another in points, over the folds that both have, if any."""
    ours, theirs = paired(one, other)
    first, second = by_fold(ours), by_fold(theirs)
    return interval([first[fold] - second[fold] for fold in first], theirs) if first else None


# Intervals


def interval(values: Sequence[float], records: Sequence[Record]) -> Interval:
    """The mean over folds and its t interval, corrected for overlapping training sets.

    Folds of several partitions can be pooled, as in repeated cross-validation.
    """
    mean, k = fmean(values), len(values)
    if k < FEWEST:
        return Interval(mean)
    return around(mean, variance_of_mean(values, records), k - 1)


def variance_of_mean(values: Sequence[float], records: Sequence[Record]) -> float:
    r"""The variance of a mean over :math:`k` folds, :math:`(1/k + n_{test}/n_{train}) s^2`.

    See Nadeau & Bengio, *Inference for the generalization error*, 2003. The sizes are from the
    records.
    """
    return stdev(values) ** 2 * (1 / len(values) + overlap(records))


def around(mean: float, variance: float, degrees: float) -> Interval:
    """The t interval around a mean with this variance."""
    from scipy.stats import t

    half = float(t.ppf(0.5 + LEVEL / 2, degrees)) * math.sqrt(variance)
    return Interval(mean, mean - half, mean + half)


def overlap(records: Sequence[Record]) -> float:
    """Ratio of test to training instances in a fold; held-out bags count as neither.

    Zero for seeds that redraw bags: their spread is that of the draw, all on the same instances.
    """
    shares = []
    for data, kept in ((r.data, held_out_bags(r)) for r in records):
        assert data is not None
        if data.redrawn:
            return 0.0
        trained = (1 - kept / data.train_bags) * data.train_instances
        shares.append(data.test_instances / trained)
    return fmean(shares)


def held_out_bags(record: Record) -> int:
    """Number of bags that a run held out of its training folds."""
    share, bags = record.recipe["held_out"], record.data.train_bags if record.data else 0
    return 0 if share is None else bags - round((1 - share) * bags)


# Accuracy against bag size


def by_size(records: Sequence[Record]) -> dict[int, list[Record]]:
    """Records by the size of their bags, smallest first."""
    found: dict[int, list[Record]] = {}
    for record in sorted(records, key=lambda r: r.bag_size or 0):
        found.setdefault(record.bag_size or 0, []).append(record)
    return found


def size_accuracies(runs: Runs) -> dict[str, dict[int, Spread]]:
    """Accuracy by method and size.

    Training on the labels of an official split does not depend on bags: it has the same accuracy at
    every size.
    """
    found = {}
    sizes = sorted({record.bag_size or 0 for records in runs.values() for record in records})
    for name, every in runs.items():
        own = by_size(every)
        if name in bounds(runs) and all(r.data and r.data.redrawn for r in every) and len(own) == 1:
            own = {size: list(every) for size in sizes}
        found[name] = {n: Spread.of(by_fold(its).values()) for n, its in own.items()}
    return found


def slopes(runs: Runs) -> dict[str, Interval]:
    r"""For every method with several sizes, the change in points per doubling of the bag size.

    It is the slope of a line through all runs against the logarithm of the size. The t interval is
    that of the regression, with :math:`(1/k + n_{test}/n_{train}) s^2` as the variance of the mean
    of :math:`k` folds of one size, whose training sets overlap.
    """
    sizes = {name: by_size(records) for name, records in runs.items()}
    return {name: _slope(its) for name, its in sizes.items() if len(its) > 1}


def _slope(sizes: dict[int, list[Record]]) -> Interval:
    x = {size: math.log2(size) for size in sizes}
    points = [(x[size], value) for size, its in sizes.items() for value in by_fold(its).values()]
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


# Time


@dataclass(frozen=True)
class EpochTime:
    """Seconds per epoch of one method, measured alone on the machine.

    Args:
        seconds: Over the epochs of all turns, except the first ones of each.
        ratio: To the first upper bound, over the turns that both have.
        turns: Number of turns.
    """

    seconds: Spread
    ratio: Spread | None
    turns: int


def epoch_times(runs: Runs) -> dict[str, EpochTime]:
    """The time per epoch of every method."""
    turns = {
        name: {record.fold: _seconds([record]).mean for record in records}
        for name, records in runs.items()
    }
    bound = next((turns[name] for name in bounds(runs)), {})
    found = {}
    for name, records in runs.items():
        ratios = [its / bound[turn] for turn, its in turns[name].items() if turn in bound]
        ratio = Spread.of(ratios) if ratios else None
        found[name] = EpochTime(_seconds(records), ratio, len(turns[name]))
    return found


def _seconds(records: Sequence[Record]) -> Spread:
    return Spread.of(value for r in records for value in r.history["seconds"][WARM_UP:])
