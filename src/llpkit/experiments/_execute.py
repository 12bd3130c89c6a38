"""Running many runs: side by side on one machine, or on a Ray or Dask cluster, by joblib."""

import contextlib
import math
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from llpkit.errors import LLPError
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

    def end(self) -> None:
        """After the last run."""


@dataclass(frozen=True)
class Outcome:
    """How many runs were done before and now, which failed and why, and how many are left."""

    before: int
    now: int
    failed: Sequence[Record]
    left: int


def execute(
    runs: Sequence[Run],
    store: Store,
    place: Place,
    *,
    backend: str = "loky",
    display: Display | None = None,
) -> Outcome:
    """Carry out the runs that have no record yet.

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
        _check_device(place.device)
    waiting = [run for run in runs if not store.done(run)]
    before = len(runs) - len(waiting)
    if not waiting or time.time() > place.deadline:
        return Outcome(before, 0, [], len(waiting))
    load(waiting[0], place.data_dir)  # a data set that is missing is told once, before any run
    with tempfile.TemporaryDirectory(prefix="llpkit-") as status:
        place = replace(place, status=Path(status))
        timed = any(run.experiment == "epoch-time" for run in waiting)
        with _watched(waiting, before, store, Path(status), display, quiet=timed) as look:
            if place.jobs == 1 and backend == "loky":
                ends = []
                for run in waiting:
                    ends.append(carry_out(run, place))
                    look()
            else:
                ends = _parallel(waiting, place, backend)
    count = Counter(ends)
    ids = {run.id for run, end in zip(waiting, ends, strict=True) if end == "failed"}
    failed = [record for record in store.errors() if record["id"] in ids]
    return Outcome(before, count["done"], failed, count["left"])


def _check_device(device: str) -> None:
    try:
        kind = "cpu" if device == "auto" else torch.device(device).type
    except RuntimeError as error:
        raise LLPError(f"device = {device!r}; give auto, cpu or cuda") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise LLPError(f"device = {device!r} but torch sees no CUDA device; use cpu or auto")


def _parallel(runs: Sequence[Run], place: Place, backend: str) -> list[str]:
    from joblib import Parallel, delayed, parallel_config

    connect: Any = {"loky": contextlib.nullcontext, "ray": _ray, "dask": _dask}[backend]
    with connect(place.jobs), parallel_config(backend=backend, n_jobs=place.jobs):
        try:
            return list(Parallel(batch_size=1)(delayed(carry_out)(run, place) for run in runs))
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
                if path.exists():
                    display.ended(under_way.pop(run.id), "done", read(path))
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
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def deadline(time_limit: float | None) -> float:
    """The time after which no run begins."""
    return math.inf if time_limit is None else time.time() + time_limit
