"""Evidence: counts that are exact, in a range, noisy, rounded, suppressed or unknown."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import named_entry, on_device_of, read, real_tensor, refuse
from llpkit._validation import number, whole
from llpkit.errors import LLPError
from llpkit.evidence import noise
from llpkit.evidence.counts import CountNaming, exact_counts, whole_tensor
from llpkit.evidence.weights import NO_BOUND, CountWeights
from llpkit.ragged import ranges, to_offsets


class Evidence(CountWeights):
    r"""What is known about the counts of ``B`` bags: a weight for every possible count.

    .. math:: P(E_b) = \sum_k w_b(k)\, P(y_b = k)

    An exact count has weight one at a single ``k``; an interval has ones inside it; a noisy count
    has the density of the noise; an unknown count has ones everywhere. With ``K`` classes the
    arrays are ``(B, K)`` and the weights multiply over the classes,
    :math:`w_b(y) = \prod_k w_{bk}(y_k)`.

    Evidence is immutable. Build it with the class methods, and join kinds with :meth:`concat`.

    >>> evidence = Evidence.concat([Evidence.exact([2, 0]), Evidence.at_least([1])])
    >>> len(evidence), evidence.is_exact
    (3, False)
    >>> evidence[:2].counts
    tensor([2, 0])
    """

    __slots__ = ()

    @classmethod
    def exact(cls, counts: Any) -> Self:
        """The counts themselves, ``(B,)`` positives or ``(B, K)`` of each class.

        Floats are accepted if they are whole numbers, with one exception: floats that are all 0.0
        or 1.0 are rejected, because 1.0 may be a share, unless the bags with 1.0 are known to have
        one instance. Pass integers to be safe. This applies wherever counts of positives are
        passed.

        >>> Evidence.exact([3, 1, 4]).is_exact
        True
        """
        y = exact_counts(counts, CountNaming())
        return cls.unchecked(on_device_of(counts, y))

    @classmethod
    def unchecked(cls, counts: Tensor) -> Self:
        """:meth:`exact` for an int64 tensor that is known to be valid, without a copy."""
        return cls._uniform(counts, counts)

    @classmethod
    def interval(cls, low: Any, high: Any) -> Self:
        """Counts between ``low`` and ``high``, both included.

        >>> Evidence.interval(low=[1, 0], high=[2, 5]).high
        tensor([2, 5])
        """
        first, last = whole_tensor(low, "low"), whole_tensor(high, "high")
        if first.shape != last.shape:
            raise LLPError(
                f"low has shape {tuple(first.shape)} and high has shape {tuple(last.shape)}; "
                "give one low and one high for every count"
            )
        last = last.to(first.device)
        refuse(
            (first > last).cpu().numpy(),
            lambda *i: f"low{[*i]} = {first[i]} but high{[*i]} = {last[i]}; swap them",
            "entries",
        )
        return cls._uniform(first, last)

    @classmethod
    def at_least(cls, low: Any) -> Self:
        """Counts of ``low`` or more. ``at_least(1)`` is multiple-instance learning.

        >>> Evidence.at_least([1, 1]).low
        tensor([1, 1])
        """
        first = whole_tensor(low, "low")
        return cls._uniform(first, torch.full_like(first, NO_BOUND))

    @classmethod
    def unknown(cls, num_bags: int, num_classes: int | None = None) -> Self:
        """Nothing known: every count has weight one.

        >>> Evidence.unknown(2).low
        tensor([0, 0])
        """
        whole("num_bags", num_bags, 0)
        if num_classes is not None:
            whole("num_classes", num_classes)
        low = torch.zeros(num_bags if num_classes is None else (num_bags, num_classes)).long()
        return cls._uniform(low, torch.full_like(low, NO_BOUND))

    @classmethod
    def noisy(
        cls, observed: Any, log_density: Callable[[Tensor, Tensor], Tensor], sizes: Any
    ) -> Self:
        r"""Counts seen through noise, :math:`\log w_b(k) = \log p(\text{observed}_b \mid k)`.

        Args:
            observed: The observations, ``(B,)`` or ``(B, K)``; any numbers.
            log_density: Called once as ``log_density(observed, count)`` with two float64 tensors of
                the same shape; returns the log-density of the noise there. It need not be
                normalised.
            sizes: The bag sizes ``(B,)``, for the possible counts ``0 … n``.

        >>> gaussian = lambda observed, count: -0.5 * ((observed - count) / 2.0) ** 2
        >>> Evidence.noisy([2.6], gaussian, sizes=[4]).high
        tensor([4])
        """
        seen = real_tensor(observed, "observed").to(torch.float64)
        n = whole_tensor(sizes, "sizes")
        if n.dim() != 1 or seen.dim() not in (1, 2) or len(n) != len(seen):
            raise LLPError(
                f"observed has shape {tuple(seen.shape)} and sizes has shape {tuple(n.shape)}; "
                "give one size for every bag"
            )
        n = n.to(seen.device)
        if seen.dim() == 2:
            n = n[:, None].expand(seen.shape)
        lengths = n.reshape(-1) + 1  # of each cell: counts 0 to n
        count = ranges(torch.zeros_like(lengths), lengths).to(torch.float64)
        table = log_density(torch.repeat_interleave(seen.reshape(-1), lengths), count)
        if not isinstance(table, Tensor) or table.shape != count.shape:
            raise LLPError("log_density must return a tensor of the shape of its arguments")
        return cls._weighted(torch.zeros_like(n), n, table, to_offsets(lengths))

    @classmethod
    def weights(cls, log_weights: Any, offsets: Any) -> Self:
        """Any weights: bag ``b``'s are ``log_weights[offsets[b]:offsets[b + 1]]`` for ``0 … n``.

        ``-inf`` marks an impossible count. Weights need not sum to one.

        >>> odd = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0])  # one bag of three instances
        >>> Evidence.weights(odd, offsets=[0, 4]).high
        tensor([3])
        """
        if isinstance(log_weights, Tensor) and log_weights.requires_grad:
            raise LLPError("log_weights requires grad, but evidence is data; detach it first")
        table = real_tensor(log_weights, "log_weights")
        ends = whole_tensor(offsets, "offsets").to(table.device)
        lengths = ends.diff()
        if table.dim() != 1 or ends.dim() != 1 or len(ends) == 0:
            raise LLPError(
                "log_weights and offsets must each have one axis, and offsets at least one entry"
            )
        if int(ends[0]) != 0 or int(ends[-1]) != len(table) or bool((lengths < 1).any()):
            raise LLPError(
                f"offsets must rise from 0 to len(log_weights) = {len(table)}, by n + 1 for a bag "
                "of n instances"
            )
        return cls._weighted(torch.zeros_like(lengths), lengths - 1, table, ends)

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

        >>> Evidence.geometric([3, -1], sizes=[4, 2], epsilon=1.0).low
        tensor([0, 0])
        """
        seen = _finite(observed)
        refuse(
            (seen != seen.round()).cpu().numpy(),
            lambda *i: (
                f"{_entry(f'{seen[i].item():g}', *i)} is not whole, as counts with geometric noise "
                "are; use Evidence.laplace"
            ),
        )
        return cls.laplace(seen, sizes, epsilon=epsilon, scale=scale, sensitivity=sensitivity)

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

        >>> Evidence.gaussian([2.6], sizes=[4], scale=2.0).high
        tensor([4])
        """
        spread = noise.deviation_of(epsilon, delta, scale, sensitivity)
        return cls.noisy(_finite(observed), noise.gaussian(spread), sizes)

    @classmethod
    def binomial(cls, observed: Any, sizes: Any, *, probability: float) -> Self:
        r"""Counts in which each positive was seen with a known probability.

        .. math:: w_b(k) = \binom{k}{o_b} q^{o_b} (1 - q)^{k - o_b}

        Args:
            observed: How many were seen, ``(B,)``, or ``(B, K)`` of each class.
            sizes: The bag sizes ``(B,)``: of all instances, seen or not.
            probability: The probability :math:`q` that a positive is seen.

        >>> Evidence.binomial([2], sizes=[4], probability=0.9).table.exp()
        tensor([0.0000, 0.0000, 0.8100, 0.2430, 0.0486], dtype=torch.float64)
        """
        q = number("probability", probability, above=0, most=1)
        return cls.noisy(whole_tensor(observed, "observed"), noise.binomial(q), sizes)

    @classmethod
    def rounded(cls, observed: Any, multiple: int) -> Self:
        """Counts that were rounded to the nearest multiple; a tie may have gone either way.

        >>> rounded = Evidence.rounded([0, 10], multiple=5)
        >>> rounded.low, rounded.high
        (tensor([0, 8]), tensor([ 2, 12]))
        """
        step = whole("multiple", multiple, 1)
        seen = whole_tensor(observed, "observed")
        refuse(
            (seen % step != 0).cpu().numpy(),
            lambda *i: f"{_entry(int(seen[i]), *i)} is not a multiple of {step}; check multiple",
        )
        return cls.interval((seen - step // 2).clamp(min=0), seen + step // 2)

    @classmethod
    def suppressed(cls, observed: Any, below: int, *, zeros_shown: bool = False) -> Self:
        """Exact counts, except that those below a threshold were hidden.

        Args:
            observed: The counts, ``(B,)`` or ``(B, K)``; NaN or ``None`` where hidden.
            below: Counts smaller than this were hidden.
            zeros_shown: Zeros were published all the same, so a hidden count is at least 1.

        >>> hidden = Evidence.suppressed([12, None, 40], below=10)
        >>> hidden.low, hidden.high
        (tensor([12,  0, 40]), tensor([12,  9, 40]))
        """
        limit = whole("below", below, 1)
        # NumPy reads None as NaN.
        seen = on_device_of(observed, read(observed, "observed", np.float64).copy())
        gone = seen.isnan()
        known = whole_tensor(torch.where(gone, 0.0, seen), "observed")
        shown = (known < limit) & ~gone & ((known > 0) | (not zeros_shown))
        zeros = not zeros_shown and bool(((known == 0) & ~gone).any())
        hint = "set zeros_shown=True if zeros were published; " if zeros else ""
        refuse(
            shown.cpu().numpy(),
            lambda *i: (
                f"{_entry(int(known[i]), *i)}, but counts below {limit} were hidden; {hint}"
                "correct below, or give NaN where the count is hidden"
            ),
        )
        least = torch.full_like(known, int(bool(zeros_shown)))
        return cls.interval(torch.where(gone, least, known), torch.where(gone, limit - 1, known))


def _entry(value: object, *index: int) -> str:
    return named_entry("observed")(value, *index)


def _finite(observed: Any) -> Tensor:
    """Observations as float64; NaN and infinities are refused."""
    seen = real_tensor(observed, "observed").to(torch.float64)
    refuse(
        (~seen.isfinite()).cpu().numpy(),
        lambda *i: (
            f"{_entry(seen[i].item(), *i)}; give finite numbers, and for a bag without a report "
            "Evidence.unknown"
        ),
    )
    return seen
