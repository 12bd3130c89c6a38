"""What the records say, in numbers: statistics over the folds of comparable runs.

Accuracy is that of the last epoch. Where held-out bags were kept, the accuracy at the epoch with
their best likelihood stands beside it under its own name. No best test epoch appears anywhere.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import correlation, fmean, linear_regression, stdev
from typing import Any

import numpy as np

from llpkit.experiments._groups import Group, compiled, hardware_of
from llpkit.experiments._plan import WARM_UP
from llpkit.experiments._run import Record
from llpkit.report import Calibration, Series

REFERENCE, BOUND = "mle", "supervised"
PAPERS = "mle-pass"
"""The paper's own algorithm: ``mle`` whose targets come from a pass over the training data."""
LEVEL = 0.95
BELOW = 0.01
"""Time to accuracy: how far below a method's own last accuracy the target lies."""
_DRAWS = 2000

PAPER_SECONDS = {
    "group-photos": {
        PAPERS: 16.66,
        "amle": 29.33,
        "dllp": 30.38,
        "llp-gan": 77.01,
        "supervised": 12.81,
    },
    "cifar10": {PAPERS: 7.78, "amle": 20.23, "dllp": 18.66, "llp-gan": 51.20, "supervised": 3.65},
}
"""Seconds an epoch in the paper, on the card of its authors."""


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


@dataclass(frozen=True)
class Difference:
    """Reference minus rival, fold by fold, in points; an interval from two folds on.

    ``sd_reference`` and ``sd_rival`` are the deviations of their accuracies from fold to fold, and
    ``equal_spread`` is the probability of as large a difference between them if they were equal.
    """

    rival: str
    folds: int
    mean: float
    low: float | None
    high: float | None
    sd_reference: float | None = None
    sd_rival: float | None = None
    equal_spread: float | None = None


def differences(group: Group, reference: str = REFERENCE) -> list[Difference]:
    """Paired differences of accuracy, in points, with corrected intervals over folds."""
    ours = _by_fold(group.runs.get(reference, []))
    found = []
    for name, records in group.runs.items():
        theirs = _by_fold(records)
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
            )
        )
    return found


def _by_fold(records: Sequence[Record]) -> dict[int, float]:
    return {r["run"]["fold"]: 100 * r["final"]["accuracy"] for r in records}


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
    if k < 2:
        return mean, None, None
    share = fmean(r["data"]["instances"][1] / r["data"]["instances"][0] for r in records)
    half = float(t.ppf(0.5 + LEVEL / 2, k - 1)) * math.sqrt(1 / k + share) * stdev(values)
    return mean, mean - half, mean + half


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
    """Points that a doubling of the bags costs, over these sizes and folds."""

    mean: float
    low: float | None
    high: float | None
    sizes: Sequence[int]
    folds: int


def slope(records: Sequence[Record], key: str = "final") -> Slope | None:
    """The slope of accuracy over the logarithm of the size by folds, at sizes that all have."""
    by_fold: dict[int, dict[int, float]] = {}
    for record in records:
        run = record["run"]
        by_fold.setdefault(run["fold"], {})[run["bag_size"]] = 100 * record[key]["accuracy"]
    common = sorted(set.intersection(*map(set, by_fold.values()))) if by_fold else []
    if len(common) < 2:
        return None
    slopes = [per_doubling({size: own[size] for size in common}) for own in by_fold.values()]
    return Slope(*interval(slopes, records), common, len(slopes))


def per_doubling(by_size: Mapping[int, float]) -> float:
    """What a doubling of the bags costs: the least-squares slope over the logarithm of the size.

    >>> per_doubling({2: 90.0, 4: 86.0, 8: 80.0})
    -5.0
    """
    return linear_regression([math.log2(size) for size in by_size], list(by_size.values())).slope


# Curves, calibration, times


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
            bins.setdefault(min(int(10 * p), 9), []).append((p, observed, number))
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


@dataclass(frozen=True)
class EpochTime:
    """Seconds an epoch of one method, measured alone: mean and one standard deviation."""

    method: str
    epoch_seconds: float
    epoch_seconds_sd: float | None
    epoch_ratio: float | None
    epochs: int
    paper: float | None
    paper_ratio: float | None


