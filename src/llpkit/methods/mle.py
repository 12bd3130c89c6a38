r"""Expectation-maximisation of the exact count likelihood: the paper's method.

E-step: the posterior :math:`\varphi_i = P(h_i = 1 \mid y)` of every label given its bag's count.
M-step: ordinary training with these as soft targets, in batches of instances rather than bags.

Baručić & Kybic, *Fast Learning from Label Proportions with Small Bags*, ICIP 2022.
"""

from typing import Any

import torch
from torch import Tensor, nn

from llpkit._validation import number, one_of
from llpkit.likelihood.checks import Approximation
from llpkit.methods.base import Batch, Task, logit_dtype, mean_cross_entropy
from llpkit.methods.tractability import WithApproximation
from llpkit.probability import probability_of

FIRST_TARGETS = ("counts", "network")


class MLE(WithApproximation):
    r"""EM with soft targets, renewed after every epoch from the logits collected during it.

    Collecting the logits while training costs nothing. The paper runs a separate forward pass
    instead; see :class:`MLEPass`.

    Args:
        step: Step size :math:`s` of the targets from the prediction :math:`p_i` towards the
            posterior and beyond, :math:`p_i + s\,(\varphi_i - p_i)`. One is EM; between one and two
            is over-relaxed EM, which has the same fixed points and converges in fewer epochs.
        approximation: For many classes. ``"auto"`` gives exact posteriors where these are cheap,
            else those of ``"saddlepoint"``; ``None`` always exact ones. See
            :func:`llpkit.likelihood.log_prob`. ``chosen_approximation`` has the choice.
        first: Targets of the first epoch: ``"counts"``, the posterior if all instances of a bag
            were alike (y / n for an exact count), or ``"network"``, the posterior under the
            untrained network, as in the code of the paper's authors.
    """

    key = "mle"
    summary = "EM on the exact bag likelihood: posterior targets, updated every epoch"
    reference = (
        "D. Baručić and J. Kybic, Fast Learning from Label Proportions with Small Bags, ICIP 2022"
    )
    replayable = True
    shardable = True
    per_instance = ("targets",)

    def __init__(
        self, step: float = 1.0, approximation: Approximation = "auto", first: str = "counts"
    ) -> None:
        super().__init__(approximation)
        self.wants_first_pass = one_of("first", first, FIRST_TARGETS) == "network"
        # Not self.step, which would hide the method of that name.
        self.stride = number("step", step, most=2, above=0)

    def prepare(self, task: Task, network: nn.Module) -> None:
        super().prepare(task, network)
        self.bags = task.bags
        # With logits of zero, the posterior given an exact count is y / n.
        shape = (task.bags.num_instances, *([task.num_classes] if task.num_classes else []))
        flat = torch.zeros(shape, dtype=logit_dtype(network), device=task.device)
        self.targets = self._e_step(flat)[1]

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return mean_cross_entropy(logits, self.targets[batch.positions], batch.weights)

    def end_epoch(self, logits: Tensor) -> Tensor | None:
        log_p, phi = self._e_step(logits)
        if self.stride != 1:
            # lerp extrapolates for a weight above one.
            phi = torch.lerp(probability_of(logits).to(phi.dtype), phi, self.stride)
        self.targets.copy_(phi)  # in place: a CUDA graph reads this address
        return log_p if self.chosen_approximation is None else None

    def state_dict(self) -> dict[str, Any]:
        return {"targets": self.targets}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.targets.copy_(state["targets"])


class MLEPass(MLE):
    """EM as in the paper: a forward pass after every epoch gives the logits of the E-step.

    The targets are more recent, which can help with few epochs; but it overfits sooner, and in bags
    of 16 it may collapse.
    """

    key = "mle-pass"
    summary = "EM as in the paper, with a separate forward pass for the E-step"
    replayable = True
    shardable = True
    wants_pass = True
