"""Means, deviations and intervals over folds."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from llpkit._text import several
from llpkit.experiments.records import Record
from llpkit.report.curves import History
from llpkit.report.spread import Interval

Runs = Mapping[str, Sequence[Record]]
"""The records of one experiment by method, as from :meth:`Results.by_method`."""

REFERENCE, BOUND, PAPERS = "mle", "supervised", "mle-pass"
"""The method of llpkit; the one with all labels; the paper's algorithm."""
LEVEL, FEWEST = 0.95, 3
"""Level of intervals, and the fewest folds for one: two say little about a deviation."""


def references(runs: Runs) -> list[str]:
    """The methods that the others are compared with: the first one, ``mle`` and the paper's.

    The first is the user's choice, in the protocol; supervised training is never one.
    """
    first = [name for name in runs if name != BOUND][:1]
    return list(dict.fromkeys([*first, *(name for name in (REFERENCE, PAPERS) if name in runs)]))


def most_folds(runs: Runs) -> int:
    """The most folds of a method: one has no spread, and less than :data:`FEWEST` no interval."""
    return max((len({record.fold for record in records}) for records in runs.values()), default=0)


def folds_in_words(groups: Sequence[Sequence[Record]]) -> str:
    """The number of folds in some groups of records, in words.

    >>> folds_in_words([[None] * 3] * 2), folds_in_words([[None], [None] * 5])
    ('3 folds', '1 to 5 folds')
    """
    numbers = sorted({len(group) for group in groups})
    if len(numbers) == 1:
        return several(numbers[0], "fold")
    return f"{numbers[0]} to {several(numbers[-1], 'fold')}"


def with_interval(text: str, runs: Runs) -> str:
    """The heading of a column that has intervals, if there are enough folds."""
    return f"{text}, {LEVEL:.0%} interval" if most_folds(runs) >= FEWEST else text


def histories(runs: Runs) -> dict[str, list[History]]:
    """The runs as figures take them."""
    return {name: [_rows(record) for record in records] for name, records in runs.items()}


def _rows(record: Record) -> History:
    columns = record.history
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def paired(one: Sequence[Record], other: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """The records of two methods in the folds that both have."""
    first, second = ({record.fold: record for record in records} for records in (one, other))
    folds = [fold for fold in second if fold in first]
    return [first[fold] for fold in folds], [second[fold] for fold in folds]


def by_fold(records: Sequence[Record], selected: bool = False) -> dict[int, float]:
    """Accuracies in per cent by fold: of the last epoch, or of the selected one."""
    rows = {r.fold: (r.selected or {}) if selected else r.final for r in records}
    return {fold: 100 * row["accuracy"] for fold, row in rows.items()}


def difference(
    one: Sequence[Record], other: Sequence[Record], selected: bool = False
) -> Interval | None:
    """The accuracy of one minus another in points, over the folds that both have, if any."""
    ours, theirs = paired(one, other)
    first, second = by_fold(ours, selected), by_fold(theirs, selected)
    return interval([first[fold] - second[fold] for fold in first], theirs) if first else None


def interval(values: Sequence[float], records: Sequence[Record]) -> Interval:
    r"""The mean over folds and its t interval, corrected for overlapping training sets.

    The variance of the mean of :math:`k` folds is :math:`(1/k + n_{test}/n_{train}) s^2` (Nadeau &
    Bengio, *Inference for the generalization error*, 2003), with the sizes from the records. Folds
    of several partitions can be pooled, as in repeated cross-validation.
    """
    mean, k = fmean(values), len(values)
    if k < FEWEST:
        return Interval(mean)
    return around(mean, _variance(values, records), k - 1)


def unpaired(one: Sequence[Record], other: Sequence[Record]) -> Interval:
    """The mean accuracy of one minus another, in points, with Welch's interval."""
    parts = [(list(by_fold(its).values()), its) for its in (one, other)]
    mean = fmean(parts[0][0]) - fmean(parts[1][0])
    if min(len(values) for values, _ in parts) < FEWEST:
        return Interval(mean)
    variances = [(_variance(values, its), len(values) - 1) for values, its in parts]
    # Welch and Satterthwaite's degrees of freedom.
    total = sum(variance for variance, _ in variances)
    spent = sum(variance**2 / degrees for variance, degrees in variances)
    return around(mean, total, total**2 / spent if spent else 1.0)


def _variance(values: Sequence[float], records: Sequence[Record]) -> float:
    """The variance of a mean over folds whose training sets overlap."""
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


def pitman_morgan(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The p-value of equal variances of paired values, by the correlation of sum and difference.

    >>> f"{pitman_morgan([1.0, 4.0, 2.0, 6.0, 3.0], [3.0, 4.0, 2.0, 5.0, 4.0]):.3f}"
    '0.176'
    """
    from scipy.stats import pearsonr

    sums = [a + b for a, b in zip(one, other, strict=True)]
    gaps = [a - b for a, b in zip(one, other, strict=True)]
    # A constant sum or difference has no correlation.
    flat = any(len(set(values)) < 2 or stdev(values) < 1e-9 for values in (sums, gaps))
    return None if len(one) < 3 or flat else float(pearsonr(sums, gaps).pvalue)
