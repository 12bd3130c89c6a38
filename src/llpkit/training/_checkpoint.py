"""Checkpoints that are whole or not there, and that hold no code."""

import hashlib
import io
from pathlib import Path
from typing import Any

import torch
from torch import nn

from llpkit._files import write_bytes
from llpkit._limits import read_regular
from llpkit.errors import LLPError

_HEAD = b"llpkit checkpoint, sha256 "
_PARTS = [
    "settings",
    "data",
    "network",
    "optimizer",
    "scheduler",
    "method",
    "history",
    "best",
    "stop",
]


def save_checkpoint(path: Path, state: dict[str, Any], *, sync: bool = True) -> None:
    """Write the state of a run, after a line with its checksum; ``sync`` waits for the disk."""
    stream = io.BytesIO()
    torch.save(state, stream)
    content = stream.getvalue()
    write_bytes(path, _HEAD + _digest(content) + content, sync=sync)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n"


def _state(path: Path) -> dict[str, Any]:
    """What :func:`save_checkpoint` wrote, if every bit of it is there."""
    raw = read_regular(path)
    start = raw.find(b"\n") + 1
    content = raw[start:]
    if raw[:start] != _HEAD + _digest(content):
        raise ValueError("it is damaged")
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if missing := [name for name in _PARTS if name not in state]:
        raise ValueError(f"it has no {missing[0]}")
    return state


def load_weights(network: nn.Module, weights: dict[str, Any], path: Path) -> None:
    """Give a network the weights that were read from ``path``."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise LLPError(f"the weights in {path} do not fit this network: {error}") from error


def load_checkpoint(path: Path, settings: dict[str, Any], data: dict[str, str]) -> dict[str, Any]:
    """Read it back, refusing one that is damaged or of another run."""
    try:
        state = _state(path)
        before, known = dict(state["settings"]), dict(state["data"])
    except Exception as error:
        reason = error if isinstance(error, ValueError) else type(error).__name__
        raise LLPError(
            f"{path} is not a checkpoint that can be read ({reason}); remove it to start afresh"
        ) from error
    for name, value in settings.items():
        if name in before and before[name] != value:
            raise LLPError(
                f"{path} is of a run with {name} = {before[name]!r}, this one has "
                f"{value!r}; use another run directory, or the same settings"
            )
    for name, checksum in data.items():
        if name in known and known[name] != checksum:
            raise LLPError(
                f"{path} is of a run with other {name}; use another run directory, or the same "
                f"{name}"
            )
    return state
