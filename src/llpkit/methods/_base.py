"""What a method is: which batches it wants, its loss, and what it does after an epoch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.evidence import Evidence


@dataclass(frozen=True)
class Task:
    """What there is to learn, on the training device and in engine order."""

    bags: Bags
    num_classes: int | None
    """``None`` for binary labels, else K."""
    input_shape: tuple[int, ...]
    labels: Tensor | None
    """True labels ``(N,)``, for methods that ask for them; ``None`` for all others."""
    batch_size: int
    device: torch.device
    lr: float


class Batch(NamedTuple):
    """Some instances, ready for the network."""

    inputs: Tensor
    """``(n, ...)``, augmented and normalised."""
    positions: Tensor
    """int64 ``(n,)``: where the instances stand in engine order."""
    offsets: Tensor | None = None
    """For whole bags: ``(m + 1,)`` within the batch."""
    evidence: Evidence | None = None
    """For whole bags: what is known of their counts."""
    weights: Tensor | None = None
    """Weights of the instances' losses, or for whole bags of the bags': they sum to one, and are
    zero for what only fills the batch up. ``None``: all weigh the same."""


class LargeBag(NamedTuple):
    """A bag with more instances than a batch holds."""

    chunks: Callable[[], Iterator[Tensor]]
    """Its inputs, piece by piece; each call draws the augmentation anew."""
    positions: Tensor
    offsets: Tensor
    evidence: Evidence


class Trainer(NamedTuple):
    """What a method needs to make a step."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    backward: Callable[..., None]
    """``backward(tensor, gradient=None, inputs=None)``, through which mixed precision works."""


class Method:
    """A way to train a network from counts. Subclass it, or :class:`BagMethod`, in one file.

    The loop calls :meth:`prepare` once, :meth:`step` for every batch and :meth:`end_epoch` after
    every epoch with the logits that the instances had when they went by.
    """

    key: ClassVar[str]
    summary: ClassVar[str]
    batches: ClassVar[Literal["instances", "bags"]] = "instances"
    needs_labels: ClassVar[bool] = False
    needs_exact_counts: ClassVar[bool] = False
    symmetric_inputs: ClassVar[bool] = False
    """Whether images are wanted in ``[-1, 1]`` rather than standardised."""
    lr: ClassVar[float] = 1e-3
    betas: ClassVar[tuple[float, float]] = (0.9, 0.999)
    network_name: ClassVar[str | None] = None
    """The network that the method brings along, where any other would not do."""
    wants_pass: bool = False
    """Whether :meth:`end_epoch` wants logits from a fresh pass over the training data."""
    replayable: bool = False
    """Whether a CUDA device may record one step as a graph and replay it for all others. Then
    :meth:`loss` must heed ``batch.weights`` (that of :class:`BagMethod` does) and a step must never
    wait for the device. A subclass must say it again: it may have changed what its parent does."""

    def prepare(self, task: Task) -> None:
        """Take what is to be learned; called once before the first step."""
        if self.needs_labels and task.labels is None:
            raise LLPError(f'method "{self.key}" learns from instance labels; pass labels=')
        if self.needs_exact_counts and not task.bags.evidence.is_exact:
            raise LLPError(
                f'method "{self.key}" takes exact counts, but these are ranges or noisy; use '
                '"mle" or "direct"'
            )

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """The mean loss of a batch, a scalar."""
        raise NotImplementedError

    def step(
        self, batch: Batch, trainer: Trainer, num_classes: int | None
    ) -> tuple[Tensor, Tensor]:
        """One optimiser step; the detached loss and logits."""
        logits = as_logits(trainer.network(batch.inputs), num_classes)
        loss = self.loss(logits, batch)
        self._check_shape("loss", loss, (), "a scalar, the mean over the batch")
        trainer.optimizer.zero_grad(set_to_none=True)
        trainer.backward(loss)
        trainer.optimizer.step()
        return loss.detach(), logits.detach()

    def _check_shape(self, name: str, value: Any, shape: tuple[int, ...], words: str) -> None:
        if not isinstance(value, Tensor) or value.shape != shape:
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise LLPError(f"{name} of {type(self).__name__} gave {got}; return {words}")

    def end_epoch(self, logits: Tensor) -> Tensor | None:  # noqa: ARG002
        """After an epoch: the training logits ``(N,)`` or ``(N, K)`` in engine order.

        A method that computes the exact log-likelihood ``(B,)`` of all bags here may return it, so
        that it is not measured again.
        """
        return None

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold beside the network and its optimiser."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the state of a checkpoint; called after :meth:`prepare`."""


class BagMethod(Method):
    """A method whose loss is a function of whole bags' logits: ``bag_loss`` gives ``(B,)``."""

    batches: ClassVar[Literal["instances", "bags"]] = "bags"

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        """The loss of every bag, ``(B,)``."""
        raise NotImplementedError

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        assert batch.evidence is not None
        assert batch.offsets is not None
        losses = self._bag_losses(logits, batch.evidence, batch.offsets)  # (B,)
        return weighted_mean(losses, batch.weights)

    def _bag_losses(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        losses, number = self.bag_loss(logits, evidence, offsets), len(offsets) - 1
        self._check_shape("bag_loss", losses, (number,), f"one value a bag, shape ({number},)")
        return losses

    def large_step(
        self, bag: LargeBag, trainer: Trainer, num_classes: int | None
    ) -> tuple[Tensor, Tensor]:
        """The exact gradient of one bag's loss at the memory of one batch.

        A first pass without gradient gives the bag's logits, from which the loss and its gradient
        with respect to the logits; a second pass sends that gradient back piece by piece. Both
        passes draw the same random numbers, and only the second moves the running statistics.
        """
        kept = {name: buffer.clone() for name, buffer in trainer.network.named_buffers()}
        states, parts = [], []
        with torch.no_grad():
            stream = bag.chunks()
            while True:
                states.append(_random_state(bag.positions.device))
                piece = next(stream, None)
                if piece is None:
                    break
                parts.append(as_logits(trainer.network(piece), num_classes))
            for name, buffer in trainer.network.named_buffers():
                buffer.copy_(kept[name])
        logits = torch.cat(parts).float().requires_grad_()
        loss = self._bag_losses(logits, bag.evidence, bag.offsets).mean()
        (gradient,) = torch.autograd.grad(loss, logits)

        trainer.optimizer.zero_grad(set_to_none=True)
        stream, start = bag.chunks(), 0
        for state in states[:-1]:
            _set_random_state(bag.positions.device, state)
            part = as_logits(trainer.network(next(stream)), num_classes)
            trainer.backward(part, gradient=gradient[start : start + len(part)].to(part.dtype))
            start += len(part)
        trainer.optimizer.step()
        return loss.detach(), logits.detach()


def weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """The mean of ``(n,)`` values under weights that sum to one, or the plain mean.

    What has no weight may be anything: an empty bag that fills a batch up may well divide by zero.
    """
    if weights is None:
        return values.mean()
    return torch.where(weights > 0, values, 0.0) @ weights.to(values.dtype)


def as_logits(output: Tensor, num_classes: int | None) -> Tensor:
    """A network's output as ``(n,)`` binary logits (two logits make one) or ``(n, K)``."""
    if num_classes is None:
        if output.dim() == 2 and output.shape[1] == 2:
            return output[:, 1] - output[:, 0]
        if output.dim() == 1 or (output.dim() == 2 and output.shape[1] == 1):
            return output.reshape(-1)
        raise LLPError(
            f"the network returned shape {tuple(output.shape)}; binary counts need one logit an "
            "instance, (n,) or (n, 1), or two"
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
