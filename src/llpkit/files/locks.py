"""Locks against other processes."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile

from llpkit.errors import LLPError
from llpkit.files.limits import read_regular
from llpkit.files.writing import LOCK, beside, writing

_MARK = "llpkit"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock ``path`` against all other processes, here or on machines that share the folder.

    The lock is a hidden file next to it, removed at the end; the lock of a killed process blocks
    nobody. On network file systems without locks, filelock falls back to a soft lock: the file
    itself is the lock, and one left by a process of another machine must be removed by hand.
    """
    from filelock import FileLock, Timeout

    file = beside(path, LOCK)
    with writing(path):
        file.parent.mkdir(parents=True, exist_ok=True)
        holder = _holder(file)  # read first: filelock may truncate the file
        lock = FileLock(file, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            if not file.exists():  # filelock also times out if the file cannot be created
                TemporaryFile(dir=file.parent).close()  # raises the system's error
            raise LLPError(
                f"{path} is in use by {_holder(file) or holder or 'another process'}; wait until "
                "it has ended, or choose another directory"
            ) from None
    try:
        about = f"{_MARK} process {os.getpid()} on {socket.gethostname()}\n"
        with contextlib.suppress(OSError):
            if file.stat().st_size == 0 or _holder(file):  # a soft lock has filelock's own record
                file.write_text(about, encoding="utf-8")
        yield
    finally:
        # Unlinked while still held: after the release the file might belong to another process.
        with contextlib.suppress(OSError):
            file.unlink()
        lock.release()


def _holder(file: Path) -> str:
    """The process that holds a lock, or held it last."""
    with contextlib.suppress(OSError, ValueError):
        mark, _, who = read_regular(file).decode().strip().partition(" ")
        if mark == _MARK:
            return who
    return ""
