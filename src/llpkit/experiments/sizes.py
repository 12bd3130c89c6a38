"""Accuracy against bag size.

Different sizes have different bags, and fold k tests different instances. So methods are paired by
fold at one size, and nothing is paired across sizes.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression, median

from llpkit.experiments.records import Record
from llpkit.experiments.statistics import (
    BOUND,
    FEWEST,
    REFERENCE,
    Runs,
    around,
    by_fold,
    interval,
    overlap,
    paired,
    spread,
    unpaired,
)
from llpkit.report.spread import Interval, Spread


@dataclass(frozen=True)
class SizeAccuracy:
    """Accuracy in per cent of one method in bags of one size.

    Args:
        method: Its name.
        size: The size of the bags.
        accuracy: Accuracy of the last epoch.
        selected: Accuracy of the epoch selected by held-out bags, if there were any.
        gain: Selected minus last epoch in points, by fold.
        selected_epoch: The median, first and last of the selected epochs.
    """

    method: str
    size: int
    accuracy: Spread
    selected: Spread | None
    gain: Interval | None
    selected_epoch: tuple[float, int, int] | None


@dataclass(frozen=True)
class SizeDifference:
    """Reference minus rival in points at one size, paired by fold."""

    rival: str
    size: int
    folds: int
    last: Interval
    selected: Interval | None


@dataclass(frozen=True)
class Slope:
    """Change in points per doubling of the bag size, over ``sizes`` and ``runs`` runs."""

    method: str
    sizes: Sequence[int]
    runs: int
    change: Interval


def size_accuracies(runs: Runs) -> list[SizeAccuracy]:
    """A row for every method and size.

    Training on the labels of an official split does not depend on bags: it has the same row at
    every size.
    """
    found = []
    sizes = sorted({record.bag_size or 0 for records in runs.values() for record in records})
    for name, every in runs.items():
        own = by_size(every)
        if name == BOUND and all(r.data and r.data.redrawn for r in every) and len(own) == 1:
            own = {size: list(every) for size in sizes}
        for size, records in own.items():
            last = spread(by_fold(records).values())
            assert last is not None
            row = SizeAccuracy(name, size, last, None, None, None)
            if all(record.selected for record in records):
                chosen = by_fold(records, selected=True)
                gains = [chosen[fold] - value for fold, value in by_fold(records).items()]
                epochs = sorted(int((r.selected or {})["epoch"]) for r in records)
                row = SizeAccuracy(
                    name,
                    size,
                    last,
                    spread(chosen.values()),
                    interval(gains, records),
                    (median(epochs), epochs[0], epochs[-1]),
                )
            found.append(row)
    return found


def size_differences(runs: Runs, reference: str = REFERENCE) -> list[SizeDifference]:
    """The reference minus each other method at every size that both have."""
    found = []
    ours = by_size(runs.get(reference, []))
    for name, every in runs.items():
        for size, records in by_size(every).items():
            mine, theirs = paired(ours.get(size, []), records)
            if name == reference or not mine:
                continue
            both = all(record.selected for record in (*mine, *theirs))
            last, chosen = (
                interval(_apart(mine, theirs, selected), theirs) if both or not selected else None
                for selected in (False, True)
            )
            assert last is not None
            found.append(SizeDifference(name, size, len(mine), last, chosen))
    return found


def _apart(ours: Sequence[Record], theirs: Sequence[Record], selected: bool) -> list[float]:
    first, second = by_fold(ours, selected), by_fold(theirs, selected)
    return [first[fold] - second[fold] for fold in first]


def slopes(runs: Runs, selected: bool = False) -> list[Slope]:
    r"""For every method, the slope of a line through all runs against the logarithm of the size.

    The t interval is that of the regression, with :math:`(1/k + n_{test}/n_{train}) s^2` as the
    variance of the mean of :math:`k` folds of one size, whose training sets overlap.
    """
    found = []
    for name, records in runs.items():
        sizes = by_size(records)
        if len(sizes) > 1:
            change, number = _slope(sizes, selected)
            found.append(Slope(name, list(sizes), number, change))
    return found


def _slope(sizes: dict[int, list[Record]], selected: bool) -> tuple[Interval, int]:
    x = {size: math.log2(size) for size in sizes}
    points = [
        (x[size], value) for size, its in sizes.items() for value in by_fold(its, selected).values()
    ]
    fitted = linear_regression(*zip(*points, strict=True))
    if min(map(len, sizes.values())) < FEWEST:
        return Interval(fitted.slope), len(points)
    degrees, middle = len(points) - 2, fmean(at for at, _ in points)
    rest = sum((y - fitted.intercept - fitted.slope * at) ** 2 for at, y in points) / degrees
    width = sum((at - middle) ** 2 for at, _ in points)
    # The slope is a weighted sum of the means at each size, so its variance is the sum of theirs.
    variance = rest * sum(
        (len(its) * (x[size] - middle) / width) ** 2 * (1 / len(its) + overlap(its))
        for size, its in sizes.items()
    )
    return around(fitted.slope, variance, degrees), len(points)


def doublings(runs: Runs, selected: bool = False) -> list[Slope]:
    """For every method and step from one size to the next, the slope with Welch's interval."""
    found = []
    for name, records in runs.items():
        sizes = by_size(records)
        for step in itertools.pairwise(sizes):
            first, second = (sizes[size] for size in step)
            # Sizes need not double from step to step, so changes are per doubling.
            doubled = math.log2(step[1] / step[0])
            change = unpaired(second, first, selected).divided(doubled)
            found.append(Slope(name, list(step), len(first) + len(second), change))
    return found


def by_size(records: Sequence[Record]) -> dict[int, list[Record]]:
    """Records by the size of their bags, smallest first."""
    found: dict[int, list[Record]] = {}
    for record in sorted(records, key=lambda r: r.bag_size or 0):
        found.setdefault(record.bag_size or 0, []).append(record)
    return found
