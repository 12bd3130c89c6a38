"""The runs of an experiment."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from llpkit._validation import one_of, whole
from llpkit.errors import LLPError
from llpkit.experiments.protocol import EXPERIMENTS, Protocol
from llpkit.experiments.results import Results
from llpkit.experiments.run import Run
from llpkit.experiments.search import choices, known_runs, search
from llpkit.methods import METHODS


def plan(
    results: Results,
    experiment: str,
    methods: Sequence[str] = (),
    folds: Sequence[int] | None = None,
) -> list[Run]:
    """The runs of an experiment, fold by fold, so that a part of them is a fair comparison too.

    For a grid, only as far as its records allow. Each turn of timed runs starts with another
    method.
    """
    protocol = results.protocol
    check_experiments(protocol, [experiment])
    names = methods_of(protocol, methods)
    if experiment == "grid":
        known = known_runs(results)
        wanted = [name for name in names if protocol.searched(name)]
        return [run for name in wanted for run in search(protocol, name, known).runs]
    check_folds(protocol, experiment, folds or ())
    own = {name: range(protocol.folds_of(experiment, name)) for name in names}
    wanted_folds = range(max(map(len, own.values()))) if folds is None else folds
    # The time of an epoch does not depend on the grid's choice.
    chosen: Mapping[str, Any] = {} if experiment == "epoch-time" else choices(results, names)
    sizes: Sequence[int | None] = (None,)
    if experiment == "bag-size" and protocol.sizes is not None:
        sizes = protocol.sizes.sizes
    recipes = {
        (name, size): protocol.recipe_of(name, experiment, size, **chosen.get(name, {}))
        for name in names
        for size in sizes
    }
    _check_recipes(results, experiment, {key: r.to_dict() for key, r in recipes.items()})
    # Rotated, so that no method always runs first on a cold machine.
    turns = [names[at:] + names[:at] for at in range(len(names))]
    return [
        Run(experiment, recipes[name, size], fold, size, variant=protocol.variant(name))
        for fold, size in itertools.product(wanted_folds, sizes)
        for name in (turns[fold % len(turns)] if experiment == "epoch-time" else names)
        if folds is not None or fold in own[name]
        if size == sizes[0] or not _ignores_bags(protocol, name)
    ]


def _ignores_bags(protocol: Protocol, name: str) -> bool:
    """Whether runs of a method are the same for all bag sizes: labels of one training split."""
    return protocol.official and METHODS[protocol.method_of(name)].needs_labels


def check_experiments(protocol: Protocol, experiments: Sequence[str]) -> None:
    """Refuse an experiment that a protocol does not have."""
    for name in experiments:
        one_of("experiment", name, EXPERIMENTS)
        if name not in protocol.experiments:
            raise LLPError(f"the protocol {protocol.title!r} has no {name}; add it to its file")


def check_folds(protocol: Protocol, experiment: str, folds: Sequence[int]) -> None:
    """Refuse a fold that an experiment does not have."""
    for fold in folds:
        whole(f"folds of {experiment}", fold, 0, protocol.fold_limit(experiment) - 1)


def methods_of(protocol: Protocol, methods: Sequence[str]) -> list[str]:
    """The methods to run: the given ones, else the protocol's, else all."""
    names = list(methods or protocol.methods or METHODS)
    for name in names:
        METHODS[protocol.method_of(name)]
        if names.count(name) > 1:
            raise LLPError(f"methods: {name} is named twice; name each method once")
    return names


def _check_recipes(results: Results, experiment: str, recipes: Mapping[Any, Any]) -> None:
    """Refuse settings that differ from a method's records, for example after a new grid."""
    for record in results.records[experiment]:
        wanted = recipes.get((record.method, record.bag_size), record.recipe)
        differs = [key for key in wanted if wanted[key] != record.recipe.get(key)]
        if differs:
            key = differs[0]
            raise LLPError(
                f"{results.folder}: {record.method} has records of {experiment} with {key} = "
                f"{record.recipe.get(key)!r} and would now have {wanted[key]!r}; choose another "
                "folder"
            )
