"""Checkpoints that are whole or not there, and that hold no code."""

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from llpkit.errors import LLPError


def write_atomically(path: Path, write: Any) -> None:
    """Call ``write(temporary path)``, then move the file to its place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        write(Path(name))
        os.chmod(name, 0o666 & ~_umask())  # as an ordinary file; mkstemp's is for its owner only
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write the state of a run."""
    write_atomically(path, lambda temporary: torch.save(state, temporary))


def load_weights(network: nn.Module, weights: dict[str, Any], path: Path) -> None:
    """Give a network the weights that were read from ``path``."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise LLPError(f"the weights in {path} do not fit this network: {error}") from error


def load_checkpoint(path: Path, settings: dict[str, Any], data: dict[str, str]) -> dict[str, Any]:
    """Read it back, refusing one of another run.

    What the checkpoint says nothing of, because an older version wrote it, is not compared.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        before, known = state["settings"], state.get("data", {})
    except Exception as error:
        raise LLPError(
            f"{path} is not a checkpoint that can be read ({type(error).__name__}); remove it to "
            "start afresh"
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
