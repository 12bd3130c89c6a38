"""One experiment from settings to records."""

from dataclasses import replace

from llpkit.experiments._execute import Display, Outcome, execute
from llpkit.experiments._grid import choices, run_grid, search
from llpkit.experiments._plan import Settings, plan
from llpkit.experiments._run import EXPERIMENTS, Run, Store
from llpkit.experiments._work import Place
from llpkit.methods import METHODS


def everything(settings: Settings) -> list[tuple[str, Settings]]:
    """All experiments that make sense for a data set, in the order in which they run.

    Folds are those of the comparisons alone, epochs not those of the timed runs.

    >>> [experiment for experiment, _ in everything(Settings("group-photos"))]
    ['grid', 'epoch-time', 'convergence']
    """
    own = {"grid": replace(settings, folds=None)}
    own["epoch-time"] = replace(settings, folds=None, epochs=None)
    natural = settings.protocol.bag_size is None
    return [
        (name, own.get(name, settings))
        for name in EXPERIMENTS
        if not (natural and name == "bag-size")
    ]


def reproduce(
    experiment: str,
    settings: Settings,
    store: Store,
    place: Place,
    *,
    backend: str = "loky",
    display: Display | None = None,
) -> Outcome:
    """Carry out those runs of an experiment that have no record yet.

    Args:
        experiment: One of :data:`EXPERIMENTS`.
        settings: What to run.
        store: Where the records are.
        place: Where the runs are carried out. Times are taken alone, whatever its ``jobs``.
        backend: ``"loky"``, ``"ray"`` or ``"dask"``.
        display: Is told how it goes.
    """
    if experiment == "grid":
        return run_grid(settings, store, place, backend=backend, display=display)
    if experiment == "epoch-time":
        place, backend = replace(place, jobs=1), "loky"
    chosen = choices(settings, store)
    place = replace(place, chosen_by={name: choice.chosen_by for name, choice in chosen.items()})
    runs = plan(experiment, settings, chosen)
    return execute(runs, store, place, backend=backend, display=display)


def planned(experiment: str, settings: Settings, store: Store) -> list[Run]:
    """The runs of an experiment; of a grid, as far as it can be foreseen."""
    if experiment == "grid":
        found = (search(method, settings, store) for method in settings.methods or METHODS)
        return [run for each in found for run in each.runs]
    return plan(experiment, settings, choices(settings, store))
