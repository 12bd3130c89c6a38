"""Files of data sets: finding them, reading archives without unpacking, caching decoded arrays.

Archives are read member by member into memory: nothing is written to the path that a member names,
and links, pipes and devices are skipped. Arrays that take long to decode are cached in the user's
cache folder, under the checksum of the files they came from.
"""

import bz2
import contextlib
import gzip
import hashlib
import io
import lzma
import os
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from llpkit.errors import LLPError
from llpkit.files import atomic, check_limit, check_regular, check_unpacked, sha256

Arrays = dict[str, NDArray[Any]]

_MEMBER_LIMIT = 2**28
"""Maximum bytes of one file, far more than any file of a known data set has."""

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
            _check_size(path, name, file.stat().st_size)
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
                _check_size(path, info.filename, info.file_size)
                total += info.file_size  # zipfile reads no more than this, whatever is packed
                check_unpacked(path, total)
                yield info.filename, archive.read(info)


def _in_tar(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    # In streaming mode, "r|*", a truncated .xz would end without an error.
    with _unpacked(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
        total = 0
        for number, info in enumerate(archive, 1):
            _check_members(path, number)
            name = info.name.removeprefix("./")
            if info.isreg() and wanted(name):
                _check_size(path, name, info.size)
                total += info.size  # a sparse file may be far larger than its packed data
                check_unpacked(path, total)
                content = archive.extractfile(info)
                assert content is not None  # a regular file has content
                yield name, content.read()


def _check_members(path: Path, number: int) -> None:
    check_limit("LLPKIT_MAX_MEMBERS", number, f"{path} has", "files")


_PACKED: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
    b"\x5d\x00\x00": lzma.open,
}


def unpacked(path: Path) -> bytes:
    """The content of a file, unpacked if compressed, up to the limit."""
    with _unpacked(path) as stream:
        return stream.read()


def _unpacked(path: Path) -> "_Bounded":
    """The bytes of a file, unpacked if compressed, up to the limit."""
    with path.open("rb") as file:
        start = file.read(8)
    opened = next((way for magic, way in _PACKED.items() if start.startswith(magic)), None)
    return _Bounded(path, path.open("rb") if opened is None else opened(path))


class _Bounded(io.RawIOBase):
    """A stream that raises once its file unpacks to more than the limit."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self.path, self.stream = path, stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.stream.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == 0:
            check_unpacked(self.path, offset)
        return self.stream.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        content = bytearray()
        while size < 0 or len(content) < size:
            # In small parts, so that the limit is checked before memory fills up.
            part = self.stream.read(2**20 if size < 0 else min(size - len(content), 2**20))
            if not part:
                break
            content += part
            check_unpacked(self.path, self.stream.tell())
        return bytes(content)

    def close(self) -> None:
        self.stream.close()
        super().close()


def _check_size(path: Path, name: str, size: int) -> None:
    if size > _MEMBER_LIMIT:
        raise LLPError(
            f"{name} in {path} is {size:,} bytes, above the {_MEMBER_LIMIT:,} that a file of this "
            "data set may have; get it again from its source"
        )


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
