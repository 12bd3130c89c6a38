"""The training loop: short, resumable, and blind to instance labels."""

import math
import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.errors import Diverged, LLPError
from llpkit.methods import Learner, Method, Task
from llpkit.recipe import Recipe
from llpkit.training.batches import Blocks, Step, plan_epoch, send
from llpkit.training.callbacks import Callback, Row, plain_row
from llpkit.training.check import check_finite
from llpkit.training.check_processes import check_gradients
from llpkit.training.checkpoint import Checkpoint, restore_session, session_state
from llpkit.training.cuda_graph import ReplayedSteps
from llpkit.training.inputs import BATCH, Feed, Pipeline, as_inputs
from llpkit.training.measures import Measures
from llpkit.training.processes import Processes
from llpkit.training.seeds import epoch_seed, forked_rng
from llpkit.training.shards import Shard
from llpkit.training.steps import Steps

_WORTH_A_SYNC = 0.1
"""Epochs of at least this many seconds wait some milliseconds until the checkpoint is on disk, so a
power failure costs one epoch. Shorter epochs do not wait and may lose a few minutes."""


@dataclass(eq=False, repr=False)
class Session:
    """One training run: everything that changes while a network is trained, and the loop over it.

    All randomness of epoch ``e`` is drawn after seeding with the run's seed and ``e``, so a run
    that resumes at an epoch continues exactly as one that never stopped.

    Args:
        recipe: What determines the result.
        network: The network being trained, set up by Fabric.
        learner: The same network, perhaps compiled, with its optimiser.
        scheduler: Stepped after every epoch.
        method: Prepared for the task.
        task: The bags that this process learns from, on the training device.
        pipeline: The inputs.
        processes: All processes of the run.
        shard: Which of all training bags are those of the task.
        held_out_shard: This process's part of the bags that select the best epoch.
        callbacks: Called after every epoch.
        checkpoint: Where the state is saved.
        pad: Whether all batches have the same shape; see :mod:`llpkit.training.batches`.
        cuda_graph: Whether steps are captured and replayed; only with ``pad``.
        blocks: How the inputs of all processes' bags are read, if in blocks.

    Attributes:
        history: One row per finished epoch.
        stop: Ends the run after the current epoch.
        paused: Interrupts the run after the current epoch; it can be resumed.
    """

    recipe: Recipe
    network: nn.Module
    learner: Learner
    scheduler: Any
    method: Method
    task: Task
    pipeline: Pipeline
    processes: Processes
    shard: Shard
    held_out_shard: Shard | None
    callbacks: list[Callback]
    checkpoint: Checkpoint | None
    pad: bool
    cuda_graph: bool
    blocks: Blocks | None

    history: list[Row] = field(default_factory=list, init=False)
    first_epoch: int = field(default=0, init=False)
    stop: bool = field(default=False, init=False)
    paused: bool = field(default=False, init=False)
    best: dict[str, Any] | None = field(default=None, init=False)
    """Epoch, held-out log-likelihood and weights of the best epoch so far."""

    def __post_init__(self) -> None:
        self.epochs = self.recipe.epochs
        self.held_out: Bags | None = None
        if self.held_out_shard is not None:
            self.held_out = self.held_out_shard.bags.to(self.task.device)
        bags, which = self.task.bags, self.recipe.measure
        self.measures = Measures(bags, which, self.shard.whole, self.processes)
        self._order = torch.Generator()  # draws the order of the instances and nothing else

    @property
    def model(self) -> nn.Module:
        """The network that predicts, is selected and is returned: perhaps a teacher."""
        return self.network if self.method.model is None else self.method.model

    def resume(self) -> None:
        """Continue from the checkpoint, if there is one."""
        state = None
        if self.checkpoint is not None and self.processes.first:
            state = self.checkpoint.load()
        state = self.processes.broadcast(state)  # other machines may not see the file
        if state is not None:
            restore_session(self, state)

    def run(self) -> None:
        """Train to the last epoch, or until patience or a callback ends it."""
        task = self.task
        shape = task.bags.num_instances, task.num_classes
        kind = ReplayedSteps if self.cuda_graph else Steps
        self._steps = kind(self.method, self.learner, *shape, task.device)
        with forked_rng(task.device), self._on_device():
            self.method.outputs = self._outputs
            for callback in self.callbacks:
                callback.on_start(self)
            try:
                if self.method.wants_first_pass and not self.first_epoch:
                    self.method.end_epoch(self.bag_logits(task.bags))
                for epoch in range(self.first_epoch + 1, self.epochs + 1):
                    if self.stop or self.paused:
                        break
                    self._seed(epoch)
                    self._epoch(epoch)
            finally:
                self.method.outputs = None  # it would keep the inputs alive
                for callback in self.callbacks:
                    callback.on_end(self)

    def _on_device(self) -> AbstractContextManager[Any]:
        """On a CUDA device: a separate stream, which graph capture needs, and tuned kernels."""
        stack = ExitStack()
        if self.task.device.type == "cuda":
            before = torch.cuda.current_stream(self.task.device)
            stream = torch.cuda.Stream(self.task.device)
            stream.wait_stream(before)
            stack.callback(before.wait_stream, stream)  # later work of the caller sees the weights
            stack.enter_context(torch.cuda.stream(stream))
            cudnn = torch.backends.cudnn
            if self.pad and not cudnn.deterministic:
                # Tuning pays off for one shape; for many it would start over at every step.
                flags = cudnn.flags(cudnn.enabled, True, allow_tf32=cudnn.allow_tf32)
                stack.enter_context(flags)
        return stack

    def _seed(self, epoch: int) -> None:
        # Two streams: the order of the instances must not depend on how many numbers dropout and
        # augmentation draw.
        self._order.manual_seed(epoch_seed(self.recipe.seed, epoch))
        # Each process draws its own, or all would drop the same units.
        rank = [] if self.processes.alone else [self.processes.rank]
        torch.manual_seed(epoch_seed(self.recipe.seed, epoch, 1, *rank))

    def _epoch(self, epoch: int) -> None:
        row: Row = {"epoch": epoch, "lr": self._steps.lr}
        start = time.perf_counter()
        self.method.begin_epoch(epoch)
        loss, logits = self._train()
        self.processes.average_buffers(self.network)
        if self.method.wants_pass:
            logits = self.bag_logits(self.task.bags)
        log_p = self._steps.end_epoch(logits, len(self.task.bags))
        # One exchange, so that all processes agree whether to go on; it waits for the device.
        sums = self.processes.sum(torch.stack([loss.double(), logits.isnan().any().double()]))
        row["loss"], any_nan = sums.tolist()
        row["seconds"] = time.perf_counter() - start
        if any_nan:  # no metric can take these
            raise self._diverged(row["loss"], " and some logits are NaN")

        start = time.perf_counter()
        row |= self.measures.training(logits, log_p)
        self._check_finite(row)
        if self.held_out is not None:
            row |= self.measures.of(self.bag_logits(self.held_out), self.held_out, "held_out_")
        row["measure_seconds"] = time.perf_counter() - start

        self.scheduler.step()
        if self.held_out is not None:
            self._select(row)
        for callback in self.callbacks:  # in the first process
            callback.on_epoch(self, row)
        self._add_row(row)

    def _check_finite(self, row: Row) -> None:
        measured, base = row.get("log_likelihood", 0.0), row.get("baseline_log_likelihood", 0.0)
        # A NaN baseline means that the likelihood is intractable, so its own NaN means nothing.
        if not (math.isfinite(row["loss"]) and (math.isfinite(measured) or math.isnan(base))):
            more = f" and the bag log-likelihood {measured}" if "log_likelihood" in row else ""
            raise self._diverged(row["loss"], more)

    def _select(self, row: Row) -> None:
        """Keep the weights with the best held-out likelihood; stop when patience runs out."""
        value, patience = row["held_out_log_likelihood"], self.recipe.patience
        if self.best is None or value > self.best["value"]:
            # FSDP gathers shards from their device, so they stay there.
            keep = torch.clone if self.processes.fsdp else _to_cpu
            weights = {k: keep(v.detach()) for k, v in self.model.state_dict().items()}
            self.best = {"epoch": row["epoch"], "value": value, "model": weights}
        elif patience is not None and row["epoch"] - self.best["epoch"] >= patience:
            self.stop = True

    def _add_row(self, row: Row) -> None:
        """Add the row to the history, and write a checkpoint if one is due."""
        due = False
        if self.checkpoint is not None:
            last = self.stop or self.paused or row["epoch"] == self.epochs
            due = last or self.checkpoint.due()
        # The first process decides for all: only it has callbacks.
        decided = plain_row(row), self.stop, self.paused, due
        row, self.stop, self.paused, due = self.processes.broadcast(decided)
        self.history.append(row)
        if due:
            state = session_state(self)
            if self.checkpoint is not None and self.processes.first:
                self.checkpoint.save(state, sync=row["seconds"] >= _WORTH_A_SYNC)

    def restore_best(self) -> int:
        """Load the weights of the selected epoch and return its number."""
        if self.best is None:
            return len(self.history)
        self.model.load_state_dict(self.best["model"])
        epoch: int = self.best["epoch"]
        return epoch

    # One pass over the training data

    def _train(self) -> tuple[Tensor, Tensor]:
        """Take all steps of an epoch: the mean loss, and the logits of every step."""
        self.learner.network.train()
        if self.method.model is not None:  # it predicts: no dropout, no statistics of its own
            self.method.model.train(False)
        plan, steps = self._plan(), self._steps
        usual = [step for step in plan if not step.large]  # large bags read their own inputs
        rows = self._rows([step.positions for step in usual])
        # One stream for all ordinary steps, so that reading runs ahead of training.
        views = self.pipeline.stream_equal(rows) if self.pad else self.pipeline.stream(rows)
        ddp = not self.processes.alone and not self.processes.fsdp
        steps.begin_epoch()
        try:
            for step in plan:
                if step.large:
                    steps.large(step, self.task, self.pipeline.stream)
                else:
                    steps(step, self.task.bags.evidence, *next(views))
                if ddp:
                    check_gradients(self.network)
        except LLPError as error:
            # A NaN loss spoils the weights, and the next step would blame the network.
            loss = float(steps.loss)
            if not math.isfinite(loss):
                raise self._diverged(loss) from error
            raise
        # The buffers are overwritten in the next epoch; the last row collects padding.
        return steps.loss.clone(), steps.logits[:-1].clone()

    def _plan(self) -> list[Step]:
        """The steps of an epoch, or this process's part of each."""
        alone, device = self.processes.alone, self.task.device
        plan = plan_epoch(
            self.method,
            self.shard.whole,
            self.task.batch_size,
            self._order,
            pad=self.pad,
            max_bags=self.recipe.max_bags,
            blocks=self.blocks,
            device=device if alone else torch.device("cpu"),
        )
        if alone:
            return plan
        return [step.map(lambda t: send(t, device)) for step in self.shard.restrict(plan)]

    def _rows(self, positions: list[Tensor]) -> list[Tensor]:
        """The table rows of every step, in one look-up rather than one per step."""
        if not positions:
            return []
        rows = self.task.bags.rows[torch.cat(positions)]
        return list(rows.split([len(p) for p in positions]))

    # Forward passes without gradients

    def bag_logits(self, bags: Bags) -> Tensor:
        """Current logits of the instances of bags, in engine order."""
        rows, order = bags.rows, None
        if self.blocks is not None:  # in the order of the file, so that every block is read once
            order = rows.argsort()
            rows = rows[order]
        with self._precision():
            logits = self.pipeline.logits(self.model, self._batches(rows), self.task.num_classes)
        logits = logits[: len(rows)]
        return logits if order is None else logits[order.argsort()]

    def logits(self, inputs: Any) -> Tensor:
        """Current logits ``(n,)`` or ``(n, K)`` of inputs, or of a :class:`Feed` of them."""
        if self.processes.fsdp:
            raise LLPError(
                f"callbacks run in one process, which with {option('strategy', 'fsdp')} has only a "
                "part of the network, so they cannot predict; use ddp"
            )
        feed = inputs
        if not isinstance(inputs, Feed):
            inputs = as_inputs(inputs)
            check_finite(inputs)
            feed = Feed(inputs, self.task.device, resident=False)
        rows = list(torch.arange(len(feed), device=feed.device).split(BATCH))
        pipeline = Pipeline(feed, self.pipeline.preprocess)
        with self._precision():
            return pipeline.logits(self.model, rows, self.task.num_classes)

    def _outputs(self, network: nn.Module) -> Tensor:
        """What any network returns for the training instances; see :attr:`Method.outputs`."""
        rows = self.task.bags.rows
        with self.learner.autocast():
            return self.pipeline.outputs(network, self._batches(rows))[: len(rows)]

    def _batches(self, rows: Tensor) -> list[Tensor]:
        batches = list(rows.split(max(self.task.batch_size, BATCH)))
        if self.processes.fsdp:
            # All processes have to run the network equally often; those with fewer batches add
            # some of a single row at the end, whose outputs are dropped.
            batches = batches if len(rows) else []
            spare = self.task.bags.rows[:1]
            batches += [spare] * (self.processes.max(len(batches)) - len(batches))
        return batches

    def _precision(self) -> AbstractContextManager[Any]:
        """Fabric sets the precision of the network; another model needs an autocast context."""
        return nullcontext() if self.method.model is None else self.learner.autocast()

    def _diverged(self, loss: float, more: str = "") -> Diverged:
        return self._steps.diverged(len(self.history) + 1, loss, more)


def _to_cpu(tensor: Tensor) -> Tensor:
    return tensor.to("cpu", copy=True)
