"""Checksums that show which files of a folder llpkit wrote, and whether they have changed."""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from llpkit.errors import LLPError
from llpkit.files.limits import check_regular, read_regular
from llpkit.files.writing import is_ours, write_text

CHECKSUMS = "checksums.json"
_MARK = "llpkit"


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
            raise _damaged(self.folder, name, "has changed since it was written")
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
    """Whether a name stays inside the folder, links followed: the list may be forged."""
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
    """Checksum of the list itself: a damaged name would look like someone else's file."""
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
