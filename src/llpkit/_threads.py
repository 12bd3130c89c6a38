"""How many threads a fit gets.

A parallel loop ends when its slowest thread does, and OpenMP threads wait for each other by
spinning. On a small table a loop takes microseconds, so where another process is using a core,
nearly all time is spent waiting. Small problems therefore get one thread.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

CELLS = 250_000
"""Rows times columns per thread."""

_chosen: ContextVar[bool] = ContextVar("chosen", default=False)
"""Whether the number of threads has been chosen, so that fits within others leave it alone."""


@contextmanager
def threads_for(cells: int) -> Iterator[None]:
    """Limit OpenMP and BLAS to the threads that a table of this many cells can use.

    Their number is never raised, and left alone if the user chose it with :func:`threads` or the
    variable OMP_NUM_THREADS.
    """
    if _chosen.get() or "OMP_NUM_THREADS" in os.environ:
        yield
        return
    with _limited(1 + cells // CELLS):
        yield


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Use this many threads, whatever the size of the problem; ``None`` lets each fit decide."""
    if number is None:
        yield
        return
    with _limited(number, raise_to=True):
        yield


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Use this many torch threads, or as many as before; their number is restored at the end."""
    import torch

    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _limited(number: int, raise_to: bool = False) -> Iterator[None]:
    from threadpoolctl import ThreadpoolController

    token = _chosen.set(True)
    controller = ThreadpoolController()
    limits: dict[str, int] = {}
    for pool in controller.info():
        least = limits.get(pool["prefix"], pool["num_threads"])
        limits[pool["prefix"]] = number if raise_to else min(number, least, pool["num_threads"])
    try:
        with controller.limit(limits=limits):
            yield
    finally:
        _chosen.reset(token)
