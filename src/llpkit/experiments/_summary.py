"""What the records say, in numbers: statistics over the folds of comparable runs.

Accuracy is that of the last epoch. Where held-out bags were kept, the accuracy at the epoch with
their best likelihood stands beside it under its own name. No best test epoch appears anywhere.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import correlation, fmean, linear_regression, stdev

from llpkit.experiments._groups import Group, by_number
from llpkit.experiments._run import Record
from llpkit.report._data import Calibration, Series

REFERENCE, BOUND = "mle", "supervised"
PAPERS = "mle-pass"
"""The paper's own algorithm: ``mle`` whose targets come from a pass over the training data."""
BINS = 10
LEVEL, FEWEST = 0.95, 3
"""Of intervals, and the fewest folds that have one: two say next to nothing of a deviation."""
SELECTS = "held_out_log_likelihood"
"""By what the selected epoch is."""


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of ``number`` values; no deviation of a single one."""

    mean: float
    sd: float | None
    number: int

    def __format__(self, spec: str) -> str:
        """The mean, and ± the deviation where there is one; ``%`` is left to the caller."""
        around = "" if self.sd is None else f" ± {self.sd:{spec}}"
        return f"{self.mean:{spec}}{around}"


def spread(values: Iterable[float | None], scale: float = 1.0) -> Spread | None:
    """Mean and deviation of what is known.

    >>> f"{spread([0.25, None, 0.75], scale=100):.1f}"
    '50.0 ± 35.4'
    """
    known = [scale * value for value in values if value is not None]
    if not known:
        return None
    return Spread(fmean(known), stdev(known) if len(known) > 1 else None, len(known))


def final(records: Sequence[Record], key: str, scale: float = 1.0) -> Spread | None:
    """A measure at the last epoch, over folds."""
    return spread((record["final"].get(key) for record in records), scale)


def selected(records: Sequence[Record], key: str, scale: float = 1.0) -> Spread | None:
    """A measure at the epoch that held-out bags chose, where all records have one."""
    chosen = [record["selected"] for record in records]
    if not chosen or None in chosen:
        return None
    return spread((row.get(key) for row in chosen), scale)


def sampling_sd(records: Sequence[Record]) -> float:
    r"""The deviation, in points, that sampling the test instances alone would give an accuracy.

    The mean over folds of :math:`\sqrt{p (1 - p) / n}` for an accuracy :math:`p` on :math:`n`
    instances.
    """
    each = ((r["final"]["accuracy"], r["data"]["instances"][1]) for r in records)
    return 100 * fmean(math.sqrt(p * (1 - p) / number) for p, number in each)


def band(records: Sequence[Record]) -> float | None:
    """The deviation of test accuracy over folds, in points: its mean over all epochs.

    None of a single fold, and where accuracy was not measured after every epoch.
    """
    curves = [record["history"].get("test_accuracy", [None]) for record in records]
    if len(curves) < 2 or any(value is None for curve in curves for value in curve):
        return None
    return 100 * fmean(stdev(values) for values in zip(*curves, strict=True))


@dataclass(frozen=True)
class Difference:
    """Reference minus rival, fold by fold, in points; an interval from three folds on.

    ``sd_reference`` and ``sd_rival`` are the deviations of their accuracies from fold to fold, and
    ``equal_spread`` is the probability of as large a difference between them if they were equal.
    ``along`` is the difference's mean over all epochs, and ``ahead`` the number of epochs after
    which the reference's mean over folds is above the rival's; both are unknown where accuracy was
    not measured after every epoch.
    """

    rival: str
    folds: int
    mean: float
    low: float | None
    high: float | None
    sd_reference: float | None = None
    sd_rival: float | None = None
    equal_spread: float | None = None
    along: float | None = None
    along_low: float | None = None
    along_high: float | None = None
    ahead: int | None = None
    epochs: int | None = None


def differences(group: Group, reference: str = REFERENCE) -> list[Difference]:
    """Paired differences of accuracy, in points, with corrected intervals over folds."""
    ours = by_fold(group.runs.get(reference, []))
    found = []
    for name, records in group.runs.items():
        theirs = by_fold(records)
        folds = [fold for fold in theirs if fold in ours]
        if name == reference or not folds:
            continue
        mine, other = [ours[f] for f in folds], [theirs[f] for f in folds]
        mean, low, high = interval([m - o for m, o in zip(mine, other, strict=True)], records)
        found.append(
            Difference(
                name,
                len(folds),
                mean,
                low,
                high,
                stdev(mine) if len(folds) > 1 else None,
                stdev(other) if len(folds) > 1 else None,
                pitman_morgan(mine, other),
                *_along(group.runs[reference], records, folds),
            )
        )
    return found


def _along(
    ours: Sequence[Record], theirs: Sequence[Record], folds: Sequence[int]
) -> tuple[float | None, float | None, float | None, int | None, int | None]:
    """The mean difference over all epochs with its interval, and how many of them are positive."""
    mine, other = (
        {r["run"]["fold"]: r["history"].get("test_accuracy", [None]) for r in records}
        for records in (ours, theirs)
    )
    curves = [curve for fold in folds for curve in (mine[fold], other[fold])]
    epochs = len(curves[0])
    if any(len(curve) != epochs or None in curve for curve in curves):
        return None, None, None, None, None
    apart = [[100 * (m - o) for m, o in zip(mine[f], other[f], strict=True)] for f in folds]
    ahead = sum(fmean(at_epoch) > 0 for at_epoch in zip(*apart, strict=True))
    return *interval([fmean(its) for its in apart], theirs), ahead, epochs


def by_fold(records: Sequence[Record], key: str = "final") -> dict[int, float]:
    """Accuracies in per cent by fold: of the last epoch, or of the one that was selected."""
    return {r["run"]["fold"]: 100 * r[key]["accuracy"] for r in records}


def interval(
    values: Sequence[float], records: Sequence[Record]
) -> tuple[float, float | None, float | None]:
    r"""The mean over folds and its t interval, corrected for training sets that overlap.

    The variance of the mean of :math:`k` folds is taken as :math:`(1/k + n_{test}/n_{train}) s^2`
    (Nadeau & Bengio, *Inference for the generalization error*, 2003), with the parts' sizes from
    the records.
    """
    from scipy.stats import t

    mean, k = fmean(values), len(values)
    if k < FEWEST:
        return mean, None, None
    half = float(t.ppf(0.5 + LEVEL / 2, k - 1)) * math.sqrt(1 / k + _share(records)) * stdev(values)
    return mean, mean - half, mean + half


def _share(records: Sequence[Record]) -> float:
    """Instances tested on over instances learnt from, in a fold; held-out bags are neither."""
    shares = []
    for record in records:
        trained, tested = record["data"]["instances"]
        kept = 1 - held_out_bags(record) / record["data"]["bags"][0]
        shares.append(tested / (kept * trained))
    return fmean(shares)


def held_out_bags(record: Record) -> int:
    """How many bags of its training folds a run kept to select by.

    >>> held_out_bags({"run": {"held_out": 0.1}, "data": {"bags": [84, 9]}})
    8
    """
    bags, share = record["data"]["bags"][0], record["run"]["held_out"]
    return 0 if share is None else bags - round((1 - share) * bags)


def pitman_morgan(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The p-value of equal variances of paired values: sum and difference are then uncorrelated.

    >>> f"{pitman_morgan([1.0, 4.0, 2.0, 6.0, 3.0], [3.0, 4.0, 2.0, 5.0, 4.0]):.3f}"
    '0.176'
    """
    from scipy.stats import t

    sums = [a + b for a, b in zip(one, other, strict=True)]
    gaps = [a - b for a, b in zip(one, other, strict=True)]
    flat = any(len(set(values)) < 2 or stdev(values) < 1e-9 for values in (sums, gaps))
    if len(one) < 3 or flat:
        return None
    r = correlation(sums, gaps)
    if abs(r) >= 1:
        return 0.0
    degrees = len(one) - 2
    return float(2 * t.sf(abs(r) * math.sqrt(degrees / (1 - r * r)), degrees))


