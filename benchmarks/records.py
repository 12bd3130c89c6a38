"""Records of benchmarks: one Parquet file per benchmark, one row per measurement.

Rows are dictionaries. A value that is missing is a missing key, also within a nested value.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from llpkit.files import atomic

Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    """The rows of a file, none if it does not exist."""
    return [_known(row) for row in pq.read_table(path).to_pylist()] if path.exists() else []


def write(path: Path, rows: Iterable[Row]) -> None:
    """Replace the rows of a file at once, so that a stopped benchmark leaves a whole file."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    with atomic(path) as draft:
        pq.write_table(table, draft)


def add(path: Path, rows: Iterable[Row]) -> None:
    """Add rows to a file, or begin one."""
    write(path, [*read(path), *rows])


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(each) for key, each in value.items() if each is not None}
    return [_known(each) for each in value] if isinstance(value, list) else value


def machine() -> str:
    """Hardware, load and versions."""
    from llpkit.runs import environment

    about = environment()
    hardware = about["hardware"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return (
        f"{hardware['processor']}, {hardware['cores']} cores, {hardware['threads']} threads, load "
        f"average {os.getloadavg()[0]:.1f} at the start\n{versions}"
    )
