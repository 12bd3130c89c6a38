"""Running many runs: side by side on one machine, or on a Ray or Dask cluster, by joblib."""

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from llpkit._device import device_of
from llpkit._limits import read_regular
from llpkit.errors import LLPError
from llpkit.experiments._machine import end_with, status_folder, turn
from llpkit.experiments._plan import at_least_one, known
from llpkit.experiments._run import Record, Run, Store
from llpkit.experiments._work import Place, carry_out, load

BACKENDS = ("loky", "ray", "dask")
_POLL = 0.5


class Display(Protocol):
    """Whoever shows how the runs are going."""

    def begin(self, runs: Sequence[Run], done: int) -> None:
        """Before the first run: those to do, and how many were done before."""

    def update(self, running: Sequence[Record]) -> None:
        """Every now and then: a note on each run that is under way."""

    def ended(self, run: Run, how: str, record: Record | None) -> None:
        """A run ended; its record, if it left one."""

    def waits(self, what: str) -> None:
        """At any time: a line on what keeps the runs from going on."""

    def end(self) -> None:
        """After the last run."""


@dataclass(frozen=True)
class Outcome:
    """How many runs were done before and now, which failed and why, and how many are left.

    Each run is in one of these numbers; ``elsewhere`` is of those that another call did meanwhile.
    """

    before: int
    now: int
    failed: Sequence[Record]
    left: int
    elsewhere: int = 0


def execute(
    runs: Sequence[Run],
    store: Store,
    place: Place,
    *,
    backend: str = "loky",
    display: Display | None = None,
) -> Outcome:
    """Carry out the runs that have no record yet.

    Those that another call has under way are waited for, and taken over if it ends without them.

    Args:
        runs: In the order in which they begin.
        store: The records. With workers on several machines its folder must be shared.
        place: How they are carried out; its ``jobs`` is the number side by side.
        backend: ``"loky"`` for processes on this machine, ``"ray"`` or ``"dask"`` for a cluster:
            the one that is connected, else a local one of ``jobs`` processes.
        display: Is told how it goes.
    """
    known("backend", backend, BACKENDS)
    at_least_one("jobs", place.jobs)
    if backend == "loky":  # a cluster has devices of its own
        device_of(place.device)
    waiting = [run for run in runs if not store.done(run)]
    for run in runs:
        store.busy(run)  # removes the claim of a call that was killed after its record was written
    before = len(runs) - len(waiting)
    if not waiting or time.time() > place.deadline:
        return Outcome(before, 0, [], len(waiting))
    data, _ = load(waiting[0], place.data_dir)  # one that is missing is told before any run
    _check_bags(waiting, len(data.bags), data.bags.num_instances)
    say = display.waits if display is not None else lambda _: None
    ends: dict[str, str] = {}
    timed = any(run.experiment == "epoch-time" for run in waiting)
    with turn(timed, place.deadline, say) as ours, status_folder() as status:
        if ours:
            place = replace(place, status=status)
            with _watched(waiting, before, store, status, display, quiet=timed) as look:
                ends = _ends(waiting, store, place, backend, look, say)
    return _outcome(before, waiting, ends, store)


def _outcome(before: int, waiting: Sequence[Run], ends: Mapping[str, str], store: Store) -> Outcome:
    """What came of the runs, by their ends and by the records that are there now."""
    now = sum(end == "done" for end in ends.values())
    failed = [record for record in store.errors() if ends.get(record["id"]) == "failed"]
    left = sum(ends.get(run.id, "left") == "left" and not store.done(run) for run in waiting)
    return Outcome(before, now, failed, left, len(waiting) - now - len(failed) - left)


def _ends(
    runs: Sequence[Run],
    store: Store,
    place: Place,
    backend: str,
    look: Callable[[], None],
    say: Callable[[str], None],
) -> dict[str, str]:
    """How each run ended, by its id: as ``carry_out`` says, or ``elsewhere``."""
    ends: dict[str, str] = {}
    rest = list(runs)
    while rest:
        if place.jobs == 1 and backend == "loky":
            for run in rest:
                ends[run.id] = _carried_out(run, place)
                look()
        else:
            found = _parallel(rest, place, backend)
            ends |= {run.id: end for run, end in zip(rest, found, strict=True)}
        rest = [run for run in rest if ends[run.id] == "left"]
        if rest and not _freed(rest, store, place.deadline, say):
            break
    return ends


def _freed(runs: Sequence[Run], store: Store, until: float, say: Callable[[str], None]) -> bool:
    """Wait until another call has given back one of these runs; whether it did in time."""
    told = False
    while time.time() <= until:
        if not all(map(store.busy, runs)):
            return True
        if not told:
            say(f"waits for runs that another call has under way: {len(runs)}")
            told = True
        time.sleep(_POLL)
    return False


