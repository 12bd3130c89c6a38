"""What llpkit writes: files that are whole or not there, locks, and lists of what is its own.

One rule holds for all of it: llpkit removes only what carries its own mark. Temporary files and
locks are known by their names, which end in a word of ours; folders by a list of their files, each
with its SHA-256, that nobody else writes.
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

from llpkit._limits import check_regular, read_regular
from llpkit.errors import LLPError

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
    """A temporary file that takes the place of ``path`` when the block ends well.

    It lies in the same folder; what a process that was killed left there is removed. Where writing
    fails, on a full disk say, the file that was there before stays as it is. ``sync`` waits for the
    disk, which only a loss of power makes necessary; what the system holds survives any kill.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path)
        temporary, handle = _temporary(path)
        try:
            yield temporary
            if sync:
                with temporary.open("rb") as written:  # whoever wrote it may have replaced it
                    os.fsync(written.fileno())
            os.replace(temporary, path)
            if sync:
                _sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(handle)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says of a file or folder that cannot be written into an error."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise LLPError(
            f"{path} cannot be written: {reason}; what was there before is unchanged. Make it "
            "possible to write there, or choose another place"
        ) from error


def write_bytes(path: Path, content: bytes, *, sync: bool = True) -> Path:
    """Write a file, whole or not at all."""
    with atomic(path, sync=sync) as temporary:
        temporary.write_bytes(content)
    return path


def write_text(path: Path, text: str) -> Path:
    """The same for text, in UTF-8 and with its own ends of lines."""
    return write_bytes(path, text.encode("utf-8"))


def _temporary(path: Path) -> tuple[Path, int]:
    """A new file beside ``path``, locked for as long as its handle is open."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        _try_lock(handle, wait=True)
        if _is(temporary, handle):
            return temporary, handle
        os.close(handle)  # another process took it for left behind, before it was locked


def _clear(path: Path) -> None:
    """Remove temporary files of ``path`` whose process is gone, which the system tells by locks."""
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
            if _try_lock(handle):
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
    """Let a folder's new names survive a loss of power, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def rename(old: Path, new: Path) -> None:
    """Give a folder another name on the same file system."""
    with writing(new):
        os.rename(old, new)
        _sync(new.parent)


# Places


def beside(path: Path, ending: str) -> Path:
    """The hidden name next to a file or folder, the same for all names of that folder."""
    real = Path(os.path.realpath(path))
    if not real.name:
        raise LLPError(f"{path} is the root of the file system; choose a folder in it")
    home = path if path.name == real.name and not path.is_symlink() else real
    return home.with_name(f".{real.name}{ending}")


