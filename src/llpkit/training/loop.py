"""The training loop: short, resumable, and blind to instance labels."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, cast

import torch
from torch import Tensor, nn

from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.errors import Diverged, LLPError
from llpkit.methods import BagMethod, LargeBag, Learner, Method, Task
from llpkit.recipe import Recipe
from llpkit.training.batches import Blocks, Step, epoch_seed, plan_epoch, send
from llpkit.training.callbacks import Callback, Row, plain_row
from llpkit.training.check import check_finite
from llpkit.training.checkpoint import Checkpoint, load_weights
from llpkit.training.cuda_graph import Steps
from llpkit.training.inputs import Feed, Pipeline, as_inputs, probabilities
from llpkit.training.measures import Measures
from llpkit.training.processes import Processes
from llpkit.training.shards import Shard

_WORTH_A_SYNC = 0.1
"""Epochs of at least this many seconds wait until the checkpoint is on disk (milliseconds), so a
power failure costs one epoch. Shorter epochs do not wait and may lose a few minutes."""


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
        task: The bags to learn from.
        pipeline: The inputs.
        held_out: Bags that select the best epoch, on the training device.
        callbacks: Called after every epoch.
        checkpoint: Where the state is saved.
        checkpoint_every: Seconds between checkpoints; the last epoch is always saved.
        pad: Whether all batches have one shape, see :mod:`llpkit.training.batches`.
        cuda_graph: Whether steps are recorded and replayed; only with ``pad``.
        processes: Those that train together; the task has the bags of this one.
        shard: Which bags these are.
        blocks: How the inputs of all processes' bags are read, if in blocks.
    """

    def __init__(
        self,
        recipe: Recipe,
        network: nn.Module,
        learner: Learner,
        scheduler: Any,
        method: Method,
        task: Task,
        pipeline: Pipeline,
        *,
        held_out: Bags | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: Checkpoint | None = None,
        checkpoint_every: float = 0.0,
        pad: bool = False,
        cuda_graph: bool = False,
        processes: Processes | None = None,
        shard: Shard | None = None,
        blocks: Blocks | None = None,
    ) -> None:
        self.recipe, self.network, self.learner = recipe, network, learner
        self.scheduler, self.method, self.task, self.pipeline = scheduler, method, task, pipeline
        self.held_out, self.callbacks, self.checkpoint = held_out, callbacks, checkpoint
        self.checkpoint_every, self._saved = checkpoint_every, time.monotonic()
        self.pad, self.cuda_graph = pad, cuda_graph
        self.epochs = recipe.epochs
        self.history: list[Row] = []
        self.first_epoch = 0
        self.stop = self.paused = False
        self.best: dict[str, Any] | None = None
        self.processes = processes or Processes()
        self.shard = shard or Shard.of(task.bags, 0, 1)
        self.blocks = blocks
        self.measures = Measures(task.bags, recipe.measure, self.shard.whole, self.processes)
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
        state = self.processes.tell(state)  # other machines may not see the file
        if state is None:
            return
        assert self.checkpoint is not None
        if self.processes.divided:
            self._divide(state)
        load_weights(self.network, state["network"], self.checkpoint.path)
        self.learner.optimizer.load_state_dict(state["optimizer"])
        for group in self.learner.optimizer.param_groups:
            # The checkpoint is read to the CPU, and torch moves the moments but not the rate, which
            # a CUDA graph must find on its device.
            if isinstance(group["lr"], Tensor):
                group["lr"] = group["lr"].to(self.task.device)
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self.method.model is not None:
            load_weights(self.method.model, state["model"], self.checkpoint.path)
        own = dict(state["method"])
        if not self.processes.alone:
            own |= {k: own[k][self.shard.positions] for k in self.method.per_instance}
        self.method.load_state_dict(own)
        self.history = json.loads(state["history"])
        self.best = state["best"]
        self.first_epoch = len(self.history)
        self.stop = state["stop"]

    def _divide(self, state: dict[str, Any]) -> None:
        """Keep this process's part of a checkpoint, which has the whole network."""
        from llpkit.training.fsdp import parts, parts_of_state

        state["optimizer"] = parts_of_state(state["optimizer"], self.learner.optimizer)
        state["network"] = parts(state["network"], self.network)
        if state["best"] is not None:
            state["best"]["model"] = parts(state["best"]["model"], self.network)

    def run(self) -> None:
        """Train to the last epoch, or until patience or a callback ends it."""
        device = self.task.device
        shape = (self.task.bags.num_instances, self.task.num_classes)
        self._steps = Steps(self.method, self.learner, *shape, device, self.cuda_graph)
        with torch.random.fork_rng([device] if device.type == "cuda" else []), self._on_device():
            self.method.outputs = self._outputs
            for callback in self.callbacks:
                callback.on_start(self)
            try:
                if self.method.wants_first_pass and not self.first_epoch:
                    self.method.end_epoch(self.bag_logits(self.task.bags))
                for epoch in range(self.first_epoch + 1, self.epochs + 1):
                    if self.stop or self.paused:
                        break
                    # Two streams: the order of the instances must not depend on how many numbers
                    # dropout and augmentation draw.
                    self._order.manual_seed(epoch_seed(self.recipe.seed, epoch))
                    # Each process draws its own, or all would drop the same units.
                    ranks = [self.processes.rank] * (not self.processes.alone)
                    torch.manual_seed(epoch_seed(self.recipe.seed, epoch, 1, *ranks))
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

    def _epoch(self, epoch: int) -> None:
        row: Row = {"epoch": epoch, "lr": float(self.learner.optimizer.param_groups[0]["lr"])}
        start = time.perf_counter()
        self.method.begin_epoch(epoch)
        loss, logits = self._train()
        self.processes.average_buffers(self.network)
        if self.method.wants_pass:
            logits = self.bag_logits(self.task.bags)
        log_p = self.method.end_epoch(logits)
        if log_p is not None and log_p.shape != (len(self.task.bags),):
            raise LLPError(
                f"end_epoch of {type(self.method).__name__} gave shape {tuple(log_p.shape)}; "
                f"return one log-likelihood per bag, ({len(self.task.bags)},), or None"
            )
        # One exchange, so that all processes agree whether to go on; it waits for the device.
        agreed = torch.stack([loss.double(), logits.isnan().any().double()])
        row["loss"], spoilt = self.processes.sum(agreed).tolist()
        row["seconds"] = time.perf_counter() - start

        start = time.perf_counter()
        if spoilt:  # no measure can take these
            raise self._diverged(row["loss"], " and some logits are NaN")
        row.update(self.measures.training(logits, log_p))
        measured, base = row.get("log_likelihood", 0.0), row.get("baseline_log_likelihood", 0.0)
        # A NaN baseline means that the likelihood is intractable, so its own NaN means nothing.
        if not (math.isfinite(row["loss"]) and (math.isfinite(measured) or math.isnan(base))):
            more = f" and the bag log-likelihood {measured}" if "log_likelihood" in row else ""
            raise self._diverged(row["loss"], more)
        if self.held_out is not None:
            unseen = self.bag_logits(self.held_out)
            row.update(self.measures.of(unseen, self.held_out, "held_out_"))
        row["measure_seconds"] = time.perf_counter() - start

        if self.scheduler is not None:
            self.scheduler.step()
        self._keep_best(row)
        for callback in self.callbacks:  # in the first process
            callback.on_epoch(self, row)
        decided = plain_row(row), self.stop, self.paused, self._due(epoch)
        row, self.stop, self.paused, due = self.processes.tell(decided)
        self.history.append(row)
        if self.checkpoint is not None and due:
            state = self._state()
            if self.processes.first:
                self.checkpoint.save(state, sync=row["seconds"] >= _WORTH_A_SYNC)
            self._saved = time.monotonic()

    def _due(self, epoch: int) -> bool:
        """Whether to write a checkpoint after this epoch."""
        last = self.stop or self.paused or epoch == self.epochs
        return last or time.monotonic() >= self._saved + self.checkpoint_every

    def _train(self) -> tuple[Tensor, Tensor]:
        """One pass over the training data: the mean loss, and the logits of every step."""
        self.learner.network.train()
        if self.method.model is not None:
            self.method.model.train(False)
        plan, steps = self._plan(), self._steps
        usual = [step for step in plan if not step.large]  # large bags read their own inputs
        rows = self._rows([step.positions for step in usual])
        # One stream for all ordinary steps, so that reading runs ahead of training.
        views = self.pipeline.stream_equal(rows) if self.pad else self.pipeline.stream(rows)
        steps.begin_epoch()
        try:
            for step in plan:
                if step.large:
                    self._large(step)
                else:
                    steps(step, self.task.bags.evidence, *next(views))
        except LLPError as error:
            # A NaN loss spoils the weights, and the next step would blame the network.
            loss = float(steps.loss)
            if not math.isfinite(loss):
                raise self._diverged(loss) from error
            raise
        # The buffers are overwritten in the next epoch; the last row collects padding.
        return steps.loss.clone(), steps.logits[:-1].clone()

    def _plan(self) -> list[Step]:
        """The steps of an epoch: those of one process, and of each the part of this one."""
        device = self.task.device
        plan = plan_epoch(
            self.method,
            self.shard.whole,
            self.task.batch_size,
            self._order,
            pad=self.pad,
            max_bags=self.recipe.max_bags,
            blocks=self.blocks,
            device=device if self.processes.alone else torch.device("cpu"),
        )
        if self.processes.alone:
            return plan
        return [step.map(lambda t: send(t, device)) for step in self.shard.restrict(plan)]

    def _rows(self, positions: list[Tensor]) -> list[Tensor]:
        """The table rows of every step, in one look-up rather than one per step."""
        if not positions:
            return []
        rows = self.task.bags.rows[torch.cat(positions)]
        return list(rows.split([len(p) for p in positions]))

    def _large(self, step: Step) -> None:
        """A step on one bag that is larger than a batch."""
        assert step.offsets is not None
        assert step.bags is not None
        evidence = self.task.bags.evidence[step.bags]
        bag = LargeBag(self._chunks(step.positions), step.positions, step.offsets, evidence)
        method = cast(BagMethod, self.method)
        loss, logits = method.large_step(bag, self.learner, self.task.num_classes)
        self._steps.keep(step, loss, logits)

    def _chunks(self, positions: Tensor) -> Callable[[], Iterator[Tensor]]:
        pieces = [self.task.bags.rows[p] for p in positions.split(self.task.batch_size)]
        return lambda: (weak for weak, _ in self.pipeline.stream(pieces))

    def bag_logits(self, bags: Bags) -> Tensor:
        """Logits of bags in engine order, without gradient or augmentation."""
        # In the order of the file, so that every block is read once.
        order = None if self.blocks is None else bags.rows.argsort()
        rows = bags.rows if order is None else bags.rows[order]
        with self._precision():
            found = self.pipeline.logits(self.model, self._batches(rows), self.task.num_classes)
        found = found[: len(rows)]
        return found if order is None else found[order.argsort()]

    def _outputs(self, network: nn.Module) -> Tensor:
        """What any network gives for the training instances, see :attr:`Method.outputs`."""
        rows = self.task.bags.rows
        with self.learner.autocast():
            return self.pipeline.outputs(network, self._batches(rows))[: len(rows)]

    def _batches(self, rows: Tensor) -> list[Tensor]:
        """Rows in batches for a pass without gradients.

        All processes that share a divided network have to run it equally often, so a process with
        fewer batches gets some of a single row, which come last.
        """
        # No gradients are stored, so batches may be larger than in training.
        batches = list(rows.split(max(self.task.batch_size, 512)))
        if self.processes.divided:
            batches = batches if len(rows) else []
            spare = self.task.bags.rows[:1]
            batches += [spare] * (self.processes.most(len(batches)) - len(batches))
        return batches

    def logits(self, inputs: Any) -> Tensor:
        """Current logits ``(n,)`` or ``(n, K)`` of inputs, or of a :class:`Feed` of them."""
        if self.processes.divided:
            raise LLPError(
                f"callbacks run in one process, which with {option('strategy', 'fsdp')} has only a "
                "part of the network, so they cannot predict; use ddp"
            )
        feed = inputs
        if not isinstance(inputs, Feed):
            given = as_inputs(inputs)
            check_finite(given)
            feed = Feed(given, self.task.device, resident=False)
        rows = list(torch.arange(len(feed), device=feed.device).split(512))
        pipeline = Pipeline(feed, self.pipeline.preprocess)
        with self._precision():
            return pipeline.logits(self.model, rows, self.task.num_classes)

    def predict(self, inputs: Any) -> Tensor:
        """The current model's probabilities for some inputs."""
        return probabilities(self.logits(inputs))

    def _precision(self) -> AbstractContextManager[Any]:
        """Fabric sets the precision of the network; another model needs an autocast context."""
        return ExitStack() if self.method.model is None else self.learner.autocast()

    def _keep_best(self, row: Row) -> None:
        """Keep the weights with the best held-out likelihood; stop when patience runs out."""
        if self.held_out is None:
            return
        value, patience = row["held_out_log_likelihood"], self.recipe.patience
        if self.best is None or value > self.best["value"]:
            now = {k: v.detach() for k, v in self.model.state_dict().items()}
            # Parts of a divided network stay on their device, which can gather them.
            weights = {
                k: (v if self.processes.divided else v.cpu()).clone() for k, v in now.items()
            }
            self.best = {"epoch": row["epoch"], "value": value, "model": weights}
        elif patience is not None and row["epoch"] - self.best["epoch"] >= patience:
            self.stop = True

    def restore_best(self) -> int:
        """Load the weights of the selected epoch and return its number."""
        if self.best is None:
            return len(self.history)
        self.model.load_state_dict(self.best["model"])
        epoch: int = self.best["epoch"]
        return epoch

    def _state(self) -> dict[str, Any]:
        state = {
            "network": self.network.state_dict(),
            "optimizer": self.learner.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "method": self._method_state(),
            "model": None if self.method.model is None else self.method.model.state_dict(),
            "history": json.dumps(self.history),  # torch would inspect every number of a list
            "best": self.best,
            "stop": self.stop,
        }
        if not self.processes.divided:
            return state
        from llpkit.training.fsdp import whole

        return {key: whole(value, self.processes.first) for key, value in state.items()}

    def _method_state(self) -> dict[str, Any]:
        """The state of the method for any number of processes."""
        state = self.method.state_dict()
        length, places = self.shard.whole.num_instances, self.shard.positions
        for name in self.method.per_instance:
            state[name] = self.processes.assemble(state[name], places, length)
        return state

    def _diverged(self, loss: float, more: str = "") -> Diverged:
        rate = float(self.learner.optimizer.param_groups[0]["lr"])
        cause = "extreme values in the inputs"
        if not type(self.method).__module__.startswith("llpkit."):
            name = type(self.method).__name__
            cause = f"a logarithm of zero or a division by zero in the loss of {name}"
        return Diverged(
            f"epoch {len(self.history) + 1}: the loss is {loss}{more}; lower the learning rate "
            f"(now {rate:g}) or look for {cause}"
        )
