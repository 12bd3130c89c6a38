"""Cross-entropy between bag proportions and mean predictions (DLLP)."""

from torch import Tensor

from llpkit.evidence import Evidence
from llpkit.losses import proportion_loss
from llpkit.methods.base import BagMethod, at_least_single


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
