"""One training run in one process: from checked arguments to a fitted model."""

import warnings
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.errors import ApproximationWarning, LLPError
from llpkit.evaluation import Gain, approximation_note, compared, gain, measurable
from llpkit.likelihood.budget import best_log_prob, cost, even_sample
from llpkit.likelihood.checks import Approximation
from llpkit.likelihood.choice import choice_note, resolve
from llpkit.methods import Learner, Method, Task
from llpkit.recipe import Execution, Recipe
from llpkit.training.batches import epoch_seed
from llpkit.training.building import (
    augmentations,
    compiled,
    few_blocks,
    make_network,
    make_optimizer,
    make_preprocess,
    make_scheduler,
    paddable,
    recordable,
    wrap,
)
from llpkit.training.callbacks import Callback, Progress
from llpkit.training.check import labels_of_rows, refuse_probabilities
from llpkit.training.checkpoint import Checkpoint, load_weights
from llpkit.training.fingerprint import name_of, of_bags, of_inputs, of_tensors, options_of
from llpkit.training.inputs import Feed, Inputs, Pipeline, Preprocess, blocks_of, to_float
from llpkit.training.loop import Session
from llpkit.training.measures import BUDGET
from llpkit.training.model import Fitted
from llpkit.training.processes import Placement, Processes, check_batch_norm, check_shapes
from llpkit.training.shards import Shard

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_FEW = 8
_COST_OF_A_PASS = 2**8
"""States of the recursion that cost about as much as one instance's forward pass, so that the final
measurement covers some 16,000 instances."""


@dataclass(frozen=True)
class Job:
    """The checked arguments of :func:`llpkit.fit`; other processes get a copy."""

    network: str | nn.Module | None
    bags: Bags
    held_out: Bags | None
    inputs: Inputs
    method: Method
    labels: Any
    callbacks: list[Callback]
    path: Path | None
    """The checkpoint."""
    resume: bool
    progress: bool
    recipe: Recipe
    execution: Execution
    place: Placement
    precision: str
    unseen: Bags | float | None
    """What the user gave as ``held_out``."""


def train(fabric: "Fabric", job: Job) -> tuple[Fitted, dict[str, Tensor] | None]:
    """Train in this process, one of ``fabric.world_size``.

    Returns:
        The model, and the weights of the network that the user passed, if that was a module.
    """
    processes, given = Processes(fabric, job.place.divided), job.network
    if job.execution.threads is not None:
        torch.set_num_threads(job.execution.threads)
    if job.place.external or job.place.nodes > 1:  # else all have copies of the same arguments
        _check_alike(job, processes)
    where = job.place.device if processes.alone else fabric.device
    if not processes.alone:  # tensors of arguments are shared between the processes
        job = replace(job, network=deepcopy(job.network), method=deepcopy(job.method))
        if hasattr(job.method, "approximation"):  # one choice for all, by the bags of all
            job.method.approximation = _approximation(job)
    recipe, how, data = job.recipe, job.method, job.inputs
    own_options = options_of(how)
    shard = _shard(job, job.bags, processes)
    unseen = None if job.held_out is None else _shard(job, job.held_out, processes)
    task = _task(shard, data, how, job.labels, recipe, where)

    with torch.random.fork_rng([where] if where.type == "cuda" else []):
        torch.manual_seed(epoch_seed(recipe.seed, 0))
        # Initial weights follow from the seed; the caller's random numbers are restored.
        plain, name = make_network(
            recipe.network if job.network is None else job.network, how, task
        )
        feed = _feed(job, where, shard, unseen, processes)
        preprocess = _preprocess(job, feed, where, processes)
        few = preprocess(to_float(next(feed.stream([shard.bags.rows[:_FEW].to(where)]))))
        plain = plain.to(where)
        if where.type == "cuda" and len(task.input_shape) == 3:  # faster convolutions
            plain = plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if not processes.alone:
            check_shapes(plain)
            check_batch_norm(plain, job.execution.sync_batchnorm)
            if job.execution.sync_batchnorm:
                plain = nn.SyncBatchNorm.convert_sync_batchnorm(plain)
            # The plain network, because DDP and FSDP would wait for the other processes.
            with fabric.autocast():
                refuse_probabilities(plain, few.to(next(plain.parameters()).dtype))
        wrapped, optimizer = wrap(
            fabric,
            plain,
            lambda network: make_optimizer(recipe, network, task.lr, how, where),
            processes.divided,
        )
        trained = fabric.setup_module(compiled(plain)) if job.execution.compile else wrapped
        # After Fabric has set the precision, so that a copy of the network, a teacher, has it too.
        _prepare(how, task, plain, processes)
    if processes.alone:  # after prepare, whose errors name the remedy
        check_measures(job, stacklevel=6)
        refuse_probabilities(wrapped, few)
    pad = processes.alone and paddable(how, task)

    weak, strong = augmentations(recipe, how, len(task.input_shape) == 3)
    # For the checkpoint and the saved model: resolved values instead of None and "auto".
    described: dict[str, Any] = {key: name_of(value) for key, value in recipe.to_dict().items()}
    described |= {
        "method": how.key,
        "method_options": own_options,
        "chosen_approximation": how.chosen_approximation,
        "network": name or type(plain).__name__,
        "lr": float(optimizer.param_groups[0]["lr"]),
        "augment": name_of(weak),
        "strong_augment": name_of(strong),
        "held_out": name_of(job.unseen if recipe.held_out is None else recipe.held_out),
        "precision": job.precision,
        "instances": job.bags.num_instances,
        "bags": len(job.bags),
    }
    checkpoint = None
    if job.path is not None:
        checkpoint = Checkpoint(job.path, described, _checksums(job) if processes.first else {})
    shown = ([Progress(how.key)] if job.progress else []) + job.callbacks
    session = Session(
        recipe,
        wrapped,
        Learner(trained, optimizer, fabric.backward, fabric.autocast),
        make_scheduler(recipe, optimizer),
        how,
        task,
        Pipeline(feed, preprocess, weak, strong, how.views),
        held_out=None if unseen is None else unseen.bags.to(where),
        callbacks=shown if processes.first else [],
        checkpoint=checkpoint,
        checkpoint_every=job.execution.checkpoint_every,
        pad=pad,
        cuda_graph=pad and job.execution.cuda_graph and recordable(optimizer, job.precision),
        processes=processes,
        shard=shard,
        blocks=blocks_of(data, job.bags),
    )
    if job.resume:
        session.resume()
    session.run()

    epoch = session.restore_best()
    model = plain if how.model is None else how.model
    model.eval()
    with torch.random.fork_rng([where] if where.type == "cuda" else []):
        judged = _judged(session, shard, unseen)
        if processes.divided:
            model = plain = _whole(recipe.network if given is None else given, plain, how, task).to(
                where
            )
    fitted = Fitted(
        model,
        preprocess,
        task.num_classes,
        task.input_shape,
        session.history,
        epoch,
        name,
        {"settings": described, **judged, "warnings": []},
    )
    return fitted, plain.state_dict() if isinstance(job.network, nn.Module) else None


