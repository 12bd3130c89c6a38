"""Parts of tests that run in training processes, which import this module by name."""

import copy
import os
import resource
import signal
from pathlib import Path

import torch
from torch import nn

import llpkit
from llpkit.methods.mle import MLE
from llpkit.training import Callback


def toy(classes: int | None = None, size=(1, 6), seed: int = 0):
    x = torch.randn(240, 3, generator=torch.Generator().manual_seed(seed))
    truth = (x.sum(1) > 0).long() if classes is None else x.argmax(1)
    return x, truth, llpkit.random_bags(truth, size, generator=seed, num_classes=classes)


class KillAnother(Callback):
    """Kills another process of the run after an epoch, as the system does when memory is short."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch(self, session, row):
        if row["epoch"] == self.epoch and session.processes.number > 1:
            os.kill(next(pid for pid in siblings() if pid != os.getpid()), signal.SIGKILL)


def siblings() -> list[int]:
    """The training processes that have the parent of this one, from the start of the last."""
    parent = os.getppid()
    found = [int(p) for p in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    mine = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[2]  # the process group
    return [pid for pid in found if _group(pid) == mine and pid > os.getpid()]


def _group(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[2]
    except OSError:
        return ""


class Divergent(Callback):
    """Spoils the weights of one process only."""

    def on_epoch(self, session, row):  # noqa: ARG002
        with torch.no_grad():
            next(session.network.parameters()).fill_(torch.nan)


class Note(Callback):
    """Adds what only the first process knows to the history, and stops the run."""

    def on_epoch(self, session, row):
        row["process"] = os.getpid()
        session.stop = row["epoch"] == 2


class Shadow(MLE):
    """Keeps a copy of the network, as a teacher does."""

    key, summary = "shadow", "a copy of the network"
    shardable = True

    def prepare(self, task, network):
        super().prepare(task, network)
        self.model = copy.deepcopy(network)


class Tied(nn.Module):
    """Two layers with the same weights."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
        self.body[2].weight = self.body[0].weight
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        return self.head(self.body(x))


class Leaves(MLE):
    """The second process leaves in the first step."""

    key, summary = "leaves", "a process leaves"
    shardable = True

    def __init__(self, how):
        super().__init__()
        self.how = how

    def loss(self, logits, batch):
        if torch.distributed.get_rank() == 1:
            if self.how == "exit":
                os._exit(3)
            if self.how == "interrupt":
                raise KeyboardInterrupt
            raise MemoryError
        return super().loss(logits, batch)


class HalfUsed(nn.Module):
    """Has a layer that it does not use."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x):
        return self.used(x)


class FullDisk(Callback):
    """From the second epoch on, the process that writes can only write small files."""

    def on_epoch(self, session, row):  # noqa: ARG002
        if row["epoch"] == 2:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
