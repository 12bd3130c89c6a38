"""Counts as people publish them: with noise, rounded, suppressed, or incompletely counted."""

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import real_tensor, refuse
from llpkit._validation import number, whole
from llpkit.evidence import noise
from llpkit.evidence.counts import whole_tensor


class Reports:
    """Class methods of :class:`~llpkit.Evidence` for published counts."""

    __slots__ = ()

    @classmethod
    def noisy(cls, observed: Any, log_density: noise.Density, sizes: Any) -> Self:
        """See :meth:`llpkit.Evidence.noisy`."""
        raise NotImplementedError

    @classmethod
    def interval(cls, low: Any, high: Any) -> Self:
        """See :meth:`llpkit.Evidence.interval`."""
        raise NotImplementedError

    @classmethod
    def laplace(
        cls,
        observed: Any,
        sizes: Any,
        *,
        epsilon: float | None = None,
        scale: float | None = None,
        sensitivity: float = 1.0,
    ) -> Self:
        r"""Counts plus Laplace noise.

        .. math:: \log w_b(k) = -|\text{observed}_b - k| / \text{scale}

        This is the usual mechanism of differential privacy. Reports that were clipped to the
        possible counts or rounded to whole numbers can be used as they are.

        Args:
            observed: The reports, ``(B,)`` or ``(B, K)``; any numbers.
            sizes: The bag sizes ``(B,)``.
            epsilon: The privacy parameter; the scale is ``sensitivity / epsilon``.
            scale: Instead, the scale of the noise: its mean absolute value.
            sensitivity: By how much one instance can change a report.

        >>> from llpkit import Evidence
        >>> Evidence.laplace([2.6, -0.3], sizes=[4, 2], epsilon=0.5).high
        tensor([4, 2])
        """
        spread = noise.scale_of(epsilon, scale, sensitivity)
        return cls.noisy(_finite(observed), noise.laplace(spread), sizes)

    @classmethod
    def geometric(
        cls,
        observed: Any,
        sizes: Any,
        *,
        epsilon: float | None = None,
        scale: float | None = None,
        sensitivity: float = 1.0,
    ) -> Self:
        r"""Counts plus two-sided geometric noise, :math:`P(j) \propto e^{-|j| / \text{scale}}`.

        Laplace noise in whole numbers, also called discrete Laplace. Arguments as for
        :meth:`laplace`; the reports are whole numbers, possibly negative.

        >>> from llpkit import Evidence
        >>> Evidence.geometric([3, -1], sizes=[4, 2], epsilon=1.0).low
        tensor([0, 0])
        """
        seen = _finite(observed)
        refuse(
            (seen != seen.round()).cpu().numpy(),
            lambda *i: (
                f"observed{[*i]} = {seen[i].item():g} is not whole, as counts with geometric "
                "noise are; use Evidence.laplace"
            ),
        )
        spread = noise.scale_of(epsilon, scale, sensitivity)
        return cls.noisy(seen, noise.laplace(spread), sizes)

    @classmethod
    def gaussian(
        cls,
        observed: Any,
        sizes: Any,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        scale: float | None = None,
        sensitivity: float = 1.0,
    ) -> Self:
        r"""Counts plus normal noise, :math:`\log w_b(k) = -(\text{observed}_b - k)^2 / 2 σ^2`.

        Args:
            observed: The reports, ``(B,)`` or ``(B, K)``, not clipped; any numbers.
            sizes: The bag sizes ``(B,)``.
            epsilon: The privacy parameter, up to 1; with ``delta`` the standard deviation is
                ``sensitivity * sqrt(2 * log(1.25 / delta)) / epsilon``.
            delta: The second privacy parameter.
            scale: Instead of both, the standard deviation σ of the noise.
            sensitivity: By how much one instance can change a report.

        >>> from llpkit import Evidence
        >>> Evidence.gaussian([2.6], sizes=[4], scale=2.0).high
        tensor([4])
        """
        spread = noise.deviation_of(epsilon, delta, scale, sensitivity)
        return cls.noisy(_finite(observed), noise.gaussian(spread), sizes)

    @classmethod
    def binomial(cls, observed: Any, sizes: Any, *, probability: float) -> Self:
        r"""Counts of which each positive was seen with a known probability.

        .. math:: w_b(k) = \binom{k}{o_b} q^{o_b} (1 - q)^{k - o_b}

        Args:
            observed: How many were seen, ``(B,)``, or ``(B, K)`` of each class.
            sizes: The bag sizes ``(B,)``: of all instances, seen or not.
            probability: The probability :math:`q` that a positive is seen.

        >>> from llpkit import Evidence
        >>> Evidence.binomial([2], sizes=[4], probability=0.9).table.exp()
        tensor([0.0000, 0.0000, 0.8100, 0.2430, 0.0486], dtype=torch.float64)
        """
        q = number("probability", probability, above=0, most=1)
        return cls.noisy(whole_tensor(observed, "observed"), noise.binomial(q), sizes)

    @classmethod
    def rounded(cls, observed: Any, multiple: int) -> Self:
        """Counts that were rounded to the nearest multiple; a tie may have gone either way.

        >>> from llpkit import Evidence
        >>> rounded = Evidence.rounded([0, 10], multiple=5)
        >>> rounded.low, rounded.high
        (tensor([0, 8]), tensor([ 2, 12]))
        """
        step = whole("multiple", multiple, 1)
        seen = whole_tensor(observed, "observed")
        refuse(
            (seen % step != 0).cpu().numpy(),
            lambda *i: f"observed{[*i]} = {seen[i]} is not a multiple of {step}; check multiple",
        )
        return cls.interval((seen - step // 2).clamp(min=0), seen + step // 2)

    @classmethod
    def suppressed(cls, observed: Any, below: int, *, zeros_shown: bool = False) -> Self:
        """Exact counts, except that those below a threshold were hidden.

        Args:
            observed: The counts, ``(B,)`` or ``(B, K)``; NaN or ``None`` where hidden.
            below: Counts smaller than this were hidden.
            zeros_shown: Zeros were published all the same, so a hidden count is at least 1.

        >>> from llpkit import Evidence
        >>> hidden = Evidence.suppressed([12, None, 40], below=10)
        >>> hidden.low, hidden.high
        (tensor([12,  0, 40]), tensor([12,  9, 40]))
        """
        limit = whole("below", below, 1)
        seen = real_tensor(_missing_as_nan(observed), "observed").to(torch.float64)
        gone = seen.isnan()
        known = whole_tensor(torch.where(gone, 0.0, seen), "observed")
        shown = (known < limit) & ~gone & ((known > 0) | (not zeros_shown))
        hint = "set zeros_shown=True if zeros were published; " if bool((known == 0).any()) else ""
        refuse(
            shown.cpu().numpy(),
            lambda *i: (
                f"observed{[*i]} = {known[i]}, but counts below {limit} were hidden; {hint}"
                "correct below, or give NaN where the count is hidden"
            ),
        )
        least = torch.full_like(known, int(bool(zeros_shown)))
        return cls.interval(torch.where(gone, least, known), torch.where(gone, limit - 1, known))


def _missing_as_nan(values: Any) -> Any:
    """Lists and object arrays may hold ``None`` for a missing number."""
    return values if isinstance(values, Tensor) else np.array(values, dtype=np.float64)


def _finite(observed: Any) -> Tensor:
    """Observations as float64; NaN and infinities are refused."""
    seen = real_tensor(observed, "observed").to(torch.float64)
    refuse(
        (~seen.isfinite()).cpu().numpy(),
        lambda *i: (
            f"observed{[*i]} = {seen[i].item()}; give finite numbers, and for a bag without a "
            "report Evidence.unknown"
        ),
    )
    return seen
