"""What the tests of training share: ways to stop a run, and weights compared."""

import torch
from torch import nn

from llpkit.training import Callback


class Pause(Callback):
    """Ends the run in good order after an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch(self, session, row):
        session.paused = row["epoch"] == self.epoch


class Interrupt(Pause):
    """Ends it as Ctrl-C does."""

    def on_epoch(self, session, row):  # noqa: ARG002
        if row["epoch"] == self.epoch:
            raise KeyboardInterrupt


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    """Whether all weights and buffers are the same bit for bit."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def difference(one, other) -> float:
    """The largest relative difference of a weight tensor of two models."""
    pairs = zip(one.network.state_dict().values(), other.network.state_dict().values(), strict=True)
    return max(float((a - b).norm() / a.norm().clamp(min=1e-12)) for a, b in pairs)
