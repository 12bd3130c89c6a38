"""The optimiser steps of an epoch: each is run, and its logits and its loss are kept."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from llpkit.errors import Diverged, LLPError
from llpkit.evidence import Evidence
from llpkit.methods import BagMethod, Batch, LargeBag, Learner, Method, Task, logit_dtype
from llpkit.training.batches import Step
from llpkit.training.inputs import Views


class Steps:
    """Runs the steps of an epoch and gathers their logits and losses.

    Args:
        method: The method whose steps are run.
        learner: The network and its optimiser.
        num_instances: ``N``.
        num_classes: ``None`` for binary labels.
        device: The training device.
    """

    def __init__(
        self,
        method: Method,
        learner: Learner,
        num_instances: int,
        num_classes: int | None,
        device: torch.device,
    ) -> None:
        self.method, self.learner, self.num_classes = method, learner, num_classes
        last = () if num_classes is None else (num_classes,)
        # The extra last row takes the logits of padding.
        dtype = logit_dtype(learner.network)
        self.logits = torch.zeros((num_instances + 1, *last), dtype=dtype, device=device)
        self.loss = torch.zeros((), device=device)

    def begin_epoch(self) -> None:
        """Start the sum of the losses at zero."""
        self.loss.zero_()

    def __call__(
        self, step: Step, evidence: Evidence, inputs: Tensor, strong: Tensor | None
    ) -> None:
        """One optimiser step; its logits go to ``logits``, its share of the loss to ``loss``."""
        self._run(step, step.batch(evidence, inputs, strong))

    def large(
        self, step: Step, task: Task, stream: Callable[[Sequence[Tensor]], Iterator[Views]]
    ) -> None:
        """A step on one bag larger than a batch, whose inputs ``stream`` reads in pieces."""
        assert isinstance(self.method, BagMethod)
        assert step.offsets is not None
        assert step.bags is not None
        pieces = [task.bags.rows[part] for part in step.positions.split(task.batch_size)]

        def chunks() -> Iterator[Tensor]:
            return (weak for weak, _ in stream(pieces))

        bag = LargeBag(chunks, step.positions, step.offsets, task.bags.evidence[step.bags])
        self._keep(step, *self.method.large_step(bag, self.learner, self.num_classes))

    def end_epoch(self, logits: Tensor, num_bags: int) -> Tensor | None:
        """The method's :meth:`Method.end_epoch`, with a check of what it returns."""
        log_p = self.method.end_epoch(logits)
        if log_p is not None and log_p.shape != (num_bags,):
            raise LLPError(
                f"end_epoch of {type(self.method).__name__} gave shape {tuple(log_p.shape)}; "
                f"return one log-likelihood per bag, ({num_bags},), or None"
            )
        return log_p

    @property
    def lr(self) -> float:
        """The current learning rate."""
        return float(self.learner.optimizer.param_groups[0]["lr"])

    def diverged(self, epoch: int, loss: float, more: str = "") -> Diverged:
        """The error that ends a run whose loss is not finite."""
        cause = "extreme values in the inputs"
        if not type(self.method).__module__.startswith("llpkit."):
            name = type(self.method).__name__
            cause = f"a logarithm of zero or a division by zero in the loss of {name}"
        return Diverged(
            f"epoch {epoch}: the loss is {loss}{more}; lower the learning rate (now {self.lr:g}) "
            f"or look for {cause}"
        )

    def _run(self, step: Step, batch: Batch) -> None:
        self._keep(step, *self.method.step(batch, self.learner, self.num_classes))

    def _keep(self, step: Step, loss: Tensor, logits: Tensor) -> None:
        """Store a step's logits and add its share of the loss."""
        # index_copy_ and add_ write in place: a replayed graph writes to the same buffers.
        self.logits.index_copy_(0, step.into, logits.to(self.logits.dtype))
        self.loss.add_(loss * step.share)