def _check_alike(job: Job, processes: Processes) -> None:
    """Refuse processes that were started with different arguments, each by its own script."""
    own = {option(key): str(name_of(value)) for key, value in job.recipe.to_dict().items()}
    own |= {"method": f"{job.method.key} {options_of(job.method)}"} | _checksums(job)
    if job.place.divided and isinstance(job.network, nn.Module):  # DDP sends those of the first
        own["initial weights"] = of_tensors(*job.network.state_dict().values())
    first = processes.tell(own)
    other = [key for key, value in own.items() if value != first.get(key)]
    if not processes.most(len(other)):
        return
    remedy = "start all with the same data and settings, and seed what is random"
    if other:
        names = ", ".join(other)
        raise LLPError(f"process {processes.rank} has other {names} than process 0; {remedy}")
    raise LLPError(f"another process has other data or settings than this one; {remedy}")


def _prepare(method: Method, task: Task, network: nn.Module, processes: Processes) -> None:
    """Prepare the method; one that copies the network cannot have a part of it."""
    copied = False
    try:
        method.prepare(task, network)
    except AssertionError as error:
        copied = "deepcopy" in str(error)
        if not (processes.divided and copied):
            raise
    if processes.divided and (copied or method.model is not None):
        raise LLPError(
            f'method "{method.key}" keeps a copy of the network, which '
            f"{option('strategy', 'fsdp')} does not divide; use ddp"
        )


def _whole(
    given: str | nn.Module | None, network: nn.Module, method: Method, task: Task
) -> nn.Module:
    """An ordinary network with the weights of one that FSDP has divided."""
    from llpkit.training.fsdp import whole

    made, _ = make_network(deepcopy(given), method, task)
    load_weights(made.to(next(network.parameters()).dtype), whole(network.state_dict()), "the run")
    return made.eval()


def _shard(job: Job, bags: Bags, processes: Processes) -> Shard:
    """This process's bags: with inputs in blocks, those of its lanes."""
    blocks = blocks_of(job.inputs, bags)
    owners = None if blocks is None else blocks.owners(processes.number)
    return Shard.of(bags, processes.rank, processes.number, owners)


def check_shardable(job: Job) -> None:
    """Refuse what would not give the result of one process."""
    method = job.method
    # A subclass may break its parent's promise, so it has to set the attribute itself.
    if not (vars(type(method)).get("shardable", False) and method.shardable):
        raise LLPError(
            f'method "{method.key}" trains on one process: it does not say that its loss is a sum '
            f"over bags or instances; leave out {option('devices')} and {option('nodes')}"
        )
    if job.execution.compile:
        raise LLPError(f"{option('compile')} is for one process; leave it out")
    largest = int(job.bags.sizes.max())
    if method.batches == "bags" and largest > job.recipe.batch_size:
        raise LLPError(
            f"a bag has {largest} instances, more than {option('batch_size')} = "
            f"{job.recipe.batch_size}, and several processes do not train on a bag in pieces; give "
            f"{option('batch_size', largest)} or more, which is the size for all of them together"
        )


