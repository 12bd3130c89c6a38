"""Means, deviations and intervals over folds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import correlation, fmean, stdev

from llpkit.experiments.records import Record

Runs = Mapping[str, Sequence[Record]]
"""The records of one experiment by method, as from :meth:`Results.by_method`."""

REFERENCE, BOUND, PAPERS = "mle", "supervised", "mle-pass"
"""The method that others are compared with; the one with all labels; the paper's algorithm."""
LEVEL, FEWEST = 0.95, 3
"""Level of intervals, and the fewest folds for one: two tell next to nothing about a deviation."""


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of ``number`` values; a single one has no deviation."""

    mean: float
    sd: float | None
    number: int

    def __format__(self, spec: str) -> str:
        around = "" if self.sd is None else f" ± {self.sd:{spec}}"
        return f"{self.mean:{spec}}{around}"


def spread(values: Iterable[float | None], scale: float = 1.0) -> Spread | None:
    """Mean and deviation of the known values.

    >>> f"{spread([0.25, None, 0.75], scale=100):.1f}"
    '50.0 ± 35.4'
    """
    known = [scale * value for value in values if value is not None]
    if not known:
        return None
    return Spread(fmean(known), stdev(known) if len(known) > 1 else None, len(known))


@dataclass(frozen=True)
class Interval:
    """A mean over folds and, with at least three folds, its 95 % interval."""

    mean: float
    low: float | None = None
    high: float | None = None


def paired(one: Sequence[Record], other: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """The records of two methods in the folds that both have."""
    first, second = ({record.fold: record for record in records} for records in (one, other))
    folds = [fold for fold in second if fold in first]
    return [first[fold] for fold in folds], [second[fold] for fold in folds]


def by_fold(records: Sequence[Record], selected: bool = False) -> dict[int, float]:
    """Accuracies in per cent by fold: of the last epoch, or of the selected one."""
    return {r.fold: 100 * _row(r, selected)["accuracy"] for r in records}


def _row(record: Record, selected: bool) -> Mapping[str, float]:
    return (record.selected or {}) if selected else record.final


def interval(values: Sequence[float], records: Sequence[Record]) -> Interval:
    r"""The mean over folds and its t interval, corrected for overlapping training sets.

    The variance of the mean of :math:`k` folds is :math:`(1/k + n_{test}/n_{train}) s^2` (Nadeau &
    Bengio, *Inference for the generalization error*, 2003), with the sizes from the records.
    """
    from scipy.stats import t

    mean, k = fmean(values), len(values)
    if k < FEWEST:
        return Interval(mean)
    half = float(t.ppf(0.5 + LEVEL / 2, k - 1)) * math.sqrt(1 / k + overlap(records))
    half *= stdev(values)
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


def pitman_morgan(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The p-value of equal variances of paired values, by the correlation of sum and difference.

    >>> f"{pitman_morgan([1.0, 4.0, 2.0, 6.0, 3.0], [3.0, 4.0, 2.0, 5.0, 4.0]):.3f}"
    '0.176'
    """
    from scipy.stats import t

    sums = [a + b for a, b in zip(one, other, strict=True)]
    gaps = [a - b for a, b in zip(one, other, strict=True)]
    # A constant sum or difference has no correlation.
    flat = any(len(set(values)) < 2 or stdev(values) < 1e-9 for values in (sums, gaps))
    if len(one) < 3 or flat:
        return None
    r = correlation(sums, gaps)
    # The t statistic would divide by zero.
    if abs(r) >= 1:
        return 0.0
    degrees = len(one) - 2
    return float(2 * t.sf(abs(r) * math.sqrt(degrees / (1 - r * r)), degrees))
