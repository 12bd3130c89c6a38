"""What calls on one machine have in common: turns for timed runs, workers, temporary folders."""

import contextlib
import functools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL = 0.2
_STATUS = "llpkit-status-"
_READ, _MAKE = os.O_RDONLY, os.O_RDONLY | os.O_CREAT | os.O_EXCL  # it may be another user's


def lock_file() -> Path:
    """The file by which calls on this machine know of each other."""
    return Path(tempfile.gettempdir(), "llpkit-machine.lock")


@contextmanager
def turn(alone: bool, until: float, say: Callable[[str], None]) -> Iterator[bool]:
    """Wait for this machine; whether it was to be had before a time (as of ``time.time``).

    Any number of calls have it at once, or one that is alone. Where the system has no such locks,
    everybody has it at once.

    Args:
        alone: Whether no other call may run beside, because times are taken.
        until: When to give up.
        say: Is told what is waited for, if anything is.
    """
    reason = "timed runs of another call on this machine, beside which nothing runs"
    if alone:
        reason = "the runs of other calls on this machine to end, because times are taken alone"
    with _opened(lock_file(), _READ, _MAKE, _READ) as file:
        told = False
        while file is not None and not locked(file, alone):
            if time.time() > until:
                yield False
                return
            if not told:
                say(f"waits for {reason}")
                told = True
            time.sleep(_POLL)
        yield True


@contextmanager
def _opened(path: Path, *ways: int) -> Iterator[int | None]:
    """A file or folder to lock, by the first of some flags that opens it, or nothing."""
    found = None
    for flags in ways:
        with contextlib.suppress(OSError):
            found = os.open(path, flags, 0o644)
            break
    try:
        yield found
    finally:
        if found is not None:
            os.close(found)


def locked(file: int, alone: bool) -> bool:
    """Whether an open file is locked now, or cannot be because the system knows no such locks.

    The operating system gives a lock back when its process ends, however that ends.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


@contextmanager
def status_folder() -> Iterator[Path]:
    """A temporary folder for notes on runs; those of calls that were killed are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_STATUS}*"):
        with _opened(left, _READ) as folder:
            if folder is not None and locked(folder, alone=True):
                shutil.rmtree(left, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=_STATUS, ignore_cleanup_errors=True) as name,
        _opened(Path(name), _READ) as folder,
    ):
        if folder is not None:
            locked(folder, alone=True)
        yield Path(name)


@functools.cache  # once a process
def end_with(parent: int) -> None:
    """Let this process end soon after the one that started it, however that ends."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
