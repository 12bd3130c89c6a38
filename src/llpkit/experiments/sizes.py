"""Accuracy against bag size.

Different sizes have different bags, and fold k tests different instances. So methods are paired by
fold at one size, and nothing is paired across sizes.
"""

import math
from collections.abc import Sequence
from statistics import fmean, linear_regression

from llpkit.experiments.records import Record
from llpkit.experiments.statistics import (
    BOUND,
    FEWEST,
    Runs,
    around,
    by_fold,
    overlap,
)
from llpkit.report.spread import Interval, Spread


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
