"""Hyper-parameters of every method on its own, chosen by the likelihood of held-out bags.

The search goes axis by axis: the candidates of a stage differ in its axes alone and are otherwise
what the stages before chose. In each fold of the cross-validation a tenth of the *training* bags is
held out; a candidate's score is the mean over folds of the last epoch's mean exact log-likelihood
of these bags. The test fold is neither looked at nor recorded.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from llpkit.errors import LLPError
from llpkit.experiments._execute import Display, Outcome, execute
from llpkit.experiments._plan import (
    DEFAULT_LR,
    HELD_OUT,
    LR,
    Choice,
    Settings,
    choices_without_grid,
    folds_of,
    make,
)
from llpkit.experiments._run import Record, Run, Store, write_json
from llpkit.experiments._work import Place
from llpkit.methods import METHODS

RULE = (
    f"the best mean over folds of the last epoch's mean exact log-likelihood of held-out bags, "
    f"{HELD_OUT:.0%} of the training bags; test instances are not looked at"
)

Stage = Mapping[str, Sequence[Any]]

_RATES = {"lr": (3e-4, 1e-3, 3e-3)}
_DECAYS = {"weight_decay": (0.0, 0.05)}
_STAGES: dict[str, tuple[Stage, ...]] = {
    "mle": (_RATES, _DECAYS, {"refresh": ("running", "pass")}),
    "llp-gan": ({"weight": (0.1, 1.0, 10.0)}, {"lr": (1e-4, 3e-4, 1e-3)}, _DECAYS),
}
_QUICK: tuple[Stage, ...] = ({"lr": (1e-3, 3e-3)},)


@dataclass(frozen=True)
class Search:
    """How far the search for one method has come.

    Args:
        runs: All it has asked for so far, done or not.
        candidates: What was tried, with its scores.
        choice: What was chosen, once every stage is complete.
    """

    runs: Sequence[Run]
    candidates: Sequence[Record]
    choice: Choice | None


def stages(method: str, quick: bool = False) -> tuple[Stage, ...]:
    """The axes of a method's grid, stage by stage; as many learning rates for every method.

    >>> stages("mle")[0]
    {'lr': (0.0003, 0.001, 0.003)}
    """
    return _QUICK if quick else _STAGES.get(method, (_RATES, _DECAYS))


def search(method: str, settings: Settings, store: Store) -> Search:
    """Go through the stages as far as the records reach."""
    records = {record["id"]: record for record in store.read("grid")}
    failed = {record["id"]: record for record in store.errors("grid")}
    best: dict[str, Any] = {"lr": LR.get(method, DEFAULT_LR), "weight_decay": 0.0}
    runs: dict[str, Run] = {}
    tried: dict[str, Record] = {}
    for stage in stages(method, settings.quick):
        scored: list[tuple[float, dict[str, Any]]] = []
        for values in itertools.product(*stage.values()):
            candidate = best | dict(zip(stage, values, strict=True))
            its_runs = _runs(method, settings, candidate)
            runs |= {run.id: run for run in its_runs}
            found = [records.get(run.id) for run in its_runs]
            row = _row(candidate, found, [failed.get(run.id) for run in its_runs])
            tried[json.dumps(candidate, sort_keys=True)] = row
            if row["score"] is not None:
                scored.append((row["score"], candidate))
        waiting = [run for run in runs.values() if run.id not in records | failed]
        if waiting or not scored:
            return Search(list(runs.values()), list(tried.values()), None)
        best = max(scored, key=lambda pair: pair[0])[1]
    return Search(list(runs.values()), list(tried.values()), _choice(best, "grid"))


def run_grid(
    settings: Settings,
    store: Store,
    place: Place,
    *,
    backend: str = "loky",
    display: Display | None = None,
) -> Outcome:
    """Search for every method, write what was chosen, and say how it went."""
    methods = settings.methods or list(METHODS)
    total = Outcome(0, 0, [], 0)
    asked: set[str] = set()
    while True:
        found = {method: search(method, settings, store) for method in methods}
        runs = [run for s in found.values() for run in s.runs if run.id not in asked]
        if not runs:
            break
        asked |= {run.id for run in runs}
        part = execute(runs, store, place, backend=backend, display=display)
        total = Outcome(
            total.before + part.before,
            total.now + part.now,
            [*total.failed, *part.failed],
            total.left + part.left,
        )
        if part.left:
            break
    _write(settings, store, found)
    return total


def choices(settings: Settings, store: Store) -> dict[str, Choice]:
    """Hyper-parameters of every method: the user's over the grid's over the defaults."""
    found = choices_without_grid(settings)
    path = next(
        (p for p in (_path(f, settings.dataset) for f in store.folders) if p.exists()), None
    )
    if path is None or settings.lr is not None:
        return found
    grid = _read(path)
    if grid["settings"]["network"] != (settings.network or settings.protocol.network):
        return found  # a learning rate for one network says little about another
    for method, entry in grid["methods"].items():
        if method not in found:
            continue
        own = settings.method_options.get(method, {})
        chosen = _choice(entry["chosen"], "grid, options" if own else "grid")
        found[method] = Choice(
            chosen.lr, chosen.weight_decay, {**chosen.method_options, **own}, chosen.chosen_by
        )
    return found


def _runs(method: str, settings: Settings, candidate: Mapping[str, Any]) -> list[Run]:
    choice = _choice(candidate, "grid")
    size = settings.protocol.bag_size
    return [
        make("grid", settings, method, choice, fold, size) for fold in folds_of("grid", settings)
    ]


def _choice(values: Mapping[str, Any], chosen_by: str) -> Choice:
    own = {k: v for k, v in values.items() if k not in ("lr", "weight_decay")}
    return Choice(values["lr"], values["weight_decay"], own, chosen_by)


def _row(
    candidate: Mapping[str, Any], found: Sequence[Record | None], failed: Sequence[Record | None]
) -> Record:
    done = [record for record in found if record is not None]
    scores = [record["final"]["held_out_log_likelihood"] for record in done]
    whole = len(done) == len(found) and None not in scores
    return {
        **candidate,
        "score": fmean(scores) if whole else None,
        "scores": scores,
        "failed": [record["error"] for record in failed if record is not None],
        "seconds": round(sum(record["seconds"]["total"] for record in done), 1),
    }


def _write(settings: Settings, store: Store, found: Mapping[str, Search]) -> None:
    """The grid, the choice and its cost, beside what was found for other methods before."""
    path = _path(store.home, settings.dataset)
    finished = {method: s for method, s in found.items() if s.choice is not None}
    if not finished:
        return
    run = next(iter(finished.values())).runs[0]
    about = {
        "network": settings.network or settings.protocol.network,
        "augment": run.augment,
        "epochs": run.epochs,
        "batch_size": run.batch_size,
        "precision": run.precision,
        "data_options": run.data_options,
        "seed": run.seed,
        "folds": list(folds_of("grid", settings)),
    }
    methods: Record = {}
    if path.exists() and (before := _read(path))["settings"] == about:
        methods = before["methods"]
    for method, s in finished.items():
        assert s.choice is not None
        chosen = {"lr": s.choice.lr, "weight_decay": s.choice.weight_decay}
        methods[method] = {
            "chosen": chosen | dict(s.choice.method_options),
            "candidates": list(s.candidates),
            "cost": {
                "runs": len(s.runs),
                "seconds": round(sum(row["seconds"] for row in s.candidates), 1),
            },
        }
    write_json(
        path, {"dataset": settings.dataset, "rule": RULE, "settings": about, "methods": methods}
    )


def _path(folder: Path, dataset: str) -> Path:
    return folder / "grid" / f"{dataset}.json"


def _read(path: Path) -> Record:
    try:
        grid = dict(json.loads(path.read_text(encoding="utf-8")))
        for key in ("settings", "methods"):
            grid[key]
        return grid
    except (OSError, ValueError, KeyError) as error:
        raise LLPError(
            f"{path} cannot be read ({type(error).__name__}: {error}); remove it, and write it "
            "again with llpkit reproduce grid"
        ) from error


def read_grids(store: Store) -> dict[str, Record]:
    """What was chosen for each data set that a grid was run for."""
    found: dict[str, Record] = {}
    for folder in store.folders:
        for path in sorted((folder / "grid").glob("*.json")):
            found.setdefault(path.stem, _read(path))
    return found
