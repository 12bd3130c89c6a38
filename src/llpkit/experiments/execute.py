"""Running many runs: side by side on one machine, or on a Ray or Dask cluster, through joblib."""

import contextlib
import itertools
import json
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from llpkit._device import device_of
from llpkit._files import locked
from llpkit._validation import number, one_of, whole
from llpkit.errors import LLPError
from llpkit.experiments.protocol import EXPERIMENTS
from llpkit.experiments.protocol import Protocol as Plan
from llpkit.experiments.records import RUNS, Record, Results, begin, pack, read_run
from llpkit.experiments.run import Run, Worker, carry_out, divide, load
from llpkit.experiments.search import choices, known_runs, search
from llpkit.methods import METHODS

BACKENDS = ("loky", "ray", "dask")
_POLL = 0.5


class Display(Protocol):
    """Shows how the runs are going."""

    def begin(self, runs: Sequence[Run], done: int) -> None:
        """Before the first run: those to do, and how many were done before."""

    def update(self, running: Sequence[Mapping[str, Any]]) -> None:
        """Every now and then: a note on each run under way."""

    def ended(self, run: Run, record: Record) -> None:
        """A run ended."""

    def end(self) -> None:
        """After the last run."""


@dataclass(frozen=True)
class Outcome:
    """How many runs were done before, how many now, what failed, and how many are left."""

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
    """Carry out the runs of some experiments that have no record yet, and pack the records.

    One call at a time works on a folder. Where a grid is left unfinished, what would use its choice
    does not run.

    Args:
        worker: The folder, its protocol, and how runs are carried out.
        experiments: In this order.
        methods: Those of the protocol unless given.
        folds: Those of the protocol unless given; a grid has its own.
        backend: ``"loky"`` for processes on this machine, ``"ray"`` or ``"dask"`` for a cluster:
            the one that is connected, else a local one. Its machines must share the folder.
        display: Shows how it goes.

    Returns:
        What came of each experiment.
    """
    one_of("backend", backend, BACKENDS)
    whole("jobs", worker.jobs)
    if backend == "loky":  # a cluster has devices of its own
        device_of(worker.device)
    found = {}
    with locked(worker.folder):
        begin(worker.folder, worker.protocol)
        try:
            for experiment in experiments:
                results = pack(worker.folder)  # with what a killed call left
                if experiment == "grid":
                    found[experiment] = _run_grid(results, worker, methods, backend, display)
                    if found[experiment].left:
                        break
                else:
                    runs = plan(results, experiment, methods, folds)
                    found[experiment] = _execute(runs, results.ids, worker, backend, display)[0]
        finally:
            pack(worker.folder)
    return found


def plan(
    results: Results,
    experiment: str,
    methods: Sequence[str] = (),
    folds: Sequence[int] | None = None,
) -> list[Run]:
    """The runs of an experiment, fold by fold so that any part of them is a fair comparison.

    Of a grid, as far as its records reach. Each turn of timed runs begins with another method.
    """
    protocol = results.protocol
    one_of("experiment", experiment, EXPERIMENTS)
    if experiment not in protocol.experiments:
        raise LLPError(f"the protocol {protocol.title!r} has no {experiment}; add it to its file")
    names = _methods(protocol, methods)
    if experiment == "grid":
        known = known_runs(results)
        wanted = [name for name in names if protocol.searched(name)]
        return [run for name in wanted for run in search(protocol, name, known).runs]
    if folds is None:
        folds = range(protocol.folds_of(experiment))
    for fold in folds:
        whole("folds", fold, 0, protocol.folds - 1)
    # The time of an epoch does not depend on what a grid chooses.
    chosen: Mapping[str, Any] = {} if experiment == "epoch-time" else choices(results, names)
    sizes: Sequence[int | None] = (None,)
    if experiment == "bag-size" and protocol.sizes is not None:
        sizes = protocol.sizes.sizes
    recipes = {n: protocol.recipe_of(n, experiment, **chosen.get(n, {})) for n in names}
    _check_recipes(results, experiment, {n: r.to_dict() for n, r in recipes.items()})
    turns = [names[at:] + names[:at] for at in range(len(names))]
    return [
        Run(experiment, recipes[name], fold, size)
        for fold, size in itertools.product(folds, sizes)
        for name in (turns[fold % len(turns)] if experiment == "epoch-time" else names)
    ]


def _methods(protocol: Plan, methods: Sequence[str]) -> list[str]:
    names = list(methods or protocol.methods or METHODS)
    for name in names:
        METHODS[name]
        if names.count(name) > 1:
            raise LLPError(f"methods: {name} is there twice; name each method once")
    return names


def _check_recipes(results: Results, experiment: str, recipes: Mapping[str, Any]) -> None:
    """An error where a method has records with other settings, after a grid say."""
    for record in results.records[experiment]:
        wanted = recipes.get(record.method, record.recipe)
        differs = [key for key in wanted if wanted[key] != record.recipe.get(key)]
        if differs:
            key = differs[0]
            raise LLPError(
                f"{results.folder}: {record.method} has records of {experiment} with {key} = "
                f"{record.recipe.get(key)!r} and would now have {wanted[key]!r}; choose another "
                "folder"
            )