def epoch_times(group: Group) -> list[EpochTime]:
    """The time of an epoch, over the epochs of all turns less the first of each."""
    found = {name: _seconds(records) for name, records in group.runs.items()}
    bound = found.get(BOUND)
    paper = dict(PAPER_SECONDS.get(group.dataset, {}))
    if paper:  # beside both, which the page explains
        paper[REFERENCE] = paper[PAPERS]
    return [
        EpochTime(
            name,
            each.mean,
            each.sd,
            None if bound is None else each.mean / bound.mean,
            each.number,
            paper.get(name),
            None if name not in paper else paper[name] / paper[BOUND],
        )
        for name, each in found.items()
        if each is not None
    ]


def _seconds(records: Sequence[Record]) -> Spread | None:
    parts = [record["history"]["seconds"] for record in records if record["jobs"] == 1]
    return spread(value for part in parts for value in part[WARM_UP:])


def alone(group: Group, timed: Sequence[Group]) -> dict[str, float]:
    """Seconds an epoch of a group's methods, measured alone.

    On the same machine, with the same options, and compiled or not as the runs of the group were.
    """
    ignored = dict.fromkeys(("held_out", "hardware", "compiled", "seed", "bag_size", "epochs"))
    found = {}
    for name, records in group.runs.items():
        wanted = {(*_timing(record), hardware_of(record), compiled(record)) for record in records}
        for other in timed:
            machine = other.setting["hardware"], other.setting["compiled"]
            for its in other.runs.values():
                alike = group.setting | ignored == other.setting | ignored
                seconds = _seconds(its)
                if alike and seconds and wanted == {(*_timing(its[0]), *machine)}:
                    found[name] = seconds.mean
    return found


def _timing(record: Record) -> tuple[str, str]:
    """What of a method the time of an epoch depends on."""
    return record["run"]["method"], json.dumps(record["run"]["method_options"], sort_keys=True)


@dataclass(frozen=True)
class Reach:
    """How long a method takes to one point below its own last accuracy, and a reference to that.

    Epochs are by the mean curve over folds; their intervals are bootstrapped over folds. ``None``
    is never, or for the ends of an interval nothing that can be said.
    """

    method: str
    target: float
    epochs: int | None
    epochs_low: int | None
    epochs_high: int | None
    reference_epochs: int | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    seconds: float | None = None
    reference_seconds: float | None = None


def reaches(group: Group, seconds: Mapping[str, float], reference: str = REFERENCE) -> list[Reach]:
    """Epochs and time to accuracy, of a group whose methods have the same folds."""
    if reference not in group.runs:
        return []
    curves = {
        name: np.array([r["history"]["test_accuracy"] for r in records])  # (folds, epochs)
        for name, records in group.runs.items()
    }
    folds = len(curves[reference])
    # Drawn once, so that a draw has the same folds for all methods.
    draws = np.random.default_rng(0).integers(folds, size=(_DRAWS, folds))
    found = []
    for name, own in curves.items():
        target, epochs = _to_own(own.mean(0, keepdims=True))
        targets, drawn = _to_own(own[draws].mean(1))
        row = Reach(name, float(target[0]), _whole(epochs[0]), *_ends(drawn, folds, _whole))
        if name not in (reference, BOUND):
            ours = curves[reference]
            mine = _first(ours.mean(0, keepdims=True), target)
            ratios = drawn / _first(ours[draws].mean(1), targets)
            low, high = _ends(ratios, folds, _number)
            same = _whole(mine[0])
            row = replace(
                row,
                reference_epochs=same,
                ratio=None if same is None or row.epochs is None else row.epochs / same,
                ratio_low=low,
                ratio_high=high,
                reference_seconds=_times(same, seconds.get(reference)),
            )
        found.append(replace(row, seconds=_times(row.epochs, seconds.get(name))))
    return found


def _to_own(curves: Any) -> tuple[Any, Any]:
    """For each curve one point below its end, and the first epoch at that."""
    targets = curves[:, -1] - BELOW
    return targets, _first(curves, targets)


def _first(curves: Any, targets: Any) -> Any:
    """The first epoch at which each curve is at its target; infinite if never."""
    there = curves >= targets[:, None]
    return np.where(there.any(1), there.argmax(1) + 1.0, np.inf)


def _ends(drawn: Any, folds: int, kind: Any) -> tuple[Any, Any]:
    if folds < 2:
        return None, None
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail), method="inverted_cdf")
    return kind(low), kind(high)


def _whole(value: Any) -> int | None:
    return int(value) if np.isfinite(value) else None


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _times(epochs: int | None, seconds: float | None) -> float | None:
    return None if epochs is None or seconds is None else epochs * seconds