def _carried_out(run: Run, place: Place, parent: int | None = None) -> str:
    """Carry out a run, in a worker that ends with the process that started it if that is given."""
    if parent not in (None, os.getpid()):
        end_with(parent)
    return "elsewhere" if Store(place.folders).done(run) else carry_out(run, place)


def _check_bags(runs: Sequence[Run], bags: int, instances: int) -> None:
    """An error where bags are too few for the folds or for those held out; of the first's bags."""
    for run in runs:
        number = bags
        if isinstance(run.bag_size, int):
            number = math.ceil(instances / run.bag_size)
        what = f"{run.dataset} has {number} bags"
        if isinstance(run.bag_size, int):
            what = f"{run.dataset} in bags of {run.bag_size} has {number} bags"
        if number < run.folds:
            raise LLPError(f"{what}, too few for {run.folds} folds; use smaller bags")
        training = number - math.ceil(number / run.folds)
        kept = training - round((1 - (run.held_out or 0.5)) * training)
        if run.held_out is not None and not 0 < kept < training:
            raise LLPError(
                f"{what}, of which {training} or so are trained on: held_out = {run.held_out} "
                f"leaves {kept} to select by and {training - kept} to train on; choose another "
                "share"
            )


def _parallel(runs: Sequence[Run], place: Place, backend: str) -> list[str]:
    from joblib import Parallel, delayed, parallel_config

    parent = os.getpid() if backend == "loky" else None
    connect: Any = {"loky": contextlib.nullcontext, "ray": _ray, "dask": _dask}[backend]
    jobs = min(place.jobs, len(runs))
    with connect(jobs), parallel_config(backend=backend, n_jobs=jobs):
        try:
            work = (delayed(_carried_out)(run, place, parent) for run in runs)
            return list(Parallel(batch_size=1)(work))
        except BrokenExecutor as error:
            raise LLPError(
                "a worker process was killed, perhaps for want of memory; what is done is kept: "
                f"call again, with fewer jobs than {place.jobs}"
            ) from error


@contextmanager
def _ray(jobs: int) -> Iterator[None]:
    """The cluster that is connected, that RAY_ADDRESS names, or a local one."""
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
    """The cluster that is connected, that DASK_SCHEDULER_ADDRESS names, or a local one."""
    distributed = _imported("distributed")
    with contextlib.ExitStack() as stack:
        try:
            distributed.get_client()
        except ValueError:
            address = os.environ.get("DASK_SCHEDULER_ADDRESS")
            if address is None:
                address = stack.enter_context(
                    distributed.LocalCluster(
                        n_workers=jobs, threads_per_worker=1, dashboard_address=None
                    )
                )
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


@contextmanager
def _watched(
    runs: Sequence[Run],
    before: int,
    store: Store,
    status: Path,
    display: Display | None,
    quiet: bool,
) -> Iterator[Callable[[], None]]:
    """Tell a display what the workers leave behind: notes while they work, records at the end.

    Gives a function that looks at once. With ``quiet`` nobody looks in between, so that the time of
    an epoch is the epoch's own.
    """
    if display is None:
        yield lambda: None
        return
    under_way = {run.id: run for run in runs}
    failures = {path: path.stat().st_mtime_ns for path in store.home.rglob("*.error.json")}
    stop, lock = threading.Event(), threading.Lock()

    def look() -> None:
        with lock:
            for run in list(under_way.values()):
                path = store.home / "records" / run.experiment / f"{run.id}.json"
                error = path.with_name(f"{run.id}.error.json")
                if record := read(path):
                    display.ended(under_way.pop(run.id), "done", record)
                elif error.exists() and error.stat().st_mtime_ns != failures.get(error):
                    display.ended(under_way.pop(run.id), "failed", read(error))
            display.update([note for note in map(read, sorted(status.glob("*.json"))) if note])

    def poll() -> None:
        while not stop.wait(_POLL):
            look()

    display.begin(runs, before)
    thread = threading.Thread(target=poll, daemon=True)
    if not quiet:
        thread.start()
    try:
        yield look
    finally:
        stop.set()
        if not quiet:
            thread.join()
        look()
        display.end()


def read(path: Path) -> Record | None:
    """A small JSON file, or nothing if it is gone by now."""
    import json

    try:
        return dict(json.loads(read_regular(path)))
    except (OSError, ValueError):
        return None


def deadline(time_limit: float | None) -> float:
    """The time after which no run begins."""
    if time_limit is not None and not time_limit >= 0:
        raise LLPError(f"time_limit = {time_limit}; give seconds from 0")
    return math.inf if time_limit is None else time.time() + time_limit
