"""The protocol of methods: what they receive, their loss, and what they do after an epoch."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.likelihood.checks import Approximation
from llpkit.ragged import bag_index


@dataclass(frozen=True)
class Task:
    """The training data of a method, on the training device and in engine order."""

    bags: Bags
    num_classes: int | None
    """``None`` for binary labels, else K."""
    input_shape: tuple[int, ...]
    labels: Tensor | None
    """True labels ``(N,)`` for methods that need them, else ``None``."""
    batch_size: int
    device: torch.device
    lr: float
    epochs: int = 1
    """Epochs of the run, so that a method can follow its progress in :meth:`Method.begin_epoch`."""


class Batch(NamedTuple):
    """Instances of one step, ready for the network."""

    inputs: Tensor
    """``(n, ...)``, augmented and normalised."""
    positions: Tensor
    """int64 ``(n,)``: the instances' positions in engine order."""
    offsets: Tensor | None = None
    """For whole bags: ``(m + 1,)`` within the batch."""
    evidence: Evidence | None = None
    """For whole bags: what is known about their counts."""
    weights: Tensor | None = None
    """Weights of the instances, or of the bags where batches hold whole bags. They sum to one (with
    several processes, their mean over the processes does), and padding has weight zero. ``None``
    means uniform weights."""
    strong: Tensor | None = None
    """The same instances under the strong augmentation, for methods with two views."""

    @property
    def whole_bags(self) -> tuple[Evidence, Tensor]:
        """The evidence and the offsets of a batch of whole bags."""
        assert self.evidence is not None
        assert self.offsets is not None
        return self.evidence, self.offsets


class LargeBag(NamedTuple):
    """A bag with more instances than a batch holds."""

    chunks: Callable[[], Iterator[Tensor]]
    """Returns its inputs piece by piece; each call draws a new augmentation."""
    positions: Tensor
    offsets: Tensor
    evidence: Evidence


class Learner(NamedTuple):
    """The network being trained and the means to update it."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    backward: Callable[..., None]
    """``backward(tensor, gradient=None, inputs=None)``; handles mixed precision."""
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    """A context that runs any other network, such as a teacher, in the run's precision."""

    def update(self, loss: Tensor) -> None:
        """One optimiser step down the gradient of ``loss``."""
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(loss)
        self.optimizer.step()


