"""The runs of an experiment, and how long they will take."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

from llpkit._validation import whole
from llpkit.errors import LLPError
from llpkit.experiments.protocol import WARM_UP, Protocol
from llpkit.experiments.records import ExperimentRun, Record
from llpkit.experiments.results import Results, check_alike
from llpkit.experiments.search import choices, known_runs, search
from llpkit.methods import METHODS

START = 5.0
"""Seconds of a run besides its epochs: reading data, building the network, writing the record."""


def plan(
    results: Results,
    experiment: str,
    methods: Sequence[str] = (),
    folds: Sequence[int] | None = None,
) -> list[ExperimentRun]:
    """The runs of an experiment, fold by fold: an experiment that is stopped can be compared too.

    For a grid, only the runs that the records so far ask for.
    """
    protocol = results.protocol
    names = methods_of(protocol, methods)
    if experiment == "grid":
        known = known_runs(results)
        searched = [name for name in names if protocol.searched(name)]
        return [run for name in searched for run in search(protocol, name, known).runs]
    own = {name: range(protocol.folds_of(experiment, name)) for name in names}
    sizes: Sequence[int | None] = (None,)
    if experiment == "bag-size" and protocol.sizes is not None:
        sizes = protocol.sizes.sizes
    # The time of an epoch does not depend on the grid's choice.
    chosen = {} if experiment == "epoch-time" else choices(results, names)
    recipes = {
        (name, size): protocol.recipe_of(name, experiment, size, **chosen.get(name, {})).to_dict()
        for name in names
        for size in sizes
    }
    runs = []
    for fold in range(max(map(len, own.values()))) if folds is None else folds:
        # Every turn starts with another method: the first one runs on a cold machine.
        first = fold % len(names) if experiment == "epoch-time" else 0
        for size, name in itertools.product(sizes, names[first:] + names[:first]):
            if folds is None and fold not in own[name]:
                continue
            if size == sizes[0] or not _ignores_bags(protocol, name):
                recipe, variant = recipes[name, size], protocol.variant(name)
                runs.append(ExperimentRun(experiment, recipe, fold, size, variant))
    check_alike([*results.records[experiment], *runs], results.folder)
    return runs


def _ignores_bags(protocol: Protocol, name: str) -> bool:
    """Whether runs of a method are the same for all bag sizes: labels of one training split."""
    return protocol.official and METHODS[protocol.method_of(name)].needs_labels


def check_plan(
    protocol: Protocol,
    experiments: Sequence[str],
    methods: Sequence[str] = (),
    folds: Sequence[int] | None = None,
) -> None:
    """Refuse a protocol that contradicts itself, and experiments, folds or methods it lacks."""
    protocol.check()
    for experiment in experiments:
        if experiment not in protocol.experiments:
            raise LLPError(
                f"{experiment!r} is not an experiment of the protocol {protocol.title!r}, which "
                f"has {', '.join(protocol.experiments)}; choose one of these, or add it to the "
                "protocol"
            )
        if experiment != "grid":  # which has its own folds
            for fold in folds or ():
                whole(f"folds of {experiment}", fold, 0, protocol.fold_limit(experiment) - 1)
    methods_of(protocol, methods)


def methods_of(protocol: Protocol, methods: Sequence[str]) -> list[str]:
    """The methods to run: the given ones, else the protocol's, else all."""
    names = list(methods or protocol.methods or METHODS)
    for name in names:
        METHODS[protocol.method_of(name)]
        if names.count(name) > 1:
            raise LLPError(f"methods: {name} is named twice; name each method once")
    return names


def epoch_seconds(results: Results) -> dict[str, float]:
    """Seconds per epoch by method: of timed runs or, without any, of all others.

    The time of runs that shared a machine is divided by their number.
    """
    found: dict[str, list[float]] = {}
    timed = results.records["epoch-time"]
    for record in timed or results.finished:
        found.setdefault(str(record.recipe["method"]), []).append(_each(record))
    return {method: fmean(values) for method, values in found.items()}


def _each(record: Record) -> float:
    seconds = record.history["seconds"]
    jobs = max(1, int(record.environment.get("jobs", 1)))
    return float(median(seconds[WARM_UP:] or seconds)) / jobs


def estimate(runs: Iterable[ExperimentRun], seconds: Mapping[str, float]) -> float | None:
    """Seconds that runs take one after the other; ``None`` without any record.

    A method without records is taken to be as fast as the median of the others. Batch sizes are
    ignored.
    """
    if not seconds:
        return None
    usual = median(seconds.values())
    each = (START + r.recipe["epochs"] * seconds.get(r.recipe["method"], usual) for r in runs)
    return float(sum(each))
