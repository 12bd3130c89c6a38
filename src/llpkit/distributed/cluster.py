"""Connecting to a Dask cluster, or starting one on this machine."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llpkit._package import package
from llpkit.errors import LLPError

_TIMEOUT = 20.0
_QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.system-monitor.interval": "2s",
    "distributed.worker.memory.monitor-interval": "500ms",
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.98,
    "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 2,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 1 << 20,
}
"""Fewer of Dask's diagnostics, which take 2% of a core in every process, even if idle. A paused
worker waits for memory that Dask could spill, but most of it is XGBoost's; only the limit counts.
The last two return the memory of large arrays to the system at once."""


def current() -> Any:
    """The current client, or ``None``."""
    try:
        from distributed import get_client

        return get_client()
    except (ImportError, ValueError):
        return None


@contextmanager
def answering() -> Iterator[None]:
    """Turn the many errors that follow the loss of the scheduler into a single clear one."""
    client = current()
    try:
        yield
    except Exception as error:
        if client is None or client.status == "running" or isinstance(error, LLPError):
            raise
        raise LLPError(
            f"the Dask scheduler at {client.scheduler.address} no longer answers, so the fit "
            "ended; see its log, start it again, and repeat the fit"
        ) from error


@contextmanager
def connected(
    scheduler: str | None = None, workers: int = 2, memory_limit: str | None = None
) -> Iterator[Any]:
    """A client of the cluster at an address, or of a local one that ends with the block.

    Args:
        scheduler: Such as ``"tcp://10.0.0.1:8786"``; ``None`` starts a cluster on this machine.
        workers: Processes of a local cluster, one thread each.
        memory_limit: Memory of each process, such as ``"4GB"``; by default an equal share.
    """
    package("distributed", "dask")
    from distributed import Client, LocalCluster

    if scheduler is not None:
        try:
            # Not as the default: a client that fails to connect would remain it, and every later
            # computation with Dask in this process would wait for it.
            client = Client(scheduler, timeout=_TIMEOUT, set_as_default=False)
        except Exception as error:  # another kind of server may answer anything
            raise LLPError(
                f"no Dask scheduler answers at {scheduler}: {error}; start one with dask scheduler"
            ) from error
        with client, client.as_current():
            if not client.scheduler_info()["workers"]:
                raise LLPError(f"the scheduler at {scheduler} has no workers; start dask worker")
            yield client
        return
    import dask

    try:
        with dask.config.set(_QUIET):
            local = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=memory_limit or "auto",
                dashboard_address=":0",
                silence_logs=logging.ERROR,
            )
    except ValueError as error:
        raise LLPError(
            f"memory_limit = {memory_limit!r}: {error}; give 4GB, for example"
        ) from error
    with local, Client(local) as client:
        yield client
