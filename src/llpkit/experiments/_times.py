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
    bound = turns.get(BOUND, {})
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

    On the same machine, with the same options, and compiled or not as the runs of the group were.
    """
    found = {}
    for name, records in group.runs.items():
        wanted = {(*_timing(record), hardware_of(record), compiled(record)) for record in records}
        for other in timed:
            machine = other.setting["hardware"], other.setting["compiled"]
            for its in other.runs.values():
                seconds = _seconds(its)
                same = _alike(group, other) and wanted == {(*_timing(its[0]), *machine)}
                if same and seconds:
                    found[name] = seconds.mean
    return found


def untimed(group: Group, timed: Sequence[Group]) -> dict[str, str]:
    """Why there are no seconds, for each method that has none."""
    known, found = alone(group, timed), {}
    for name, records in group.runs.items():
        if name in known:
            continue
        ways = {_timing(record) for record in records}
        machines = sorted({_machine(hardware_of(r), compiled(r)) for r in records})
        there = sorted(
            {
                _machine(other.setting["hardware"], other.setting["compiled"])
                for other in timed
                for its in other.runs.values()
                if _alike(group, other) and _timing(its[0]) in ways and _seconds(its)
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


def _alike(group: Group, timed: Group) -> bool:
    """Whether the settings agree in what the time of an epoch depends on."""
    ignored = dict.fromkeys(("held_out", "hardware", "compiled", "seed", "bag_size", "epochs"))
    return group.setting | ignored == timed.setting | ignored


def _timing(record: Record) -> tuple[str, str]:
    """What of a method the time of an epoch depends on."""
    return record["run"]["method"], json.dumps(record["run"]["method_options"], sort_keys=True)


@dataclass(frozen=True)
class Reach:
    """How long a method takes to one point below its own last accuracy, and a reference to that.

    Epochs are by the mean curve over folds; their intervals are bootstrapped over folds, and
    ``median_epochs`` is that of the folds' own curves to their own targets. ``None`` is never, or
    for the ends of an interval nothing that can be said. The bound is compared with nothing.
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
        if name not in (reference, BOUND):
            ours = curves[reference]
            mine = _first(ours.mean(0, keepdims=True), target)
            ratios = drawn / _first(ours[draws].mean(1), targets)
            low, high = _ends(ratios, folds, _number)
            same = _whole(mine[0])
            row = replace(
                row,
                compared=True,
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
