"""What several processes cannot train, or not with the same result as a single process."""

from typing import TYPE_CHECKING

from torch import nn
from torch.nn.parameter import is_lazy

from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.methods import Method
from llpkit.recipe import Execution, Recipe
from llpkit.training.fingerprint import name_of, of_tensors, options_of
from llpkit.training.processes import Processes

if TYPE_CHECKING:
    from llpkit.training.job import Job


def check_shardable(method: Method, bags: Bags, recipe: Recipe, execution: Execution) -> None:
    """Refuse a method or settings with which several processes would train something else."""
    if not method.shardable:
        raise LLPError(
            f'method "{method.key}" trains on one process: its loss is not declared to be a sum '
            f"over bags or instances; leave out {option('devices')} and {option('nodes')}"
        )
    if execution.compile:
        raise LLPError(f"{option('compile')} is for one process; leave it out")
    largest = int(bags.sizes.max())
    if method.batches == "bags" and largest > recipe.batch_size:
        raise LLPError(
            f"a bag has {largest} instances, more than {option('batch_size')} = "
            f"{recipe.batch_size}, and a bag is never split between processes; give "
            f"{option('batch_size', largest)} or more, which is the size for all of them together"
        )


def check_same_arguments(job: "Job", processes: Processes) -> None:
    """Refuse processes that were started with different arguments, each by its own script."""
    own = {option(key): str(name_of(value)) for key, value in job.recipe.to_dict().items()}
    own |= {"method": f"{job.method.key} {options_of(job.method)}"} | job.checksums()
    # DDP sends all processes the weights of the first; FSDP does not.
    if job.placement.fsdp and isinstance(job.network, nn.Module):
        own["initial weights"] = of_tensors(*job.network.state_dict().values())
    first = processes.broadcast(own)
    different = [key for key, value in own.items() if value != first.get(key)]
    if not processes.max(len(different)):
        return
    remedy = "start all with the same data and settings, and seed what is random"
    if different:
        names = ", ".join(different)
        raise LLPError(f"process {processes.rank} has different {names} from process 0; {remedy}")
    raise LLPError(f"another process has different data or settings; {remedy}")


def check_network(network: nn.Module, sync_batchnorm: bool | None) -> None:
    """Refuse lazy layers, and batch norm unless the user chose how to compute it."""
    # The first step would give lazy layers their shapes, but DDP and FSDP need them before.
    if any(map(is_lazy, [*network.parameters(), *network.buffers()])):
        raise LLPError(
            "the network has lazy layers, which several processes cannot train; run it on one "
            "batch of inputs first, to give them their shapes"
        )
    # Their common base has no public name, and a user's own kind may inherit from nothing else.
    if not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules()):
        return
    on_card = next(network.parameters()).device.type == "cuda"
    if sync_batchnorm is None:
        remedy = f"{option('sync_batchnorm', False)} to accept that"
        if on_card:
            remedy = f"{option('sync_batchnorm', True)} to use the whole batch, or {remedy}"
        raise LLPError(
            "the network has batch norm, and with several processes each would normalise by its "
            f"own part of the batch only; give {remedy}"
        )
    if sync_batchnorm and not on_card:
        raise LLPError(
            f"{option('sync_batchnorm')}: torch synchronises batch norm on CUDA devices only; use "
            "a network without batch norm, or leave the option out"
        )


def check_gradients(network: nn.Module) -> None:
    """Refuse parameters without a gradient: DDP would wait for it in the next step."""
    if any(p.requires_grad and p.grad is None for p in network.parameters()):
        raise LLPError(
            "the network has parameters on which its output does not depend; with several "
            "processes, remove them, or freeze them with requires_grad_(False)"
        )
