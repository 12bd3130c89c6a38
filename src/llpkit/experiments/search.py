"""The grid: hyper-parameters of each method, chosen by the likelihood of held-out bags.

The search goes axis by axis: candidates differ in one axis and use the choices made on earlier
ones. A candidate's score is the mean log-likelihood of bags held out of the *training* folds, after
the last epoch, averaged over folds; no label is used. A candidate that diverges loses. The choice
depends on the records of grid runs alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from llpkit.errors import LLPError
from llpkit.experiments.protocol import Protocol
from llpkit.experiments.protocol_keys import RATES
from llpkit.experiments.records import ExperimentRun, Record
from llpkit.experiments.results import Results
from llpkit.methods import METHODS
from llpkit.recipe import Recipe

_START = 3
"""Number of values that a search starts with, from the middle of a ladder."""


@dataclass(frozen=True)
class Candidate:
    """Values that were tried together.

    Args:
        values: The values by axis.
        score: Mean over folds of the log-likelihood of held-out bags; ``None`` if not known.
        scores: The scores by fold.
        diverged: Number of folds in which the loss became infinite or NaN.
        seconds: Time of all its runs.
    """

    values: Mapping[str, Any]
    score: float | None
    scores: Sequence[float]
    diverged: int
    seconds: float


@dataclass(frozen=True)
class Search:
    """The state of the search for one method.

    Args:
        method: Its name.
        runs: All runs that it needs so far.
        candidates: All candidates so far.
        choice: The chosen values by axis, once the search is complete.
        edges: Axes whose best value is the lowest or highest one tried, unless that is zero.
    """

    method: str
    runs: Sequence[ExperimentRun]
    candidates: Sequence[Candidate]
    choice: Mapping[str, Any] | None = None
    edges: Sequence[str] = ()

    @property
    def seconds(self) -> float:
        """The time of all candidates."""
        return sum(candidate.seconds for candidate in self.candidates)

    @property
    def number(self) -> int:
        """Number of finished runs."""
        return sum(len(c.scores) + c.diverged for c in self.candidates)


def search(protocol: Protocol, method: str, known: Mapping[str, Record]) -> Search:
    """The search as far as the records allow.

    Args:
        protocol: The protocol with the grid.
        method: The name of the method.
        known: Records of finished grid runs, by id.
    """
    assert protocol.grid is not None  # only its methods are searched
    # Later axes have their defaults until they are searched.
    rate = METHODS[protocol.method_of(method)].lr
    best: dict[str, Any] = {"lr": rate, "weight_decay": Recipe.defaults()["weight_decay"]}
    runs: dict[str, ExperimentRun] = {}
    tried: dict[str, Candidate] = {}
    edges = []
    for axis, ladder in protocol.grid.axes(protocol.method_of(method)).items():
        start = _middle(ladder)
        values = start
        while True:
            for value in values:
                values_of = {**best, axis: value}
                its = _runs(protocol, method, values_of)
                runs |= {run.id: run for run in its}
                tried[repr(values_of)] = _candidate(values_of, its, known)
            # Without all records, or if every value diverged, the search ends without a choice.
            scored = {v: tried[repr({**best, axis: v})].score for v in values}
            finite = {v: score for v, score in scored.items() if score is not None}
            if not finite or any(run not in known for run in runs):
                return Search(method, list(runs.values()), list(tried.values()))
            top = max(finite, key=lambda value: finite[value])
            # The best value may be at one end, and after a step there at the other.
            longer = _longer(ladder, start, values, top)
            if longer == values:
                break
            values = longer
        # Later axes are searched with this choice fixed.
        best[axis] = top
        if top in (values[0], values[-1]) and top != 0 and len(values) > 1:
            edges.append(axis)
    return Search(method, list(runs.values()), list(tried.values()), best, edges)


def _middle(ladder: tuple[Any, ...]) -> tuple[Any, ...]:
    first = max(0, (len(ladder) - _START) // 2)
    return ladder[first : first + _START] if len(ladder) > _START else ladder


def _longer(
    ladder: tuple[Any, ...], start: tuple[Any, ...], values: tuple[Any, ...], top: Any
) -> tuple[Any, ...]:
    """Add the next value of the ladder if the best is at an end of the start; once at each end.

    >>> _longer((1, 2, 3, 4, 5), (2, 3, 4), (2, 3, 4), 4)
    (2, 3, 4, 5)
    """
    at = ladder.index(top)
    if top == values[0] == start[0] and at > 0:
        return (ladder[at - 1], *values)
    if top == values[-1] == start[-1] and at + 1 < len(ladder):
        return (*values, ladder[at + 1])
    return values


def _runs(protocol: Protocol, method: str, values: Mapping[str, Any]) -> list[ExperimentRun]:
    recipe = protocol.recipe_of(method, "grid", **settings(values)).to_dict()
    folds = range(protocol.folds_of("grid"))
    return [ExperimentRun("grid", recipe, fold, variant=protocol.variant(method)) for fold in folds]


def settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by axis as settings of a recipe.

    >>> settings({"lr": 0.001, "weight": 10})
    {'lr': 0.001, 'method_options': {'weight': 10}}
    """
    rates = {axis: value for axis, value in values.items() if axis in RATES}
    options = {axis: value for axis, value in values.items() if axis not in RATES}
    return rates | ({"method_options": options} if options else {})


def _candidate(
    values: Mapping[str, Any], runs: Sequence[ExperimentRun], known: Mapping[str, Record]
) -> Candidate:
    done = [known[run.id] for run in runs if run.id in known]
    scores = [r.final["held_out_log_likelihood"] for r in done if not r.error]
    whole = len(scores) == len(runs) and None not in scores
    seconds = round(sum(r.seconds for r in done), 1)
    return Candidate(
        values, fmean(scores) if whole else None, scores, sum(r.diverged for r in done), seconds
    )


def known_runs(results: Results) -> dict[str, Record]:
    """The finished grid runs of a folder by id, including those that diverged."""
    every = (*results.records["grid"], *results.failures)
    return {r.id: r for r in every if r.experiment == "grid" and r.done}


def searches(results: Results) -> list[Search]:
    """The search of every method that has grid records, in the protocol's order."""
    known = known_runs(results)
    begun = dict.fromkeys([*results.by_method("grid"), *(r.method for r in known.values())])
    return [search(results.protocol, name, known) for name in begun]


def tuned(results: Results, methods: Sequence[str]) -> dict[str, Mapping[str, Any] | None]:
    """The choice for each of the methods that the grid tunes; ``None`` while there is none."""
    protocol, known = results.protocol, known_runs(results)
    searched = [name for name in methods if protocol.searched(name)]
    return {name: search(protocol, name, known).choice for name in searched}


def choices(results: Results, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each method, the settings chosen by a complete grid in the folder; empty for defaults.

    Raises if the grid was started but has no choice for all of them: comparing tuned with untuned
    methods would not be fair.
    """
    found = tuned(results, methods)
    missing = [name for name, choice in found.items() if choice is None]
    started = any(results.protocol.searched(r.method) for r in known_runs(results).values())
    if started and missing:
        raise LLPError(
            f"the grid in {results.folder} has no choice for {', '.join(missing)}; finish it with "
            f"the experiment grid and --methods {','.join(missing)}, or leave them out"
        )
    return {name: settings(found.get(name) or {}) for name in methods}
