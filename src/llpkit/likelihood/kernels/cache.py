"""A disk cache of compiled kernels, each file with a checksum.

Numba's own cache trusts its files: one truncated by a full disk or a kill ends in a traceback, and
one with a flipped bit gives wrong numbers. Here a file that cannot be read, verified or written
only costs the time to compile. Numba also watches only a kernel's own file, although constants and
functions of other files are compiled into the kernel.
"""

# mypy: allow-untyped-calls
import contextlib
import hashlib
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from llpkit.errors import LLPError
from llpkit.files import write_bytes

_DIGEST = hashlib.sha256().digest_size


class KernelCache(FunctionCache):
    """The cache that Numba consults before it compiles a kernel, and saves the result to.

    Raises:
        RuntimeError: There is no writable cache folder.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = (self._impl.locator.get_source_stamp(), sources(Path(__file__).parents[1]))
        self._cache_file: Any = _Files(Path(self._cache_path), self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel for these types, or ``None`` if it has to be compiled."""
        with contextlib.suppress(Exception):  # files of other versions can fail in any way
            return super().load_overload(sig, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a kernel, if possible."""
        with contextlib.suppress(OSError, LLPError):
            super().save_overload(sig, data)


@cache
def sources(folder: Path) -> bytes:
    """A digest of all Python files of a folder."""
    contents = [path.read_bytes() for path in sorted(folder.rglob("*.py"))]
    return hashlib.sha256(b"\0".join(contents)).digest()


class _Files:
    """One file per kernel and argument types: SHA-256, Numba version, source stamp, code."""

    def __init__(self, folder: Path, name: str, stamp: Any) -> None:
        self.folder, self.name, self.made = folder, name, (numba.__version__, stamp)

    def load(self, key: Any) -> Any:
        """The data saved under a key, or ``None`` if there is none, or a damaged or old file."""
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        digest, body = content[:_DIGEST], content[_DIGEST:]
        if hashlib.sha256(body).digest() != digest:
            return None
        made, data = pickle.loads(body)
        return data if made == self.made else None

    def save(self, key: Any, data: Any) -> None:
        """Write a file atomically."""
        body = dumps((self.made, data))
        # Not synced: a file that a loss of power cuts short fails its checksum.
        write_bytes(self._path(key), hashlib.sha256(body).digest() + body, sync=False)

    def flush(self) -> None:
        """Delete all files of this kernel."""
        for path in self.folder.glob(f"{self.name}.*.nbc"):
            path.unlink(missing_ok=True)

    def _path(self, key: Any) -> Path:
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return self.folder / f"{self.name}.{digest}.nbc"
