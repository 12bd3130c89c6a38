"""Performing the runs of experiments that have no record yet."""

import contextlib
import json
import math
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from llpkit._device import device_of
from llpkit._validation import number, one_of, whole
from llpkit.errors import LLPError
from llpkit.experiments.backends import BACKENDS, run_parallel
from llpkit.experiments.plan import check_experiments, check_folds, methods_of, plan
from llpkit.experiments.records import RUNS, Record, machine, read_run
from llpkit.experiments.results import Results, begin, pack, view
from llpkit.experiments.run import Run, Worker, carry_out, circumstances, divide, load
from llpkit.experiments.search import known_runs, search
from llpkit.files import locked

_POLL = 0.5


class Display(Protocol):
    """Shows the progress of runs."""

    def begin(self, runs: Sequence[Run], done: int) -> None:
        """Before the first run: the runs to do, and how many were already done."""

    def update(self, running: Sequence[Mapping[str, Any]]) -> None:
        """From time to time: a note on each current run."""

    def ended(self, run: Run, record: Record) -> None:
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

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.before + other.before,
            self.now + other.now,
            [*self.failed, *other.failed],
            self.left + other.left,
        )


def reproduce(
    worker: Worker,
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
        worker: The folder, its protocol, and how to perform runs.
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
    whole("jobs", worker.jobs)
    check_experiments(worker.protocol, experiments)
    if backend == "loky":  # the machines of a cluster may have other devices
        device_of(worker.device)
    methods_of(worker.protocol, methods)
    for experiment in experiments:
        if experiment != "grid":
            check_folds(worker.protocol, experiment, folds or ())
    found = {}
    with locked(worker.folder):
        if not view(worker.folder, worker.protocol).every:
            _check_data([None], worker)
        begin(worker.folder, worker.protocol)
        try:
            for experiment in experiments:
                results = pack(worker.folder)  # includes records that a killed call left
                if experiment == "grid":
                    found[experiment] = _run_grid(results, worker, methods, backend, display)
                    if found[experiment].left:
                        break
                else:
                    runs = plan(results, experiment, methods, folds)
                    _check_machine(results, worker, experiment)
                    found[experiment] = _execute(runs, results.ids, worker, backend, display)[0]
        finally:
            pack(worker.folder)
    return found


def _run_grid(
    results: Results,
    worker: Worker,
    methods: Sequence[str],
    backend: str,
    display: Display | None,
) -> Outcome:
    """Search until every method has a choice, or its runs fail or run out of time."""
    protocol, total = results.protocol, Outcome()
    known, asked = known_runs(results), set[str]()
    wanted = [name for name in methods_of(protocol, methods) if protocol.searched(name)]
    # Each round of records may ask for more runs; asked keeps failed ones from being repeated.
    while True:
        found = [search(protocol, name, known) for name in wanted]
        runs = [run for each in found for run in each.runs if run.id not in asked]
        if not runs or total.left:
            break
        asked |= {run.id for run in runs}
        part, records = _execute(runs, set(known), worker, backend, display)
        known |= {record.id: record for record in records if record.done}
        lost = [record for record in part.failed if record.done]  # diverged: a result, no failure
        total += replace(
            part,
            now=part.now + len(lost),
            failed=[record for record in part.failed if not record.done],
        )
    # Possible even if all runs are done: every candidate may have diverged.
    undecided = sum(each.choice is None for each in found)
    return replace(total, left=max(total.left, undecided))


def _execute(
    runs: Sequence[Run],
    done: set[str],
    worker: Worker,
    backend: str,
    display: Display | None,
) -> tuple[Outcome, list[Record]]:
    """Perform the runs that are not done; returns their records."""
    waiting = [run for run in runs if run.id not in done]
    before = len(runs) - len(waiting)
    if not waiting or time.time() > worker.deadline:
        return Outcome(before, left=len(waiting)), []
    _check_data([run.bag_size for run in waiting], worker)
    timed = waiting[0].experiment == "epoch-time"
    if timed:  # one run at a time, and no polling thread that would disturb it
        worker, backend = replace(worker, jobs=1), "loky"
    with tempfile.TemporaryDirectory(prefix="llpkit-", ignore_cleanup_errors=True) as status:
        # Progress notes cost time, so timed runs write none.
        worker = replace(worker, status=None if timed or display is None else Path(status))
        watch = _Watcher(waiting, before, worker, display)
        with watch.watching(poll=not timed):
            if worker.jobs == 1 and backend == "loky":
                for run in waiting:
                    carry_out(run, worker)
                    watch.look()
            else:
                run_parallel(waiting, worker, backend)
    records = watch.records
    failed = [record for record in records if record.error]
    # Runs that the deadline kept from starting leave no record.
    left = len(waiting) - len(records)
    return Outcome(before, len(records) - len(failed), failed, left), records


def _check_machine(results: Results, worker: Worker, experiment: str) -> None:
    """Refuse to time runs on a machine other than that of the folder's epoch times."""
    if experiment != "epoch-time" or not results.records[experiment]:
        return
    there = results.records[experiment][0].machine
    if (here := machine(circumstances(replace(worker, jobs=1)))) != there:
        raise LLPError(
            f"{results.folder} has epoch times of {there}, but this machine is {here}; choose "
            "another folder"
        )


def _check_data(sizes: Sequence[int | None], worker: Worker) -> None:
    """Before any run, refuse data that are missing, unsplit or have too few bags."""
    for size in dict.fromkeys(sizes):
        data, _ = load(worker.protocol, worker.data_dir, size)
        if data.truth is None:
            raise LLPError(f"{data.name} has no labels to test by; choose another data set")
        if worker.protocol.official:
            divide(worker.protocol, data, 0, size)
        elif len(data.bags) < worker.protocol.folds:
            bags = f"{len(data.bags)} bags" + (f" of {size}" if size else "")
            raise LLPError(
                f"{data.name} has {bags}, too few for {worker.protocol.folds} folds; use smaller "
                "bags or fewer folds"
            )


class _Watcher:
    """Reads the notes of current runs, and the record of each finished run once."""

    def __init__(
        self, runs: Sequence[Run], before: int, worker: Worker, display: Display | None
    ) -> None:
        self.waiting = {run.id: run for run in runs}
        self.folder, self.status = worker.folder / RUNS, worker.status
        self.runs, self.before, self.display = runs, before, display
        self.records: list[Record] = []
        self.lock = threading.Lock()

    @contextmanager
    def watching(self, poll: bool) -> Iterator[None]:
        if self.display is None:
            yield
            self.look()
            return
        self.display.begin(self.runs, self.before)
        # Runs are in other processes, so their progress is read from files.
        stop = threading.Event()

        def look() -> None:
            while not stop.wait(_POLL):
                self.look()

        thread = threading.Thread(target=look, daemon=True)
        if poll:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            if poll:
                thread.join()
            self.look()
            self.display.end()

    def look(self) -> None:
        with self.lock:
            for run in list(self.waiting.values()):
                # Records are written atomically, so a file that exists is complete.
                path = self.folder / f"{run.id}.json"
                if path.exists():
                    record = read_run(path)
                    self.records.append(record)
                    del self.waiting[run.id]
                    if self.display is not None:
                        self.display.ended(run, record)
            if self.display is not None and self.status is not None:
                notes = map(_note, sorted(self.status.glob("*.json")))
                self.display.update([note for note in notes if note])


def _note(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):  # the run may have ended in the meantime
        return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}


def deadline(time_limit: float | None) -> float:
    """The time after which no run is started."""
    return math.inf if time_limit is None else time.time() + number("time_limit", time_limit, 0)