def _run_grid(
    results: Results,
    worker: Worker,
    methods: Sequence[str],
    backend: str,
    display: Display | None,
) -> Outcome:
    """Search until every method has a choice, or what it needs fails or has no time."""
    protocol, total = results.protocol, Outcome()
    known, asked = known_runs(results), set[str]()
    wanted = [name for name in _methods(protocol, methods) if protocol.searched(name)]
    while True:
        found = [search(protocol, name, known) for name in wanted]
        runs = [run for each in found for run in each.runs if run.id not in asked]
        if not runs or total.left:
            break
        asked |= {run.id for run in runs}
        part, records = _execute(runs, set(known), worker, backend, display)
        known |= {record.id: record for record in records if record.done}
        lost = [record for record in part.failed if record.done]  # a result, not a failure
        total += replace(
            part,
            now=part.now + len(lost),
            failed=[record for record in part.failed if not record.done],
        )
    undecided = sum(each.choice is None for each in found)
    return replace(total, left=max(total.left, undecided))


def _execute(
    runs: Sequence[Run],
    done: set[str],
    worker: Worker,
    backend: str,
    display: Display | None,
) -> tuple[Outcome, list[Record]]:
    """Carry out those runs that are not done; their records."""
    waiting = [run for run in runs if run.id not in done]
    before = len(runs) - len(waiting)
    if not waiting or time.time() > worker.deadline:
        return Outcome(before, left=len(waiting)), []
    _check_data(waiting, worker)
    timed = waiting[0].experiment == "epoch-time"
    if timed:  # alone on the machine, and nobody looks on
        worker, backend = replace(worker, jobs=1), "loky"
    with tempfile.TemporaryDirectory(prefix="llpkit-", ignore_cleanup_errors=True) as status:
        worker = replace(worker, status=None if timed or display is None else Path(status))
        watch = _Watcher(waiting, before, worker, display)
        with watch.watching(poll=not timed):
            if worker.jobs == 1 and backend == "loky":
                for run in waiting:
                    carry_out(run, worker)
                    watch.look()
            else:
                _parallel(waiting, worker, backend)
    records = watch.records
    failed = [record for record in records if record.error]
    left = len(waiting) - len(records)
    return Outcome(before, len(records) - len(failed), failed, left), records


def _check_data(runs: Sequence[Run], worker: Worker) -> None:
    """An error before any run where the data are missing or have too few bags."""
    for size in dict.fromkeys(run.bag_size for run in runs):
        data, _ = load(worker.protocol, worker.data_dir, size)
        divide(worker.protocol, data.bags, 0)


class _Watcher:
    """Reads what runs leave behind, each record once: notes while they run, records at the end."""

    def __init__(
        self, runs: Sequence[Run], before: int, worker: Worker, display: Display | None
    ) -> None:
        self.waiting = {run.id: run for run in runs}
        self.folder, self.status = worker.folder / RUNS, worker.status
        # A failure that another call left counts only once it has been written anew.
        self.old = {path: path.stat().st_mtime_ns for path in self.folder.glob("*.json")}
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
                path = self.folder / f"{run.id}.json"
                if path.exists() and path.stat().st_mtime_ns != self.old.get(path):
                    record = read_run(path)
                    self.records.append(record)
                    del self.waiting[run.id]
                    if self.display is not None:
                        self.display.ended(run, record)
            if self.display is not None and self.status is not None:
                notes = map(_note, sorted(self.status.glob("*.json")))
                self.display.update([note for note in notes if note])


def _note(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):  # the run has ended meanwhile
        return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}


def _parallel(runs: Sequence[Run], worker: Worker, backend: str) -> None:
    from joblib import Parallel, delayed, parallel_config

    parent = os.getpid() if backend == "loky" else None
    connect: Callable[[int], Any] = {"ray": _ray, "dask": _dask}.get(backend, _nothing)
    jobs = min(worker.jobs, len(runs))
    with connect(jobs), parallel_config(backend=backend, n_jobs=jobs):
        try:
            Parallel(batch_size=1)(delayed(_in_worker)(run, worker, parent) for run in runs)
        except BrokenExecutor as error:
            raise LLPError(
                "a worker process was killed, perhaps for lack of memory; what is done is kept: "
                f"call again with fewer jobs than {worker.jobs}"
            ) from error


def _in_worker(run: Run, worker: Worker, parent: int | None) -> None:
    if parent is not None:
        _end_with(parent)
    carry_out(run, worker)


_watched: set[int] = set()


def _end_with(parent: int) -> None:
    """Let this process end soon after the one that started it, even if that was killed."""
    if parent in _watched or os.getpid() == parent:
        return
    _watched.add(parent)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _nothing(jobs: int) -> Any:
    return contextlib.nullcontext(jobs)


@contextmanager
def _ray(jobs: int) -> Iterator[None]:
    """The cluster that is connected or that RAY_ADDRESS names, or a local one."""
    ray = _imported("ray")
    mine = not ray.is_initialized()
    if mine:
        local = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": jobs}
        ray.init(include_dashboard=False, log_to_driver=False, **local)
    try:
        _imported("ray.util.joblib").register_ray()
        yield
    finally:
        if mine:
            ray.shutdown()


@contextmanager
def _dask(jobs: int) -> Iterator[None]:
    """The cluster that is connected or that DASK_SCHEDULER_ADDRESS names, or a local one."""
    distributed = _imported("distributed")
    with contextlib.ExitStack() as stack:
        try:
            distributed.get_client()
        except ValueError:
            address = os.environ.get("DASK_SCHEDULER_ADDRESS")
            if address is None:
                local = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
                address = stack.enter_context(distributed.LocalCluster(**local))
            stack.enter_context(distributed.Client(address))
        yield


def _imported(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        extra = "dask" if name == "distributed" else "ray"
        raise LLPError(
            f"{name} is not installed; install it with: pip install 'llpkit[{extra}]', or use "
            "the backend loky"
        ) from error


def deadline(time_limit: float | None) -> float:
    """The time after which no run begins."""
    return math.inf if time_limit is None else time.time() + number("time_limit", time_limit, 0)
