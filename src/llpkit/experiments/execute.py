"""Performing the runs of experiments that have no record yet."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from llpkit._device import device_of
from llpkit._text import several
from llpkit._validation import one_of, whole
from llpkit.errors import LLPError
from llpkit.experiments.backends import BACKENDS, perform
from llpkit.experiments.plan import check_plan, methods_of, plan
from llpkit.experiments.records import ExperimentRun, Record, machine
from llpkit.experiments.results import Results, begin, pack, view
from llpkit.experiments.run import WorkerSettings, divide, environment_of, load
from llpkit.experiments.search import tuned
from llpkit.files import locked
from llpkit.progress import task


@dataclass(frozen=True)
class Outcome:
    """Numbers of runs done before, done now and left, and the failed ones."""

    before: int = 0
    now: int = 0
    failed: Sequence[Record] = ()
    left: int = 0


def reproduce(
    settings: WorkerSettings,
    experiments: Sequence[str],
    *,
    methods: Sequence[str] = (),
    folds: Sequence[int] | None = None,
    backend: str = "loky",
    log: Callable[[str], None] = lambda _: None,
) -> dict[str, Outcome]:
    """Perform the runs of some experiments that have no record yet, and pack the records.

    Only one call at a time can use a folder. If a grid is not finished, experiments that need its
    choice do not run.

    Args:
        settings: The folder, its protocol, and how to perform runs.
        experiments: The experiments, in this order.
        methods: By default those of the protocol.
        folds: By default those of the protocol; a grid has its own.
        backend: ``"loky"`` for processes on this machine, ``"ray"`` or ``"dask"`` for a cluster:
            the connected one, else a local one. Its machines must share the folder.
        log: Called with a line when an experiment begins, and after every run.

    Returns:
        The outcome of each experiment.
    """
    one_of("backend", backend, BACKENDS)
    whole("jobs", settings.jobs)
    if backend == "loky":  # the machines of a cluster may have other devices
        device_of(settings.device)
    check_plan(settings.protocol, experiments, methods, folds)
    protocol, outcomes = settings.protocol, {}
    with locked(settings.folder):
        results = view(settings.folder, protocol)
        if not results.every:
            _check_data([None], settings)
        begin(results)
        results = pack(results)  # includes records that a killed call left
        for experiment in experiments:
            if experiment == "epoch-time":
                _check_machine(results, settings)
            before, asked, records = results.ids, set[str](), list[Record]()
            # The records of a grid decide which runs it needs next; failed runs are not repeated.
            while True:
                runs = plan(results, experiment, methods, folds)
                known = results.ids | asked
                new = [run for run in runs if run.id not in known]
                if not new:
                    break
                asked |= {run.id for run in new}
                try:
                    records += _execute(new, len(runs) - len(new), settings, backend, log)
                finally:
                    results = pack(results)
            failed = [r for r in records if r.error and not (r.diverged and experiment == "grid")]
            done = sum(run.id in before for run in runs)
            left = len(runs) - done - len(records)
            if experiment == "grid":
                # A method whose candidates all diverged has neither a choice nor runs left.
                choices = tuned(results, methods_of(protocol, methods)).values()
                left = max(left, sum(choice is None for choice in choices))
            outcomes[experiment] = Outcome(done, len(records) - len(failed), failed, left)
            if experiment == "grid" and left:
                break
    return outcomes


def _execute(
    runs: Sequence[ExperimentRun],
    done: int,
    settings: WorkerSettings,
    backend: str,
    log: Callable[[str], None],
) -> list[Record]:
    """Perform runs until the deadline; returns the records of those that ended."""
    if not runs or time.time() > settings.deadline:
        return []
    _check_data([run.bag_size for run in runs], settings)
    experiment, records = runs[0].experiment, []
    if experiment == "epoch-time":  # one run at a time
        settings, backend = replace(settings, jobs=1), "loky"
    log(f"{experiment}: {several(len(runs), 'run')}" + (f", {done} already done" if done else ""))
    # The first run of every worker includes its start.
    warm_up = settings.jobs if settings.jobs > 1 else 0
    with task(experiment, len(runs), warm_up=warm_up) as progress:
        for record in perform(runs, settings, backend):
            records.append(record)
            log(f"{len(records)}/{len(runs)} {record.title}: {_result(record)}")
            progress.step()
        progress.paused = len(records) < len(runs)
    return records


def _result(record: Record) -> str:
    if record.error:
        return f"failed: {record.error}"
    if "accuracy" in record.final:
        reached = f"accuracy {record.final['accuracy']:.1%}"
    else:  # a run of the grid, which does not see the test fold
        reached = f"held-out log-likelihood {record.final['held_out_log_likelihood']:.4f}"
    return f"{reached} ({record.seconds:.1f} s)"


def _check_machine(results: Results, settings: WorkerSettings) -> None:
    """Refuse to time runs on a machine other than that of the folder's epoch times."""
    for record in results.records["epoch-time"][:1]:
        if (here := machine(environment_of(replace(settings, jobs=1)))) != record.machine:
            raise LLPError(
                f"{results.folder} has epoch times of {record.machine}, but this machine is "
                f"{here}; choose another folder"
            )


def _check_data(sizes: Sequence[int | None], settings: WorkerSettings) -> None:
    """Before any run, refuse data that are missing, unsplit or have too few bags."""
    for size in dict.fromkeys(sizes):
        data, _ = load(settings.protocol, settings.data_dir, size)
        if settings.protocol.official:
            divide(settings.protocol, data, 0, size)
        elif len(data.bags) < settings.protocol.folds:
            bags = f"{len(data.bags)} bags" + (f" of {size}" if size else "")
            raise LLPError(
                f"{data.name} has {bags}, too few for {settings.protocol.folds} folds; use smaller "
                "bags or fewer folds"
            )
