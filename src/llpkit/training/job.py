"""One training run in one process: from checked arguments to a fitted model."""

from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.methods import Learner, Method, Task
from llpkit.recipe import Execution, Recipe
from llpkit.training.batches import Blocks
from llpkit.training.building import (
    augmentations,
    capturable,
    make_network,
    make_optimizer,
    make_preprocess,
    make_scheduler,
    make_task,
    paddable,
)
from llpkit.training.callbacks import Callback, Progress
from llpkit.training.check import labels_of_rows
from llpkit.training.check_logits import refuse_probabilities
from llpkit.training.check_processes import check_network, check_same_arguments
from llpkit.training.checkpoint import Checkpoint, load_weights
from llpkit.training.fabric import weight_dtype, wrap
from llpkit.training.fingerprint import name_of, of_bags, of_inputs, of_tensors, options_of
from llpkit.training.inputs import (
    EXAMPLES,
    Feed,
    Inputs,
    Pipeline,
    Preprocess,
    blocks_of,
    to_float,
)
from llpkit.training.loop import Session
from llpkit.training.measures import compare_with_baseline
from llpkit.training.model import Fitted
from llpkit.training.processes import Placement, Processes
from llpkit.training.seeds import epoch_seed, forked_rng
from llpkit.training.shards import Shard

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True, kw_only=True)
class Job:
    """The checked arguments of :func:`llpkit.fit`; other processes get a copy."""

    network: str | nn.Module | None
    bags: Bags
    held_out: Bags | None
    inputs: Inputs
    method: Method
    labels: Any
    callbacks: list[Callback]
    checkpoint: Path | None
    resume: bool
    progress: bool
    recipe: Recipe
    execution: Execution
    placement: Placement
    precision: str

    @property
    def blocks(self) -> Blocks | None:
        """How the inputs of the training bags are read, if in blocks."""
        return blocks_of(self.inputs, self.bags)

    def checksums(self) -> dict[str, str]:
        """Checksums of everything that the run learns from."""
        labels = None if self.labels is None else labels_of_rows(self.labels, self.bags)
        return {
            "inputs": of_inputs(self.inputs),
            "labels": of_tensors(labels),
            "bags": of_bags(self.bags),
            "held-out bags": of_bags(self.held_out),
        }


def train(fabric: "Fabric", job: Job) -> tuple[Fitted, dict[str, Tensor] | None]:
    """Train in this process, one of ``fabric.world_size``.

    Returns:
        The model; and with several processes the weights of the network that the user passed, if
        that was a module: they trained copies of it.
    """
    processes, passed = Processes(fabric, job.placement.fsdp), job.network
    if job.execution.threads is not None:
        torch.set_num_threads(job.execution.threads)  # fit restores it; other processes end
    if not processes.alone:
        job = _own_copy(job, processes)
    device = job.placement.device if processes.alone else fabric.device
    shard = _shard(job, job.bags, processes)
    held_out = None if job.held_out is None else _shard(job, job.held_out, processes)
    task = make_task(
        job.recipe,
        job.method,
        job.inputs,
        shard.bags,
        job.labels,
        device,
        shard.whole.num_instances,
    )
    parts = _build(fabric, job, processes, task, _feed(job, processes, device, shard, held_out))

    settings = _settings(job, parts)
    pad = processes.alone and paddable(job.method, task)
    graph = job.execution.cuda_graph and capturable(parts.learner.optimizer, job.precision)
    session = Session(
        recipe=job.recipe,
        network=parts.wrapped,
        learner=parts.learner,
        scheduler=make_scheduler(job.recipe, parts.learner.optimizer),
        method=job.method,
        task=task,
        pipeline=parts.pipeline,
        processes=processes,
        shard=shard,
        held_out_shard=held_out,
        callbacks=_callbacks(job) if processes.first else [],
        checkpoint=_checkpoint(job, processes, settings),
        pad=pad,
        cuda_graph=pad and graph,
        blocks=job.blocks,
    )
    if job.resume:
        session.resume()
    session.run()
    selected_epoch = session.restore_best()

    network = parts.network
    model = network if job.method.model is None else job.method.model
    model.eval()
    with forked_rng(device):
        comparison = compare_with_baseline(session)
        if processes.fsdp:  # a method with its own model is refused
            model = network = _unsharded(job, passed, network, task)
    fitted = Fitted(
        model,
        parts.pipeline.preprocess,
        task.num_classes,
        task.input_shape,
        session.history,
        selected_epoch,
        parts.name,
        {"settings": settings, **comparison, "warnings": []},
    )
    copied = isinstance(passed, nn.Module) and not processes.alone
    return fitted, network.state_dict() if copied else None


class _Parts(NamedTuple):
    """What is trained, and on what."""

    network: nn.Module
    name: str | None
    """Of a registered network."""
    wrapped: nn.Module
    """The network in the run's precision, with DDP or FSDP."""
    learner: Learner
    pipeline: Pipeline


