"""The devices of this machine, by name."""

from typing import Any

import torch

from llpkit._validation import option
from llpkit.errors import LLPError


def device_of(device: Any) -> torch.device:
    """The device of this name; ``"auto"`` is a CUDA device if there is one, else the CPU.

    Torch's other devices are refused: the likelihood needs float64, which they lack.

    >>> device_of("cpu")
    device(type='cpu')
    """
    number = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if number else "cpu")
    try:
        named = torch.device(device) if isinstance(device, str | torch.device) else None
    except RuntimeError:
        named = None
    if named is not None and named.type == "cpu" and named.index in (None, 0):
        return torch.device("cpu")
    if named is not None and named.type == "cuda" and (named.index or 0) < number:
        return named
    available = ["cpu", *(f"cuda:{i}" for i in range(number))]
    note = "" if number else "; torch sees no CUDA device"
    raise LLPError(
        f"{option('device')} = {device!r}; give auto, or a device of this machine: "
        f"{', '.join(available)}{note}"
    )
