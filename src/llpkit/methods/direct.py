"""The exact count likelihood by gradient: no targets, no E-step."""

from torch import Tensor

from llpkit.likelihood import Evidence
from llpkit.losses import count_loss
from llpkit.methods._base import BagMethod, Task


class Direct(BagMethod):
    r"""Maximise :math:`\log P(y_b)` itself; its gradient is posterior minus prior."""

    key = "direct"
    summary = "gradient of the exact bag likelihood"
    replayable = True

    def prepare(self, task: Task) -> None:
        super().prepare(task)
        # The recursion over the counts of K classes looks at their number on the host.
        self.replayable = task.num_classes is None

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        return count_loss(logits, evidence, offsets)
