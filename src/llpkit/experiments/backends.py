"""Parallel runs: processes on this machine with joblib, or the workers of a Ray or Dask cluster.

If a worker of a cluster dies, the cluster repeats its run on another worker. A run whose workers
die again and again, perhaps for lack of memory, is abandoned; the others go on.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from llpkit import plugins
from llpkit._package import package
from llpkit._text import several
from llpkit._workers import end_with
from llpkit.errors import LLPError
from llpkit.experiments.records import ExperimentRun, Record
from llpkit.experiments.run import WorkerSettings, train_and_record

BACKENDS = ("loky", "ray", "dask")
RETRIES = 3
"""How often a run is repeated after the death of its worker: the default of Ray and Dask."""


def perform(
    runs: Sequence[ExperimentRun], settings: WorkerSettings, backend: str
) -> Iterator[Record]:
    """Perform runs, as many at once as the settings allow, and yield each record when it ends.

    Runs that the deadline stops have no record.
    """
    jobs = min(settings.jobs, len(runs))
    if backend != "loky":
        with {"ray": _ray, "dask": _dask}[backend](jobs) as cluster:
            yield from _spread(cluster, runs, settings, jobs)
        return
    if jobs == 1:
        yield from filter(None, (train_and_record(run, settings) for run in runs))
        return
    from joblib import Parallel, delayed, parallel_config

    loaded, parent = plugins.loaded(), os.getpid()
    with parallel_config(backend="loky", n_jobs=jobs):
        try:
            yield from filter(
                None,
                Parallel(batch_size=1, return_as="generator_unordered")(
                    delayed(_in_worker)(run, settings, loaded, parent) for run in runs
                ),
            )
        except BrokenExecutor as error:
            raise LLPError(
                "a worker process was killed, perhaps for lack of memory; finished runs are kept: "
                f"call again with fewer jobs than {settings.jobs}"
            ) from error


class _Lost(Exception):
    """A run has no result, because its workers died."""


class _Cluster(NamedTuple):
    """The parts of Ray or Dask that are used here."""

    submit: Callable[..., Any]
    """Start a run with the arguments of :func:`_in_worker`; returns a handle."""
    first: Callable[[list[Any]], Any]
    """Wait until one of the handles is ready, and return it."""
    result: Callable[[Any], Record | None]
    """The result of a handle that is ready; raises :class:`_Lost`."""


def _spread(
    cluster: _Cluster, runs: Sequence[ExperimentRun], settings: WorkerSettings, jobs: int
) -> Iterator[Record]:
    """Keep as many runs going as there are jobs."""
    waiting, going, lost = list(reversed(runs)), dict[Any, ExperimentRun](), list[str]()
    loaded = plugins.loaded()
    while waiting or going:
        while waiting and len(going) < jobs:
            run = waiting.pop()
            going[cluster.submit(run, settings, loaded)] = run
        handle = cluster.first(list(going))
        run = going.pop(handle)
        try:
            record = cluster.result(handle)
        except _Lost as error:
            lost.append(f"{run.title}: {error}")
            continue
        if record is not None:
            yield record
    if lost:
        raise LLPError(
            f"{several(len(lost), 'run')} had no result, because the workers died, perhaps for "
            f"lack of memory ({lost[0]}); finished runs are kept: call again, with fewer jobs than "
            f"{settings.jobs} per machine"
        )


def _in_worker(
    run: ExperimentRun, settings: WorkerSettings, loaded: Sequence[str], parent: int | None = None
) -> Record | None:
    """Perform a run in a process that ends with its parent, if one is given."""
    if parent is not None:
        end_with(parent)
    plugins.load(loaded)
    return train_and_record(run, settings)


@contextmanager
def _ray(jobs: int) -> Iterator[_Cluster]:
    """The connected cluster, or the one at RAY_ADDRESS, or a local one."""
    ray = package("ray", "ray")
    mine = not ray.is_initialized()
    if mine:
        # The size of an existing cluster is not ours to set.
        local = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": jobs}
        ray.init(include_dashboard=False, log_to_driver=False, **local)
    submit = ray.remote(_in_worker).options(num_cpus=1, max_retries=RETRIES)

    def result(handle: Any) -> Any:
        try:
            return ray.get(handle)
        except ray.exceptions.RayError as error:
            raise _Lost(str(error).strip().splitlines()[0]) from error

    try:
        yield _Cluster(
            submit.remote, lambda handles: ray.wait(handles, num_returns=1)[0][0], result
        )
    finally:
        if mine:
            ray.shutdown()


@contextmanager
def _dask(jobs: int) -> Iterator[_Cluster]:
    """The connected cluster, or the one at DASK_SCHEDULER_ADDRESS, or a local one."""
    distributed, dask = package("distributed", "dask"), package("dask", "dask")
    with contextlib.ExitStack() as stack:
        try:
            client = distributed.get_client()
        except ValueError:
            address = os.environ.get("DASK_SCHEDULER_ADDRESS")
            if address is not None:
                from llpkit.distributed.cluster import connected

                client = stack.enter_context(connected(address))
            else:
                local = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
                with dask.config.set({"distributed.scheduler.allowed-failures": RETRIES}):
                    cluster = stack.enter_context(distributed.LocalCluster(**local))
                client = stack.enter_context(distributed.Client(cluster))

        def first(handles: list[Any]) -> Any:
            done = distributed.wait(handles, return_when="FIRST_COMPLETED").done
            return next(iter(done))

        def result(handle: Any) -> Any:
            if (error := handle.exception()) is not None:  # a run's own errors are in its record
                raise _Lost(str(error).strip().splitlines()[0])
            return handle.result()

        # Dask moves the task of a dead worker to another one, and gives up after RETRIES more.
        yield _Cluster(partial(client.submit, _in_worker, pure=False), first, result)
