r"""The Numba backend for binary bags on the CPU.

Bags of up to :data:`SMALL` instances with an exact count and moderate logits take the elementary
symmetric polynomials of :math:`u_i = e^{z_i}`,

.. math:: P(y) = \frac{e_y(u)}{\prod_i (1 + u_i)}, \qquad
          \varphi_i = \frac{u_i\, e_{y-1}(u_{\setminus i})}{e_y(u)},

where each :math:`e_{y-1}(u_{\setminus i})` is combined from a prefix and a suffix. All terms are
positive, so nothing cancels. Everything else is evaluated in the tilted measure, as in
:mod:`llpkit.likelihood.binary`: by a forward-backward recursion in small bags, by the Fourier sum
in large ones.
"""

import contextlib
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numba import njit
from torch import Tensor

from llpkit.likelihood.binary import NEGLIGIBLE
from llpkit.likelihood.kernels.cache import KernelCache
from llpkit.likelihood.pieces import Pieces
from llpkit.ragged import to_offsets

SMALL = 128
"""Largest bag for the recursions; beyond it the Fourier sum is faster (measured)."""

NARROW = 8
"""Counts of the rarer label below this use loops of fixed length, which are vectorised."""

MODERATE = 500.0
"""Sum of absolute logits up to which no product of exponentials leaves float64's range."""

_MANY = 2**15
"""Instances per thread that make another thread worthwhile."""

Array = Any  # a NumPy array
F = TypeVar("F", bound=Callable[..., Any])


def evaluate(z: Tensor, offsets: Tensor, pieces: Pieces) -> tuple[Tensor, Tensor]:
    """Log-probability ``(B,)`` and posterior ``(N,)``; float64 CPU tensors."""
    num_bags = len(offsets) - 1
    log_p, phi = z.new_empty(num_bags), z.new_empty(len(z))
    if pieces.one_each:
        starts = torch.arange(num_bags + 1, device="cpu")
    else:
        starts = to_offsets(torch.bincount(pieces.bag, minlength=num_bags))
    tensors = (z, offsets, starts, *pieces[1:6], log_p, phi)
    arrays = [x.detach().contiguous().numpy() for x in tensors]
    # NumPy's and torch's exponentials are vectorised, a compiled loop's is not; torch also starts
    # threads, which pays off only for many numbers.
    with np.errstate(over="ignore"):  # bags with such logits are left to the tilted measure
        exp_z = np.exp(arrays[0]) if len(z) < _MANY else z.detach().exp().numpy()
    small = [exp_z, *arrays[:6], *arrays[8:]]  # without the weight tables
    left = in_threads(run_small, small, arrays[1])
    np.log(arrays[8], out=arrays[8])  # probabilities until here; torch's log would start threads
    if left:
        in_threads(run_rest, arrays, arrays[1])
    return log_p, phi


def in_threads(
    kernel: Callable[..., int], arrays: list[Array], offsets: Array, least: int = _MANY
) -> int:
    """Run ``kernel(first, last, *arrays)`` over all bags; returns the sum of its results.

    The kernels release the interpreter lock, so plain threads suffice. The bags are cut into parts
    of about as many instances, one per thread; each thread gets at least ``least`` instances.
    """
    num_bags, length = len(offsets) - 1, int(offsets[-1])
    workers = min(torch.get_num_threads(), 1 + length // least)
    if workers == 1:
        return kernel(0, num_bags, *arrays)
    marks = np.searchsorted(offsets, np.linspace(0, length, workers + 1)[1:-1])
    ends = [0, *marks.clip(max=num_bags).tolist(), num_bags]
    parts = [(a, b) for a, b in pairwise(ends) if a < b]
    return sum(_pool(os.getpid()).map(lambda part: kernel(*part, *arrays), parts))


@cache
def _pool(pid: int) -> ThreadPoolExecutor:
    """Threads of this process, created on demand; a forked child gets its own."""
    del pid
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="llpkit")


def jit(**options: Any) -> Callable[[F], F]:
    """Compile to run without the interpreter lock, and cache the result on disk."""

    def wrap(function: F) -> F:
        compiled = njit(nogil=True, error_model="numpy", **options)(function)
        with contextlib.suppress(RuntimeError):  # nowhere to write a cache
            compiled._cache = KernelCache(function)
        return cast(F, compiled)

    return wrap


