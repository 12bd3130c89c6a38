"""Opening a counting project: its items, its folder, and the process that trains."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from llpkit._validation import option
from llpkit._workers import end_with
from llpkit.errors import LLPError
from llpkit.files import locked, writing
from llpkit.label.items import ImageItems, Items, RowItems
from llpkit.label.project import Project
from llpkit.label.store import Store

STORE = "counts.sqlite"


def items_of(source: Path, bag: str | None = None, drop: Sequence[str] = ()) -> Items:
    """The images of a folder, or the rows of a table."""
    if not source.exists():
        raise LLPError(f"{source} does not exist; give a folder of images or a table")
    if not source.is_dir():
        return RowItems(source, bag, drop)
    if drop:
        raise LLPError(f"{option('drop')} names columns of a table; {source} is a folder of images")
    if bag is not None:
        raise LLPError(
            f"{option('bag')} names a column of a table; images are grouped with {option('way')}"
        )
    return ImageItems(source)


def usual_way(items: Items) -> str:
    """The default of ``--bags``: the user's bags or folders, else images alike, random rows."""
    if items.has_bags or (items.groups is not None and len(set(items.groups)) > 1):
        return "folder"
    return "alike" if items.has_pictures else "random"


@contextmanager
def opened(
    folder: Path,
    items: Items,
    *,
    way: str,
    size: int | None = None,
    order: str = "information",
    positive: str = "positive",
    seed: int = 0,
    learn: bool = True,
) -> Iterator[Project]:
    """The project in a folder, new or continued, locked against other processes."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / STORE), trainer(learn) as pool:
        store = Store(folder / STORE)
        try:
            yield Project(
                items,
                store,
                way=way,
                size=None if size is None else min(size, len(items)),
                order=order,
                positive=positive,
                pool=pool,
                seed=seed,
                folder=folder,
            )
        finally:
            store.close()


@contextmanager
def trainer(learn: bool = True) -> Iterator[Executor | None]:
    """A background process that trains models; ``None`` if none are to be trained."""
    if not learn:
        yield None
        return
    others = set(multiprocessing.active_children())
    # Spawned, not forked: a fork would copy the server's threads in the middle of their work.
    pool = ProcessPoolExecutor(
        1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(os.getpid(),),
    )
    try:
        yield pool
    finally:
        # A running training is not worth waiting for.
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)


def _start(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this one
    end_with(parent)
