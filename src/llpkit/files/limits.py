"""Limits on untrusted files, which the user can raise, and a check for regular files."""

import os
import stat
from pathlib import Path

from llpkit.errors import LLPError

LIMITS = {
    "LLPKIT_MAX_CONFIG": 2**22,
    "LLPKIT_MAX_UNPACKED": 2**30,
    "LLPKIT_MAX_MEMBERS": 200_000,
    "LLPKIT_MAX_PIXELS": 2**26,
}
"""Environment variables that raise the limits, with the default limits.

In this order: bytes of a configuration, bytes that an archive or compressed table unpacks to, files
in an archive, pixels of an image.
"""

_EXPANSION = 100
"""A file may also unpack to this many times its own size: a large table is not a zip bomb."""


def limit(name: str) -> int:
    """A limit from the environment, or its default."""
    given = os.environ.get(name, "")
    if not given:
        return LIMITS[name]
    if not given.isdecimal() or len(given) > 18 or int(given) < 1:
        raise LLPError(f"{name} = {given!r}; give a whole number above 0, of up to 18 digits")
    return int(given)


def check_limit(name: str, value: int, what: str, unit: str) -> None:
    """Refuse a value above a limit; ``what`` is the subject of the message."""
    most = limit(name)
    if value > most:
        raise LLPError(
            f"{what} more than {most:,} {unit}, the limit for untrusted files; if you trust it, "
            f"raise the limit with the environment variable {name}"
        )


def check_unpacked(path: Path, unpacked: int) -> None:
    """Refuse a file that unpacks to far more than its own size."""
    name, size = "LLPKIT_MAX_UNPACKED", path.stat().st_size
    # With a limit from the user, the expansion factor does not apply.
    if unpacked > (size if name in os.environ else _EXPANSION * size):
        check_limit(name, unpacked, f"{path} unpacks to", "bytes")


def read_regular(path: Path) -> bytes:
    """The content of a regular file; see :func:`check_regular`."""
    check_regular(path)
    return path.read_bytes()


def check_regular(path: Path) -> None:
    """Refuse pipes, devices and sockets, which may block or never end when read."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise LLPError(f"{path} is a pipe, a device or a socket; give a regular file")
