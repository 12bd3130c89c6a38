"""Parallel runs: processes on this machine with joblib, or the workers of a Ray or Dask cluster.

A worker of a cluster that dies costs only its run, which the cluster performs again on another
worker. A run whose workers die again and again, perhaps for lack of memory, is given up; the others
go on.
"""

import contextlib
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from llpkit._text import several
from llpkit.errors import LLPError
from llpkit.experiments.run import Run, Worker, carry_out

BACKENDS = ("loky", "ray", "dask")
_POLL = 0.5
RETRIES = 3
"""How often a run is performed again after the death of its worker; the default of both engines,
and that of a Dask cluster which is running already."""


def run_parallel(runs: Sequence[Run], worker: Worker, backend: str) -> None:
    """Perform runs, as many at once as the worker has jobs."""
    jobs = min(worker.jobs, len(runs))
    if backend != "loky":
        with {"ray": _ray, "dask": _dask}[backend](jobs) as cluster:
            _spread(cluster, runs, worker, jobs)
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="loky", n_jobs=jobs):
        try:
            Parallel(batch_size=1)(delayed(_in_worker)(run, worker, os.getpid()) for run in runs)
        except BrokenExecutor as error:
            raise LLPError(
                "a worker process was killed, perhaps for lack of memory; finished runs are kept: "
                f"call again with fewer jobs than {worker.jobs}"
            ) from error


class _Cluster(NamedTuple):
    """What is asked of Ray or Dask."""

    submit: Callable[[Run, Worker], Any]
    """Start a run; returns a handle."""
    first: Callable[[list[Any]], Any]
    """Wait until one of the handles has ended, and return it."""
    lost: Callable[[Any], str]
    """Why the run of a handle has no result; empty if it has one."""


def _spread(cluster: _Cluster, runs: Sequence[Run], worker: Worker, jobs: int) -> None:
    """Keep as many runs going as there are jobs."""
    waiting, going, lost = list(reversed(runs)), dict[Any, Run](), list[tuple[Run, str]]()
    while waiting or going:
        while waiting and len(going) < jobs:
            run = waiting.pop()
            going[cluster.submit(run, worker)] = run
        handle = cluster.first(list(going))
        run, reason = going.pop(handle), cluster.lost(handle)
        if reason:
            lost.append((run, reason))
    if lost:
        run, reason = lost[0]
        raise LLPError(
            f"{several(len(lost), 'run')} had no result, because the workers died, perhaps for "
            f"lack of memory ({run.title}: {reason}); finished runs are kept: call again, with "
            f"fewer jobs than {worker.jobs} per machine"
        )


def _in_worker(run: Run, worker: Worker, parent: int | None) -> None:
    if parent is not None:
        _end_with(parent)
    carry_out(run, worker)


_watched: set[int] = set()


def _end_with(parent: int) -> None:
    """End this process soon after its parent, even if the parent was killed."""
    if parent in _watched or os.getpid() == parent:
        return
    _watched.add(parent)

    def watch() -> None:
        while os.getppid() == parent:  # an orphan gets another parent
            time.sleep(_POLL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ray(jobs: int) -> Iterator[_Cluster]:
    """The connected cluster, or the one at RAY_ADDRESS, or a local one."""
    ray = _imported("ray")
    mine = not ray.is_initialized()
    if mine:
        # The size of an existing cluster is not ours to set.
        local = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": jobs}
        ray.init(include_dashboard=False, log_to_driver=False, **local)
    perform = ray.remote(_in_worker).options(num_cpus=1, max_retries=RETRIES)

    def lost(handle: Any) -> str:
        try:
            ray.get(handle)
        except ray.exceptions.RayError as error:
            return str(error).strip().splitlines()[0]
        return ""

    try:
        yield _Cluster(
            lambda run, worker: perform.remote(run, worker, None),
            lambda handles: ray.wait(handles, num_returns=1)[0][0],
            lost,
        )
    finally:
        if mine:
            ray.shutdown()


@contextmanager
def _dask(jobs: int) -> Iterator[_Cluster]:
    """The connected cluster, or the one at DASK_SCHEDULER_ADDRESS, or a local one."""
    distributed, dask = _imported("distributed"), _imported("dask")
    with contextlib.ExitStack() as stack:
        try:
            client = distributed.get_client()
        except ValueError:
            address = os.environ.get("DASK_SCHEDULER_ADDRESS")
            if address is None:
                local = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
                with dask.config.set({"distributed.scheduler.allowed-failures": RETRIES}):
                    address = stack.enter_context(distributed.LocalCluster(**local))
            client = stack.enter_context(distributed.Client(address))

        def first(handles: list[Any]) -> Any:
            done = distributed.wait(handles, return_when="FIRST_COMPLETED").done
            return next(iter(done))

        def lost(handle: Any) -> str:
            error = handle.exception()  # a run's own errors are in its record
            return "" if error is None else str(error).strip().splitlines()[0]

        # Dask moves the task of a dead worker to another one, and gives up after RETRIES more.
        yield _Cluster(
            lambda run, worker: client.submit(_in_worker, run, worker, None, pure=False),
            first,
            lost,
        )


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        extra = "ray" if name == "ray" else "dask"
        raise LLPError(
            f"{name} is not installed; install it with: pip install 'llpkit[{extra}]', or use "
            "the backend loky"
        ) from error
