r"""Expectation-maximisation of the exact count likelihood: the paper's method.

E-step: the posterior :math:`\varphi_i = P(h_i = 1 \mid y)` of every label given its bag's count.
M-step: ordinary training with these as soft targets, in instance batches whatever the bags.

Baručić & Kybic, *Fast Learning from Label Proportions with Small Bags*, ICIP 2022.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from llpkit.errors import LLPError
from llpkit.likelihood import log_prob_and_posterior
from llpkit.likelihood.checks import Approximation, check_approximation
from llpkit.methods._base import Batch, Method, Task, weighted_mean
from llpkit.methods._likelihood import check_tractable

REFRESHES = ("running", "pass")


class MLE(Method):
    r"""Soft targets, renewed after every epoch.

    Args:
        refresh: Where the E-step takes its logits from. ``"running"``: from the training pass
            itself, as the instances went by, which costs nothing. ``"pass"``: from a forward pass
            over the training data after the epoch, as in the paper; its targets are fresher, which
            can help with few epochs, and it overfits sooner: in bags of 16 it may collapse.
        step: How far the targets go from the prediction :math:`p_i` towards the posterior and
            beyond, :math:`p_i + s\,(\varphi_i - p_i)`. One is EM; between one and two is
            over-relaxed EM, which has the same fixed points and needs fewer epochs to come near.
        approximation: ``None``: exact. ``"sinkhorn"``, for many classes in bags too large for that:
            the posteriors are approximate.
    """

    key = "mle"
    summary = "EM: posterior targets renewed every epoch (the paper's method)"
    replayable = True

    def __init__(
        self, refresh: str = "running", step: float = 1.0, approximation: Approximation = None
    ) -> None:
        if refresh not in REFRESHES:
            raise LLPError(f"refresh = {refresh!r}; known are {', '.join(REFRESHES)}")
        if not (isinstance(step, int | float) and 0 < step <= 2):
            raise LLPError(f"step = {step!r}; give a number above 0, up to 2; 1 is EM")
        self.wants_pass = refresh == "pass"
        self.stride = float(step)
        check_approximation(approximation)
        self.approximation = approximation

    def prepare(self, task: Task) -> None:
        super().prepare(task)
        check_tractable(self.approximation, task)
        self.bags = task.bags
        # With nothing learned all logits are equal: the posterior of an exact count is y / n.
        nothing = torch.zeros(task.bags.num_instances, task.num_classes or 1, device=task.device)
        self.targets = self._e_step(nothing if task.num_classes else nothing[:, 0])[1]

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        targets = self.targets[batch.positions].to(logits.dtype)
        if logits.dim() == 2:
            losses = F.cross_entropy(logits, targets, reduction="none")  # (n,)
        else:
            losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return weighted_mean(losses, batch.weights)

    def end_epoch(self, logits: Tensor) -> Tensor | None:
        log_p, phi = self._e_step(logits)
        if self.stride != 1:
            p = logits.sigmoid() if logits.dim() == 1 else logits.softmax(1)
            phi = torch.lerp(p.to(phi.dtype), phi, self.stride)
        self.targets.copy_(phi)
        return log_p if self.approximation is None else None

    def _e_step(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return log_prob_and_posterior(
            logits,
            self.bags.evidence,
            self.bags.offsets,
            approximation=self.approximation,
            validate=False,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"targets": self.targets}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.targets.copy_(state["targets"])
