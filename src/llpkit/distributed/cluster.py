"""Connecting to a Dask cluster, or starting one on this machine."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llpkit.errors import LLPError

_TIMEOUT = 20.0


@contextmanager
def connected(
    scheduler: str | None = None, workers: int = 2, memory_limit: str | None = None
) -> Iterator[Any]:
    """A client of the cluster at an address, or of a local one that ends with the block.

    Args:
        scheduler: Such as ``"tcp://10.0.0.1:8786"``; ``None`` starts a cluster on this machine.
        workers: Processes of a local cluster, one thread each.
        memory_limit: Of each of these, such as ``"4GB"``; by default an equal share of the memory.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise LLPError(
            "large tables need Dask; install it with pip install 'llpkit[dask]'"
        ) from error
    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=_TIMEOUT)
        except (OSError, ValueError, TimeoutError) as error:
            raise LLPError(
                f"no Dask scheduler answers at {scheduler}: {error}; start one with dask scheduler"
            ) from error
        with client:
            if not client.scheduler_info()["workers"]:
                raise LLPError(f"the scheduler at {scheduler} has no workers; start dask worker")
            yield client
        return
    try:
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
