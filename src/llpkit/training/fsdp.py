"""Networks sharded over the processes of a run: FSDP2 through Lightning Fabric.

With DDP every process holds the whole network, its gradients and the optimiser's state. With FSDP
each process holds an equal part of every tensor and gathers one unit of the network at a time. A
checkpoint has full tensors, as a single process writes them, so a run can resume with either
strategy on any number of processes.

These functions and the network's forward pass are collective: all processes must call them equally
often.
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


class FSDPStrategy(ModelParallelStrategy):
    """Fabric's FSDP2, with processes started as for DDP: Fabric would run the script again."""

    def __init__(self, number: int, start_method: Literal["popen", "spawn", "forkserver"]) -> None:
        super().__init__(_shard, data_parallel_size=number, tensor_parallel_size=1)
        self._start_method = start_method

    # Private names of Fabric: it has no public way to choose how this strategy starts processes.
    def _configure_launcher(self) -> None:
        if self._start_method != "popen":
            self._launcher = _MultiProcessingLauncher(self, self._start_method)


def _shard(network: nn.Module, mesh: Any) -> nn.Module:
    processes = mesh["data_parallel"]
    names = list(network.named_parameters(remove_duplicate=False))
    tied = len(names) > len(list(network.parameters()))
    try:
        # Two units would each get their own copy of a weight that they share.
        for unit in [] if tied else _units(network):
            fully_shard(unit, mesh=processes)
        fully_shard(network, mesh=processes)  # in place: the rest of it
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


def gather(tree: Any, keep: bool = True) -> Any:
    """The same structure with full tensors on the CPU; ``None`` in their place unless ``keep``."""
    if isinstance(tree, DTensor):
        full = tree.full_tensor()
        return full.cpu() if keep else None
    if isinstance(tree, dict):
        return {key: gather(value, keep) for key, value in tree.items()}
    return tree


def shard_weights(weights: dict[str, Any], network: nn.Module) -> dict[str, Any]:
    """This process's shards of full tensors, for the network's ``load_state_dict``."""
    own = network.state_dict()
    return {key: _shard_like(own.get(key), value) for key, value in weights.items()}


def shard_optimizer(state: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """This process's shards of an optimiser's full state, for its ``load_state_dict``."""
    weights = [p for group in optimizer.param_groups for p in group["params"]]
    shards = {
        i: {key: _shard_like(weights[i], value) for key, value in of_weight.items()}
        for i, of_weight in state["state"].items()
    }
    return {**state, "state": shards}


def _shard_like(own: Any, full: Any) -> Any:
    if not (isinstance(own, DTensor) and isinstance(full, Tensor) and full.shape == own.shape):
        return full  # buffers and step counts are not sharded
    # Every process has the full tensor, so nothing has to be sent.
    full = full.to(own.device)
    return distribute_tensor(full, own.device_mesh, own.placements, src_data_rank=None)
