"""What the records say of time: seconds an epoch, epochs and seconds to an accuracy."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from llpkit.experiments._groups import Group, compiled, hardware_of
from llpkit.experiments._plan import WARM_UP
from llpkit.experiments._run import Record
from llpkit.experiments._summary import (
    BOUND,
    FEWEST,
    LEVEL,
    PAPERS,
    REFERENCE,
    Spread,
    spread,
)

BELOW = 0.01
"""Time to accuracy: how far below a method's own last accuracy the target lies."""
_DRAWS = 2000
_NO_WORK = {"step", "weight"}
"""Options of methods that are factors: the work of a step is the same with any."""

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
class EpochTime:
    """Seconds an epoch of one method, measured alone: mean and one standard deviation.

    ``epoch_ratio`` is the mean, over turns that both have, of the ratio to supervised training.
    """

    method: str
    epoch_seconds: float
    epoch_seconds_sd: float | None
    epoch_ratio: float | None
    epoch_ratio_sd: float | None
    epochs: int
    turns: int
    paper: float | None
    paper_ratio: float | None


def epoch_times(group: Group) -> list[EpochTime]:
    """The time of an epoch, over the epochs of all turns less the first of each."""
    turns = {name: _by_turn(records) for name, records in group.runs.items()}
    bound = turns.get(group.named(BOUND) or "", {})
    paper = dict(PAPER_SECONDS.get(group.dataset, {}))
    if paper:  # beside both, which the page explains
        paper[REFERENCE] = paper[PAPERS]
    found = []
    for name, records in group.runs.items():
        each = _seconds(records)
        if each is None:
            continue
        ratios = spread(its / bound[turn] for turn, its in turns[name].items() if turn in bound)
        found.append(
            EpochTime(
                name,
                each.mean,
                each.sd,
                None if ratios is None else ratios.mean,
                None if ratios is None else ratios.sd,
                each.number,
                len(turns[name]),
                paper.get(name),
                None if name not in paper else paper[name] / paper[BOUND],
            )
        )
    return found


def _by_turn(records: Sequence[Record]) -> dict[int, float]:
    """Mean seconds an epoch of each turn."""
    each = {record["run"]["fold"]: _seconds([record]) for record in records}
    return {turn: found.mean for turn, found in each.items() if found is not None}


def _seconds(records: Sequence[Record]) -> Spread | None:
    parts = [record["history"]["seconds"] for record in records if record["jobs"] == 1]
    return spread(value for part in parts for value in part[WARM_UP:])


def alone(group: Group, timed: Sequence[Group]) -> dict[str, float]:
    """Seconds an epoch of a group's methods, measured alone.

    On the same machine, compiled or not as the runs of the group were, and with the same work in a
    step: a learning rate or the weight of a loss does not change it.
    """
    found = {}
    for name, records in group.runs.items():
        wanted = {(*_work(record), *_machine_of(record)) for record in records}
        same = [
            record
            for record in _timed_like(group, timed)
            if wanted == {(*_work(record), *_machine_of(record))}
        ]
        seconds = _seconds(same)
        if seconds:
            found[name] = seconds.mean
    return found


def untimed(group: Group, timed: Sequence[Group]) -> dict[str, str]:
    """Why there are no seconds, for each method that has none."""
    known, found = alone(group, timed), {}
    for name, records in group.runs.items():
        if name in known:
            continue
        works = {_work(record) for record in records}
        machines = sorted({_machine(*_machine_of(record)) for record in records})
        there = sorted(
            {
                _machine(*_machine_of(record))
                for record in _timed_like(group, timed)
                if _work(record) in works and _seconds([record])
            }
        )
        if not there:
            found[name] = "no timed runs in this setting"
        elif len(machines) > 1:
            found[name] = f"runs of several kinds ({'; '.join(machines)})"
        else:
            found[name] = f"runs of {machines[0]}, but timed ones of {'; '.join(there)}"
    return found


def _machine(hardware: str, compiled: str) -> str:
    return f"{hardware}, {compiled or 'not compiled'}"


def _machine_of(record: Record) -> tuple[str, str]:
    return hardware_of(record), compiled(record)


def _timed_like(group: Group, timed: Sequence[Group]) -> list[Record]:
    """Timed records of the same data, batches, augmentation and precision."""
    keys = ("dataset", "size", "batch_size", "augment", "precision")
    alike = [other for other in timed if all(group.setting[k] == other.setting[k] for k in keys)]
    return [record for other in alike for record in other.records]


def _work(record: Record) -> tuple[str, str, str]:
    """What of a method the time of a step depends on."""
    run = record["run"]
    own = {k: v for k, v in run["method_options"].items() if k not in _NO_WORK}
    return run["method"], run["network"], json.dumps(own, sort_keys=True)


@dataclass(frozen=True)
class Reach:
    """How long a method takes to one point below its own last accuracy, and a reference to that.

    ``ratio`` has the reference's epochs to the same accuracy, ``own_ratio`` its epochs to one point
    below its own last one. Epochs are by the mean curve over folds; their intervals are
    bootstrapped over folds, and ``median_epochs`` is that of the folds' own curves to their own
    targets. ``None`` is never, or for the ends of an interval nothing that can be said. The bound
    is compared with nothing.
    """

    method: str
    target: float
    epochs: int | None
    epochs_low: int | None
    epochs_high: int | None
    median_epochs: float
    compared: bool = False
    reference_epochs: int | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    own_ratio: float | None = None
    own_ratio_low: float | None = None
    own_ratio_high: float | None = None
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
        low, high = _ends(drawn, folds, _whole)
        median = float(np.median(_to_own(own)[1]))
        row = Reach(name, float(target[0]), _whole(epochs[0]), low, high, median)
        if name != reference and not group.is_of(name, BOUND):
            ours, redrawn = (
                curves[reference].mean(0, keepdims=True),
                curves[reference][draws].mean(1),
            )
            same = _whole(_first(ours, target)[0])
            low, high = _ends(drawn / _first(redrawn, targets), folds, _number)
            own_low, own_high = _ends(drawn / _to_own(redrawn)[1], folds, _number)
            row = replace(
                row,
                compared=True,
                reference_epochs=same,
                ratio=None if same is None or row.epochs is None else row.epochs / same,
                ratio_low=low,
                ratio_high=high,
                own_ratio=float(epochs[0] / _to_own(ours)[1][0]),
                own_ratio_low=own_low,
                own_ratio_high=own_high,
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
    if folds < FEWEST:
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
