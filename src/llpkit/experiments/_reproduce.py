"""One experiment from settings to records."""

import warnings
from dataclasses import replace

from llpkit.experiments._execute import Display, Outcome, execute
from llpkit.experiments._grid import Known, check_free, choices, of_choices, run_grid, search
from llpkit.experiments._plan import Settings, plan, wanted_by
from llpkit.experiments._run import EXPERIMENTS, Run, Store
from llpkit.experiments._work import Place


def everything(settings: Settings) -> list[tuple[str, Settings]]:
    """All experiments that make sense for a data set, in the order in which they run.

    Folds are those of the comparisons alone, epochs not those of the timed runs. There is no grid
    where the user gave a learning rate or wants none.

    >>> [experiment for experiment, _ in everything(Settings("group-photos"))]
    ['grid', 'epoch-time', 'convergence']
    """
    own = {"grid": replace(settings, folds=None, method_options={})}
    own["epoch-time"] = replace(settings, folds=None, epochs=None)
    left_out = {"bag-size"} if settings.protocol.bag_size is None else set()
    if settings.lr is not None or not settings.grid:
        left_out.add("grid")
    return [(name, own.get(name, settings)) for name in EXPERIMENTS if name not in left_out]


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

    Damaged records are set aside with a warning, and their runs carried out again.

    Args:
        experiment: One of :data:`EXPERIMENTS`.
        settings: What to run.
        store: Where the records are.
        place: Where the runs are carried out. Times are taken alone, whatever its ``jobs``.
        backend: ``"loky"``, ``"ray"`` or ``"dask"``.
        display: Is told how it goes.
    """
    for path, reason in store.set_aside():
        warnings.warn(f"a damaged record is now {path} ({reason})", stacklevel=2)
    place = replace(place, quick=settings.quick)
    if experiment == "grid":
        return run_grid(settings, store, place, backend=backend, display=display)
    if experiment == "epoch-time":
        place, backend = replace(place, jobs=1), "loky"
    chosen = choices(of_choices(experiment, settings), store, wanted_by(experiment, settings))
    runs = plan(experiment, settings, chosen, place.compile)
    asked = zip(wanted_by(experiment, settings), runs, strict=False)  # a name follows its options
    chosen_by = {run.name: chosen[name].chosen_by for name, run in asked}
    place = replace(place, chosen_by=chosen_by)
    return execute(runs, store, place, backend=backend, display=display)


def planned(experiment: str, settings: Settings, store: Store, compiled: bool = False) -> list[Run]:
    """The runs of an experiment; of a grid, as far as it can be foreseen."""
    wanted = wanted_by(experiment, settings)
    if experiment == "grid":
        check_free(settings)
        known = Known(store)
        found = (search(name, settings, known) for name in wanted)
        return [run for each in found for run in each.runs]
    chosen = choices(of_choices(experiment, settings), store, wanted)
    return plan(experiment, settings, chosen, compiled)
