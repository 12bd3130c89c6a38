"""The training loop: short, resumable, and blind to instance labels."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from llpkit.augment import Augment
from llpkit.bags import Bags
from llpkit.errors import Diverged, LLPError
from llpkit.evaluation import (
    baseline_log_likelihood,
    constant_rate,
    mean_log_likelihood,
    measurable,
    proportion_error,
)
from llpkit.likelihood.budget import cost, even_sample
from llpkit.methods import Batch, LargeBag, Method, Task, Trainer, as_logits
from llpkit.methods._base import BagMethod
from llpkit.training._batches import bag_batches, epoch_seed, instance_batches, positions_of
from llpkit.training._callbacks import Callback, Row, plain_row
from llpkit.training._check import check_finite
from llpkit.training._checkpoint import load_checkpoint, load_weights, save_checkpoint
from llpkit.training._feed import Feed, Preprocess, as_inputs, to_float
from llpkit.training._fixed import plan_bags, plan_instances, send
from llpkit.training._replay import Replay

Augmentation = Callable[[Tensor], Tensor]

MEASURES = ("auto", "all", "off")
MEASURE_BUDGET = 2**22
"""States of the exact recursion that a measure of the training bags may cost in an epoch: with K
classes, about a tenth of a second on one core. See :func:`llpkit.likelihood.budget.cost`."""

_WORTH_A_SYNC = 0.1
"""Seconds of training from which on a checkpoint waits for the disk, which takes some thousandths
of a second: a loss of power then costs an epoch, and where epochs are shorter a few minutes."""

AT_ONCE = 2**24
"""Values of inputs that a CUDA device prepares at once: enough to fill it, few enough to hold."""


@dataclass
class Session:
    """One run: everything that changes while a network is trained, and the loop over it.

    All that is random in epoch ``e`` is drawn after seeding with the run's seed and ``e``, so a run
    that resumes at an epoch goes on exactly as one that never stopped.
    """

    fabric: Fabric
    network: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any
    method: Method
    task: Task
    feed: Feed
    preprocess: Preprocess
    augment: Augmentation | None
    epochs: int
    seed: int
    held_out: Bags | None = None
    patience: int | None = None
    callbacks: Sequence[Callback] = ()
    checkpoint: Path | None = None
    settings: dict[str, Any] | None = None
    fixed: bool = False
    """Whether all batches have one shape; see :mod:`._fixed`."""
    record: bool = False
    """Whether steps are recorded and replayed; see :mod:`._replay`."""
    compiled: nn.Module | None = None
    """The same network, compiled for the steps."""
    data: dict[str, str] | None = None
    """Checksums of what is learned from, for the checkpoint; see :mod:`._fingerprint`."""
    measure: str = "auto"
    """Which training bags are measured after an epoch: those within budget, all, or none."""

    def __post_init__(self) -> None:
        self.history: list[Row] = []
        self.first_epoch = 0
        self.stop = False
        self.best: dict[str, Any] | None = None
        trained = self.network if self.compiled is None else self.compiled
        self._trainer = Trainer(trained, self.optimizer, self.fabric.backward)
        self._host_bags = self.task.bags.to("cpu")
        self._sizes = self._host_bags.sizes
        self.rate = constant_rate(self._host_bags)
        self._baselines: dict[str, float] = {}
        self._sample = self._measured_bags()
        self._order = torch.Generator()  # of instances and bags, whoever else draws meanwhile

    def _measured_bags(self) -> tuple[Bags, Tensor] | None:
        """The training bags whose likelihood is measured and where their logits are, if not all."""
        host = self._host_bags
        if self.measure != "auto" or host.num_classes in (None, 2):
            return None
        places = even_sample(cost(host.evidence, host.sizes), MEASURE_BUDGET)
        if len(places) == len(host):
            return None
        where = positions_of(host, places)[0]
        return host[places].to(self.task.device), where.to(self.task.device)

    def resume(self) -> bool:
        """Take up the checkpoint, if there is one."""
        if self.checkpoint is None or not self.checkpoint.exists():
            return False
        state = load_checkpoint(self.checkpoint, self.settings or {}, self.data or {})
        load_weights(self.network, state["network"], self.checkpoint)
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"] = group["lr"].to(self.task.device)
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.method.load_state_dict(state["method"])
        self.history = json.loads(state["history"])
        self.best = state["best"]
        self.first_epoch = len(self.history)
        self.stop = state["stop"]
        return True

    def run(self) -> None:
        """Train to the last epoch, or until patience or a callback ends it."""
        devices = [self.task.device] if self.task.device.type == "cuda" else []
        if self.fixed:
            self._replay = Replay(
                self.method,
                self._trainer,
                self.task.num_classes,
                self.task.bags.num_instances,
                self.task.device,
                self.record,
            )
        with torch.random.fork_rng(devices), self._on_device():
            for callback in self.callbacks:
                callback.on_start(self)
            try:
                for epoch in range(self.first_epoch + 1, self.epochs + 1):
                    if self.stop:
                        break
                    self._order.manual_seed(epoch_seed(self.seed, epoch))
                    torch.manual_seed(epoch_seed(self.seed, epoch, 1))
                    self._epoch(epoch)
            finally:
                for callback in self.callbacks:
                    callback.on_end(self)

    def _on_device(self) -> AbstractContextManager[Any]:
        """On a CUDA device: a stream of its own, which a recording needs, and tuned kernels."""
        stack = ExitStack()
        if self.task.device.type == "cuda":
            before = torch.cuda.current_stream(self.task.device)
            stream = torch.cuda.Stream(self.task.device)
            stream.wait_stream(before)
            stack.callback(before.wait_stream, stream)
            stack.enter_context(torch.cuda.stream(stream))
            cudnn = torch.backends.cudnn
            if self.fixed and not cudnn.deterministic:
                # With other shapes in every step it would tune for each.
                flags = cudnn.flags(cudnn.enabled, True, allow_tf32=cudnn.allow_tf32)
                stack.enter_context(flags)
        return stack

    def _epoch(self, epoch: int) -> None:
        row: Row = {"epoch": epoch, "lr": float(self.optimizer.param_groups[0]["lr"])}
        start = time.perf_counter()
        loss, logits = self._train()
        fresh = self.bag_logits(self.task.bags) if self.method.wants_pass else logits
        log_p = self.method.end_epoch(fresh)
        row["loss"] = float(loss)  # waits for the device
        row["seconds"] = time.perf_counter() - start
        start = time.perf_counter()
        if bool(logits.isnan().any()):  # which no measure takes
            raise self._diverged(row["loss"], " and some logits are NaN")
        row.update(self._training_metrics(logits, log_p if fresh is logits else None))
        measured, base = row.get("log_likelihood", 0.0), row.get("baseline_log_likelihood", 0.0)
        # Without a baseline there is no likelihood to be had of these bags.
        if not (_finite(row["loss"]) and (_finite(measured) or base != base)):
            told = f" and the bag log-likelihood {measured}" if "log_likelihood" in row else ""
            raise self._diverged(row["loss"], told)
        if self.held_out is not None:
            row.update(
                self._bag_metrics(self.bag_logits(self.held_out), self.held_out, "held_out_")
            )
        row["measure_seconds"] = time.perf_counter() - start
        if self.scheduler is not None:
            self.scheduler.step()
        self._keep_best(row)
        for callback in self.callbacks:
            callback.on_epoch(self, row)
        self.history.append(plain_row(row))
        if self.checkpoint is not None:
            save_checkpoint(self.checkpoint, self._state(), sync=row["seconds"] >= _WORTH_A_SYNC)

    def _train(self) -> tuple[Tensor, Tensor]:
        """One pass over the training data: mean loss, and the logits as they went by."""
        self._trainer.network.train()
        if self.fixed:
            return self._train_fixed()
        bags, classes = self.task.bags, self.task.num_classes
        shape = (bags.num_instances,) if classes is None else (bags.num_instances, classes)
        seen = torch.zeros(shape, device=self.task.device)
        total = torch.zeros((), device=self.task.device)
        for batch in self._batches():
            try:
                if isinstance(batch, LargeBag):
                    method = cast(BagMethod, self.method)
                    loss, logits = method.large_step(batch, self._trainer, classes)
                else:
                    loss, logits = self.method.step(batch, self._trainer, classes)
            except LLPError as error:
                # Weights follow a loss that is not a number, so the next step blames the network.
                if not _finite(float(total)):
                    raise self._diverged(float(total)) from error
                raise
            seen[batch.positions] = logits.to(seen.dtype)
            total += loss * len(batch.positions)
        return total / bags.num_instances, seen

    def _diverged(self, loss: float, more: str = "") -> Diverged:
        own = not type(self.method).__module__.startswith("llpkit.")
        name = type(self.method).__name__
        zeros = f"a logarithm of zero or a division by zero in the loss of {name}"
        return Diverged(
            f"epoch {len(self.history) + 1}: the loss is {loss}{more}; lower the learning rate "
            f"(now {float(self.optimizer.param_groups[0]['lr']):g}) or look for "
            f"{zeros if own else 'extreme values in the inputs'}"
        )

    def _train_fixed(self) -> tuple[Tensor, Tensor]:
        """The same in steps of one shape, with nothing that waits for the device between them."""
        bags, size, replay = self.task.bags, self.task.batch_size, self._replay
        large: list[int] = []
        if self.method.batches == "instances":
            plan = plan_instances(bags.num_instances, size, self._order)
        else:
            plan, large = plan_bags(self._host_bags, self._sizes, size, self._order)
        inputs = self._prepared(self._host_bags.rows[plan.positions])
        steps, plan = len(plan.positions), plan.to(self.task.device)
        replay.begin()
        done = 0
        for turn in torch.randperm(steps + len(large), generator=self._order).tolist():
            if turn < len(large):
                self._large(large[turn])
            else:
                replay(plan.step(done), next(inputs))
                done += 1
        return replay.total.clone(), replay.seen[: bags.num_instances].clone()

    def _prepared(self, rows: Tensor) -> Iterator[Tensor]:
        """Inputs of every step ``(S, ...)``, for rows ``(steps, S)`` on the host.

        Many steps are prepared at once on a CUDA device, unless the user's own augmentation may do
        something to a batch as a whole.
        """
        size = rows.shape[1]
        many, device = 1, self.task.device
        known = self.augment is None or isinstance(self.augment, Augment)
        if device.type == "cuda" and self.feed.resident and known:
            many = max(1, AT_ONCE // (size * max(1, prod(self.task.input_shape))))
        rows = send(rows, device) if self.feed.resident else rows
        for raw in self.feed.stream([some.flatten() for some in rows.split(many)]):
            x = self._inputs(raw)
            if x.dim() == 4:
                x = x.contiguous(memory_format=torch.channels_last)
            yield from x.split(size)

    def _large(self, bag: int) -> None:
        """A step on one bag that is larger than a batch."""
        bags, replay = self.task.bags, self._replay
        start, end = (int(i) for i in self._host_bags.offsets[bag : bag + 2])
        where = torch.arange(start, end, device=self.task.device)
        offsets = torch.tensor([0, end - start], device=self.task.device)
        piece = LargeBag(self._chunks(where), where, offsets, bags.evidence[bag : bag + 1])
        method = cast(BagMethod, self.method)
        loss, logits = method.large_step(piece, self._trainer, self.task.num_classes)
        replay.seen[start:end] = logits.to(replay.seen.dtype)
        replay.total += loss * ((end - start) / bags.num_instances)

    def _batches(self) -> Iterator[Batch | LargeBag]:
        bags, size, device = self.task.bags, self.task.batch_size, self.task.device
        if self.method.batches == "instances":
            drawn = instance_batches(bags.num_instances, size, self._order)
            positions = [b.to(device) for b in drawn]
            rows = [bags.rows[p] for p in positions]
            for raw, where in zip(self.feed.stream(rows), positions, strict=True):
                yield Batch(self._inputs(raw), where)
            return
        chosen = bag_batches(self._sizes, size, generator=self._order)
        large = [
            isinstance(self.method, BagMethod) and int(self._sizes[b].sum()) > size + 1
            for b in chosen
        ]
        chosen = [b.to(device) for b in chosen]
        places = [positions_of(bags, b) for b in chosen]
        stream = self.feed.stream(
            [bags.rows[p] for (p, _), alone in zip(places, large, strict=True) if not alone]
        )
        for b, (where, offsets), alone in zip(chosen, places, large, strict=True):
            evidence = bags.evidence[b]
            if alone:
                yield LargeBag(self._chunks(where), where, offsets, evidence)
            else:
                yield Batch(self._inputs(next(stream)), where, offsets, evidence)

    def _chunks(self, positions: Tensor) -> Callable[[], Iterator[Tensor]]:
        pieces = [self.task.bags.rows[p] for p in positions.split(self.task.batch_size)]
        return lambda: (self._inputs(raw) for raw in self.feed.stream(pieces))

    def _inputs(self, raw: Tensor) -> Tensor:
        x = to_float(raw)
        if self.augment is not None:
            x = self.augment(x)
        return cast(Tensor, self.preprocess(x))

    def bag_logits(self, bags: Bags) -> Tensor:
        """Logits of bags in engine order, without gradient or augmentation."""
        rows = list(bags.rows.split(max(self.task.batch_size, 512)))
        return forward(self.network, self.preprocess, self.feed, rows, self.task.num_classes)

    def logits(self, inputs: Any) -> Tensor:
        """Logits ``(n,)`` or ``(n, K)`` of inputs, or of a :class:`Feed` of them, as of now."""
        feed = inputs
        if not isinstance(inputs, Feed):
            given = as_inputs(inputs)
            check_finite(given)
            feed = Feed(given, self.task.device, resident=False)
        rows = list(torch.arange(len(feed), device=feed.device).split(512))
        return forward(self.network, self.preprocess, feed, rows, self.task.num_classes)

    def predict(self, inputs: Any) -> Tensor:
        """Probabilities of some inputs by the network as it is now."""
        return probabilities(self.logits(inputs))

    def _training_metrics(self, logits: Tensor, log_p: Tensor | None) -> Row:
        """Measures of the training bags by their logits as they went by, as far as wanted.

        ``log_p`` are the log-likelihoods of all bags, where the method had to compute them.
        """
        bags = self.task.bags
        if self.measure == "off":
            return {}
        if log_p is not None or self._sample is None:
            return self._bag_metrics(logits, bags, "", log_p)
        some, where = self._sample
        row = self._bag_metrics(logits[where], some, "")
        row["proportion_error"] = proportion_error(probabilities(logits), bags)
        return row | {"measured_bags": len(some)}

    def _bag_metrics(
        self, logits: Tensor, bags: Bags, prefix: str, log_p: Tensor | None = None
    ) -> Row:
        if prefix not in self._baselines:  # the same in every epoch
            base = baseline_log_likelihood(bags, self.rate)
            self._baselines[prefix] = float(base[measurable(bags).cpu()].mean())
        mean = mean_log_likelihood(logits, bags) if log_p is None else float(log_p.mean())
        return {
            f"{prefix}log_likelihood": mean,
            f"{prefix}baseline_log_likelihood": self._baselines[prefix],
            f"{prefix}proportion_error": proportion_error(probabilities(logits), bags),
        }

    def _keep_best(self, row: Row) -> None:
        """Remember the weights with the best likelihood of held-out bags; stop after patience."""
        if self.held_out is None:
            return
        value = row["held_out_log_likelihood"]
        if self.best is None or value > self.best["value"]:
            weights = {k: v.detach().cpu().clone() for k, v in self.network.state_dict().items()}
            self.best = {"epoch": row["epoch"], "value": value, "network": weights}
        elif self.patience is not None and row["epoch"] - self.best["epoch"] >= self.patience:
            self.stop = True

    def _state(self) -> dict[str, Any]:
        return {
            "settings": self.settings or {},
            "data": self.data or {},
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "method": self.method.state_dict(),
            "history": json.dumps(self.history),  # torch looks at every number of it otherwise
            "best": self.best,
            "stop": self.stop,
        }


def forward(
    network: nn.Module,
    preprocess: Preprocess,
    feed: Feed,
    batches: list[Tensor],
    num_classes: int | None,
) -> Tensor:
    """Logits of batches of rows, in evaluation mode; the mode is put back afterwards."""
    training = network.training
    network.eval()
    with torch.no_grad():
        parts = [
            as_logits(network(preprocess(to_float(raw))), num_classes).float()
            for raw in feed.stream(batches)
        ]
    network.train(training)
    if not parts:
        return torch.zeros((0,) if num_classes is None else (0, num_classes))
    return torch.cat(parts)


def probabilities(logits: Tensor) -> Tensor:
    """``(n,)`` of the positive class, or ``(n, K)``."""
    return logits.sigmoid() if logits.dim() == 1 else logits.softmax(1)


def _finite(value: float) -> bool:
    return value == value and abs(value) != float("inf")
