"""The exact count likelihood by gradient: no targets, no E-step."""

from torch import Tensor

from llpkit.evidence import Evidence
from llpkit.losses import count_loss
from llpkit.methods._base import BagMethod, Task
from llpkit.methods._likelihood import check_tractable, known


class Direct(BagMethod):
    r"""Maximise :math:`\log P(y_b)` itself; its gradient is posterior minus prior.

    Args:
        likelihood: ``"exact"``, or ``"sinkhorn"`` for many classes in bags too large for that: an
            upper bound is then maximised. In the engine and the estimators it is ``method``.
    """

    key = "direct"
    summary = "gradient of the exact bag likelihood"
    replayable = True

    def __init__(self, likelihood: str = "exact") -> None:
        self.likelihood = known(likelihood)

    def prepare(self, task: Task) -> None:
        super().prepare(task)
        check_tractable(self.likelihood, task)
        # The recursion over the counts of K classes looks at their number on the host.
        self.replayable = task.num_classes is None

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        return count_loss(logits, evidence, offsets, self.likelihood)
