"""Files: atomic writes, locks, checksums of what llpkit wrote, and limits on what it reads."""

from llpkit.files.limits import check_limit, check_regular, check_unpacked, limit, read_regular
from llpkit.files.writing import (
    CHECKSUMS,
    Checksums,
    add_checksums,
    atomic,
    beside,
    check_apart,
    claim,
    files_in,
    is_ours,
    locked,
    place_of,
    rename,
    sha256,
    write_bytes,
    write_text,
    writing,
)
from llpkit.files.yaml import plain_loader, read_yaml

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
    "place_of",
    "plain_loader",
    "read_regular",
    "read_yaml",
    "rename",
    "sha256",
    "write_bytes",
    "write_text",
    "writing",
]
