"""Checkpoints: what they contain, and the file.

The content is the same for any number of processes. The file is written atomically, verified by
checksum, and free of executable code.
"""

import hashlib
import io
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from llpkit.errors import LLPError
from llpkit.files import read_regular, write_bytes

if TYPE_CHECKING:
    from llpkit.training.loop import Session

_HEAD = b"llpkit checkpoint, sha256 "
_PARTS = ("settings", "data", "network", "optimizer", "scheduler", "method", "model", "history",
          "best", "stop")  # fmt: skip


@dataclass
class Checkpoint:
    """The file with the state of a run after its last epoch.

    Args:
        path: The file.
        settings: The settings that determine the result; a run with others cannot resume from it.
        data: Checksums of the training data; see :mod:`llpkit.training.fingerprint`.
        every: Seconds between checkpoints.
    """

    path: Path
    settings: dict[str, Any]
    data: dict[str, str]
    every: float = 0.0
    _saved: float = field(default_factory=time.monotonic, init=False)

    def due(self) -> bool:
        """Whether the last checkpoint is old enough to write another."""
        return time.monotonic() >= self._saved + self.every

    def save(self, state: dict[str, Any], *, sync: bool = True) -> None:
        """Write a checksum and the state of the run; ``sync`` waits until it is on disk."""
        stream = io.BytesIO()
        torch.save({"settings": self.settings, "data": self.data, **state}, stream)
        content = stream.getvalue()
        write_bytes(self.path, _HEAD + _digest(content) + content, sync=sync)
        self._saved = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """The state, or ``None`` without a file; the checkpoint of another run is an error."""
        if not self.path.exists():
            return None
        try:
            state = self._read()
            settings, data = dict(state["settings"]), dict(state["data"])
        except Exception as error:
            reason = error if isinstance(error, ValueError) else type(error).__name__
            raise LLPError(
                f"{self.path} cannot be read as a checkpoint ({reason}); remove it to start again"
            ) from error
        for name, value in self.settings.items():
            if settings.get(name) != value:
                raise LLPError(
                    f"{self.path} is from a run with {name} = {settings.get(name)!r}, but this run "
                    f"has {value!r}; use another run directory, or the same settings"
                )
        for name, checksum in self.data.items():
            if data.get(name) != checksum:
                raise LLPError(
                    f"{self.path} has different {name}; use another run directory, or the "
                    f"same {name}"
                )
        return state

    def _read(self) -> dict[str, Any]:
        raw = read_regular(self.path)
        start = raw.find(b"\n") + 1
        content = raw[start:]
        # The first line is the header with the checksum of all that follows.
        if raw[:start] != _HEAD + _digest(content):
            raise ValueError("it is damaged")
        state: dict[str, Any] = torch.load(
            io.BytesIO(content), map_location="cpu", weights_only=True
        )
        if missing := [name for name in _PARTS if name not in state]:
            raise ValueError(f"it has no {missing[0]}")
        return state


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n"


def load_weights(network: nn.Module, weights: dict[str, Any], path: Path | str) -> None:
    """Load weights that were read from ``path`` into a network."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise LLPError(f"the weights in {path} do not fit this network: {error}") from error


def session_state(session: "Session") -> dict[str, Any]:
    """Everything that a run needs to continue; with FSDP, full tensors in the first process only.

    All processes have to call it.
    """
    method, shard, processes = session.method, session.shard, session.processes
    of_method = method.state_dict()
    # Targets of instances are stored in the order of a single process, so that a run can resume on
    # any number of them.
    for name in method.per_instance:
        length = shard.whole.num_instances
        of_method[name] = processes.gather_rows(of_method[name], shard.positions, length)
    state = {
        "network": session.network.state_dict(),
        "optimizer": session.learner.optimizer.state_dict(),
        "scheduler": session.scheduler.state_dict(),
        "method": of_method,
        "model": None if method.model is None else method.model.state_dict(),
        "history": json.dumps(session.history),  # torch would inspect every number of a list
        "best": session.best,
        "stop": session.stop,
    }
    if processes.fsdp:
        from llpkit.training.fsdp import gather

        state = {key: gather(value, processes.first) for key, value in state.items()}
    return state


def restore_session(session: "Session", state: dict[str, Any]) -> None:
    """Continue a session from this state."""
    assert session.checkpoint is not None
    path, method, optimizer = session.checkpoint.path, session.method, session.learner.optimizer
    if session.processes.fsdp:
        from llpkit.training.fsdp import shard_optimizer, shard_weights

        state["optimizer"] = shard_optimizer(state["optimizer"], optimizer)
        state["network"] = shard_weights(state["network"], session.network)
        if state["best"] is not None:
            state["best"]["model"] = shard_weights(state["best"]["model"], session.network)
    load_weights(session.network, state["network"], path)
    optimizer.load_state_dict(state["optimizer"])
    for group in optimizer.param_groups:
        # The checkpoint is read to the CPU, and torch moves the moments but not the rate, which a
        # CUDA graph must find on its device.
        if isinstance(group["lr"], Tensor):
            group["lr"] = group["lr"].to(session.task.device)
    session.scheduler.load_state_dict(state["scheduler"])
    if method.model is not None:
        load_weights(method.model, state["model"], path)
    of_method = dict(state["method"])
    if not session.processes.alone:
        of_method |= {k: of_method[k][session.shard.positions] for k in method.per_instance}
    method.load_state_dict(of_method)
    session.history = json.loads(state["history"])
    session.first_epoch = len(session.history)
    session.best, session.stop = state["best"], state["stop"]
