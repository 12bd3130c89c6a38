"""What the records say, in numbers: statistics over the folds of comparable runs.

Accuracy is that of the last epoch. Where held-out bags were kept, the accuracy at the epoch with
their best likelihood stands beside it under its own name. No best test epoch appears anywhere.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from llpkit.experiments._groups import Group, hardware_of
from llpkit.experiments._plan import WARM_UP
from llpkit.experiments._run import Record
from llpkit.report import Calibration, Series

REFERENCE, BOUND = "mle", "supervised"
LEVEL = 0.95
BELOW = 0.01
"""Time to accuracy: how far below a rival's own last accuracy the target lies."""

PAPER_SECONDS = {
    "group-photos": {
        "mle": 16.66,
        "amle": 29.33,
        "dllp": 30.38,
        "llp-gan": 77.01,
        "supervised": 12.81,
    },
    "cifar10": {"mle": 7.78, "amle": 20.23, "dllp": 18.66, "llp-gan": 51.20, "supervised": 3.65},
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
    """Reference minus rival, fold by fold; an interval from two folds on."""

    rival: str
    folds: int
    mean: float
    low: float | None
    high: float | None


def differences(group: Group, reference: str = REFERENCE) -> list[Difference]:
    """Paired differences of accuracy, in points, with t intervals over folds.

    The training sets of two folds overlap, so that the folds are not independent and the intervals
    are somewhat too narrow.
    """
    ours = {r["run"]["fold"]: r["final"]["accuracy"] for r in group.runs.get(reference, [])}
    found = []
    for name, records in group.runs.items():
        theirs = {r["run"]["fold"]: r["final"]["accuracy"] for r in records}
        pairs = [100 * (ours[fold] - theirs[fold]) for fold in theirs if fold in ours]
        if name == reference or not pairs:
            continue
        mean = fmean(pairs)
        low = high = None
        if len(pairs) > 1:
            half = _t_quantile(len(pairs) - 1) * stdev(pairs) / math.sqrt(len(pairs))
            low, high = mean - half, mean + half
        found.append(Difference(name, len(pairs), mean, low, high))
    return found


def _t_quantile(degrees: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + LEVEL / 2, degrees))


def per_doubling(by_size: Mapping[int, float]) -> float | None:
    """What a doubling of the bags costs: the least-squares slope over the logarithm of the size.

    >>> per_doubling({2: 90.0, 4: 86.0, 8: 80.0})
    -5.0
    """
    if len(by_size) < 2:
        return None
    steps = [math.log2(size) for size in by_size]
    middle, mean = fmean(steps), fmean(by_size.values())
    pairs = zip(steps, by_size.values(), strict=True)
    return sum((x - middle) * (y - mean) for x, y in pairs) / sum((x - middle) ** 2 for x in steps)


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


def mean_curve(records: Sequence[Record], key: str = "test_accuracy") -> list[float]:
    """The mean over folds, epoch by epoch."""
    columns = [record["history"][key] for record in records]
    return [fmean(values) for values in zip(*columns, strict=False)]


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
    paper = PAPER_SECONDS.get(group.dataset, {})
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
    """For the methods of a group, seconds an epoch measured alone on the same hardware."""
    ignored = {"held_out": None, "hardware": "", "compiled": "", "seed": 0, "bag_size": None}
    machines = {hardware_of(record) for records in group.runs.values() for record in records}
    for other in timed:
        alike = group.setting | ignored == other.setting | ignored
        if alike and other.setting["hardware"] in machines:
            return {each.method: each.epoch_seconds for each in epoch_times(other)}
    return {}


@dataclass(frozen=True)
class Reach:
    """How long a rival and the reference take to a target accuracy; ``None`` if never."""

    rival: str
    target: float
    rival_epochs: int | None
    reference_epochs: int | None
    rival_seconds: float | None = None
    reference_seconds: float | None = None


def reaches(group: Group, seconds: dict[str, float], reference: str = REFERENCE) -> list[Reach]:
    """Epochs and time to one point below each rival's own last accuracy, by mean curves."""
    if reference not in group.runs:
        return []
    ours = mean_curve(group.runs[reference])
    found = []
    for name, records in group.runs.items():
        if name in (reference, BOUND):
            continue
        curve = mean_curve(records)
        target = curve[-1] - BELOW
        theirs, mine = _first(curve, target), _first(ours, target)
        found.append(
            Reach(
                name,
                target,
                theirs,
                mine,
                seconds[name] * theirs if theirs and name in seconds else None,
                seconds[reference] * mine if mine and reference in seconds else None,
            )
        )
    return found


def _first(curve: Sequence[float], target: float) -> int | None:
    return next((epoch for epoch, value in enumerate(curve, 1) if value >= target), None)
