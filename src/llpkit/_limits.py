"""Limits on what a file from a stranger may cost, which the user can raise, and regular files."""

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
"""The environment variables that raise the limits, and the limits where they are not set.

Bytes of a configuration; bytes that an archive or a compressed table unpacks to; files in an
archive; pixels of an image.
"""

_EXPANSION = 100
"""A file may also unpack to so many times its own size: a large table is no bomb."""


def limit(name: str) -> int:
    """A limit, as the environment sets it or as it is without."""
    given = os.environ.get(name, "")
    if not given:
        return LIMITS[name]
    if not given.isdecimal() or len(given) > 18 or int(given) < 1:
        raise LLPError(f"{name} = {given!r}; give a whole number from 1 on, of up to 18 digits")
    return int(given)


def check_limit(name: str, value: int, what: str, unit: str) -> None:
    """Refuse a value above a limit; ``what`` has it."""
    most = limit(name)
    if value > most:
        raise LLPError(
            f"{what} more than {most:,} {unit}, the limit for files from strangers; if you trust "
            f"it, raise the limit with the environment variable {name}"
        )


def check_unpacked(path: Path, unpacked: int) -> None:
    """Refuse a file that unpacks to far more than its own size."""
    name, size = "LLPKIT_MAX_UNPACKED", path.stat().st_size
    if unpacked > (size if name in os.environ else _EXPANSION * size):
        check_limit(name, unpacked, f"{path} unpacks to", "bytes")


def read_regular(path: Path) -> bytes:
    """The content of a file, unless it is one that would wait or never end."""
    check_regular(path)
    return path.read_bytes()


def check_regular(path: Path) -> None:
    """Refuse what would wait or never end when read: pipes, devices, sockets."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise LLPError(f"{path} is a pipe, a device or a socket; give a regular file")
