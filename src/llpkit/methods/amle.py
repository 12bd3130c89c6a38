"""The count likelihood under the normal approximation (AMLE)."""

from torch import Tensor, nn

from llpkit._validation import number
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.losses import DEQUANTISATION, normal_loss
from llpkit.methods.base import BagMethod, Task, at_least_single

_LEAST = 1e-6
"""Smallest floor that keeps the covariance of several classes regular in single precision."""


class AMLE(BagMethod):
    """Maximise the normal density of the counts.

    Args:
        floor: Added to the variance of every count. The default is 1/12, the variance of rounding
            to a whole number; ``amle-paper`` has the variance of the paper. Zero, the bare formula,
            divides by zero where all predictions of a bag are certain.
    """

    key = "amle"
    summary = "gradient of the normal approximation, with 1/12 added to the variance"
    reference = (
        "D. Baručić and J. Kybic, Fast Learning from Label Proportions with Small Bags, ICIP 2022"
    )
    needs_exact_counts = True
    replayable = True
    shardable = True

    def __init__(self, floor: float = DEQUANTISATION) -> None:
        self.floor = number("floor", floor, least=0)

    def prepare(self, task: Task, network: nn.Module) -> None:
        super().prepare(task, network)
        if task.num_classes is not None and task.num_classes > 2 and self.floor < _LEAST:
            raise LLPError(
                f'method "{self.key}" with floor = {self.floor:g} takes binary counts: with '
                f"{task.num_classes} classes the covariance is singular without a floor; use a "
                f"floor of at least {_LEAST:g}"
            )

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        return normal_loss(at_least_single(logits), evidence.counts, offsets, self.floor)


class AMLEPaper(AMLE):
    """AMLE with the paper's variance, which is zero where a prediction is certain.

    Args:
        floor: Keeps the variance above zero; without it training ends in NaN.
    """

    key = "amle-paper"
    summary = "gradient of the normal approximation, with the paper's variance"
    replayable = True
    shardable = True

    def __init__(self, floor: float = 1e-12) -> None:
        super().__init__(floor)