def _feed(
    job: Job, where: torch.device, shard: Shard, unseen: Shard | None, processes: Processes
) -> Feed:
    """The inputs; with several processes only the rows of this one's bags."""
    execution = job.execution
    if processes.alone:
        return Feed(job.inputs, where, execution.resident, execution.workers)
    parts = [part.bags.rows for part in (shard, unseen) if part is not None]
    own = torch.cat(parts)
    on_cpu = where.type == "cpu"
    many = job.place.devices if on_cpu else 1  # they share the memory of the machine
    return Feed(job.inputs, where, execution.resident, execution.workers, own, many)


def _preprocess(job: Job, feed: Feed, where: torch.device, processes: Processes) -> Preprocess:
    blocks = blocks_of(job.inputs, job.bags)
    if processes.alone:
        return make_preprocess(feed, job.bags, job.method, where, blocks)
    found = None
    if processes.first:  # its sample has rows of other processes too
        every = Feed(job.inputs, torch.device("cpu"), False, job.execution.workers)
        here = torch.device("cpu")
        found = make_preprocess(every, job.bags.to(here), job.method, here, blocks)
    told = processes.tell(found)
    assert told is not None
    return told.to(where)


def _task(
    shard: Shard,
    inputs: Inputs,
    method: Method,
    labels: Any,
    recipe: Recipe,
    device: torch.device,
) -> Task:
    first = inputs[:1] if isinstance(inputs, Tensor) else inputs.load([0])
    return Task(
        shard.bags.to(device),
        shard.bags.num_classes,
        tuple(first.shape[1:]),
        None if labels is None else labels_of_rows(labels, shard.bags).to(device),
        # Some methods allocate a whole batch.
        min(recipe.batch_size, shard.whole.num_instances),
        device,
        float(method.lr if recipe.lr is None else recipe.lr),
        recipe.epochs,
    )


def _judged(session: Session, shard: Shard, unseen: Shard | None) -> dict[str, Any]:
    """The comparison with a constant rate."""
    training = None
    if session.recipe.measure != "off":
        bags, some = shard.whole, torch.arange(len(shard.whole))
        if session.blocks is not None:
            some = few_blocks(session.blocks.of_bag)
        within = cost(bags.evidence, bags.sizes) + _COST_OF_A_PASS * bags.sizes
        training = _gain(session, shard, some[even_sample(within[some], BUDGET)])
    apart = None if unseen is None else _gain(session, unseen, torch.arange(len(unseen.whole)))
    return compared(session.measures.rate, training, apart)


def _gain(session: Session, shard: Shard, chosen: Tensor) -> Gain | None:
    """The gain on some bags of all processes; each computes the log-likelihood of its own."""
    bags = shard.whole[chosen]
    if not bool(measurable(bags).any()):
        return None
    mine = torch.isin(chosen, shard.numbers)
    log_p = torch.zeros(0, dtype=torch.float64)
    if bool(mine.any()) or session.processes.divided:
        own = bags[mine].to(session.task.device)
        logits = session.bag_logits(own)
        if len(own):
            log_p = best_log_prob(logits, own.evidence, own.offsets)
    whole = session.processes.assemble(
        log_p.to(session.task.device, torch.float64), torch.where(mine)[0], len(chosen)
    )
    return gain(whole, bags, session.measures.rate)


def _checksums(job: Job) -> dict[str, str]:
    labels = None if job.labels is None else labels_of_rows(job.labels, job.bags)
    return {
        "inputs": of_inputs(job.inputs),
        "labels": of_tensors(labels),
        "bags": of_bags(job.bags),
        "held-out bags": of_bags(job.held_out),
    }


def _approximation(job: Job) -> Approximation:
    given: Approximation = getattr(job.method, "approximation", None)
    return resolve(given, job.bags.evidence, job.bags.sizes)


def check_measures(job: Job, stacklevel: int) -> None:
    """Warn where likelihoods are approximate; refuse held-out bags that cannot be measured."""
    if job.held_out is not None and not bool(job.held_out.informative.any()):
        raise LLPError("no held_out bag has a count, so none can judge the model; choose others")
    if job.held_out is not None and not bool(measurable(job.held_out).any()):
        raise LLPError(
            "the likelihood of the held_out bags is intractable: they are too large for this "
            "number of classes, and their counts are not exact; train without held_out"
        )
    parts = [job.bags] if job.held_out is None else [job.bags, job.held_out]
    automatic = getattr(job.method, "approximation", None) == "auto"
    chosen = _approximation(job) if automatic else None
    notes = [choice_note(chosen)] if chosen is not None else []
    notes += filter(None, [approximation_note(*parts)])
    if notes:
        warnings.warn("; ".join(notes), ApproximationWarning, stacklevel=stacklevel)