@dataclass(frozen=True)
class Slope:
    """Points that a doubling of the bags costs, over these sizes and this many runs."""

    mean: float
    low: float | None
    high: float | None
    sizes: Sequence[int]
    runs: int


def slope(records: Sequence[Record], key: str = "final") -> Slope | None:
    r"""The slope of accuracy over the logarithm of the size, by a line through all runs.

    Bags of another size are other bags: a fold of one size has nothing to do with that fold of the
    next, and runs are not paired over sizes. The t interval is that of the regression, with
    :math:`(1/k + n_{test}/n_{train}) s^2` for the variance of the mean of :math:`k` folds of one
    size, whose training sets overlap.
    """
    sizes = by_number(records)
    if len(sizes) < 2:
        return None
    x = {size: math.log2(size) for size in sizes}
    points = [(x[size], value) for size, its in sizes.items() for value in _points(its, key)]
    fitted = linear_regression(*zip(*points, strict=True))
    least = min(map(len, sizes.values()))
    if least < FEWEST:
        return Slope(fitted.slope, None, None, list(sizes), len(points))
    degrees, middle = len(points) - 2, fmean(at for at, _ in points)
    rest = sum((y - fitted.intercept - fitted.slope * at) ** 2 for at, y in points) / degrees
    width = sum((at - middle) ** 2 for at, _ in points)
    variance = rest * sum(
        (len(its) * (x[size] - middle) / width) ** 2 * (1 / len(its) + _share(its))
        for size, its in sizes.items()
    )
    return _around(fitted.slope, variance, degrees, list(sizes), len(points))


