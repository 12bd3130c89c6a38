"""Networks that are divided between the processes of a run: FSDP2 through Lightning Fabric.

With DDP every process holds the whole network, its gradients and the state of its optimiser. Here
each holds an equal part of every tensor and gathers one unit of the network at a time. A checkpoint
has whole tensors, in the form that one process writes, so it resumes with any strategy on any
number of processes.

Collective: all processes have to call these functions, and run the network, equally often.
"""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from lightning_fabric.strategies.launchers.multiprocessing import _MultiProcessingLauncher
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from llpkit._validation import option
from llpkit.errors import LLPError


class Sharded(ModelParallelStrategy):
    """Fabric's strategy, with processes started as for DDP; Fabric would run the script again."""

    def __init__(self, number: int, start_method: Literal["popen", "spawn", "forkserver"]) -> None:
        super().__init__(_shard, data_parallel_size=number, tensor_parallel_size=1)
        self._start_method = start_method

    def _configure_launcher(self) -> None:
        if self._start_method != "popen":
            self._launcher = _MultiProcessingLauncher(self, self._start_method)


def _shard(network: nn.Module, mesh: Any) -> nn.Module:
    over = mesh["data_parallel"]
    everything = list(network.named_parameters(remove_duplicate=False))
    tied = len(everything) > len(list(network.parameters()))
    try:
        # Divided in two units, weights that modules share would no longer be the same.
        for unit in [] if tied else _units(network):
            fully_shard(unit, mesh=over)
        fully_shard(network, mesh=over)  # in place: the rest of it
    except (ValueError, NotImplementedError) as error:
        raise LLPError(f"{option('strategy', 'fsdp')}: {error}; use ddp") from error
    return network


def _units(module: nn.Module) -> Iterator[nn.Module]:
    """The elements of the outermost lists of modules: layers of an MLP, blocks of a ResNet."""
    lists = (nn.Sequential, nn.ModuleList)
    for child in module.children():
        if isinstance(module, lists) and not isinstance(child, lists):
            if next(child.parameters(), None) is not None:
                yield child
        else:
            yield from _units(child)


def whole(tree: Any, keep: bool = True) -> Any:
    """The same structure with whole tensors on the CPU; without ``keep``, with none of them."""
    if isinstance(tree, DTensor):
        gathered = tree.full_tensor()
        return gathered.cpu() if keep else None
    if isinstance(tree, dict):
        return {key: whole(value, keep) for key, value in tree.items()}
    return tree


def parts(weights: dict[str, Any], network: nn.Module) -> dict[str, Any]:
    """This process's parts of whole tensors, for the network's ``load_state_dict``."""
    own = network.state_dict()
    return {key: _like(value, own.get(key)) for key, value in weights.items()}


def parts_of_state(state: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The same for an optimiser."""
    weights = [p for group in optimizer.param_groups for p in group["params"]]
    divided = {
        i: {key: _like(value, weights[i]) for key, value in of_weight.items()}
        for i, of_weight in state["state"].items()
    }
    return {**state, "state": divided}


def _like(value: Any, own: Any) -> Any:
    if not (isinstance(own, DTensor) and isinstance(value, Tensor) and value.shape == own.shape):
        return value
    there = value.to(own.device)
    # Every process has the whole tensor, so nothing has to be sent.
    return distribute_tensor(there, own.device_mesh, own.placements, src_data_rank=None)