def place_of(name: str, value: Any) -> Path:
    """A path that a user gave, for a file or folder that need not be there yet.

    Where it leads up again, ``a/../b``, it is resolved, so that nobody has to make ``a`` first.
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise LLPError(f"{name} = {value!r}; give a path")
    path = Path(value)
    if "\0" in str(path):
        raise LLPError(f"{name} = {str(path)!r} has a null character; choose another name")
    return Path(os.path.realpath(path)) if ".." in path.parts else path


def check_apart(out: Path, inputs: Iterable[Path]) -> None:
    """Refuse an output that is one of the inputs, under whatever name, or a folder with one."""
    target = Path(os.path.realpath(out))
    for given in inputs:
        source = Path(os.path.realpath(given))
        same = source == target or target in source.parents
        with contextlib.suppress(OSError):
            same = same or os.path.samefile(source, target)  # a hard link
        if same:
            raise LLPError(
                f"{out} would overwrite {given}, which is read; choose another place to write to"
            )


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep every other process, here or on a machine that shares the folder, from ``path``.

    The lock is a hidden file next to it, removed at the end; that of a process that was killed
    holds nobody up. Network file systems without locks get the softer kind of filelock: the file
    alone is the lock then, and one left by a process of another machine must be removed by hand.
    """
    from filelock import FileLock, Timeout

    file = beside(path, LOCK)
    with writing(path):
        file.parent.mkdir(parents=True, exist_ok=True)
        holder = _holder(file)
        lock = FileLock(file, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            if not file.exists():  # filelock also waits for files that can never be made
                _check_writable(file)
            raise LLPError(
                f"{path} is in use by {_holder(file) or holder or 'another process'}; wait until "
                "it has ended, or choose another directory"
            ) from None
    try:
        about = f"{_MARK} process {os.getpid()} on {socket.gethostname()}\n"
        with contextlib.suppress(OSError):
            if file.stat().st_size == 0 or _holder(file):  # else it is filelock's own record
                file.write_text(about, encoding="utf-8")
        yield
    finally:
        with contextlib.suppress(OSError):
            file.unlink()
        lock.release()


def _check_writable(file: Path) -> None:
    """Raise what the system says if no file can be made in the folder of ``file``."""
    temporary, handle = _temporary(file)
    temporary.unlink()
    os.close(handle)


def _holder(file: Path) -> str:
    """Who holds a lock, or held it last."""
    with contextlib.suppress(OSError, ValueError):
        mark, _, who = read_regular(file).decode().strip().partition(" ")
        if mark == _MARK:
            return who
    return ""


def is_ours(name: str) -> bool:
    """Whether a file is a temporary one or a lock of llpkit, by its name."""
    return name.startswith(".") and name.endswith((PART, LOCK))


# Checksums


@dataclass(frozen=True)
class Checksums:
    """The files that llpkit wrote into a folder, with the SHA-256 of each."""

    folder: Path
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, name: str = CHECKSUMS) -> "Checksums | None":
        """The list in a folder; ``None`` if there is none, or it is damaged or of somebody else."""
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
        """The same, or an error."""
        found = cls.read(folder)
        if found is None:
            wrong = "is damaged" if (folder / CHECKSUMS).exists() else "is missing"
            raise _damaged(folder, CHECKSUMS, wrong)
        return found

    def check(self, name: str) -> Path:
        """A file of the folder, once it is known to be as it was written."""
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
        """Whether all files are there and as they were written."""
        try:
            return all(self.check(name) for name in self.files)
        except LLPError:
            return False

    def write(self, name: str = CHECKSUMS) -> None:
        """Write the list into the folder."""
        content = {"written by": _MARK, "files": self.files, "sha256": _digest(self.files)}
        write_text(self.folder / name, json.dumps(content, indent=1, sort_keys=True) + "\n")

    def foreign(self) -> list[Path]:
        """What else is in the folder, apart from temporary files and locks of ours."""
        known = {*self.files, CHECKSUMS}
        return [path for path in files_in(self.folder) if _name(path, self.folder) not in known]


def _inside(folder: Path, name: str) -> bool:
    """Whether a name is that of a file in the folder, links followed: anybody can write a list."""
    home = os.path.realpath(folder)
    return os.path.realpath(os.path.join(home, name)).startswith(os.path.join(home, ""))


def _damaged(folder: Path, name: str, wrong: str) -> LLPError:
    return LLPError(
        f"{folder} is damaged: {name} {wrong}; restore it from a copy, or make it again"
    )


def claim(folder: Path, names: Iterable[str], listed: str = CHECKSUMS) -> dict[str, str]:
    """Refuse to overwrite files of others, and list these as llpkit's own before they are written.

    A call that is killed then leaves no file that the next one takes for somebody else's. What is
    listed but not written yet has an empty checksum, which no file has.

    Returns:
        The list as it was before.
    """
    found = Checksums.read(folder, listed)
    before = {} if found is None else found.files
    names = sorted(names)
    for name in (listed, *names):
        known = found is not None and (name == listed or name in before)
        if not known and os.path.lexists(folder / name):
            raise LLPError(
                f"{folder / name} was not written by llpkit, and would be overwritten; choose "
                "another folder, or move it away"
            )
    Checksums(folder, dict.fromkeys(names, "") | before).write(listed)
    return before


def add_checksums(folder: Path, names: Iterable[str]) -> None:
    """List files of a folder as llpkit's own, beside those that are listed already."""
    before = Checksums.read(folder)
    files = {} if before is None else before.files
    Checksums(folder, files | {name: sha256(folder / name) for name in names}).write()


def _digest(files: dict[str, str]) -> str:
    """Of the list itself, so that a name that was damaged does not pass for a file never there."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    """The checksum of a file."""
    check_regular(path)
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def files_in(folder: Path) -> list[Path]:
    """Everything in a folder and below it, apart from folders, temporary files and locks."""
    found = []
    for home, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(home, name))]
        found += [Path(home, name) for name in (*names, *links) if not is_ours(name)]
    return sorted(found)


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
