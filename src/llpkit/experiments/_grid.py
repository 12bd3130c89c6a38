"""Hyper-parameters of every method on its own, chosen by the likelihood of held-out bags.

The search goes axis by axis: the candidates of a stage differ in its axes alone and are otherwise
what the stages before chose. In each fold of the grid a tenth of the *training* bags is held out; a
candidate's score is the mean over folds of the last epoch's mean exact log-likelihood of these
bags. Where the best learning rate or weight lies at the end of its axis, the axis is made longer by
a step.

A choice follows from the records of grid runs and from nothing else, whatever folder they are in.
"""

import itertools
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from llpkit.errors import LLPError
from llpkit.experiments._execute import Display, Outcome, execute
from llpkit.experiments._plan import (
    HELD_OUT,
    PROTOCOLS,
    Choice,
    Settings,
    brings_network,
    choices_without_grid,
    default_lr,
    folds_of,
    in_order,
    make,
    wanted_by,
)
from llpkit.experiments._run import VARIANTS, Record, Run, Store, write_json
from llpkit.experiments._work import Place
from llpkit.methods import METHODS

RULE = (
    f"the best mean over folds of the last epoch's mean exact log-likelihood of held-out bags, "
    f"{HELD_OUT:.0%} of the training bags. No label is looked at by any method but supervised, "
    "but the choice is not nested: it is made once for all folds, from bags that other folds test "
    "by"
)

Stage = Mapping[str, Sequence[Any]]

