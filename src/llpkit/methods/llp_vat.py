r"""LLP-VAT: proportion loss, and predictions that a small worst-case perturbation does not change.

.. math::

    \mathrm{CE}(y / n, \bar p) + w(t)\, \mathrm{KL}\bigl(p(x) \,\|\, p(x + r)\bigr), \qquad
    r = \varepsilon\, g / \|g\|, \quad g = \nabla_d \mathrm{KL}\bigl(p(x) \,\|\, p(x + \xi d)\bigr),

with a random unit vector :math:`d` per instance (one power iteration), and a weight that rises as
:math:`w(t) = w \exp(-5 (1 - t / T)^2)` over the first part of training.

Tsai & Lin, *Learning from label proportions with consistency regularization*, ACML 2020.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import exp

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llpkit._validation import number, whole
from llpkit.methods.base import (
    Batch,
    Learner,
    Method,
    Task,
    as_logits,
    instance_weights,
    weighted_mean,
)
from llpkit.methods.dllp import mean_proportion_loss


class LLPVAT(Method):
    """Proportion loss with virtual adversarial training.

    A step costs about three forward passes: predictions, power iteration, perturbed inputs.

    Args:
        weight: Weight of the consistency at the end of the ramp.
        eps: Norm of the perturbation. Inputs are standardised, so a colour image of 32 x 32 pixels
            has a norm of about 55, and a row of D features about the root of D.
        xi: Length of the step used to find the direction.
        iterations: Power iterations.
        ramp: Share of the epochs over which the weight rises.
    """

    key = "llp-vat"
    summary = "proportion loss, and virtual adversarial training for consistent predictions"
    reference = (
        "K.-H. Tsai and H.-T. Lin, Learning from Label Proportions with Consistency "
        "Regularization, ACML 2020"
    )
    batches = "bags"
    needs_exact_counts = True
    replayable = True
    lr = 3e-4

    def __init__(
        self,
        weight: float = 0.05,
        eps: float = 6.0,
        xi: float = 1e-6,
        iterations: int = 1,
        ramp: float = 0.4,
    ) -> None:
        self.weight = number("weight", weight, least=0)
        self.eps = number("eps", eps, above=0)
        self.xi = number("xi", xi, above=0)
        self.iterations = whole("iterations", iterations, 1)
        self.ramp = number("ramp", ramp, least=0, most=1)

    def prepare(self, task: Task, network: nn.Module) -> None:
        super().prepare(task, network)
        # Without the run's autocast: half precision would round a step of length xi away.
        self.network, self.epochs = network, task.epochs
        self.strength = torch.zeros((), device=task.device)

    def begin_epoch(self, epoch: int) -> None:
        self.strength.fill_(self.weight * rising(epoch, self.epochs, self.ramp))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return mean_proportion_loss(logits, batch)

    def step(
        self, batch: Batch, learner: Learner, num_classes: int | None
    ) -> tuple[Tensor, Tensor]:
        x = batch.inputs
        with frozen_statistics(self.network):
            log_p, direction = self._direction(x, num_classes)
            changed = as_logits(learner.network(x + self.eps * direction), num_classes)
        logits = as_logits(learner.network(x), num_classes)
        distance = divergence(log_p, log_probabilities(changed))  # (n,)
        consistency = weighted_mean(distance, instance_weights(batch))
        loss = self.loss(logits, batch) + self.strength * consistency
        learner.update(loss)
        return loss.detach(), logits.detach()

    def _direction(self, x: Tensor, num_classes: int | None) -> tuple[Tensor, Tensor]:
        """Log-probabilities ``(n, K)``, and the unit directions that change them most."""
        weights = next(self.network.parameters())
        x = x.to(weights.dtype)

        def predicted(inputs: Tensor) -> Tensor:
            return log_probabilities(as_logits(self.network(inputs), num_classes))

        with torch.no_grad():
            log_p = predicted(x)
        d = unit(torch.randn_like(x))
        for _ in range(self.iterations):
            d.requires_grad_()
            with torch.enable_grad():
                distance = divergence(log_p, predicted(x + self.xi * d)).sum()
            (gradient,) = torch.autograd.grad(distance, d)
            d = unit(gradient)
        return log_p, d.to(x.dtype)


def rising(epoch: int, epochs: int, share: float) -> float:
    r"""The factor :math:`\exp(-5 (1 - t)^2)` in an epoch, counted from 1.

    :math:`t` rises from zero to one over the first ``share`` of the epochs, and stays there.

    >>> [round(rising(epoch, 10, share=0.4), 3) for epoch in (1, 3, 5, 10)]
    [0.007, 0.287, 1.0, 1.0]
    """
    done = (epoch - 1) / epochs
    left = 1 - min(1.0, done / share) if share > 0 else 0.0
    return exp(-5 * left * left)


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-probabilities ``(n, K)`` of logits ``(n,)`` or ``(n, K)``, in full precision."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if logits.dim() == 1:
        return torch.stack([F.logsigmoid(-logits), F.logsigmoid(logits)], 1)
    return F.log_softmax(logits, 1)


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Kullback-Leibler divergence of every row, ``(n,)``."""
    return (log_p.exp() * (log_p - log_q)).sum(1)


def unit(x: Tensor) -> Tensor:
    """Every instance scaled to length one; zero stays zero.

    >>> unit(torch.tensor([[3e-20, 4e-20], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    flat = x.flatten(1)
    # Scaled by the largest entry first: the square of a tiny gradient would underflow.
    flat = flat / flat.abs().amax(1, keepdim=True)
    length: Tensor = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    scaled: Tensor = flat / length
    return scaled.nan_to_num(0.0).view_as(x)


@contextmanager
def frozen_statistics(network: nn.Module) -> Iterator[None]:
    """Within this block batch norm uses the batch and leaves its running statistics alone."""
    tracking = [m for m in network.modules() if getattr(m, "track_running_stats", False)]
    for module in tracking:
        module.track_running_stats = False  # type: ignore[assignment]
    try:
        yield
    finally:
        for module in tracking:
            module.track_running_stats = True  # type: ignore[assignment]
