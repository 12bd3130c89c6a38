r"""Relaxed optimal transport (ROT): pseudo-labels that agree with the counts of the bag.

In each bag, entropic transport moves the predictions :math:`p_i` to the closest :math:`q_i` (in
Kullback-Leibler divergence) whose classes sum to the counts; these are the soft pseudo-labels of

.. math:: \alpha\, \mathrm{CE}(y / n, \bar p) + (1 - \alpha)\, \tfrac1n \sum_i \mathrm{CE}(q_i, p_i)

Dulac-Arnold, Zeghidour, Cuturi, Beyer & Vert, *Deep multi-class learning from label proportions*,
2019.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from llpkit._validation import flag, number, whole
from llpkit.evidence import Evidence
from llpkit.losses import class_counts, proportion_loss, two_columns
from llpkit.methods.base import BagMethod, at_least_single
from llpkit.ragged import bag_index, segment_sum


class ROT(BagMethod):
    r"""Proportion loss, and cross-entropy with optimal-transport pseudo-labels of the same step.

    Args:
        alpha: Weight of the proportion loss; the pseudo-labels have the rest.
        sweeps: Sinkhorn iterations per step.
        hard: Whether a pseudo-label is the class with the largest :math:`q_i` instead.
    """

    key = "rot"
    summary = "proportion loss, and optimal-transport pseudo-labels within every bag"
    reference = (
        "G. Dulac-Arnold, N. Zeghidour, M. Cuturi, L. Beyer and J.-P. Vert, Deep Multi-Class "
        "Learning from Label Proportions, arXiv:1905.12909, 2019"
    )
    needs_exact_counts = True
    replayable = True
    shardable = True

    def __init__(self, alpha: float = 0.6, sweeps: int = 25, hard: bool = False) -> None:
        self.alpha = number("alpha", alpha, least=0, most=1)
        self.sweeps = whole("sweeps", sweeps, 1)
        self.hard = flag("hard", hard)

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        counts, logits = evidence.counts, at_least_single(logits)
        known = proportion_loss(logits, counts, offsets)  # (B,)
        logits, counts = two_columns(logits), class_counts(counts, offsets.diff())
        labels = transport(logits.detach(), counts, offsets, self.sweeps)  # (N, K)
        if self.hard:
            labels = F.one_hot(labels.argmax(1), labels.shape[1]).to(labels.dtype)
        errors = F.cross_entropy(logits, labels, reduction="none")  # (N,)
        n = offsets.diff().clamp(min=1)
        return self.alpha * known + (1 - self.alpha) * segment_sum(errors, offsets) / n


def transport(logits: Tensor, counts: Tensor, offsets: Tensor, sweeps: int) -> Tensor:
    """Pseudo-labels ``(N, K)`` whose rows sum to one and whose classes nearly sum to the counts.

    ``approximation="sinkhorn"`` of the engine has the same solution, to convergence; a fixed number
    of sweeps never waits for the device.

    >>> z = torch.tensor([[0.0, 0.0], [0.0, 2.0]])
    >>> transport(z, torch.tensor([[1, 1]]), torch.tensor([0, 2]), sweeps=25)
    tensor([[0.7311, 0.2689],
            [0.2689, 0.7311]])
    """
    bag = bag_index(offsets, len(logits))
    # Classes without a count get no mass: log 0.
    wanted = counts.to(logits.dtype).log()  # (B, K)
    tilt = torch.where(counts > 0, 0.0, -torch.inf).to(logits.dtype)
    for _ in range(sweeps):
        q = (logits + tilt[bag]).softmax(1)  # (N, K)
        # A padding bag may be empty, and then its total is zero.
        total = segment_sum(q, offsets)
        tilt = torch.where((counts > 0) & (total > 0), tilt + wanted - total.log(), tilt)
    return (logits + tilt[bag]).softmax(1)