# Each axis begins in the middle of its ladder and may go on by a step at either end.
_LADDERS: Mapping[str, Sequence[float]] = {
    "lr": (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "weight": (0.01, 0.1, 1.0, 10.0, 100.0),
}
_RATES = {"lr": _LADDERS["lr"][2:5]}
_DECAYS = {"weight_decay": (0.0, 0.05)}
_STAGES: dict[str, tuple[Stage, ...]] = {
    "llp-gan": ({"weight": _LADDERS["weight"][1:4]}, {"lr": _LADDERS["lr"][1:4]}, _DECAYS)
}
_QUICK: tuple[Stage, ...] = ({"lr": _LADDERS["lr"][3:5]},)

TOLD = {
    "epochs": "{} epochs",
    "batch_size": "batches of {}",
    "augment": "augmentation {}",
    "precision": "{}",
    "seed": "seed {}",
}
"""What else a grid may have been run with; a choice says where it differs."""


@dataclass(frozen=True)
class Search:
    """How far the search for one method has come.

    Args:
        runs: All it has asked for so far, done or not, less those that diverged.
        candidates: What was tried, with its scores.
        choice: What was chosen, once every stage is complete.
        edges: Axes whose best value is the smallest or the largest that was tried; zero has nothing
            below it.
    """

    runs: Sequence[Run]
    candidates: Sequence[Record]
    choice: Choice | None
    edges: Sequence[str] = ()


class Known:
    """The grid runs of some folders: finished ones, and those whose loss was no longer finite.

    Any other failure may pass, so that its run is still to be done.
    """

    def __init__(self, store: Store) -> None:
        self.records = {record["id"]: record for record in store.read("grid")}
        self.diverged = {r["id"]: r for r in store.errors("grid") if r.get("diverged")}


def stages(method: str, quick: bool = False) -> tuple[Stage, ...]:
    """The axes of a method's grid, stage by stage: the same for all, but for one of ``llp-gan``.

    >>> stages("mle")
    ({'lr': (0.0003, 0.001, 0.003)}, {'weight_decay': (0.0, 0.05)})
    """
    return _QUICK if quick else _STAGES.get(method, (_RATES, _DECAYS))


def search(name: str, settings: Settings, known: Known) -> Search:
    """Go through the stages as far as the records reach."""
    best: dict[str, Any] = {"lr": default_lr(name), "weight_decay": 0.0}
    runs: dict[str, Run] = {}
    tried: dict[str, Record] = {}
    edges = []
    for stage in stages(VARIANTS.get(name, (name, {}))[0], settings.quick):
        axes = {axis: list(values) for axis, values in stage.items()}
        while True:
            scored: list[tuple[float, dict[str, Any]]] = []
            for values in itertools.product(*axes.values()):
                candidate = best | dict(zip(axes, values, strict=True))
                its_runs = _runs(name, settings, candidate)
                runs |= {run.id: run for run in its_runs}
                row = _row(candidate, its_runs, known)
                tried[json.dumps(candidate, sort_keys=True)] = row
                if row["score"] is not None:
                    scored.append((row["score"], candidate))
            asked = [run for run in runs.values() if run.id not in known.diverged]
            if not all(run.id in known.records for run in asked) or not scored:
                return Search(asked, list(tried.values()), None)
            top = max(scored, key=lambda pair: pair[0])[1]
            longer = {} if settings.quick else _longer(stage, axes, top)
            if not longer:
                break
            axes |= longer
        best = top
        edges += [a for a, v in axes.items() if best[a] in (min(v), max(v)) and best[a] > 0]
    return Search(asked, list(tried.values()), _choice(best, "grid"), edges)


def _longer(stage: Stage, axes: Stage, best: Mapping[str, Any]) -> dict[str, list[float]]:
    """The axes with one more value beyond the end where the best lies, once at each end."""
    longer = {}
    for axis in axes.keys() & _LADDERS.keys():
        values, top, ladder = axes[axis], best[axis], _LADDERS[axis]
        below, above = [v for v in ladder if v < top], [v for v in ladder if v > top]
        if below and top == min(values) == min(stage[axis]):
            longer[axis] = [below[-1], *values]
        elif above and top == max(values) == max(stage[axis]):
            longer[axis] = [*values, above[0]]
    return longer


def run_grid(
    settings: Settings,
    store: Store,
    place: Place,
    *,
    backend: str = "loky",
    display: Display | None = None,
) -> Outcome:
    """Search for every method, write what was chosen, and say how it went.

    A candidate whose loss is no longer finite has lost: that is a result, not a failure.
    """
    check_free(settings)
    wanted = wanted_by("grid", settings)
    place = replace(place, chosen_by=dict.fromkeys(wanted, "grid candidate"))
    total = Outcome(0, 0, [], 0)
    asked: set[str] = set()
    while True:
        known = Known(store)
        found = {name: search(name, settings, known) for name in wanted}
        runs = [run for s in found.values() for run in s.runs if run.id not in asked]
        if not runs or total.left:
            break
        asked |= {run.id for run in runs}
        part = execute(runs, store, place, backend=backend, display=display)
        failed = [record for record in part.failed if not record.get("diverged")]
        total = Outcome(
            total.before + part.before,
            total.now + part.now + len(part.failed) - len(failed),
            [*total.failed, *failed],
            total.left + part.left,
            total.elsewhere + part.elsewhere,
        )
    if any(s.choice for s in found.values()):
        write_json(store.home / "grid" / f"{settings.dataset}.json", grids(store, settings.dataset))
    undecided = sum(s.choice is None for s in found.values())
    return replace(total, left=max(total.left, undecided))


def check_free(settings: Settings) -> None:
    """An error where the user gave what a grid is to choose."""
    if settings.lr is not None or settings.method_options:
        raise LLPError(
            "a grid chooses learning rates and options itself: leave out --lr and --method-option"
        )


def choices(settings: Settings, store: Store, wanted: Sequence[str]) -> dict[str, Choice]:
    """Hyper-parameters of every method: the user's over the grid's over the defaults.

    A grid serves where data set, size and network agree; where anything else differs the choice
    says so. An error where a grid has chosen for some of the wanted methods and not for others.
    """
    found = choices_without_grid(settings)
    if settings.lr is not None or not settings.grid:
        return found
    known = Known(store)
    begun: dict[str, Settings] = {}
    chosen = {}
    for name in wanted:
        for grid, its in _alike(name, settings, known):
            begun.setdefault(name, grid)
            if (choice := its.choice) is None:
                continue
            own = settings.method_options.get(name, {})
            by = f"grid{_of(grid, settings)}{', options' if own else ''}"
            options = {**choice.method_options, **own}
            chosen[name] = replace(choice, method_options=options, chosen_by=by)
            break
    missing = [name for name in wanted if name not in chosen]
    if begun and missing:
        has = f"has chosen for {', '.join(chosen)} but" if chosen else "is not finished:"
        grid = next(begun[name] for name in (*missing, *begun) if name in begun)
        raise LLPError(
            f"the grid on {settings.dataset} {has} not for {', '.join(missing)}; finish it with "
            f"{_to_finish(grid, missing, store)}, or give --no-grid, which takes the stated "
            "defaults for all methods"
        )
    return found | chosen


def _to_finish(grid: Settings, missing: Sequence[str], store: Store) -> str:
    """The command that goes on with a grid for some methods, as it was begun."""
    protocol = grid.protocol
    usual: dict[str, Any] = {key: getattr(protocol, key) for key in ("batch_size", "augment")}
    usual |= {"precision": protocol.precision, "network": protocol.network, "size": "full"}
    usual |= {"seed": 0, "epochs": protocol.quick_epochs if grid.quick else protocol.epochs}
    words = ["llpkit reproduce grid", f"--dataset {grid.dataset}", f"--methods {','.join(missing)}"]
    for key, value in usual.items():
        if (own := getattr(grid, key)) not in (None, value):
            words.append(f"--{key.replace('_', '-')} {own}")
    if list(grid.folds or ()) != list(folds_of("grid", replace(grid, folds=None))):
        words.append(f"--folds {','.join(map(str, grid.folds or ()))}")
    words += ["--quick"] if grid.quick else []
    words += [f"--out {shlex.quote(str(folder))}" for folder in store.folders]
    return " ".join(words)


def _alike(name: str, settings: Settings, known: Known) -> list[tuple[Settings, Search]]:
    """The grids for a method on this data set, size and network, those most alike first."""
    wanted = make("grid", settings, name, Choice(1.0), 0, settings.protocol.bag_size)
    fixed = ("dataset", "data_options", "network", "flat", "bag_size")
    found: dict[tuple[Any, ...], list[Run]] = {}
    for record in known.records.values():
        run = Run.of(record)
        same = all(getattr(run, key) == getattr(wanted, key) for key in fixed)
        if run.name == name and same and record["quick"] == settings.quick:
            found.setdefault(tuple(getattr(run, k) for k in TOLD), []).append(run)
    ours = {key: getattr(wanted, key) for key in TOLD}
    grids = []
    for values, runs in found.items():
        theirs = dict(zip(TOLD, values, strict=True))
        own = replace(settings, method_options={}, **theirs)
        grids.append((unlikeness(theirs, ours), search_by(name, own, runs, known)))
    return [grid for _, grid in sorted(grids, key=lambda pair: pair[0])]


def search_by(
    name: str, settings: Settings, runs: Sequence[Run], known: Known
) -> tuple[Settings, Search]:
    """The search by the folds of these runs, or by fewer of them where it is complete by these.

    A fold more that somebody began does not undo a choice.
    """
    folds: dict[str, set[int]] = {}
    for run in runs:
        candidate = [run.lr, run.weight_decay, run.method_options]
        folds.setdefault(json.dumps(candidate, sort_keys=True), set()).add(run.fold)
    parts = {tuple(sorted(its)) for its in (set().union(*folds.values()), *folds.values())}
    found = []
    for its in sorted(parts, key=lambda part: (-len(part), part)):  # all of them come first
        own = replace(settings, folds=list(its))
        found.append((own, search(name, own, known)))
        if found[-1][1].choice is not None:
            return found[-1]
    return found[0]


def unlikeness(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[Any, ...]:
    """How far a grid is from what is wanted, least first: in how many ways, and by how many epochs.

    >>> few, many = ({"epochs": n, **dict.fromkeys(list(TOLD)[1:], 0)} for n in (40, 100))
    >>> unlikeness(few, many) < unlikeness(few | {"seed": 1}, many)
    True
    """
    differs = sum(theirs[key] != ours[key] for key in TOLD)
    return differs, abs(theirs["epochs"] - ours["epochs"]), [str(theirs[key]) for key in TOLD]


def _of(grid: Settings, settings: Settings) -> str:
    """Where a grid differs, in words: empty, or such as `` of augmentation paper, 40 epochs``."""
    ours, theirs = (
        make("grid", each, "supervised", Choice(1.0), 0, None) for each in (settings, grid)
    )
    differs = [
        text.format(getattr(theirs, key))
        for key, text in TOLD.items()
        if getattr(ours, key) != getattr(theirs, key)
    ]
    return f" of {', '.join(differs)}" if differs else ""


def grids(store: Store, dataset: str) -> list[Record]:
    """Every grid on a data set: what was tried, what was chosen, what it cost."""
    known = Known(store)
    found: dict[str, tuple[Settings, dict[str, list[Run]]]] = {}
    for record in known.records.values():
        run = Run.of(record)
        if run.dataset != dataset or run.method not in METHODS:
            continue
        protocol, network = PROTOCOLS[dataset], run.network
        if brings_network(record):  # it tells nothing of the others'
            network = protocol.network if run.flat == protocol.flat else "small-cnn"
        settings = Settings(
            dataset,
            network=None if network == protocol.network else network,
            size=run.data_options.get("size"),
            quick=record["quick"],
            **{key: getattr(run, key) for key in TOLD},
        )
        _, runs = found.setdefault(repr(settings), (settings, {}))
        runs.setdefault(run.name, []).append(run)
    return [_grid(settings, runs, known) for settings, runs in found.values()]


def _grid(settings: Settings, runs: Mapping[str, Sequence[Run]], known: Known) -> Record:
    methods: Record = {}
    run = make("grid", settings, "supervised", Choice(1.0), 0, settings.protocol.bag_size)
    for name in in_order(runs):
        own, its = search_by(name, settings, runs[name], known)
        chosen = None
        if its.choice is not None:
            chosen = {"lr": its.choice.lr, "weight_decay": its.choice.weight_decay}
            chosen |= its.choice.method_options
        methods[name] = {
            "chosen": chosen,
            "edges": list(its.edges),
            "folds": list(own.folds or ()),
            "candidates": list(its.candidates),
            "cost": {
                "runs": sum(len(row["scores"]) for row in its.candidates),
                "seconds": round(sum(row["seconds"] for row in its.candidates), 1),
            },
        }
    about = {key: getattr(run, key) for key in ("network", "data_options", *TOLD)}
    return {"dataset": settings.dataset, "rule": RULE, "settings": about, "methods": methods}


def _runs(name: str, settings: Settings, candidate: Mapping[str, Any]) -> list[Run]:
    choice = _choice(candidate, "grid")
    size = settings.protocol.bag_size
    return [make("grid", settings, name, choice, fold, size) for fold in folds_of("grid", settings)]


def _choice(values: Mapping[str, Any], chosen_by: str) -> Choice:
    own = {k: v for k, v in values.items() if k not in ("lr", "weight_decay")}
    return Choice(values["lr"], values["weight_decay"], own, chosen_by)


def _row(candidate: Mapping[str, Any], runs: Sequence[Run], known: Known) -> Record:
    done = [known.records[run.id] for run in runs if run.id in known.records]
    scores = [record["final"]["held_out_log_likelihood"] for record in done]
    whole = len(done) == len(runs) and None not in scores
    return {
        **candidate,
        "score": fmean(scores) if whole else None,
        "scores": scores,
        "failed": [known.diverged[run.id]["error"] for run in runs if run.id in known.diverged],
        "seconds": round(sum(record["seconds"]["total"] for record in done), 1),
    }


def where_from(settings: Settings, store: Store, experiment: str) -> str:
    """Where the hyper-parameters of an experiment come from, in words."""
    wanted = wanted_by(experiment, settings)
    chosen = choices(of_choices(experiment, settings), store, wanted)
    by: dict[str, list[str]] = {}
    for name in wanted:
        by.setdefault(chosen[name].chosen_by, []).append(name)
    if len(by) == 1:
        return f"hyper-parameters: {next(iter(by))}"
    told = (f"{source} ({', '.join(its)})" for source, its in by.items())
    return f"hyper-parameters: {'; '.join(told)}"


def of_choices(experiment: str, settings: Settings) -> Settings:
    """The settings by which an experiment looks for its grid: timed runs have epochs of their own.

    >>> of_choices("epoch-time", Settings("digits", epochs=5)) == Settings("digits")
    True
    """
    return replace(settings, epochs=None) if experiment == "epoch-time" else settings
