"""The count likelihood of one class at a time, summed over the classes."""

from torch import Tensor

from llpkit.evidence import Evidence
from llpkit.losses import one_vs_rest_loss
from llpkit.methods.base import BagMethod, at_least_single


class OneVsRest(BagMethod):
    r"""Maximise :math:`\sum_k \log P(y_k)`, each count under its own Poisson-binomial.

    A composite likelihood: it ignores the constraint that the counts of a bag sum to its size, so
    it needs only the fast binary recursion, for any number of classes. With two classes it is
    ``direct``.

    The count loss of Shukla, Zeng, Ahmed & Van den Broeck, *A unified approach to count-based
    weakly supervised learning*, NeurIPS 2023, for each class.
    """

    key = "one-vs-rest"
    summary = "gradient of the exact likelihood of each class's count by itself"
    reference = (
        "V. Shukla, Z. Zeng, K. Ahmed and G. Van den Broeck, A Unified Approach to "
        "Count-Based Weakly-Supervised Learning, NeurIPS 2023"
    )
    needs_exact_counts = True
    replayable = True
    shardable = True

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        return one_vs_rest_loss(at_least_single(logits), evidence.counts, offsets)