class Method:
    """A way to train a network from counts. Subclass it, or :class:`BagMethod`, in one file.

    The loop calls :meth:`prepare` once, :meth:`begin_epoch` before every epoch, :meth:`step` for
    every batch, and :meth:`end_epoch` after every epoch with the logits collected during it.
    :attr:`model` is the network that predicts: it is measured, selected by held-out bags, returned
    and saved.
    """

    key: ClassVar[str]
    summary: ClassVar[str]
    reference: ClassVar[str] = ""
    """What to cite: authors, title, venue and year."""
    batches: ClassVar[Literal["instances", "bags"]] = "instances"
    views: ClassVar[int] = 1
    """With 2, batches include a second, strongly augmented view of their instances."""
    strong_augment: ClassVar[str | None] = None
    """The strong augmentation of a method with two views, unless the user names another."""
    needs_labels: ClassVar[bool] = False
    needs_exact_counts: ClassVar[bool] = False
    symmetric_inputs: ClassVar[bool] = False
    """Whether images are scaled to ``[-1, 1]`` instead of standardised."""
    lr: ClassVar[float] = 1e-3
    betas: ClassVar[tuple[float, float]] = (0.9, 0.999)
    network_name: ClassVar[str | None] = None
    """The only network that the method works with, if there is one."""
    wants_pass: bool = False
    """Whether :meth:`end_epoch` needs logits from a separate pass over the training data."""
    wants_first_pass: bool = False
    """Whether :meth:`end_epoch` is also called before the first epoch, with the logits of the
    untrained network."""
    replayable: bool = False
    """Whether a step can be captured as a CUDA graph and replayed for all others. If so,
    :meth:`loss` must use ``batch.weights`` (as :class:`BagMethod` does) and a step must never wait
    for the device. Not inherited: a subclass that still qualifies sets it again."""
    shardable: bool = False
    """Whether several processes can train, each on its own bags. If so, the loss must be the sum of
    the instances' (or bags') losses times ``batch.weights``, as :class:`BagMethod` does, and
    nothing else may depend on the other instances of a batch. Not inherited either."""
    per_instance: ClassVar[tuple[str, ...]] = ()
    """Entries of :meth:`state_dict` with one row per instance, in engine order. Each process has
    the rows of its own bags."""
    approximation: Approximation = None
    """The option of this name, of methods that have one."""
    chosen_approximation: Approximation = None
    """The approximation of the count likelihood in training, ``None`` for exact or no likelihood.
    A method with the option ``approximation`` sets it in :meth:`choose_approximation`."""
    options: Mapping[str, Any] = MappingProxyType({})
    """The arguments of the constructor, defaults included."""
    model: nn.Module | None = None
    """The network that predicts; ``None`` means the one being trained. A method with a teacher sets
    it in :meth:`prepare`. Held-out bags select it and callbacks see it; training bags are measured
    by the logits that :meth:`end_epoch` gets."""
    outputs: Callable[[nn.Module], Tensor] | None = None
    """Set by the loop, for use in :meth:`begin_epoch` and :meth:`end_epoch`: runs any network in
    evaluation mode over all training instances, without gradient or augmentation, and returns its
    outputs ``(N, ...)`` in engine order."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # A subclass may break its parent's promises, so it has to make them itself.
        for promise in ("replayable", "shardable"):
            if promise not in vars(cls):
                setattr(cls, promise, False)

    def __new__(cls, *args: Any, **options: Any) -> Self:
        method = super().__new__(cls)
        with suppress(TypeError):  # the constructor will raise it
            bound = inspect.signature(cls.__init__).bind(method, *args, **options)
            bound.apply_defaults()
            method.options = dict(list(bound.arguments.items())[1:])  # without self
        return method

    def __init__(self) -> None:
        """A method without options; others define their own constructor."""

    def choose_approximation(self, bags: Bags) -> None:
        """Called once before :meth:`prepare` with the training bags of all processes."""

    def prepare(self, task: Task, network: nn.Module) -> None:  # noqa: ARG002
        """Called once before training with the task and the network, already on its device."""
        if self.needs_labels and task.labels is None:
            raise LLPError(f'method "{self.key}" learns from instance labels; pass labels=')
        if self.needs_exact_counts and not task.bags.evidence.is_exact:
            raise LLPError(
                f'method "{self.key}" takes exact counts, but these are ranges or noisy; use '
                '"mle" or "direct"'
            )

    def begin_epoch(self, epoch: int) -> None:
        """Called before each epoch, from 1 to ``task.epochs``, also after a resume.

        A CUDA graph holds numbers as constants, so a changed number costs a new capture.
        Keep what changes in every epoch in a tensor on the device, and fill it in place.
        """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """The mean loss of a batch, a scalar."""
        raise NotImplementedError

    def step(
        self, batch: Batch, learner: Learner, num_classes: int | None
    ) -> tuple[Tensor, Tensor]:
        """Take one optimiser step and return the detached loss and logits."""
        logits = as_logits(learner.network(batch.inputs), num_classes)
        loss = self.loss(logits, batch)
        self._check_shape("loss", loss, (), "a scalar, the mean over the batch")
        learner.update(loss)
        return loss.detach(), logits.detach()

    def _check_shape(self, name: str, value: Any, shape: tuple[int, ...], words: str) -> None:
        if not isinstance(value, Tensor) or value.shape != shape:
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise LLPError(f"{name} of {type(self).__name__} gave {got}; return {words}")

    def end_epoch(self, logits: Tensor) -> Tensor | None:  # noqa: ARG002
        """Called after an epoch with the training logits ``(N,)`` or ``(N, K)`` in engine order.

        A method that computes the exact log-likelihood ``(B,)`` of all bags here should return it,
        so that it is not computed again.
        """
        return None

    def state_dict(self) -> dict[str, Any]:
        """State for the checkpoint besides the network, its optimiser and :attr:`model`."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint; called after :meth:`prepare`."""


