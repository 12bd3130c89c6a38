"""Records of benchmarks: one Parquet file per benchmark, one row per measurement.

Rows are dictionaries. A value that is missing is a missing key, also within a nested value.
"""

import contextlib
import os
import platform
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    """The rows of a file, none if it does not exist."""
    return [_known(row) for row in pq.read_table(path).to_pylist()] if path.exists() else []


def write(path: Path, rows: Iterable[Row]) -> None:
    """Replace the rows of a file at once, so that a stopped benchmark leaves a whole file."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path.with_suffix(".partial"))
    path.with_suffix(".partial").replace(path)


def add(path: Path, rows: Iterable[Row]) -> None:
    """Add rows to a file, or begin one."""
    write(path, [*read(path), *rows])


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(each) for key, each in value.items() if each is not None}
    return [_known(each) for each in value] if isinstance(value, list) else value


def machine() -> str:
    """Hardware, load and versions."""
    import torch

    cpu, info = platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        cpu = next(iter(re.findall(r"model name\s*: (.+)", info.read_text())), cpu)
    versions = [f"Python {platform.python_version()}"]
    for name in ("torch", "NumPy", "numba", "scikit-learn", "llpkit"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    return (
        f"{cpu}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, load average "
        f"{os.getloadavg()[0]:.1f} at the start\n{', '.join(versions)}"
    )
