"""The record of a run: data, versions, hardware."""

import os
import platform
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata

import torch

from llpkit.config import Config, Values
from llpkit.datasets import DataSet
from llpkit.runs.data import checksum

_PACKAGES = ("torch", "numpy", "lightning-fabric", "numba", "scikit-learn", "pyarrow", "pillow")


def record_of(config: Config, data: DataSet) -> Values:
    """The record at the start of a run."""
    return {
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

    versions = {"llpkit": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    hardware: Values = {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if torch.cuda.is_available():
        hardware["gpu"] = torch.cuda.get_device_name()
    return {"versions": versions, "hardware": hardware}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            name = next(line for line in lines if line.startswith("model name"))
            return name.partition(":")[2].strip()
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
