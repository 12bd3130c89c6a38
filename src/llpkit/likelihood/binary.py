r"""The exact count likelihood of binary bags in plain torch: the reference on every device.

Every piece of evidence (see :mod:`.pieces`) is evaluated in the tilted measure under which its most
probable count ``c`` is the expected count, :math:`\sum_i \sigma(z_i + t) = c`. There the
probability of ``c`` is about :math:`1/\sqrt{2\pi\sigma^2}`, never small, so a Fourier sum of
products of characteristic functions gives the likelihood and all posteriors to rounding error:

.. math::

    P_t(k) = \frac1M \sum_l e^{-i\omega_l k} F(\omega_l), \qquad
    F(\omega) = \prod_j (1 - p_j + p_j e^{i\omega}), \qquad \omega_l = 2\pi l / M.

``M`` is odd, so that no factor vanishes and each can be divided out again. Two bounds limit the
number of frequencies. By Bennett's inequality the mass further than :math:`9\sigma + 25` from the
mean is below 3e-18, so with about that many points aliasing is negligible; and
:math:`|F(\omega)| \le e^{-2\sigma^2 \sin^2(\omega/2)}`, so fewer than forty of those points
matter, and about fifteen in a large bag. The cost is linear in the number of instances.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from llpkit.likelihood.pieces import Pieces
from llpkit.ragged import bag_index, descending, ranges, segment_logsumexp, segment_sum, to_offsets

CHUNK = 2**21
"""Instances processed at a time, which bounds memory."""

NEGLIGIBLE = 24.0
"""Frequencies whose ``|F|`` is provably below ``exp(-2 * NEGLIGIBLE)`` are left out."""


class Tilted(NamedTuple):
    """Pieces in the tilted measure under which the anchor ``c`` is the expected count."""

    offsets: Tensor  # (P + 1,)
    bag: Tensor  # (N,) the piece of every instance
    p: Tensor  # (N,) tilted probability
    q: Tensor  # (N,) 1 - p, without cancellation
    t: Tensor  # (P,) the tilt
    c: Tensor  # (P,) the anchor, a count
    log_scale: Tensor  # (P,) log(w(c) P(c)) - log P_t(c)
    low: Tensor  # (P,) the piece's counts, cut to what the bag can hold
    high: Tensor  # (P,)
    possible: Tensor  # (P,) bool


def evaluate(
    z: Tensor, offsets: Tensor, pieces: Pieces, direction: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log-probability ``(B,)``, posterior ``(N,)`` and, for a direction ``v``, ``Cov(h | E) v``."""
    if not bool(z.isfinite().all()):
        return _evaluate_known(z, offsets, pieces, direction)
    if pieces.one_each and len(z) <= CHUNK:
        log_p, phi, second = _fourier(z, offsets, pieces, direction)
    else:
        log_p, phi, second = _evaluate_chunks(z, offsets, pieces, direction)
    impossible = log_p == -torch.inf
    if bool(impossible.any()):  # no posterior: return the prior
        phi = torch.where(impossible[bag_index(offsets)], z.sigmoid(), phi)
    if direction is None or second is None:
        return log_p, phi, None
    # Cov(h) v = E[h h'] v - E[h] (E[h]' v).
    bag = bag_index(offsets)
    product = second - phi * segment_sum(direction * phi, offsets)[bag]
    return log_p, phi, torch.where(impossible[bag], 0.0, product)


