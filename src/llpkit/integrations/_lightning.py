"""A LightningModule that trains a network from counts, for either import name of Lightning.

The Trainer provides the loop, the device, the precision and the checkpoints. Everything else comes
from :func:`llpkit.fit`: the method, the plan of every epoch, augmentation, preprocessing and
metrics. Without mixed precision, the weights on a CPU equal those of :func:`llpkit.fit` bit for
bit.
"""

import copy
import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from llpkit import methods
from llpkit._package import package
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.methods import Learner, Method, as_logits, at_least_single
from llpkit.recipe import AUTO, Recipe
from llpkit.training import Fitted
from llpkit.training.batches import Step, plan_epoch
from llpkit.training.building import (
    augmentations,
    make_network,
    make_optimizer,
    make_preprocess,
    make_scheduler,
    make_task,
)
from llpkit.training.check import check_not_empty, checked_bags
from llpkit.training.check_logits import refuse_probabilities
from llpkit.training.fingerprint import of_bags
from llpkit.training.frames import checked_inputs
from llpkit.training.inputs import (
    BATCH,
    EXAMPLES,
    Feed,
    Pipeline,
    Views,
    blocks_of,
    check_shape,
    to_float,
)
from llpkit.training.measures import Measures
from llpkit.training.seeds import epoch_seed, forked_rng
from llpkit.training.steps import Steps

_CPU = torch.device("cpu")
_KEY = "llpkit"
_OF_THE_TRAINER = {
    "epochs": "Trainer(max_epochs=...)",
    "precision": "Trainer(precision=...)",
    "patience": 'EarlyStopping("held_out_log_likelihood", mode="max")',
}
_OF_THE_OPTIMIZER = {"optimizer", "lr", "weight_decay", "schedule"}


@functools.cache
def module_class(lightning: str, home: str) -> type[Any]:
    """``LLPModule`` for the package of this name; ``home`` is the module that users import."""
    base = package(lightning, "lightning").LightningModule
    about = {"__module__": home, "__doc__": LLPHooks.__doc__}
    return type("LLPModule", (LLPHooks, base), about)