def _build(fabric: "Fabric", job: Job, processes: Processes, task: Task, feed: Feed) -> _Parts:
    """Make the network, the inputs and the optimiser, and prepare the method."""
    recipe, method = job.recipe, job.method
    with forked_rng(task.device):
        # The seed determines the initial weights; the caller's random numbers are restored.
        torch.manual_seed(epoch_seed(recipe.seed, 0))
        chosen = recipe.network if job.network is None else job.network
        network, name = make_network(chosen, method, task)
        preprocess = _preprocess(job, processes, feed)
        examples = preprocess(to_float(next(feed.stream([task.bags.rows[:EXAMPLES]]))))
        network = _on_device(job, processes, network, task)
        # Before DDP or FSDP wraps the network: a method could no longer copy it then, and running
        # it would wait for the other processes.
        method.prepare(task, network)
        if processes.fsdp and method.model is not None:
            raise LLPError(
                f'method "{method.key}" keeps a copy of the network, which '
                f"{option('strategy', 'fsdp')} does not shard; use ddp"
            )
        refuse_probabilities(network, examples, fabric.autocast)
        wrapped, optimizer = wrap(
            fabric,
            network,
            lambda network: make_optimizer(recipe, network, task.lr, method, task.device),
            processes.fsdp,
        )
        trained = wrapped
        if job.execution.compile:  # shares the parameters; for training steps only
            trained = fabric.setup_module(torch.compile(network))  # type: ignore[arg-type]
    learner = Learner(trained, optimizer, fabric.backward, fabric.autocast)
    weak, strong = augmentations(recipe, method, len(task.input_shape) == 3)
    pipeline = Pipeline(feed, preprocess, weak, strong, method.views)
    return _Parts(network, name, wrapped, learner, pipeline)


def _own_copy(job: Job, processes: Processes) -> Job:
    """The job with a network and a method of this process: processes share tensors in memory."""
    if (
        job.placement.external or job.placement.nodes > 1
    ):  # else all have copies of the same arguments
        check_same_arguments(job, processes)
    return replace(job, network=deepcopy(job.network), method=deepcopy(job.method))


def _shard(job: Job, bags: Bags, processes: Processes) -> Shard:
    """This process's bags: with inputs in blocks, those of its lanes."""
    blocks = blocks_of(job.inputs, bags)
    owners = None if blocks is None else blocks.owners(processes.number)
    return Shard.of(bags, processes.rank, processes.number, owners)


def _feed(
    job: Job, processes: Processes, device: torch.device, shard: Shard, held_out: Shard | None
) -> Feed:
    """The inputs; with several processes only the rows of this one's bags."""
    resident, workers = job.execution.resident, job.execution.workers
    if processes.alone:
        return Feed(job.inputs, device, resident, workers)
    rows = torch.cat([part.bags.rows for part in (shard, held_out) if part is not None])
    sharing = (
        job.placement.devices if device.type == "cpu" else 1
    )  # processes that share its memory
    return Feed(job.inputs, device, resident, workers, rows, sharing)


def _preprocess(job: Job, processes: Processes, feed: Feed) -> Preprocess:
    if processes.alone:
        return make_preprocess(feed, job.bags, job.method, job.blocks)
    preprocess = None
    if processes.first:  # its sample has rows of other processes too
        cpu = torch.device("cpu")
        every = Feed(job.inputs, cpu, False, job.execution.workers)
        preprocess = make_preprocess(every, job.bags.to(cpu), job.method, job.blocks)
    preprocess = processes.broadcast(preprocess)
    assert preprocess is not None
    return preprocess.to(feed.device)


def _on_device(job: Job, processes: Processes, network: nn.Module, task: Task) -> nn.Module:
    """The network on its device, in its precision and memory layout."""
    network = network.to(task.device, weight_dtype(job.precision))
    if task.device.type == "cuda" and len(task.input_shape) == 3:  # faster convolutions
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if not processes.alone:
        check_network(network, job.execution.sync_batchnorm)
        if job.execution.sync_batchnorm:
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    return network


def _settings(job: Job, parts: _Parts) -> dict[str, Any]:
    """Settings for the checkpoint and the saved model: their values instead of None and "auto"."""
    recipe, method = job.recipe, job.method
    return {key: name_of(value) for key, value in recipe.to_dict().items()} | {
        "method": method.key,
        "method_options": options_of(method),
        "chosen_approximation": method.chosen_approximation,
        "network": parts.name or type(parts.network).__name__,
        "lr": float(parts.learner.optimizer.param_groups[0]["lr"]),
        "augment": name_of(parts.pipeline.augment),
        "strong_augment": name_of(parts.pipeline.strong),
        "held_out": name_of(job.held_out if recipe.held_out is None else recipe.held_out),
        "precision": job.precision,
        "instances": job.bags.num_instances,
        "bags": len(job.bags),
    }


def _callbacks(job: Job) -> list[Callback]:
    return ([Progress(job.method.key)] if job.progress else []) + job.callbacks


def _checkpoint(job: Job, processes: Processes, settings: dict[str, Any]) -> Checkpoint | None:
    if job.checkpoint is None:
        return None
    checksums = job.checksums() if processes.first else {}  # the others neither read nor write it
    return Checkpoint(job.checkpoint, settings, checksums, job.execution.checkpoint_every)


def _unsharded(
    job: Job, passed: str | nn.Module | None, network: nn.Module, task: Task
) -> nn.Module:
    """An ordinary network with the weights of one that FSDP has sharded."""
    from llpkit.training.fsdp import gather

    chosen = job.recipe.network if passed is None else deepcopy(passed)
    full, _ = make_network(chosen, job.method, task)
    full.to(next(network.parameters()).dtype)
    load_weights(full, gather(network.state_dict()), "the run")
    return full.to(task.device).eval()
