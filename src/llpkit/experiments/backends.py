"""Parallel runs with joblib: processes on this machine, or a Ray or Dask cluster."""

import contextlib
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from typing import Any

from llpkit.errors import LLPError
from llpkit.experiments.run import Run, Worker, carry_out

BACKENDS = ("loky", "ray", "dask")
_POLL = 0.5


def run_parallel(runs: Sequence[Run], worker: Worker, backend: str) -> None:
    """Perform runs, as many at once as the worker has jobs."""
    from joblib import Parallel, delayed, parallel_config

    parent = os.getpid() if backend == "loky" else None
    connect: Callable[[int], Any] = {"ray": _ray, "dask": _dask}.get(backend, _nothing)
    jobs = min(worker.jobs, len(runs))
    with connect(jobs), parallel_config(backend=backend, n_jobs=jobs):
        try:
            Parallel(batch_size=1)(delayed(_in_worker)(run, worker, parent) for run in runs)
        except BrokenExecutor as error:
            raise LLPError(
                "a worker process was killed, perhaps for lack of memory; finished runs are kept: "
                f"call again with fewer jobs than {worker.jobs}"
            ) from error


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


def _nothing(jobs: int) -> Any:
    return contextlib.nullcontext(jobs)


@contextmanager
def _ray(jobs: int) -> Iterator[None]:
    """The connected cluster, or the one at RAY_ADDRESS, or a local one."""
    ray = _imported("ray")
    mine = not ray.is_initialized()
    if mine:
        # The size of an existing cluster is not ours to set.
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
    """The connected cluster, or the one at DASK_SCHEDULER_ADDRESS, or a local one."""
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
    try:
        return importlib.import_module(name)
    except ImportError as error:
        extra = "dask" if name == "distributed" else "ray"
        raise LLPError(
            f"{name} is not installed; install it with: pip install 'llpkit[{extra}]', or use "
            "the backend loky"
        ) from error