@jit()
def run_small(
    first: int,
    last: int,
    exp_z: Array,
    z: Array,
    offsets: Array,
    starts: Array,
    low: Array,
    high: Array,
    tabled: Array,
    prob: Array,
    phi: Array,
) -> int:
    """Solve those of the bags ``first … last - 1`` that are small, exact and moderate.

    Writes probabilities, not their logarithms, and NaN for the remaining bags; returns their
    number.
    """
    odds, suffix = np.empty(SMALL), np.empty(SMALL + 1)
    prefix = np.empty((SMALL + 1, SMALL + 1))
    narrow, tail = np.zeros((SMALL + 1, NARROW)), np.zeros(NARROW + 1)
    left = 0
    for b in range(first, last):
        begin, end, j = offsets[b], offsets[b + 1], starts[b]
        n = end - begin
        if n <= SMALL and starts[b + 1] == j + 1 and low[j] == high[j] and not tabled[j]:
            size = 0.0
            for i in range(begin, end):
                size += abs(z[i])
            if size <= MODERATE and 0 <= low[j] <= n:
                if min(low[j], n - low[j]) < NARROW:
                    prob[b] = _symmetric_narrow(exp_z, begin, n, low[j], phi, odds, narrow, tail)
                else:
                    prob[b] = _symmetric(exp_z, begin, n, low[j], phi, odds, prefix, suffix)
                continue
        prob[b] = np.nan
        left += 1
    return left


@jit()
def run_rest(
    first: int,
    last: int,
    z: Array,
    offsets: Array,
    starts: Array,
    low: Array,
    high: Array,
    tabled: Array,
    base: Array,
    table: Array,
    log_p: Array,
    phi: Array,
) -> int:
    """Solve those of the bags ``first … last - 1`` whose ``log_p`` is still NaN."""
    longest = 0
    for b in range(first, last):
        longest = max(longest, offsets[b + 1] - offsets[b])
    free, part, mix = np.empty(longest), np.empty(longest), np.empty(longest)
    p, q = np.empty(longest), np.empty(longest)
    grid, row = np.empty((SMALL + 1, SMALL + 1)), np.empty(SMALL + 1)
    for b in range(first, last):
        if not math.isnan(log_p[b]):
            continue
        # An infinite logit is a known label: leave it out, with its share of the count.
        m, known = 0, 0
        for i in range(offsets[b], offsets[b + 1]):
            if math.isinf(z[i]):
                known += z[i] > 0
            else:
                free[m] = z[i]
                mix[m] = 0.0
                m += 1
        total = -np.inf
        for j in range(starts[b], starts[b + 1]):
            least, most = max(low[j] - known, 0), min(high[j] - known, m)
            if least > most:
                continue
            at = base[j] + known
            value = _piece(free[:m], least, most, tabled[j], at, table, part[:m], p, q, grid, row)
            # Mix the posteriors of the pieces, weighted by their probabilities so far.
            if value > -np.inf:
                new = max(total, value) + math.log1p(math.exp(-abs(total - value)))
                old_share, new_share = math.exp(total - new), math.exp(value - new)
                for i in range(m):
                    mix[i] = mix[i] * old_share + part[i] * new_share
                total = new
        log_p[b] = total
        m = 0
        for i in range(offsets[b], offsets[b + 1]):
            if math.isinf(z[i]):
                phi[i] = 1.0 if z[i] > 0 else 0.0
            else:
                phi[i] = min(mix[m], 1.0) if total > -np.inf else _sigmoid(z[i])
                m += 1
    return 0


@jit()
def _sigmoid(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)


@jit()
def _log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


@jit()
def _symmetric(
    exp_z: Array, begin: int, n: int, y: int, phi: Array, u: Array, prefix: Array, suffix: Array
) -> float:
    """P(y) by symmetric polynomials, counting the rarer label."""
    flip = 2 * y > n
    k = n - y if flip else y
    scale = 1.0
    for i in range(n):
        u[i] = 1.0 / exp_z[begin + i] if flip else exp_z[begin + i]
        scale *= 1.0 + u[i]
    for j in range(k + 1):
        suffix[j] = 0.0
    suffix[0] = 1.0
    prefix[0, 0] = 1.0
    for i in range(n):
        prefix[i + 1, 0] = 1.0
        for j in range(1, min(i, k) + 1):
            prefix[i + 1, j] = prefix[i, j] + u[i] * prefix[i, j - 1]
        if i < k:
            prefix[i + 1, i + 1] = u[i] * prefix[i, i]
    total = prefix[n, k]
    share = 1.0 / total
    for i in range(n - 1, -1, -1):
        value = 0.0
        for j in range(max(0, k + i - n), min(i + 1, k)):
            value += prefix[i, j] * suffix[k - 1 - j]
        value = min(value * u[i] * share, 1.0)
        phi[begin + i] = 1.0 - value if flip else value
        for j in range(min(k, n - i), 0, -1):
            suffix[j] += u[i] * suffix[j - 1]
    return float(total / scale)


