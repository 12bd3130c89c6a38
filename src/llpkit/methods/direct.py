"""Gradient ascent on the exact count likelihood: no targets, no E-step."""

from torch import Tensor, nn

from llpkit.evidence import Evidence
from llpkit.losses import count_loss
from llpkit.methods.base import BagMethod, Task
from llpkit.methods.tractability import WithApproximation


class Direct(WithApproximation, BagMethod):
    r"""Maximise :math:`\log P(y_b)` itself; its gradient is posterior minus prior.

    Args:
        approximation: For many classes. ``"auto"`` is the exact likelihood where that is cheap,
            else ``"saddlepoint"``; ``None`` is always exact. See
            :func:`llpkit.likelihood.log_prob`. ``chosen_approximation`` has the choice.
    """

    key = "direct"
    summary = "gradient of the exact bag likelihood"
    reference = (
        "D. Baručić and J. Kybic, Fast Learning from Label Proportions with Small Bags, ICIP 2022 "
        "(the likelihood); V. Shukla, Z. Zeng, K. Ahmed and G. Van den Broeck, A Unified Approach "
        "to Count-Based Weakly-Supervised Learning, NeurIPS 2023 (its gradient)"
    )
    replayable = True
    shardable = True

    def prepare(self, task: Task, network: nn.Module) -> None:
        super().prepare(task, network)
        # The recursion for K classes reads the counts on the host, which a CUDA graph forbids.
        self.replayable = type(self).replayable and task.num_classes is None

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        return count_loss(logits, evidence, offsets, self.chosen_approximation)