def doubling(records: Sequence[Record], step: tuple[int, int], key: str = "final") -> Slope | None:
    """The same between two sizes alone: Welch's interval, of two samples that are not paired."""
    sizes = {size: its for size, its in by_number(records).items() if size in step}
    if len(sizes) < 2:
        return None
    means, parts, number = [], [], 0
    for its in sizes.values():
        values = _points(its, key)
        number += len(values)
        means.append(fmean(values))
        if len(values) >= FEWEST:
            parts.append((stdev(values) ** 2 * (1 / len(values) + _share(its)), len(values) - 1))
    doublings = math.log2(step[1] / step[0])
    mean = (means[1] - means[0]) / doublings
    if len(parts) < 2:
        return Slope(mean, None, None, list(sizes), number)
    variance = sum(part for part, _ in parts)
    spent = sum(part**2 / degrees for part, degrees in parts)
    degrees = variance**2 / spent if spent else 1.0
    return _around(mean, variance / doublings**2, degrees, list(sizes), number)


def _around(
    mean: float, variance: float, degrees: float, sizes: Sequence[int], number: int
) -> Slope:
    from scipy.stats import t

    half = float(t.ppf(0.5 + LEVEL / 2, degrees)) * math.sqrt(variance)
    return Slope(mean, mean - half, mean + half, sizes, number)


def _points(records: Sequence[Record], key: str) -> list[float]:
    return [100 * record[key]["accuracy"] for record in records]


# Curves, calibration


def series(name: str, records: Sequence[Record]) -> list[Series]:
    """The learning curves of a method, one a fold."""
    made = []
    for record in records:
        columns = record["history"]
        history = [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
        made.append(Series(name, record["run"]["fold"], history))
    return made


def calibration(name: str, records: Sequence[Record]) -> Calibration:
    """The reliability of all folds together, in ten bins."""
    bins: dict[int, list[tuple[float, float, int]]] = {}
    for record in records:
        found = record["calibration"]
        columns = (found[key] for key in ("mean_predicted", "fraction_positive", "number"))
        for p, observed, number in zip(*columns, strict=True):
            bins.setdefault(min(int(BINS * p), BINS - 1), []).append((p, observed, number))
    sums = [
        (
            sum(p * n for p, _, n in rows) / sum(n for *_, n in rows),
            sum(f * n for _, f, n in rows) / sum(n for *_, n in rows),
            sum(n for *_, n in rows),
        )
        for _, rows in sorted(bins.items())
    ]
    predicted, observed, numbers = zip(*sums, strict=True) if sums else ((), (), ())
    return Calibration(name, list(predicted), list(observed), list(numbers))
