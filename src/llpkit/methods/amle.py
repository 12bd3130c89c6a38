"""The count likelihood under the normal approximation (AMLE)."""

from torch import Tensor

from llpkit.evidence import Evidence
from llpkit.losses import normal_loss
from llpkit.methods._base import BagMethod


class AMLE(BagMethod):
    """Maximise the normal density of the counts."""

    key = "amle"
    summary = "gradient of the normal approximation of the bag likelihood"
    needs_exact_counts = True
    replayable = True

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        return normal_loss(logits.float(), evidence.counts, offsets)
