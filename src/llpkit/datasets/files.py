"""Files of data sets: finding them, reading archives without unpacking, caching decoded arrays.

Archives are read member by member into memory: nothing is written to the path that a member names,
and links, pipes and devices are skipped. Arrays that take long to decode are cached in the user's
cache folder, under the checksum of the files they came from.
"""

import contextlib
import hashlib
import lzma
import os
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from llpkit.errors import LLPError
from llpkit.files import atomic, check_limit, check_regular, check_unpacked, sha256

Arrays = dict[str, NDArray[Any]]

BROKEN = (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error)
"""What reading a damaged or incomplete file raises."""


def cache_folder() -> Path:
    """The user's cache folder for llpkit, by the platform's convention."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "llpkit"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    else:
        base = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    return Path(os.path.expanduser(base)) / "llpkit"


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder of data sets: ``data_dir``, else ``LLPKIT_DATA``, else the cache folder."""
    chosen = data_dir if data_dir is not None else os.environ.get("LLPKIT_DATA")
    return Path(os.path.expanduser(chosen)) if chosen else cache_folder() / "data"


def first_of(folder: Path, names: Iterable[str]) -> Path | None:
    """The first of these files or folders that exists."""
    paths = (folder / name for name in names)
    return next((path for path in paths if path.is_file() or path.is_dir()), None)


def not_found(name: str, folder: Path, source: str, save_as: str) -> LLPError:
    """The error for a missing data set: where to get it, and where to put it."""
    return LLPError(
        f"{name} is not in {folder}. Get it: {source}. Put it there: {save_as}. "
        "If you have it elsewhere, name that folder with data_dir or LLPKIT_DATA"
    )


def members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wanted files of a folder, a tar (compressed or not) or a zip.

    Names are relative and use ``/``. Files of folders are sorted; archives keep their order.
    """
    try:
        check_regular(path)
        if path.is_dir():
            yield from _in_folder(path, wanted)
        elif zipfile.is_zipfile(path):
            yield from _in_zip(path, wanted)
        else:
            yield from _in_tar(path, wanted)
    except BROKEN as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(":")
        raise LLPError(
            f"{path} cannot be read: {reason}; it may be incomplete; get it again"
        ) from error


def _in_folder(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    for file in _files(path):
        name = file.relative_to(path).as_posix()
        if wanted(name):
            yield name, file.read_bytes()


def _files(folder: Path) -> list[Path]:
    found = (Path(root) / name for root, _, names in os.walk(folder) for name in names)
    return sorted(file for file in found if file.is_file())


def _in_zip(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        _check_members(path, len(archive.infolist()))
        total = 0
        for info in archive.infolist():
            # The upper 16 bits of the attributes are the Unix mode.
            plain = not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16)
            if plain and wanted(info.filename):
                total += info.file_size  # zipfile reads no more than this, whatever is packed
                check_unpacked(path, total)
                yield info.filename, archive.read(info)


def _in_tar(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    # Not in streaming mode, "r|*", in which a truncated .xz ends without an error.
    with tarfile.open(path, tarinfo=_Header) as archive:
        total = 0
        for number, info in enumerate(archive, 1):
            _check_members(path, number)
            total += info.size  # a sparse file may be far larger than its packed data
            check_unpacked(path, max(total, info.offset_data))  # before this file is unpacked
            name = info.name.removeprefix("./")
            if info.isreg() and wanted(name):
                content = archive.extractfile(info)
                assert content is not None  # a regular file has content
                yield name, content.read()


def _check_members(path: Path, number: int) -> None:
    check_limit("LLPKIT_MAX_MEMBERS", number, f"{path} has", "files")


class _Header(tarfile.TarInfo):
    """A header with the data, such as a long name, that tarfile reads with it: up to 1 MiB."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        info = super().frombuf(buf, encoding, errors)
        if not info.isreg() and info.size > 2**20:
            raise tarfile.ReadError(f"a header of {info.size:,} bytes")
        return info


def fingerprint(path: Path) -> str:
    """SHA-256 of a file; for a folder, of the names, sizes and times of all its files."""
    if path.is_dir():
        listing = hashlib.sha256()
        for file in _files(path):
            about = file.stat()
            entry = (file.relative_to(path).as_posix(), about.st_size, about.st_mtime_ns)
            listing.update(repr(entry).encode())
        return listing.hexdigest()
    return sha256(path)


def decoded(path: Path, kind: str, build: Callable[[], Arrays]) -> Arrays:
    """``build()``, or its cached result for the same files.

    ``kind`` names the data set and the version of its arrays. A cache that cannot be written only
    costs time, and a damaged file in it is rebuilt.
    """
    # The checksum in the name ties the arrays to their source.
    kept = cache_folder() / "decoded" / f"{kind}-{fingerprint(path)[:32]}.npz"
    try:
        with kept.open("rb") as content, np.load(content, allow_pickle=False) as stored:
            return dict(stored)  # zip's own checksums catch damage
    except (*BROKEN, ValueError):
        # The same memory layout as from the file: another order of summation changes last digits.
        arrays = {name: np.ascontiguousarray(array) for name, array in build().items()}
    with contextlib.suppress(LLPError), atomic(kept) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return arrays
