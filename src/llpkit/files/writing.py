"""Atomic writes, locks, and checksums that show which files llpkit wrote.

One rule holds throughout: llpkit removes only what it marked as its own. Temporary files and locks
are recognised by the ending of their names; folders by a list of their files, each with its
SHA-256, that no other program writes.
"""

import contextlib
import hashlib
import json
import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llpkit.errors import LLPError
from llpkit.files.limits import check_regular, read_regular

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PART, LOCK = ".llpkit-part", ".llpkit-lock"
CHECKSUMS = "checksums.json"
_MARK = "llpkit"


# Files


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
    """A new file next to ``path``, locked for as long as its handle is open."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        _try_lock(handle, wait=True)
        if _is(temporary, handle):
            return temporary, handle
        # Between open and lock, another process may have taken it for a leftover and removed it.
        os.close(handle)


def _clear(path: Path) -> None:
    """Remove temporary files of ``path`` that no process holds a lock on."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for left in path.parent.iterdir():
            if left.name.startswith(f".{path.name}.") and left.name.endswith(PART):
                _clear_one(left)


def _clear_one(left: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(left, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if _try_lock(handle):  # the system drops the locks of a dead process
                left.unlink(missing_ok=True)
        finally:
            os.close(handle)


def _try_lock(handle: int, wait: bool = False) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # held by another process, or a file system without locks
        return False
    return True


def _is(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


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


# Places


def beside(path: Path, ending: str) -> Path:
    """A hidden name next to a file or folder; links to the folder give the same name."""
    real = Path(os.path.realpath(path))
    if not real.name:
        raise LLPError(f"{path} is the root of the file system; choose a folder in it")
    home = path if path.name == real.name and not path.is_symlink() else real
    return home.with_name(f".{real.name}{ending}")


def place_of(name: str, value: Any) -> Path:
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
                _check_writable(file)
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


def _check_writable(file: Path) -> None:
    """Raise the system's error if no file can be created in the folder of ``file``."""
    temporary, handle = _temporary(file)
    temporary.unlink()
    os.close(handle)


def _holder(file: Path) -> str:
    """The process that holds a lock, or held it last."""
    with contextlib.suppress(OSError, ValueError):
        mark, _, who = read_regular(file).decode().strip().partition(" ")
        if mark == _MARK:
            return who
    return ""


def is_ours(name: str) -> bool:
    """Whether a name is that of a temporary file or lock of llpkit."""
    return name.startswith(".") and name.endswith((PART, LOCK))


# Checksums


@dataclass(frozen=True)
class Checksums:
    """The files that llpkit wrote into a folder, with the SHA-256 of each."""

    folder: Path
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, name: str = CHECKSUMS) -> "Checksums | None":
        """The list in a folder; ``None`` if it is missing, damaged or not llpkit's."""
        try:
            content = json.loads(read_regular(folder / name))
            files = content["files"]
            if content["written by"] != _MARK or content["sha256"] != _digest(files):
                return None
            if not isinstance(files, dict) or not all(
                isinstance(value, str) and _inside(folder, key) for key, value in files.items()
            ):
                return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return cls(folder, files)

    @classmethod
    def need(cls, folder: Path) -> "Checksums":
        """Like :meth:`read`, but raises if there is no valid list."""
        found = cls.read(folder)
        if found is None:
            wrong = "is damaged" if (folder / CHECKSUMS).exists() else "is missing"
            raise _damaged(folder, CHECKSUMS, wrong)
        return found

    def check(self, name: str) -> Path:
        """The path of a file, after verifying its checksum."""
        path = self.folder / name
        if name not in self.files:
            raise _damaged(self.folder, name, f"is not in {CHECKSUMS}")
        try:
            same = sha256(path) == self.files[name]
        except FileNotFoundError as error:
            raise _damaged(self.folder, name, "is missing") from error
        except OSError as error:
            raise LLPError(f"{path} cannot be read: {error.strerror}") from error
        if not same:
            raise _damaged(self.folder, name, "is not as it was written")
        return path

    def whole(self) -> bool:
        """Whether all files exist and match their checksums."""
        try:
            return all(self.check(name) for name in self.files)
        except LLPError:
            return False

    def write(self, name: str = CHECKSUMS) -> None:
        """Write the list into the folder."""
        content = {"written by": _MARK, "files": self.files, "sha256": _digest(self.files)}
        write_text(self.folder / name, json.dumps(content, indent=1, sort_keys=True) + "\n")

    def foreign(self) -> list[Path]:
        """Other files in the folder, except llpkit's temporary files and locks."""
        known = {*self.files, CHECKSUMS}
        return [path for path in files_in(self.folder) if _name(path, self.folder) not in known]


def _inside(folder: Path, name: str) -> bool:
    """Whether a name stays inside the folder when links are followed; a list may be forged."""
    home = os.path.realpath(folder)
    return os.path.realpath(os.path.join(home, name)).startswith(os.path.join(home, ""))


def _damaged(folder: Path, name: str, wrong: str) -> LLPError:
    return LLPError(
        f"{folder} is damaged: {name} {wrong}; restore it from a copy, or make it again"
    )


def claim(folder: Path, names: Iterable[str], listed: str = CHECKSUMS) -> dict[str, str]:
    """Refuse to overwrite files of others, and list the new files as llpkit's before writing them.

    That way a killed call leaves no file that the next call would refuse to overwrite. Files listed
    but not yet written have an empty checksum, which matches no file.

    Returns:
        The previous list.
    """
    found = Checksums.read(folder, listed)
    before = {} if found is None else found.files
    names = sorted(names)
    for name in (listed, *names):
        known = found is not None and (name == listed or name in before)
        if not known and os.path.lexists(folder / name):
            raise LLPError(
                f"{folder / name} was not written by llpkit and would be overwritten; choose "
                "another folder, or move the file"
            )
    Checksums(folder, dict.fromkeys(names, "") | before).write(listed)
    return before


def add_checksums(folder: Path, names: Iterable[str]) -> None:
    """Add files of a folder to its list of llpkit's files."""
    before = Checksums.read(folder)
    files = {} if before is None else before.files
    Checksums(folder, files | {name: sha256(folder / name) for name in names}).write()


def _digest(files: dict[str, str]) -> str:
    """Checksum of the list itself, so that a damaged name is not taken for an unknown file."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    """The checksum of a file."""
    check_regular(path)
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def files_in(folder: Path) -> list[Path]:
    """All files and links below a folder, except llpkit's temporary files and locks."""
    found = []
    for home, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(home, name))]
        found += [Path(home, name) for name in (*names, *links) if not is_ours(name)]
    return sorted(found)


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