def _evaluate_known(
    z: Tensor, offsets: Tensor, pieces: Pieces, direction: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """An infinite logit is a known label: drop the instance and its share of the count."""
    inner, inner_offsets, inner_pieces = without_known(z, offsets, pieces)
    free = z.isfinite()
    some = None if direction is None else direction[free]
    log_p, inner_phi, inner_product = evaluate(inner, inner_offsets, inner_pieces, some)
    phi = (z > 0).to(z.dtype)
    phi[free] = inner_phi
    if inner_product is None:
        return log_p, phi, None
    product = torch.zeros_like(z)
    product[free] = inner_product
    return log_p, phi, product


def without_known(z: Tensor, offsets: Tensor, pieces: Pieces) -> tuple[Tensor, Tensor, Pieces]:
    """The bags without their known instances, and the evidence for what remains."""
    free = z.isfinite()
    positive = segment_sum((z == torch.inf).to(z.dtype), offsets).to(torch.int64)[pieces.bag]
    return (
        z[free],
        to_offsets(segment_sum(free.to(z.dtype), offsets).to(torch.int64)),
        pieces._replace(
            low=pieces.low - positive, high=pieces.high - positive, base=pieces.base + positive
        ),
    )


def _evaluate_chunks(
    z: Tensor, offsets: Tensor, pieces: Pieces, direction: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Several pieces per bag, or too many instances at once: solve in chunks, then mix."""
    sizes = offsets.diff()[pieces.bag]  # (P,)
    group = torch.div(sizes.cumsum(0), CHUNK, rounding_mode="floor")  # (P,) chunk of each piece
    log_piece = z.new_empty(len(sizes))
    moments: list[tuple[Tensor, Tensor, Tensor, Tensor | None]] = []
    for g in torch.unique(group).tolist():
        chosen = (group == g).nonzero()[:, 0]
        rows = ranges(offsets[pieces.bag[chosen]], sizes[chosen])
        some = None if direction is None else direction[rows]
        part = _fourier(z[rows], to_offsets(sizes[chosen]), pieces.take(chosen), some)
        log_piece[chosen] = part[0]
        moments.append((chosen, rows, part[1], part[2]))

    of_bag = torch.bincount(pieces.bag, minlength=len(offsets) - 1)
    log_p = segment_logsumexp(log_piece, to_offsets(of_bag))  # (B,)
    share = (log_piece - log_p[pieces.bag]).exp().nan_to_num(0.0)  # -inf - -inf: impossible bag
    phi, second = torch.zeros_like(z), torch.zeros_like(z)
    for chosen, rows, part_phi, part_second in moments:
        weight = torch.repeat_interleave(share[chosen], sizes[chosen])
        phi.index_add_(0, rows, weight * part_phi)
        if part_second is not None:
            second.index_add_(0, rows, weight * part_second)
    return log_p, phi.clamp(max=1), None if direction is None else second


def tilt(z: Tensor, offsets: Tensor, pieces: Pieces) -> Tilted:
    """Anchor and tilt of every piece; piece ``j`` has the instances of bag ``j``."""
    bag, n = bag_index(offsets), offsets.diff()
    low, high = pieces.low.clamp(min=0), torch.minimum(pieces.high, n)
    possible = low <= high
    low, high = torch.where(possible, low, 0), torch.where(possible, high, 0)
    in_range = pieces._replace(low=low, high=high, tabled=pieces.tabled & possible)
    c = _anchor(z, offsets, bag, in_range)  # (P,)

    # The order statistics around the anchor bracket the tilt at any scale of the logits.
    order = descending(z, offsets)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(z), device=z.device)
    top = rank - offsets[bag] < c[bag]  # the c largest logits of the bag
    if len(z):
        above = z[order[(offsets[:-1] + (c - 1).clamp(min=0)).clamp(max=len(z) - 1)]]
        below = z[order[(offsets[:-1] + torch.minimum(c, n - 1)).clamp(0, len(z) - 1)]]
    else:
        above = below = z.new_zeros(len(n))
    centre = above / 2 + below / 2
    half = (above - centre) + (2.0 * n.clamp(min=1)).log()
    centred = z - centre[bag]  # (N,)
    # A count of 0 or n would need an infinite tilt; half a count inside is close enough.
    target = torch.minimum(c.to(z.dtype).clamp(min=0.5), n - 0.5)
    tau = _solve(centred, offsets, bag, target, half)  # (P,)

    # Tilted log-concave weights peak at c if the tilt lies between the slopes on either side of it.
    t = tau - centre
    bounded = torch.minimum(torch.maximum(t, in_range.slope(c)), in_range.slope(c - 1))
    x = torch.where((bounded == t)[bag], centred + tau[bag], z + bounded[bag])

    # log P(c) = log P_t(c) + sum over the top c of [sp(-x) - sp(-z)] + others [sp(x) - sp(z)].
    sign = torch.where(top, 1.0, -1.0).to(z.dtype)  # (N,)
    log_scale = segment_sum(F.logsigmoid(sign * z) - F.logsigmoid(sign * x), offsets)
    return Tilted(
        offsets,
        bag,
        x.sigmoid(),
        (-x).sigmoid(),
        bounded,
        c,
        log_scale + in_range.log_weight(c),
        low,
        high,
        possible,
    )


def _anchor(z: Tensor, offsets: Tensor, bag: Tensor, pieces: Pieces) -> Tensor:
    """The most probable count of each piece, by bisection.

    With ``m(t)`` the mean count after tilting by ``t``, ``w(k) P(k)`` still rises at ``k`` if
    ``m(s(k)) > k + 1/2``, ``s`` being the slope of ``log w``; both sides are monotone in ``k``.
    """
    low, high = pieces.low, pieces.high
    while bool((low < high).any()):
        middle = torch.div(low + high, 2, rounding_mode="floor")
        open_ = low < high
        slope = torch.where(open_, pieces.slope(middle), 0.0)
        mean = segment_sum((z + slope[bag]).sigmoid(), offsets)
        rises = mean > middle + 0.5
        low = torch.where(open_ & rises, middle + 1, low)
        high = torch.where(open_ & ~rises, middle, high)
    return low


def _solve(d: Tensor, offsets: Tensor, bag: Tensor, target: Tensor, half: Tensor) -> Tensor:
    """``tau`` in ``[-half, half]`` with ``sum sigmoid(d + tau)`` within 0.05 of the target.

    Newton's method on the log-odds of the mean, which is exact for equal logits, with bisection as
    a fallback whenever it leaves the bracket. Any tilt near the target gives exact results.
    """
    n = offsets.diff()
    tau, left, right = torch.zeros_like(half), -half, half
    for _ in range(200):  # more than bisection alone needs; a handful is usual
        p = (d + tau[bag]).sigmoid()
        mean = segment_sum(p, offsets)
        gap = mean - target
        done = (gap.abs() <= 0.05) | (n == 0)
        if bool(done.all()):
            break
        left, right = torch.where(gap < 0, tau, left), torch.where(gap > 0, tau, right)
        log_odds = (target / (n - target)).log() - (mean / (n - mean)).log()
        newton = tau + log_odds * mean * (n - mean) / (n * segment_sum(p - p * p, offsets))
        inside = (newton > left) & (newton < right)
        tau = torch.where(done, tau, torch.where(inside, newton, (left + right) / 2))
    return tau


def _fourier(
    z: Tensor, offsets: Tensor, pieces: Pieces, direction: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log-probability and posterior of each piece, and ``E[h h'] v``; piece ``j`` has bag ``j``."""
    tilted = tilt(z, offsets, pieces)
    bag, p, q, c, low, high = tilted.bag, tilted.p, tilted.q, tilted.c, tilted.low, tilted.high
    n, mean = offsets.diff(), segment_sum(p, offsets)
    variance = segment_sum(p * q, offsets)  # (P,)

    # Only counts within reach of the anchor matter; enough points keep their aliases apart.
    reach = _reach(variance)
    first, last = torch.maximum(low, c - reach), torch.minimum(high, c + reach)
    exact = pieces.low == pieces.high
    points = reach + 1 + torch.where(exact, 0, torch.maximum(c - first, last - c))
    # Odd: the sum divides by factors, and at omega = pi one with p = 1/2 vanishes.
    points = (torch.minimum(points, n + 1) | 1).to(z.dtype)  # (P,)
    window = _window(tilted, pieces, first, last) if not bool(exact.all()) else None

    total = torch.zeros_like(mean)
    phi = torch.zeros_like(z)
    second = None if direction is None else torch.zeros_like(z)
    # Dividing out one factor takes its variance p q, at most 1/4, from the bound on the others.
    for omega, weight in frequencies(points, variance - 0.25, NEGLIGIBLE):  # (P,) each
        factor, log_abs, phase = characteristic(p, q, bag, offsets, omega)  # (N,), (P,), (P,)
        product = torch.polar(log_abs.exp() * weight, phase + omega * (mean - c))  # (P,)
        if window is not None:
            product = product * window.transform(omega)
        total = total + product.real
        ratio = p * torch.polar(torch.ones_like(omega), omega)[bag] / factor
        mass = product[bag] * ratio  # (N,) the same sum with factor i replaced by p exp(i omega)
        phi += mass.real
        if second is not None and direction is not None:
            along = torch.view_as_real(direction * ratio)
            others = torch.view_as_complex(segment_sum(along, offsets))[bag] - direction * ratio
            second += (mass * others).real

    log_p = torch.where(tilted.possible, total.log() + tilted.log_scale, -torch.inf)
    # The sums are exact up to rounding, so clamping removes rounding errors only.
    phi = (phi / total[bag]).clamp(0, 1)
    phi = torch.where((exact & (c == 0))[bag], 0.0, torch.where((exact & (c == n))[bag], 1.0, phi))
    if second is not None and direction is not None:
        second = second / total[bag] + direction * phi
    return log_p, phi, second


def _reach(variance: Tensor) -> Tensor:
    """How far from its mean a count may be before its probability is below rounding."""
    # At 9 standard deviations a normal density has fallen to e^-40. With a small variance the tail
    # is longer, that of a Poisson distribution, whose 26th term is below 1 / 26!.
    return (9 * variance.sqrt()).ceil().to(torch.int64) + 26


def frequencies(
    points: Tensor, variance: Tensor, negligible: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """Frequencies of Fourier sums of ``points`` terms that are not negligible, and their weights.

    The frequencies ``l`` and ``M - l`` are conjugate, so half of them are enough, with twice the
    weight.
    """
    # The bound on |F| above falls to exp(-2 negligible) at this share of half the circle.
    share = (negligible / variance.clamp(min=negligible)).sqrt().asin() / math.pi
    used = torch.minimum((points + 1) / 2, (points * share).ceil() + 1)
    for index in range(int(used.max()) if used.numel() else 0):
        weight = torch.where(index < used, (1 if index == 0 else 2) / points, 0.0)
        yield 2 * math.pi * index / points, weight


def characteristic(
    p: Tensor, q: Tensor, bag: Tensor, offsets: Tensor, omega: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Each factor ``q + p exp(i omega)``, and the log-modulus and phase of each bag's product.

    The phase is that of the count minus its mean, so that it stays small.
    """
    sin, cos = (omega / 2).sin()[bag], (omega / 2).cos()[bag]
    # Written so that small factors near omega = pi do not suffer from cancellation.
    real, imag = (q - p) + 2 * p * cos * cos, 2 * p * sin * cos
    log_abs = segment_sum((real * real + imag * imag).log(), offsets) / 2
    phase = segment_sum(torch.atan2(imag, real) - omega[bag] * p, offsets)
    return torch.complex(real, imag), log_abs, phase


class _Window(NamedTuple):
    """Tilted weights around the anchors, ``w(k) exp(-t (k - c)) / w(c)``, flat."""

    weight: Tensor  # (S,)
    step: Tensor  # (S,) k - c
    piece: Tensor  # (S,)
    offsets: Tensor  # (P + 1,)

    def transform(self, omega: Tensor) -> Tensor:
        """Sum over ``k`` of weight times ``exp(-i omega (k - c))``, complex ``(P,)``."""
        angle = omega[self.piece] * self.step
        return torch.complex(
            segment_sum(self.weight * angle.cos(), self.offsets),
            -segment_sum(self.weight * angle.sin(), self.offsets),
        )


def _window(tilted: Tilted, pieces: Pieces, first: Tensor, last: Tensor) -> _Window:
    lengths = last - first + 1
    count = ranges(first, lengths)
    piece = torch.repeat_interleave(torch.arange(len(lengths), device=first.device), lengths)
    log_weight = tilted_log_weight(tilted, pieces, piece, count)
    step = (count - tilted.c[piece]).to(tilted.p.dtype)
    return _Window(log_weight.exp(), step, piece, to_offsets(lengths))


def tilted_log_weight(tilted: Tilted, pieces: Pieces, piece: Tensor, count: Tensor) -> Tensor:
    """``log [w(k) exp(-t (k - c)) / w(c)]``: zero at the anchor, nowhere above it."""
    step = (count - tilted.c[piece]).to(tilted.p.dtype)
    gain = pieces.take(piece).log_weight(count) - pieces.log_weight(tilted.c)[piece]
    return torch.where(step == 0, 0.0, gain - tilted.t[piece] * step)


def pmf(z: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Probability of every count ``0 … n`` of every bag, flat; the counts; their offsets."""
    bag, n = bag_index(offsets), offsets.diff()
    p, q = z.sigmoid(), (-z).sigmoid()
    mean, variance = segment_sum(p, offsets), segment_sum(p * q, offsets)
    centre = mean.round().to(torch.int64)
    reach = _reach(variance)
    points = (torch.minimum(2 * reach + 1, n + 1) | 1).to(z.dtype)

    out_offsets = to_offsets(n + 1)
    of_bag = bag_index(out_offsets)
    count = ranges(torch.zeros_like(n), n + 1)  # (S,)
    step = (count - centre[of_bag]).to(z.dtype)
    probability = torch.zeros_like(step)
    for omega, weight in frequencies(points, variance, NEGLIGIBLE):
        _, log_abs, phase = characteristic(p, q, bag, offsets, omega)
        phase = (phase + omega * (mean - centre))[of_bag] - omega[of_bag] * step
        probability += (log_abs.exp() * weight)[of_bag] * phase.cos()
    # The sum is periodic in the count; beyond its reach the probability is below rounding.
    near = step.abs() <= reach[of_bag]
    return torch.where(near, probability.clamp(0, 1), 0.0), count, out_offsets
