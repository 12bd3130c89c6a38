"""Atomic writes, and the paths to write to."""

import contextlib
import glob
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from llpkit.errors import LLPError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PART, LOCK = ".llpkit-part", ".llpkit-lock"
"""Endings of temporary files and locks."""


@contextlib.contextmanager
def atomic(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """A temporary file that replaces ``path`` when the block ends without an error.

    It is in the same folder, where the temporary files of killed processes are removed. If writing
    fails, for example on a full disk, the existing file stays as it is. ``sync`` waits for the
    disk; that matters only when power is lost, since the system's buffers survive a kill.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path)
        temporary, handle = _temporary(path)
        try:
            yield temporary
            if sync:
                with temporary.open("rb") as written:  # the writer may have replaced the file
                    os.fsync(written.fileno())
            os.replace(temporary, path)
            if sync:
                _sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(handle)  # releases the lock, so only after the file is gone


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a system error about writing a file or folder into an :class:`LLPError`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise LLPError(
            f"{path} cannot be written: {reason}; existing files are unchanged. Make it possible "
            "to write there, or choose another place"
        ) from error


def write_bytes(path: Path, content: bytes, *, sync: bool = True) -> Path:
    """Write a file atomically."""
    with atomic(path, sync=sync) as temporary:
        temporary.write_bytes(content)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write text atomically, as UTF-8 and with its line ends unchanged."""
    return write_bytes(path, text.encode("utf-8"))


def _temporary(path: Path) -> tuple[Path, int]:
    """A new file next to ``path``, locked for as long as its handle is open.

    The file itself is locked; filelock would need a second file for every write.
    """
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        if temporary.exists():
            return temporary, handle
        # Between open and lock, another process may have taken it for a leftover and removed it.
        os.close(handle)


def _clear(path: Path) -> None:
    """Remove temporary files of ``path`` whose writers are dead: the system dropped their locks."""
    if fcntl is None:
        return
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{PART}"):
        with contextlib.suppress(OSError):  # a living writer holds the lock
            handle = os.open(left, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink(missing_ok=True)
            finally:
                os.close(handle)


def _sync(folder: Path) -> None:
    """Make new names in a folder survive a loss of power, where the system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def rename(old: Path, new: Path) -> None:
    """Rename a folder on the same file system."""
    with writing(new):
        os.rename(old, new)
        _sync(new.parent)


def is_ours(name: str) -> bool:
    """Whether this is the name of a temporary file or a lock of llpkit."""
    return name.startswith(".") and name.endswith((PART, LOCK))


def beside(path: Path, ending: str) -> Path:
    """A hidden name next to a file or folder; links to the folder give the same name."""
    real = Path(os.path.realpath(path))
    if not real.name:
        raise LLPError(f"{path} is the root of the file system; choose a folder in it")
    home = path if path.name == real.name and not path.is_symlink() else real
    return home.with_name(f".{real.name}{ending}")


def path_of(name: str, value: Any) -> Path:
    """A path from the user, for a file or folder that need not exist yet.

    A path such as ``a/../b`` is resolved, so that ``a`` need not exist.
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise LLPError(f"{name} = {value!r}; give a path")
    path = Path(value)
    if "\0" in str(path):
        raise LLPError(f"{name} = {str(path)!r} has a null character; choose another name")
    return Path(os.path.realpath(path)) if ".." in path.parts else path


def check_apart(out: Path, inputs: Iterable[Path]) -> None:
    """Refuse an output that is one of the inputs, under any name, or a folder that holds one."""
    target = Path(os.path.realpath(out))
    for given in inputs:
        source = Path(os.path.realpath(given))
        same = source == target or target in source.parents
        with contextlib.suppress(OSError):
            same = same or os.path.samefile(source, target)  # a hard link
        if same:
            raise LLPError(
                f"{out} would overwrite the input {given}; choose another place to write to"
            )
