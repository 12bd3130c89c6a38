r"""L²P-AHIL: proportion loss, and pseudo-labels weighted by how much they can be trusted.

The most probable class :math:`k_i` of the weak view is the label of the strong view. Its weight
falls with the entropy of the instance's prediction, and with the distance between the entropy of
the class over the bag and that of :math:`y_k` certain instances:

.. math::

    w_i = \exp\bigl(-H(p_i)^2 / \beta_i\bigr)\,
          \exp\bigl(-(H(\pi_{k_i}) - \log y_{k_i})^2 / \beta_b\bigr), \qquad
    \pi_{ik} = p_{ik} / \sum_{j} p_{jk}

.. math:: \mathrm{CE}(y / n, \bar p) + \lambda\, \tfrac1N \sum_i w_i\, \mathrm{CE}(k_i, p_i^{\,s})

Ma, Chen, Hu, Zhu & Li, *Forming auxiliary high-confident instance-level loss to promote learning
from label proportions*, CVPR 2025.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from llpkit._validation import number
from llpkit.losses import class_counts, two_columns
from llpkit.methods.base import Batch, Learner, Method, as_logits, instance_weights, weighted_mean
from llpkit.methods.dllp import mean_proportion_loss
from llpkit.ragged import bag_index, segment_sum


class AHIL(Method):
    """Proportion loss on a weak view, weighted hard pseudo-labels on a strong one.

    For features both views are the same rows, unless you name a strong view with
    ``strong_augment``.

    Args:
        weight: Weight of the pseudo-labels, the paper's lambda.
        beta_instance: Width of the weight of an instance's entropy.
        beta_bag: Width of the weight of its class in the bag.
    """

    key = "ahil"
    summary = "proportion loss, and pseudo-labels weighted by entropies of instance and bag"
    reference = (
        "T. Ma, H. Chen, J. Hu, Y. Zhu and X. Li, Forming Auxiliary High-Confident "
        "Instance-Level Loss to Promote Learning from Label Proportions, CVPR 2025"
    )
    batches = "bags"
    views = 2
    strong_augment = "strong"
    needs_exact_counts = True
    replayable = True

    def __init__(
        self, weight: float = 0.5, beta_instance: float = 5.0, beta_bag: float = 5.0
    ) -> None:
        self.weight = number("weight", weight, least=0)
        self.beta_instance = number("beta_instance", beta_instance, above=0)
        self.beta_bag = number("beta_bag", beta_bag, above=0)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return mean_proportion_loss(logits, batch)

    def step(
        self, batch: Batch, learner: Learner, num_classes: int | None
    ) -> tuple[Tensor, Tensor]:
        evidence, offsets = batch.whole_bags
        strong = batch.inputs if batch.strong is None else batch.strong
        # One pass, so that batch norm sees both views.
        both = as_logits(learner.network(torch.cat([batch.inputs, strong])), num_classes)
        weak, strong = both.chunk(2)
        counts = class_counts(evidence.counts, offsets.diff())
        labels, trust = self.pseudo_labels(two_columns(weak.detach().float()), counts, offsets)
        errors = F.cross_entropy(two_columns(strong.float()), labels, reduction="none")  # (n,)
        known = weighted_mean(trust * errors, instance_weights(batch))
        loss = self.loss(weak, batch) + self.weight * known
        learner.update(loss)
        return loss.detach(), weak.detach()

    def pseudo_labels(
        self, logits: Tensor, counts: Tensor, offsets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The most probable class of every instance, and its weight; both ``(n,)``."""
        log_p = F.log_softmax(logits, 1)  # (n, K)
        p = log_p.exp()
        plogp = p * log_p
        labels = log_p.argmax(1)
        total = segment_sum(p, offsets)  # (B, K)
        spread = total.log() - segment_sum(plogp, offsets) / total  # (B, K): H(pi_k)
        gap = spread - counts.to(p.dtype).log()
        agreement = torch.where(counts > 0, torch.exp(-gap.square() / self.beta_bag), 0.0)
        of_class = agreement[bag_index(offsets, len(logits))].gather(1, labels[:, None])[:, 0]
        return labels, torch.exp(-plogp.sum(1).square() / self.beta_instance) * of_class
