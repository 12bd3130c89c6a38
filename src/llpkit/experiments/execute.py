"""Performing the runs of experiments that have no record yet."""

import contextlib
import json
import tempfile
import time
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from llpkit._device import device_of
from llpkit._validation import one_of, whole
from llpkit.errors import LLPError
from llpkit.experiments.backends import BACKENDS, perform
from llpkit.experiments.plan import check_plan, methods_of, plan
from llpkit.experiments.records import ExperimentRun, Record, machine
from llpkit.experiments.results import Results, begin, pack, view
from llpkit.experiments.run import WorkerSettings, divide, environment_of, load
from llpkit.experiments.search import undecided
from llpkit.files import locked

Running = Callable[[], Sequence[Mapping[str, Any]]]
"""Returns the progress of each current run; see :meth:`Display.begin`."""


class Display(typing.Protocol):
    """Shows the progress of runs."""

    def begin(self, runs: Sequence[ExperimentRun], done: int, running: Running) -> None:
        """Before the first run.

        Args:
            runs: The runs to do.
            done: How many others were done before.
            running: Returns the progress of each current run: ``method``, ``fold``, ``epoch``,
                ``epochs`` and ``accuracy``.
        """

    def ended(self, record: Record) -> None:
        """A run ended."""

    def end(self) -> None:
        """After the last run."""


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
    display: Display | None = None,
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
        display: Shows the progress.

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
                    records += _execute(new, len(runs) - len(new), settings, backend, display)
                finally:
                    results = pack(results)
            failed = [r for r in records if r.error and not (r.diverged and experiment == "grid")]
            done = sum(run.id in before for run in runs)
            left = len(runs) - done - len(records)
            if experiment == "grid":
                # A method whose candidates all diverged has neither a choice nor runs left.
                left = max(left, len(undecided(results, methods_of(protocol, methods))))
            outcomes[experiment] = Outcome(done, len(records) - len(failed), failed, left)
            if experiment == "grid" and left:
                break
    return outcomes


def _execute(
    runs: Sequence[ExperimentRun],
    done: int,
    settings: WorkerSettings,
    backend: str,
    display: Display | None,
) -> list[Record]:
    """Perform runs until the deadline; returns the records of those that ended."""
    if not runs or time.time() > settings.deadline:
        return []
    _check_data([run.bag_size for run in runs], settings)
    timed = runs[0].experiment == "epoch-time"
    if timed:  # one run at a time
        settings, backend = replace(settings, jobs=1), "loky"
    records = []
    with tempfile.TemporaryDirectory(prefix="llpkit-", ignore_cleanup_errors=True) as status:
        if display is not None:
            display.begin(runs, done, partial(_running, Path(status)))
            if not timed:  # notes on progress take time
                settings = replace(settings, status=Path(status))
        try:
            for record in perform(runs, settings, backend):
                records.append(record)
                if display is not None:
                    display.ended(record)
        finally:
            if display is not None:
                display.end()
    return records


def _running(status: Path) -> list[dict[str, Any]]:
    """The progress of the current runs, from the files that they write."""
    found = []
    for path in sorted(status.glob("*.json")):
        with contextlib.suppress(OSError, ValueError):  # the run may just have ended
            found.append(json.loads(path.read_text(encoding="utf-8")))
    return found


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