class LLPHooks:
    """A LightningModule that trains a per-instance classifier from the counts of bags.

    It makes its own training batches: call ``trainer.fit(module)`` without a data loader. The
    metrics of every epoch are logged under the names in :func:`llpkit.fit`'s history, so that
    callbacks can monitor ``log_likelihood`` or ``held_out_log_likelihood``. Checkpoints contain the
    targets of EM and the teacher; ``trainer.fit(module, ckpt_path=...)`` continues from them.

    Args:
        network: As for :func:`llpkit.fit`. The ``configure_optimizers`` of a LightningModule is
            used if there is one.
        bags: Which rows form which bag, and what is known about the counts.
        inputs: One row per instance, or a data frame, as for :func:`llpkit.fit`.
        method: A key of :data:`llpkit.methods.METHODS`, or your own method.
        labels: True labels of the rows, for ``method="supervised"`` only.
        held_out: Other bags of the same table, or the share of ``bags`` to hold out. They are
            measured after every epoch, for ``ModelCheckpoint`` or ``EarlyStopping``.
        recipe: Settings to start from.
        **settings: Any field of :class:`~llpkit.training.Recipe` except ``epochs``, ``precision``
            and ``patience``, which the Trainer sets.

    Attributes:
        history: One row per epoch, as in :class:`~llpkit.training.Fitted`.
    """

    # Of the LightningModule that this is mixed into.
    trainer: Any
    device: torch.device
    global_step: int
    automatic_optimization: bool

    def __init__(
        self,
        network: str | nn.Module | None,
        bags: Bags,
        inputs: Any,
        method: str | Method | type[Method] = "mle",
        *,
        labels: Any = None,
        held_out: Bags | float | None = None,
        recipe: Recipe | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        for name in settings.keys() & _OF_THE_TRAINER.keys():
            raise LLPError(f"{name} is a setting of the Trainer here; use {_OF_THE_TRAINER[name]}")
        if method == AUTO:
            raise LLPError('method = "auto"; name one here: "mle", "direct" or "teacher"')
        self.automatic_optimization = False  # methods take their own steps
        self._given = set(settings)
        if held_out is not None and not isinstance(held_out, Bags):
            settings["held_out"] = held_out
        self.recipe = recipe = (recipe or Recipe()).replace(**settings)
        self.method = methods.make(method, recipe.method_options)
        self.inputs, self.encoder = checked_inputs(inputs, bags, stacklevel=3, held_out=held_out)
        check_not_empty(bags)
        self.bags, self.held_out = checked_bags(
            self.method, bags.to(_CPU), self.inputs, labels, held_out, recipe
        )
        self.method.choose_approximation(self.bags)
        self._blocks = blocks_of(self.inputs, self.bags)
        feed = Feed(self.inputs, _CPU, resident=False)
        raw = next(feed.stream([self.bags.rows[:EXAMPLES]]))
        number = self.bags.num_instances
        self.task = make_task(recipe, self.method, self.inputs, self.bags, labels, _CPU, number)
        with forked_rng(_CPU):
            torch.manual_seed(epoch_seed(recipe.seed, 0))
            chosen = recipe.network if network is None else network
            self.network, self.network_name = make_network(chosen, self.method, self.task)
        self.preprocess = make_preprocess(feed, self.bags, self.method, self._blocks)
        refuse_probabilities(self.network, self.preprocess(to_float(raw)))
        self.history: list[dict[str, Any]] = []
        self._restored: dict[str, Any] | None = None
        self._views: Iterator[Views] = iter(())

    @property
    def model(self) -> nn.Module:
        """The network that predicts, perhaps a teacher."""
        return self.network if self.method.model is None else self.method.model

    def forward(self, inputs: Any) -> Tensor:
        """Logits ``(n,)`` or ``(n, K)`` of raw inputs, or of the first item of a loader's list."""
        if isinstance(inputs, list | tuple) and inputs:
            inputs = inputs[0]
        if not isinstance(inputs, Tensor):
            raise LLPError(
                f"a batch is a {type(inputs).__name__}; give a tensor, or a list that begins with "
                "one (for a data frame, use fitted().predict)"
            )
        check_shape(inputs, self.task.input_shape, "a batch has")
        x = self.preprocess(to_float(inputs)).to(next(self.model.parameters()).dtype)
        return as_logits(self.model(x), self.task.num_classes)

    def fitted(self) -> Fitted:
        """The model with its preprocessing and history: predictions, posteriors, saving."""
        model = copy.deepcopy(self.model).cpu().eval()
        settings = {"method": self.method.key, "lr": self.task.lr}
        rate = Measures(self.bags, "off").rate.tolist()
        return Fitted(
            model,
            copy.deepcopy(self.preprocess).cpu(),
            self.task.num_classes,
            self.task.input_shape,
            list(self.history),
            len(self.history),
            self.network_name,
            {"settings": settings, "baseline": {"rate": rate}},
            self.encoder,
        )

    # -- before training

    def configure_optimizers(self) -> Any:
        """The optimiser and the schedule of the settings, or those of a LightningModule."""
        own = getattr(self.network, "configure_optimizers", None)
        if own is not None:
            for name in self._given & _OF_THE_OPTIMIZER:
                raise LLPError(
                    f"{name} is given, but the network configures its own optimizers; leave it out"
                )
            return own()
        # A learning rate on the CPU: on a GPU it would be a tensor, for CUDA graphs.
        optimizer = make_optimizer(self.recipe, self.network, self.task.lr, self.method, _CPU)
        return [optimizer], [make_scheduler(self.recipe.replace(epochs=self._epochs()), optimizer)]

    def _epochs(self) -> int:
        epochs = self.trainer.max_epochs
        if epochs is None or epochs < 1:
            raise LLPError(f"max_epochs = {epochs}; give the Trainer a number, such as 30")
        return int(epochs)

    def on_fit_start(self) -> None:
        """Prepare the method on the training device."""
        if self.trainer.world_size > 1:
            raise LLPError(
                f"the Trainer has {self.trainer.world_size} processes, and each would compute the "
                "targets of all bags; use Trainer(devices=1), or llpkit.fit(devices=...)"
            )
        device, task = self.device, self.task
        self.task = replace(
            task,
            bags=self.bags.to(device),
            labels=None if task.labels is None else task.labels.to(device),
            device=device,
            epochs=self._epochs(),
        )
        weak, strong = augmentations(self.recipe, self.method, len(task.input_shape) == 3)
        feed = Feed(self.inputs, device)
        self._pipeline = Pipeline(feed, self.preprocess, weak, strong, self.method.views)
        self._measures = Measures(self.task.bags, self.recipe.measure)
        self.method.prepare(self.task, self.network)
        self.method.outputs = self._outputs
        self.history, self._begun = [], 0
        if self._restored is not None:
            if self.method.model is not None:
                self.method.model.load_state_dict(self._restored["model"])
            self.method.load_state_dict(self._restored["method"])
            self.history = list(self._restored["history"])
            self._restored = None
        self._random = torch.get_rng_state()

    def on_train_start(self) -> None:
        """Collect logits from the first step on."""
        optimizers: Any = self.optimizers()  # type: ignore[attr-defined]
        if isinstance(optimizers, list):
            raise LLPError(f"configure_optimizers gave {len(optimizers)} optimizers; give one")
        network = _InPrecision(self.network, self._autocast)
        learner = Learner(network, optimizers, self.manual_backward, self._autocast)  # type: ignore[attr-defined]
        shape = self.task.bags.num_instances, self.task.num_classes
        self._steps = Steps(self.method, learner, *shape, self.task.device)
        if self.method.wants_first_pass and not self.history:
            self.method.end_epoch(self._logits(self.task.bags))

    def on_fit_end(self) -> None:
        """Restore torch's random state, and release the inputs."""
        torch.set_rng_state(self._random)
        self.method.outputs = None
        del self._pipeline, self._steps

    # -- an epoch

    @property
    def _epoch(self) -> int:
        """The current epoch, from 1; a resuming Trainer increments its own too late for this."""
        return len(self.history) + 1

    def train_dataloader(self) -> Any:
        """The steps of an epoch, planned again for every epoch."""
        return _Epochs(self)

    def plan(self) -> Iterator[Step]:
        """Plan the current epoch."""
        order = torch.Generator()
        order.manual_seed(epoch_seed(self.recipe.seed, self._epoch))
        size, most, device = self.task.batch_size, self.recipe.max_bags, self.task.device
        steps = plan_epoch(
            self.method, self.bags, size, order, max_bags=most, blocks=self._blocks, device=device
        )
        rows = [self.task.bags.rows[step.positions] for step in steps if not step.large]
        # Views are drawn in the step itself: the Trainer prefetches batches, which would change the
        # order of random numbers.
        self._views = self._stream(rows)
        yield from steps

    def on_train_batch_start(self, batch: Any, *_: Any) -> None:
        """Begin an epoch; there is no other hook if the Trainer resumes within an epoch."""
        if not isinstance(batch, Step):
            raise LLPError(
                "LLPModule makes its own batches of the bags; call trainer.fit(module) alone, "
                "without a data loader"
            )
        if self._begun < self._epoch:
            self._begun = self._epoch
            self._begin_epoch()

    def _begin_epoch(self) -> None:
        # Seeded as in llpkit.fit, so that a resumed run continues exactly.
        torch.manual_seed(epoch_seed(self.recipe.seed, self._epoch, 1))
        self._lr = self._steps.lr
        self.method.begin_epoch(self._epoch)
        if self.method.model is not None:
            self.method.model.train(False)
        self._steps.begin_epoch()

    def training_step(self, batch: Step, batch_idx: int) -> None:  # noqa: ARG002
        """One step of the method."""
        # Mixed precision is for the network, not for the likelihood: see _InPrecision.
        with torch.autocast(self.task.device.type, enabled=False):
            if batch.large:
                self._steps.large(batch, self.task, self._stream)
            else:
                self._steps(batch, self.task.bags.evidence, *next(self._views))
        self._schedule("step", self.global_step)

    def on_train_batch_end(self, *_: Any) -> None:
        """Compute new targets after the last step, before validation may write a checkpoint."""
        if self.trainer.is_last_batch:
            with torch.no_grad():
                self._end_epoch()

    def _end_epoch(self) -> None:
        logits = self._steps.logits[:-1].clone()
        if self.method.wants_pass:
            logits = self._logits(self.task.bags)
        log_p = self._steps.end_epoch(logits, len(self.bags))
        loss = float(self._steps.loss)
        if not math.isfinite(loss) or bool(logits.isnan().any()):
            raise self._steps.diverged(self._epoch, loss)
        row = {"loss": loss, **self._measures.training(logits, log_p)}
        if self.held_out is not None:
            unseen = self.held_out.to(self.task.device)
            row |= self._measures.of(self._logits(unseen), unseen, "held_out_")
        self.log_dict(row, on_step=False, on_epoch=True, batch_size=1)  # type: ignore[attr-defined]
        self.history.append({"epoch": self._epoch, "lr": self._lr, **row})

    def on_train_epoch_end(self) -> None:
        """Step the schedules, which is up to the module with manual optimization."""
        self._schedule("epoch", len(self.history))

    def _schedule(self, interval: str, done: int) -> None:
        for config in self.trainer.lr_scheduler_configs:
            if config.interval != interval or done % config.frequency:
                continue
            if config.reduce_on_plateau:
                config.scheduler.step(self.trainer.callback_metrics[config.monitor])
            else:
                config.scheduler.step()

    # -- checkpoints

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the targets and the teacher."""
        checkpoint[_KEY] = {
            "key": self.method.key,
            "bags": of_bags(self.bags),
            "method": self.method.state_dict(),
            "model": None if self.method.model is None else self.method.model.state_dict(),
            "history": self.history,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the targets until the method is prepared, and restore the teacher."""
        state = checkpoint.get(_KEY)
        if state is None:
            raise LLPError("the checkpoint is not from an LLPModule; it has no targets")
        if state["key"] != self.method.key:
            raise LLPError(
                f'the checkpoint is of method "{state["key"]}", and this is "{self.method.key}"; '
                "resume with the same method"
            )
        if state["bags"] != of_bags(self.bags):
            raise LLPError("the checkpoint is from different bags; resume with the same bags")
        self._restored, self.history = state, list(state["history"])
        if state["model"] is not None:
            self.method.model = copy.deepcopy(self.network).requires_grad_(False)
            self.method.model.load_state_dict(state["model"])

    def load_checkpoint(self, path: Any) -> None:
        """Load the weights, the teacher and the targets of a checkpoint, for example the best."""
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        self.on_load_checkpoint(checkpoint)
        self.load_state_dict(checkpoint["state_dict"])  # type: ignore[attr-defined]

    # -- forward passes

    def _autocast(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = self.trainer.precision_plugin.forward_context()
        return found

    def _stream(self, rows: Sequence[Tensor]) -> Iterator[Views]:
        """The views of each batch of rows, in the type of the weights."""
        dtype = next(self.network.parameters()).dtype
        for weak, strong in self._pipeline.stream(rows):
            yield weak.to(dtype), None if strong is None else strong.to(dtype)

    def _logits(self, bags: Bags) -> Tensor:
        """Logits of bags in engine order, without gradient or augmentation."""
        outputs = self._outputs(self.model, bags)
        return as_logits(outputs, self.task.num_classes)

    def _outputs(self, network: nn.Module, bags: Bags | None = None) -> Tensor:
        rows = (self.task.bags if bags is None else bags).rows
        batches = list(rows.split(max(self.task.batch_size, BATCH)))
        with self._autocast():
            return self._pipeline.outputs(network, batches)


class _Epochs:
    """An iterable for the Trainer; every pass over it is a new epoch."""

    def __init__(self, module: LLPHooks) -> None:
        self.module = module

    def __iter__(self) -> Iterator[Step]:
        return self.module.plan()


class _InPrecision(nn.Module):
    """The network in the Trainer's precision, with logits in at least single precision."""

    def __init__(self, network: nn.Module, autocast: Any) -> None:
        super().__init__()
        self.network, self.autocast = network, autocast

    def forward(self, x: Tensor) -> Tensor:
        with self.autocast():
            return at_least_single(self.network(x))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:  # a method may use parts of its network
            return getattr(super().__getattr__("network"), name)