class BagMethod(Method):
    """A method whose loss is a function of whole bags' logits: ``bag_loss`` gives ``(B,)``."""

    batches: ClassVar[Literal["instances", "bags"]] = "bags"

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        """The loss of every bag, ``(B,)``."""
        raise NotImplementedError

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        losses = self._bag_losses(logits, *batch.whole_bags)  # (B,)
        return weighted_mean(losses, batch.weights)

    def _bag_losses(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        losses, number = self.bag_loss(logits, evidence, offsets), len(offsets) - 1
        self._check_shape("bag_loss", losses, (number,), f"one value per bag, shape ({number},)")
        return losses

    def large_step(
        self, bag: LargeBag, learner: Learner, num_classes: int | None
    ) -> tuple[Tensor, Tensor]:
        """The exact gradient of one bag's loss in the memory of one batch.

        A first pass without gradients collects the bag's logits; they give the loss and its
        gradient with respect to the logits. A second pass back-propagates that gradient piece by
        piece. Both passes draw the same random numbers, and only the second updates the running
        statistics of batch norm.
        """
        network, device = learner.network, bag.positions.device
        buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        states, parts = [], []
        with torch.no_grad():
            stream = bag.chunks()
            while True:
                # Before the piece is drawn, because its augmentation has to repeat as well.
                states.append(_random_state(device))
                piece = next(stream, None)
                if piece is None:
                    break
                parts.append(as_logits(network(piece), num_classes))
            for name, buffer in network.named_buffers():
                buffer.copy_(buffers[name])
        logits = at_least_single(torch.cat(parts)).requires_grad_()  # (n,) or (n, K)
        loss = self._bag_losses(logits, bag.evidence, bag.offsets).mean()
        (gradient,) = torch.autograd.grad(loss, logits)

        learner.optimizer.zero_grad(set_to_none=True)
        stream, start = bag.chunks(), 0
        for state in states[:-1]:  # the last state was taken before the stream ended
            _set_random_state(device, state)
            part = as_logits(network(next(stream)), num_classes)
            learner.backward(part, gradient=gradient[start : start + len(part)].to(part.dtype))
            start += len(part)
        learner.optimizer.step()
        return loss.detach(), logits.detach()


def weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """The mean of ``(n,)`` values under weights that sum to one, or the plain mean.

    Values with weight zero are ignored even if NaN, as the loss of an empty padding bag may be.
    """
    if weights is None:
        return values.mean()
    return torch.where(weights > 0, values, 0.0) @ weights.to(values.dtype)


def mean_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """The mean cross-entropy with soft targets, or with labels ``(n,)``, under these weights."""
    if logits.dim() == 2:
        targets = targets.to(logits.dtype) if targets.is_floating_point() else targets
        losses = F.cross_entropy(logits, targets, reduction="none")  # (n,)
    else:
        targets = targets.to(logits.dtype)
        losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return weighted_mean(losses, weights)


def logit_dtype(network: nn.Module) -> torch.dtype:
    """The precision in which logits and targets of all instances are kept: single or double."""
    weights = next(network.parameters(), None)
    double = weights is not None and weights.dtype == torch.float64
    return torch.float64 if double else torch.float32


def at_least_single(values: Tensor) -> Tensor:
    """Half precision becomes single; double stays."""
    return values if values.dtype == torch.float64 else values.float()


def instance_weights(batch: Batch) -> Tensor | None:
    """Equal weights for all instances but padding, for batches of whole bags; they sum to one."""
    if batch.weights is None:
        return None
    assert batch.offsets is not None
    real = (batch.weights > 0)[bag_index(batch.offsets, len(batch.inputs))].float()  # (n,)
    return real / real.sum()


def as_logits(output: Tensor, num_classes: int | None) -> Tensor:
    """A network's output as ``(n,)`` binary logits (two logits become one) or ``(n, K)``."""
    if not isinstance(output, Tensor):
        raise LLPError(f"the network returned a {type(output).__name__}; return a tensor of logits")
    if num_classes is None:
        if output.dim() == 2 and output.shape[1] == 2:
            return output[:, 1] - output[:, 0]
        if output.dim() == 1 or (output.dim() == 2 and output.shape[1] == 1):
            return output.reshape(-1)
        raise LLPError(
            f"the network returned shape {tuple(output.shape)}; binary counts need one logit "
            "per instance, (n,) or (n, 1), or two"
        )
    if output.dim() != 2 or output.shape[1] != num_classes:
        raise LLPError(
            f"the network returned shape {tuple(output.shape)}; {num_classes} class counts need "
            f"(n, {num_classes}) logits"
        )
    return output


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    on_card = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return torch.get_rng_state(), on_card


def _set_random_state(device: torch.device, state: tuple[Tensor, Tensor | None]) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
