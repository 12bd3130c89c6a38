"""Seconds per epoch, and the epochs and seconds that a method takes to reach an accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from llpkit.experiments.protocol import WARM_UP
from llpkit.experiments.records import Record
from llpkit.experiments.statistics import (
    BOUND,
    FEWEST,
    LEVEL,
    REFERENCE,
    Runs,
    paired,
)
from llpkit.report.spread import Interval, Spread

BELOW = 0.01
"""Distance of the target below a method's own last accuracy."""
_DRAWS = 2000


@dataclass(frozen=True)
class EpochTime:
    """Seconds per epoch of one method, measured alone on the machine.

    Args:
        method: Its name.
        seconds: Over the epochs of all turns, except the first ones of each.
        ratio: To supervised training, over the turns that both have.
        turns: Number of turns.
    """

    method: str
    seconds: Spread
    ratio: Spread | None
    turns: int


def epoch_times(runs: Runs) -> list[EpochTime]:
    """A row for every method."""
    turns = {
        name: {record.fold: _seconds([record]).mean for record in records}
        for name, records in runs.items()
    }
    bound = turns.get(BOUND, {})
    rows = []
    for name, records in runs.items():
        ratios = [its / bound[turn] for turn, its in turns[name].items() if turn in bound]
        ratio = Spread.of(ratios) if ratios else None
        rows.append(EpochTime(name, _seconds(records), ratio, len(turns[name])))
    return rows


def _seconds(records: Sequence[Record]) -> Spread:
    return Spread.of(value for r in records for value in r.history["seconds"][WARM_UP:])


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


def times_to_accuracy(runs: Runs, reference: str = REFERENCE) -> list[TimeToAccuracy]:
    """A row for every method, over the folds that it shares with the reference.

    Supervised training is not compared.
    """
    rows = []
    for name, records in runs.items():
        ours, theirs = paired(runs.get(reference, []), records)
        if ours:
            compared = name not in (reference, BOUND)
            rows.append(_compared(name, _curves(theirs), _curves(ours) if compared else None))
    return rows


def seconds_to_accuracy(records: Sequence[Record]) -> float:
    """Mean seconds of training until the mean curve is one point below its own last accuracy.

    The seconds are those of the runs themselves, so they compare only on one machine.
    """
    epochs = int(_to_own(_curves(records).mean(0, keepdims=True))[1][0])
    return float(np.mean([sum(record.history["seconds"][:epochs]) for record in records]))


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
