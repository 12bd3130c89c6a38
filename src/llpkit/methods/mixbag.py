r"""MixBag: more bags from the same instances, by mixing parts of two bags.

Half of the bags of a step are replaced by :math:`m` random instances of their own and :math:`n - m`
of another bag. Only in expectation is the proportion of the mixture :math:`\tilde y = (m\, y / n +
m'\, y' / n') / (m + m')`, so classes whose mean prediction :math:`\bar p` is within a confidence
interval of it cost nothing:

.. math::

    -\sum_k \tilde y_k \log
        \begin{cases} \tilde y_k & |\bar p_k - \tilde y_k| \le c_k \\ \bar p_k & \text{else}
        \end{cases}, \qquad
    c = t\, \frac{m\, s + m' s'}{m + m'}, \quad s_k = \sqrt{\tfrac{y_k}{n} (1 - \tfrac{y_k}{n}) / m}

Asanomi, Matsuo, Suehiro & Bise, *MixBag: bag-level data augmentation for learning from label
proportions*, ICCV 2023.
"""

from statistics import NormalDist

import torch
import torch.nn.functional as F
from torch import Tensor

from llpkit._validation import number
from llpkit.evidence import Evidence
from llpkit.losses import class_counts, proportion_loss, two_columns
from llpkit.methods.base import BagMethod, Batch, Learner, as_logits, weighted_mean
from llpkit.ragged import bag_index


class MixBag(BagMethod):
    """Proportion loss of bags, and of mixtures of two bags of the same step.

    A step needs several bags. A bag that is larger than a batch is not mixed.

    Args:
        share: Probability that a bag is mixed.
        confidence: Confidence level of the interval of a mixture's proportion.
    """

    key = "mixbag"
    summary = "proportion loss on bags and on mixtures of two, with a confidence interval"
    reference = (
        "T. Asanomi, S. Matsuo, D. Suehiro and R. Bise, MixBag: Bag-Level Data Augmentation "
        "for Learning from Label Proportions, ICCV 2023"
    )
    needs_exact_counts = True
    replayable = True
    lr = 3e-4

    def __init__(self, share: float = 0.5, confidence: float = 0.99) -> None:
        self.share = number("share", share, least=0, most=1)
        self.confidence = number("confidence", confidence, above=0, below=1)
        self.reach = NormalDist().inv_cdf(0.5 + self.confidence / 2)

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        return proportion_loss(logits.float(), evidence.counts, offsets)

    def step(
        self, batch: Batch, learner: Learner, num_classes: int | None
    ) -> tuple[Tensor, Tensor]:
        evidence, offsets = batch.whole_bags
        logits = as_logits(learner.network(batch.inputs), num_classes)
        plain = self._bag_losses(logits, evidence, offsets)  # (B,)
        mixed = self._mixed(logits.float(), evidence.counts, offsets, batch.weights)
        chosen = torch.rand(len(plain), device=plain.device) < self.share
        loss = weighted_mean(torch.where(chosen, mixed, plain), batch.weights)
        learner.update(loss)
        return loss.detach(), logits.detach()

    def _mixed(
        self, logits: Tensor, counts: Tensor, offsets: Tensor, weights: Tensor | None
    ) -> Tensor:
        """The loss of every bag mixed with another, ``(B,)``."""
        n = offsets.diff()  # (B,)
        logits, counts = two_columns(logits), class_counts(counts, n)
        size, draw = len(n), torch.rand(2, len(n), device=logits.device)
        # The other bag, never padding: real bags first, then a random place among them.
        real = torch.ones_like(n) if weights is None else (weights > 0).long()
        places = (draw[0] * real.sum()).long().clamp(max=size - 1)
        other = real.argsort(descending=True, stable=True)[places]  # (B,)
        # 1 … n - 1 instances of the bag itself; the rest from the other, as far as it has them.
        own = (1 + (draw[1] * (n - 1)).long()).minimum(n.clamp(min=1))
        taken = (n - own).clamp(min=0).minimum(n[other])
        ordered = _shuffled(logits, offsets)
        # In double precision, because the sum of a bag is a difference of two long sums.
        sums = F.pad(ordered.softmax(1).double().cumsum(0), (0, 0, 1, 0))  # (N + 1, K)

        def first(bags: Tensor, number: Tensor) -> Tensor:
            start = offsets[bags]
            return sums[(start + number).clamp(max=len(logits))] - sums[start]

        every = torch.arange(size, device=n.device)
        both = (own + taken)[:, None]
        mean = (first(every, own) + first(other, taken)) / both  # (B, K)
        share = counts / n.clamp(min=1)[:, None]
        target, reach = interval(share, share[other], own[:, None], taken[:, None], self.reach)
        return interval_loss(mean.to(logits.dtype), target.to(logits.dtype), reach)


def interval(
    share: Tensor, other: Tensor, number: Tensor, taken: Tensor, reach: float
) -> tuple[Tensor, Tensor]:
    """The expected proportion of a mixture and the half-width of its confidence interval.

    >>> half, one = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.0, 1.0]])
    >>> interval(half, one, torch.tensor([[2]]), torch.tensor([[2]]), reach=2.0)
    (tensor([[0.2500, 0.7500]]), tensor([[0.3536, 0.3536]]))
    """
    total = number + taken
    target = (number * share + taken * other) / total
    # The width of a part is sqrt(p (1 - p) / m), weighted by m: sqrt(p (1 - p) m).
    parts = (number * share * (1 - share)).sqrt() + (taken * other * (1 - other)).sqrt()
    return target, reach * parts / total


def interval_loss(mean: Tensor, target: Tensor, reach: Tensor) -> Tensor:
    """Cross-entropy that treats classes within their interval as right, ``(B,)``."""
    inside = (mean - target).abs() <= reach
    # Where the target is zero the logarithm is not needed, and it may be infinite.
    seen = torch.where(inside | (target <= 0), target.clamp(min=0), mean)
    return -torch.where(target > 0, target * torch.where(target > 0, seen, 1.0).log(), 0.0).sum(1)


def _shuffled(values: Tensor, offsets: Tensor) -> Tensor:
    """Values ``(N, K)`` in random order within every bag."""
    bag = bag_index(offsets, len(values))
    order = torch.rand(len(values), device=values.device).argsort()
    return values[order[bag[order].argsort(stable=True)]]
