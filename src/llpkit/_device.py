"""The devices of this machine, by name."""

from typing import Any

import torch

from llpkit._validation import option
from llpkit.errors import LLPError


def device_of(device: Any) -> torch.device:
    """The device of this name; ``"auto"`` is a CUDA device if there is one, else the CPU.

    Other devices that torch knows are refused: the likelihood needs float64, which they lack.

    >>> device_of("cpu")
    device(type='cpu')
    """
    number = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if number else "cpu")
    try:
        where = torch.device(device) if isinstance(device, str | torch.device) else None
    except RuntimeError:
        where = None
    if where is not None and where.type == "cpu" and where.index in (None, 0):
        return torch.device("cpu")
    if where is not None and where.type == "cuda" and (where.index or 0) < number:
        return where
    there = ["cpu", *(f"cuda:{i}" for i in range(number))]
    without = "" if number else "; torch sees no CUDA device"
    raise LLPError(
        f"{option('device')} = {device!r}; give auto, or one of this machine: {', '.join(there)}"
        f"{without}"
    )
