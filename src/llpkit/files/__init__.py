"""Files: atomic writes, locks, checksums of what llpkit wrote, and limits on what it reads.

One rule holds throughout: llpkit removes only what it marked as its own. Temporary files and locks
are recognised by the ending of their names; folders by a list of their files, each with its
SHA-256, that no other program writes.
"""

from llpkit.files.checksums import CHECKSUMS, Checksums, add_checksums, claim, files_in, sha256
from llpkit.files.limits import check_limit, check_regular, check_unpacked, limit, read_regular
from llpkit.files.locks import locked
from llpkit.files.writing import (
    atomic,
    beside,
    check_apart,
    is_ours,
    path_of,
    rename,
    write_bytes,
    write_text,
    writing,
)
from llpkit.files.yaml import read_yaml, yaml_text

__all__ = [
    "CHECKSUMS",
    "Checksums",
    "add_checksums",
    "atomic",
    "beside",
    "check_apart",
    "check_limit",
    "check_regular",
    "check_unpacked",
    "claim",
    "files_in",
    "is_ours",
    "limit",
    "locked",
    "path_of",
    "read_regular",
    "read_yaml",
    "rename",
    "sha256",
    "write_bytes",
    "write_text",
    "writing",
    "yaml_text",
]