# All terms are positive, so they may be added in any order, which lets loops be vectorised.
@jit(fastmath={"reassoc", "contract"})
def _symmetric_narrow(
    exp_z: Array, begin: int, n: int, y: int, phi: Array, u: Array, prefix: Array, tail: Array
) -> float:
    """Like :func:`_symmetric` for few of the rarer label: computes all of ``e_0 … e_7`` each step.

    ``tail[j]`` is the suffix polynomial that multiplies ``e_j`` of the prefix.
    """
    flip = 2 * y > n
    k = n - y if flip else y
    scale = 1.0
    for j in range(NARROW):
        prefix[0, j] = 0.0
        tail[j] = 0.0
    prefix[0, 0] = 1.0
    if k > 0:
        tail[k - 1] = 1.0
    for i in range(n):
        odds = 1.0 / exp_z[begin + i] if flip else exp_z[begin + i]
        u[i] = odds
        scale *= 1.0 + odds
        prefix[i + 1, 0] = 1.0
        for j in range(1, NARROW):
            prefix[i + 1, j] = prefix[i, j] + odds * prefix[i, j - 1]
    total = prefix[n, k]
    share = 1.0 / total
    for i in range(n - 1, -1, -1):
        value = 0.0
        for j in range(NARROW):
            value += prefix[i, j] * tail[j]
        value = min(value * u[i] * share, 1.0)
        phi[begin + i] = 1.0 - value if flip else value
        for j in range(NARROW):
            tail[j] += u[i] * tail[j + 1]
    return float(total / scale)


@jit()
def _log_weight(tabled: bool, base: int, table: Array, k: int) -> float:
    return table[base + k] if tabled else 0.0


@jit()
def _mean_at(z: Array, t: float) -> float:
    mean = 0.0
    for i in range(len(z)):
        mean += _sigmoid(z[i] + t)
    return mean


@jit()
def _piece(
    z: Array,
    low: int,
    high: int,
    tabled: bool,
    base: int,
    table: Array,
    phi: Array,
    p: Array,
    q: Array,
    grid: Array,
    row: Array,
) -> float:
    """One log-concave piece of evidence on finite logits: anchor, tilt, recursion or Fourier."""
    n = len(z)
    if low == high and (low == 0 or low == n):
        value, sign = _log_weight(tabled, base, table, low), 1.0 if low > 0 else -1.0
        for i in range(n):
            value += _log_sigmoid(sign * z[i])
            phi[i] = 1.0 if low > 0 else 0.0
        return value

    # The most probable count: see binary._anchor.
    c, end = low, high
    while c < end:
        middle = (c + end) // 2
        slope = _log_weight(tabled, base, table, middle + 1) - _log_weight(
            tabled, base, table, middle
        )
        if _mean_at(z, slope) > middle + 0.5:
            c = middle + 1
        else:
            end = middle

    # The order statistics around the anchor bracket the tilt.
    p[:n] = z
    above = _smallest(p, n, n - max(c, 1))
    below = _smallest(p, n, n - c - 1) if 0 < c < n else above
    centre = above / 2 + below / 2
    half = (above - centre) + math.log(2.0 * n)
    target = min(max(float(c), 0.5), n - 0.5)
    tau = _tilt(z, centre, target, half)
    t = tau - centre
    bounded = t
    at_c = _log_weight(tabled, base, table, c)
    if c < high:
        bounded = max(bounded, _log_weight(tabled, base, table, c + 1) - at_c)
    if c > low:
        bounded = min(bounded, at_c - _log_weight(tabled, base, table, c - 1))

    variance, scale = 0.0, at_c
    larger = 0
    for i in range(n):
        larger += z[i] > above
    ties = c - larger  # of the logits equal to the c-th largest, this many are among the top c
    for i in range(n):
        x = (z[i] - centre) + tau if bounded == t else z[i] + bounded
        p[i], q[i] = _sigmoid(x), _sigmoid(-x)
        variance += p[i] * q[i]
        top = z[i] > above
        if z[i] == above and ties > 0:
            top = True
            ties -= 1
        sign = 1.0 if top else -1.0
        scale += _log_sigmoid(sign * z[i]) - _log_sigmoid(sign * x)

    reach = math.ceil(9.0 * math.sqrt(variance)) + 26  # see binary._reach
    first, last = max(low, c - reach), min(high, c + reach)
    weight = np.empty(last - first + 1)
    for k in range(first, last + 1):
        gain = _log_weight(tabled, base, table, k) - at_c
        weight[k - first] = 1.0 if k == c else math.exp(gain - bounded * (k - c))
    if n <= SMALL:
        return scale + math.log(_recursion(p, q, first, weight, phi, grid, row))
    return scale + math.log(_fourier(p, q, variance, reach, c, first, weight, phi))


