"""The processes that train one network together: how many there are, and what they exchange.

Every process holds its own bags (see :mod:`llpkit.training.shards`) and the whole network, or with
FSDP a shard of it (see :mod:`llpkit.training.fsdp`). The gradients of a step are averaged. Once per
epoch the processes add up a few numbers, so that all of them see the same loss, metrics and
decisions; the first one writes.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from llpkit._device import device_of
from llpkit._text import several
from llpkit._validation import option
from llpkit.errors import LLPError
from llpkit.recipe import Execution

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_Any = TypeVar("_Any")


class Processes:
    """This process among those of a run. Without Fabric it is the only one.

    Args:
        fabric: Launched by :func:`llpkit.training.launch.run`.
        fsdp: Whether FSDP shards the network, so that no process holds all of it.
    """

    def __init__(self, fabric: "Fabric | None" = None, fsdp: bool = False) -> None:
        self._fabric, self.fsdp = fabric, fsdp
        self.rank: int = 0 if fabric is None else fabric.global_rank
        self.number: int = 1 if fabric is None else fabric.world_size

    @property
    def first(self) -> bool:
        """Whether this process writes and shows the progress."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.number == 1

    def sum(self, values: Tensor) -> Tensor:
        """The sum of a tensor over all processes, the same bits in each."""
        if self._fabric is None or self.alone:
            return values
        total: Tensor = self._fabric.all_reduce(values.clone(), reduce_op="sum")  # type: ignore[assignment]
        return total

    def max(self, value: int) -> int:
        """The largest value of all processes."""
        if self._fabric is None or self.alone:
            return value
        values = torch.tensor(value, device=self._device)
        return int(self._fabric.all_reduce(values, reduce_op="max"))  # type: ignore[arg-type]

    def broadcast(self, value: _Any) -> _Any:
        """The first process's value of a plain object, in all of them."""
        if self._fabric is None or self.alone:
            return value
        sent: _Any = self._fabric.broadcast(value, src=0)
        return sent

    def means(self, values: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
        """Weighted means over the processes; a value with weight zero does not count.

        >>> Processes().means({"loss": 0.5}, {"loss": 3})
        {'loss': 0.5}
        """
        if self.alone:
            return dict(values)
        pairs = [(values[k] * weights[k] if weights[k] else 0.0, weights[k]) for k in values]
        total = self.sum(torch.tensor(pairs, dtype=torch.float64, device=self._device))  # (n, 2)
        means = (total[:, 0] / total[:, 1]).tolist()
        return dict(zip(values, means, strict=True))

    def gather_rows(self, own: Tensor, positions: Tensor, length: int) -> Tensor:
        """One tensor of this length from the rows of all processes, each at its positions."""
        if self.alone:
            return own
        every = torch.zeros((length, *own.shape[1:]), dtype=own.dtype, device=own.device)
        every[positions.to(own.device)] = own
        return self.sum(every)  # one process fills a row, and the others add zero

    @torch.no_grad()
    def average_buffers(self, network: nn.Module) -> None:
        """Average batch norm's running statistics, each from its own instances."""
        for buffer in network.buffers():
            if buffer.is_floating_point() and not self.alone:
                buffer.copy_(self.sum(buffer) / self.number)

    @property
    def _device(self) -> torch.device:
        assert self._fabric is not None
        return self._fabric.device


@dataclass(frozen=True)
class Placement:
    """Where a run takes place: a kind of device, processes per machine, machines."""

    device: torch.device
    devices: int = 1
    nodes: int = 1
    external: bool = False
    """Whether torchrun or Slurm has started the processes."""
    strategy: str = "ddp"

    @property
    def number(self) -> int:
        """All processes."""
        return self.devices * self.nodes

    @property
    def fsdp(self) -> bool:
        """Whether FSDP shards the network, so that no process holds all of it."""
        return self.strategy == "fsdp" and self.number > 1

    @property
    def first(self) -> bool:
        """Whether this process, or one that it starts, is the first of the run."""
        return self.number == 1 or writes()


def writes() -> bool:
    """Whether this is the main process, not one of those that torchrun, Slurm or a user added."""
    if torch.distributed.is_torchelastic_launched():
        return os.environ["RANK"] == "0"
    return os.environ.get("SLURM_PROCID", os.environ.get("NODE_RANK", "0")) == "0"


def placement(execution: Execution) -> Placement:
    """Read the settings, and the environment that torchrun or Slurm sets."""
    device = device_of(execution.device)
    cards = torch.cuda.device_count() if device.type == "cuda" else 1
    devices = cards if execution.devices == "auto" else int(execution.devices)
    nodes, external = execution.nodes, False
    if torch.distributed.is_torchelastic_launched():
        world, here = (int(os.environ[name]) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
        explicit = execution.devices not in (1, "auto") or nodes > 1
        if explicit and (devices, nodes) != (here, world // here):
            raise LLPError(
                f"{option('devices')} = {devices} and {option('nodes')} = {nodes}, but torchrun "
                f"started {here} on each of {several(world // here, 'machine')}; "
                "leave both out, because torchrun sets them"
            )
        devices, nodes, external = here, world // here, world > 1
    elif devices * nodes > 1:
        # srun sets this for every task; a batch script on its own starts no processes.
        external = os.environ.get("SLURM_STEP_NUM_TASKS") == str(devices * nodes)
    if devices * nodes > 1 and device.index is not None:
        raise LLPError(
            f"{option('device')} = {device}, one GPU, but there are {devices * nodes} processes; "
            "give cuda, and select GPUs with CUDA_VISIBLE_DEVICES"
        )
    if execution.strategy == "fsdp" and device.type == "cuda" and devices > cards:
        raise LLPError(
            f"{option('strategy', 'fsdp')} needs one GPU per process, but there are {devices} "
            f"processes and {several(cards, 'GPU')} per machine; use fewer processes, or ddp"
        )
    return Placement(device, devices, nodes, external, execution.strategy)
