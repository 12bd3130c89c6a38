"""How published counts differ from the true ones: the log-density of a report given the count.

A density is called as ``density(observed, count)`` with two float64 tensors of the same shape, and
need not be normalised over the observations.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from llpkit._validation import number
from llpkit.errors import LLPError

Density = Callable[[Tensor, Tensor], Tensor]


def laplace(scale: float) -> Density:
    """Laplace noise; for whole observations also two-sided geometric noise.

    Reports that were clipped to ``0 … n`` need no correction: a tail of these distributions is
    proportional to their density at its end.
    """
    return lambda observed, count: -(observed - count).abs() / scale


def gaussian(scale: float) -> Density:
    """Normal noise with this standard deviation."""
    return lambda observed, count: -0.5 * ((observed - count) / scale).square()


def binomial(probability: float) -> Density:
    r"""Every positive was counted with this probability: :math:`\binom{k}{o} q^o (1 - q)^{k - o}`.

    An observation above the count is impossible.
    """

    def density(observed: Tensor, count: Tensor) -> Tensor:
        missed = count - observed
        possible = missed >= 0
        missed = missed.clamp(min=0)
        ways = torch.lgamma(count + 1) - torch.lgamma(observed + 1) - torch.lgamma(missed + 1)
        q = torch.tensor(probability, dtype=torch.float64, device=count.device)
        # xlogy is zero for nothing missed, even if every positive is counted (q = 1).
        log_p = ways + observed * q.log() + torch.xlogy(missed, 1 - q)
        return torch.where(possible, log_p, -torch.inf)

    return density


def scale_of(epsilon: float | None, scale: float | None, sensitivity: float) -> float:
    """The scale of Laplace or geometric noise, given directly or by epsilon (privacy)."""
    _only_one(epsilon, scale)
    if scale is not None:
        return number("scale", scale, above=0)
    return number("sensitivity", sensitivity, above=0) / number("epsilon", epsilon, above=0)


def deviation_of(
    epsilon: float | None, delta: float | None, scale: float | None, sensitivity: float
) -> float:
    r"""The standard deviation of Gaussian noise, given directly or by :math:`(ε, δ)`-privacy.

    The classical mechanism, :math:`σ = Δ \sqrt{2 \ln(1.25 / δ)} / ε`, for ε up to 1.
    """
    _only_one(epsilon, scale)
    if scale is not None:
        if delta is not None:
            raise LLPError("delta goes with epsilon; leave it out if you give scale")
        return number("scale", scale, above=0)
    if delta is None:
        raise LLPError("epsilon is given without delta; Gaussian noise needs both, or scale")
    # Beyond 1 the classical formula is no longer private, so nobody should have used it there.
    private = number("epsilon", epsilon, above=0, most=1)
    spread = math.sqrt(2 * math.log(1.25 / number("delta", delta, above=0, below=1)))
    return number("sensitivity", sensitivity, above=0) * spread / private


def _only_one(epsilon: float | None, scale: float | None) -> None:
    if (epsilon is None) == (scale is None):
        raise LLPError(
            f"epsilon = {epsilon!r} and scale = {scale!r}; give one of the two, as the noise was "
            "published"
        )
