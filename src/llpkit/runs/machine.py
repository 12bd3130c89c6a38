"""The record of a run: command, data, versions, hardware."""

import os
import platform
from datetime import UTC, datetime
from importlib import metadata

import torch

from llpkit.config import Config, Values
from llpkit.datasets import DataSet
from llpkit.runs.data import checksum

_PACKAGES = ("torch", "numpy", "lightning-fabric", "numba", "scikit-learn", "pyarrow", "pillow")


def record_of(config: Config, data: DataSet, command: str) -> Values:
    """The record at the start of a run."""
    return {
        "command": command,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": config.recipe.seed,
        "data": {
            "name": data.name,
            "rows": len(data.inputs),
            "bags": len(data.bags),
            "sha256": checksum(data),
        },
        **environment(),
    }


def environment() -> Values:
    """Versions and hardware."""
    from llpkit import __version__

    found = {"llpkit": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    hardware: Values = {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if torch.cuda.is_available():
        hardware["gpu"] = torch.cuda.get_device_name()
    return {"versions": found, "hardware": hardware}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return (
                next(line for line in lines if line.startswith("model name")).split(":")[1].strip()
            )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def flat(record: Values) -> dict[str, object]:
    """A record without nesting, for a page: one line per name."""
    flat: dict[str, object] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat |= {f"data {k}" if key == "data" else k: v for k, v in value.items()}
        elif value != "":
            flat[key] = value
    return flat