@jit()
def _smallest(x: Array, n: int, k: int) -> float:
    """The ``k``-th smallest of ``x[:n]``, which is reordered (Hoare's selection)."""
    # np.partition takes a copy, which made confident bags of 20 instances 1.6 times as slow.
    left, right = 0, n - 1
    while left < right:
        pivot = x[(left + right) // 2]
        i, j = left, right
        while i <= j:
            while x[i] < pivot:
                i += 1
            while x[j] > pivot:
                j -= 1
            if i <= j:
                x[i], x[j] = x[j], x[i]
                i += 1
                j -= 1
        if k <= j:
            right = j
        elif k >= i:
            left = i
        else:
            break
    return float(x[k])


@jit()
def _tilt(z: Array, centre: float, target: float, half: float) -> float:
    """See binary._solve."""
    n = len(z)
    tau, left, right = 0.0, -half, half
    for _ in range(200):
        mean, variance = 0.0, 0.0
        for i in range(n):
            p = _sigmoid((z[i] - centre) + tau)
            mean += p
            variance += p * (1.0 - p)
        gap = mean - target
        if abs(gap) <= 0.05:
            break
        if gap < 0:
            left = tau
        else:
            right = tau
        log_odds = math.log(target / (n - target)) - math.log(mean / (n - mean))
        newton = tau + log_odds * mean * (n - mean) / (n * variance)
        tau = newton if left < newton < right else (left + right) / 2
    return tau


@jit()
def _recursion(
    p: Array, q: Array, first: int, weight: Array, phi: Array, beta: Array, alpha: Array
) -> float:
    """Forward-backward over the counts so far: returns the weighted sum and fills ``phi``."""
    n, most = len(phi), first + len(weight) - 1
    for k in range(most + 1):
        beta[n, k] = weight[k - first] if k >= first else 0.0
        alpha[k] = 0.0
    alpha[0] = 1.0
    for i in range(n - 1, -1, -1):
        for k in range(most):
            beta[i, k] = q[i] * beta[i + 1, k] + p[i] * beta[i + 1, k + 1]
        beta[i, most] = q[i] * beta[i + 1, most]
    total = beta[0, 0]
    for i in range(n):
        value = 0.0
        for k in range(min(i + 1, most)):
            value += alpha[k] * beta[i + 1, k + 1]
        phi[i] = p[i] * value / total
        for k in range(min(i + 1, most), 0, -1):
            alpha[k] = q[i] * alpha[k] + p[i] * alpha[k - 1]
        alpha[0] *= q[i]
    return float(total)


@jit(fastmath={"reassoc", "contract"})
def _fourier(
    p: Array, q: Array, variance: float, reach: int, c: int, first: int, weight: Array, phi: Array
) -> float:
    """The tilted Fourier sum, vectorised over the frequencies; fills ``phi``."""
    n = len(phi)
    far = max(c - first, first + len(weight) - 1 - c)
    points = min(reach + 1 + far, n + 1) | 1
    used = (points + 1) // 2
    share = math.asin(math.sqrt(NEGLIGIBLE / max(variance - 0.25, NEGLIGIBLE))) / math.pi
    used = min(used, math.ceil(points * share) + 1)
    cos2, sin2 = np.empty(used), np.empty(used)  # 2 cos^2(w / 2), sin(w)
    real, imag = np.ones(used), np.zeros(used)
    for k in range(used):
        half = math.pi * k / points
        cos2[k] = 2.0 * math.cos(half) ** 2
        sin2[k] = 2.0 * math.sin(half) * math.cos(half)
    for i in range(n):
        pi, gap = p[i], q[i] - p[i]
        for k in range(used):
            a, b = gap + pi * cos2[k], pi * sin2[k]
            real[k], imag[k] = real[k] * a - imag[k] * b, real[k] * b + imag[k] * a

    total = 0.0
    for k in range(used):
        omega = 2.0 * math.pi * k / points
        a, b = 0.0, 0.0
        for j in range(len(weight)):
            angle = omega * (first + j)
            a += weight[j] * math.cos(angle)
            b -= weight[j] * math.sin(angle)
        share = (1.0 if k == 0 else 2.0) / points
        real[k], imag[k] = share * (real[k] * a - imag[k] * b), share * (real[k] * b + imag[k] * a)
        total += real[k]
        # The same product with one factor replaced by exp(i omega); cos w = 2 cos^2(w / 2) - 1.
        a, b = cos2[k] - 1.0, sin2[k]
        real[k], imag[k] = real[k] * a - imag[k] * b, real[k] * b + imag[k] * a
    for i in range(n):
        pi, gap, value = p[i], q[i] - p[i], 0.0
        for k in range(used):
            a, b = gap + pi * cos2[k], pi * sin2[k]
            value += (real[k] * a + imag[k] * b) / (a * a + b * b)
        phi[i] = min(max(pi * value / total, 0.0), 1.0)
    return total
