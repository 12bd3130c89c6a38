"""The paper's own AMLE: the variance is the sum of p (1 - p), with a floor."""

import math

from torch import Tensor

from llpkit.evidence import Evidence
from llpkit.methods import BagMethod, register
from llpkit.ragged import segment_sum


@register
class AMLEPaper(BagMethod):
    """Maximise the normal density of the counts, as published."""

    key = "amle-paper"
    summary = "AMLE as published: the variance is the sum of p (1 - p)"
    needs_exact_counts = True
    replayable = True

    def __init__(self, floor: float = 1e-12) -> None:
        self.floor = float(floor)

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        """The negative log-density of every count, ``(B,)``."""
        p = logits.float().sigmoid()
        mean = segment_sum(p, offsets)
        variance = segment_sum(p * (1 - p), offsets) + self.floor
        gap = evidence.counts - mean
        return 0.5 * (variance.log() + math.log(2 * math.pi) + gap * gap / variance)
