"""The square loss, estimated without bias from proportions (DSQ)."""

from torch import Tensor

from llpkit.evidence import Evidence
from llpkit.losses import debiased_square_loss
from llpkit.methods.base import BagMethod, Batch, weighted_mean


class DSQ(BagMethod):
    r"""Minimise an unbiased estimate of the Brier score of instances.

    The estimate needs bags that are random samples of one population: with bags by place or time
    it is biased. Give it several bags per step; a bag that fills a step by itself is left with the
    square of its proportion error.

    Li, Chen, Javanmard & Mirrokni, *Optimistic rates for learning from label proportions*, COLT
    2024.
    """

    key = "dsq"
    summary = "square loss of instances, estimated without bias from random bags"
    reference = (
        "G. Li, L. Chen, A. Javanmard and V. Mirrokni, Optimistic Rates for Learning from "
        "Label Proportions, COLT 2024"
    )
    needs_exact_counts = True
    replayable = True

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        return debiased_square_loss(logits.float(), evidence.counts, offsets)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        evidence, offsets = batch.whole_bags
        real = None if batch.weights is None else batch.weights > 0
        losses = debiased_square_loss(logits.float(), evidence.counts, offsets, real)  # (B,)
        return weighted_mean(losses, batch.weights)
