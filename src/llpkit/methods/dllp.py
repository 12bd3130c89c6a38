r"""DLLP: cross-entropy between the proportion of a bag and its mean prediction.

.. math:: \mathrm{CE}(y / n, \bar p), \qquad \bar p = \tfrac1n \sum_i p_i

Ardehaly & Culotta, *Co-training for demographic classification using deep learning from label
proportions*, ICDM Workshops 2017.
"""

from torch import Tensor

from llpkit.evidence import Evidence
from llpkit.losses import proportion_loss
from llpkit.methods.base import BagMethod, Batch, at_least_single, weighted_mean


class DLLP(BagMethod):
    """Match the mean prediction of every bag to its proportion."""

    key = "dllp"
    summary = "cross-entropy of the bag's mean prediction with its proportion"
    reference = (
        "E. M. Ardehaly and A. Culotta, Co-training for Demographic Classification Using Deep"
        " Learning from Label Proportions, ICDM Workshops 2017"
    )
    needs_exact_counts = True
    replayable = True
    shardable = True

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        return proportion_loss(at_least_single(logits), evidence.counts, offsets)


def mean_proportion_loss(logits: Tensor, batch: Batch) -> Tensor:
    """The loss of DLLP on a batch of whole bags, to which several methods add other terms."""
    evidence, offsets = batch.whole_bags
    losses = proportion_loss(at_least_single(logits), evidence.counts, offsets)  # (B,)
    return weighted_mean(losses, batch.weights)
