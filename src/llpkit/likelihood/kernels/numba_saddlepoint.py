"""The Numba backend of the saddlepoint approximation: K classes on the CPU, exact counts.

The formulas of :mod:`llpkit.likelihood.saddlepoint`, bag by bag and in linear space: the weights
``u`` are exponentials of the logits, so that tilting multiplies columns and needs no exponential.
A bag whose logits are too far apart for that, or whose tilt is not found, is left to torch. In
confident bags :mod:`.numba_pruned` takes over.
"""

import math

import numpy as np
from torch import Tensor

from llpkit.likelihood.kernels.numba_binary import Array, jit
from llpkit.likelihood.kernels.numba_classes import over_bags
from llpkit.likelihood.kernels.numba_pruned import pruned
from llpkit.likelihood.pruned import FEW, STATES
from llpkit.likelihood.saddlepoint import (
    CENTRINGS,
    LEAST,
    MOST,
    NEGLIGIBLE,
    NIL,
    NOISE,
    PASSES,
    RIDGE,
    SURE,
    TINY,
)

_SPREAD = 600.0
"""Largest difference of a row's log-probabilities in linear space."""
_SWEEPS, _STEPS, _HALVINGS = 4, 40, 12
_TOLERANCE = 1e-9
_MOST_FREQUENCIES = 24


def evaluate(log_p: Tensor, offsets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability ``(B,)``, NaN for an unsolved bag; posterior ``(N, K)``."""
    return over_bags(run_saddlepoint, log_p, offsets, counts, least=2**11)


@jit()
def run_saddlepoint(
    first: int, last: int, log_p: Array, offsets: Array, counts: Array, log_prob: Array, phi: Array
) -> int:
    """Solve the bags ``first … last - 1``."""
    classes, longest = log_p.shape[1], 0
    for b in range(first, last):
        longest = max(longest, offsets[b + 1] - offsets[b])
    grid = np.empty((5, longest, classes))
    alpha, child = np.empty(STATES), np.empty((STATES, classes), np.int16)
    for b in range(first, last):
        begin, end = offsets[b], offsets[b + 1]
        y = counts[b]
        if y.sum() != end - begin or y.min() < 0:
            log_prob[b] = -np.inf
            phi[begin:end] = np.exp(log_p[begin:end])
            continue
        present = np.flatnonzero(y)
        log_prob[b] = _bag(
            log_p[begin:end], y[present], present, grid, alpha, child, phi[begin:end]
        )
    return 0


@jit()
def _bag(
    log_p: Array, y: Array, present: Array, grid: Array, alpha: Array, child: Array, phi: Array
) -> float:
    """Log-probability of one bag, NaN if it is left to torch; fills ``phi``."""
    n, kept = len(log_p), len(present)
    if kept == 0:
        return 0.0
    u, q, x = grid[0, :n, :kept], grid[1, :n, :kept], grid[2, :n, :kept]
    m, p = grid[3, :n, :kept], grid[4, :n, :kept]
    shift = 0.0
    for i in range(n):
        top, bottom = -np.inf, np.inf
        for k in range(kept):
            value = log_p[i, present[k]]
            top = max(top, value)
            if value > -np.inf:
                bottom = min(bottom, value)
        if not top - bottom <= _SPREAD:  # also if no class is possible
            return np.nan
        shift += top
        for k in range(kept):
            u[i, k] = math.exp(log_p[i, present[k]] - top)
            m[i, k] = 1.0
    tilt = np.ones(kept)
    bound = _tilt(u, y, tilt, q)
    if math.isnan(bound):
        return np.nan
    result = bound
    x[:] = q
    share = np.zeros(kept)
    covariance, response = np.empty((kept, kept)), np.empty((kept, kept))
    first = bound
    for step in range(PASSES if kept > 1 else 0):
        _respond(x, covariance, response)
        for k in range(kept):
            log_margin = _leave_one_out(x, m, p, k, y[k])
            if step == 1:
                result += share[k] * log_margin
        log_norm = _mix(q, m, response, p, u)  # the factors' logarithms are in p
        bound = _tilt(u, y, tilt, x)
        if math.isnan(bound):
            return np.nan
        if step == 0:
            _dimensions(response, covariance, share)
            result += log_norm + bound + _correction(covariance, share)
            for i in range(n):
                for k in range(kept):
                    result -= x[i, k] * (p[i, k] - share[k] * math.log(m[i, k]))
    part = min(max(min(kept, FEW) - (first - result), 0.0), 1.0)  # see pruned.weight
    if kept > 2 and part > 0 and n < STATES:
        log_p_tilted = pruned(q, y, alpha, child, m)
        if not math.isnan(log_p_tilted):
            result += part * (first + log_p_tilted - result)
            for i in range(n):
                for k in range(kept):
                    x[i, k] += part * (m[i, k] - x[i, k])
    for i in range(n):
        for k in range(kept):
            phi[i, present[k]] = x[i, k]
    return result + shift


@jit(fastmath={"reassoc", "contract"})
def _tilt(u: Array, y: Array, tilt: Array, q: Array) -> float:
    """Fill ``q``, the rows of ``u`` times ``tilt``, normalised, with columns that sum to ``y``.

    Returns the bound relative to ``u``, or NaN if the tilt is not found.
    """
    n, kept = u.shape
    total, matrix, step = np.empty(kept), np.empty((kept, kept)), np.empty(kept)
    trial = np.empty(kept)
    tilt[:] = 1.0
    bound = _apply(u, y, tilt, q, total)
    for _ in range(_SWEEPS):
        for k in range(kept):
            tilt[k] *= y[k] / total[k]
        bound = _apply(u, y, tilt, q, total)
    for _ in range(_STEPS):
        off = 0.0
        for k in range(kept):
            off = max(off, abs(total[k] - y[k]))
        if off <= _TOLERANCE * n:
            return bound
        _covariance(q, matrix)
        for k in range(kept):
            step[k] = total[k] - y[k]
            for other in range(kept):
                matrix[k, other] += 1.0 / kept  # adding a constant to the tilt changes nothing
            matrix[k, k] += 1e-12
        _solve(matrix, step)
        length = 1.0
        for _ in range(_HALVINGS):
            for k in range(kept):
                trial[k] = tilt[k] * math.exp(-length * step[k])
            new = _apply(u, y, trial, q, total)
            if new <= bound + 1e-12 * abs(bound):
                break
            length /= 2
        else:
            return np.nan
        bound = new
        tilt[:] = trial
    return np.nan


@jit(fastmath={"reassoc", "contract"})
def _apply(u: Array, y: Array, tilt: Array, q: Array, total: Array) -> float:
    """Fill ``q`` and its column sums; returns the bound, NaN if something overflows."""
    n, kept = u.shape
    bound, product = 0.0, 1.0
    total[:] = 0.0
    for i in range(n):
        norm = 0.0
        for k in range(kept):
            q[i, k] = u[i, k] * tilt[k]
            norm += q[i, k]
        scale = 1.0 / norm
        for k in range(kept):
            q[i, k] *= scale
            total[k] += q[i, k]
        # One logarithm per several factors, as long as their product is in range.
        if 1e-100 < norm < 1e100:
            product *= norm
            if not 1e-150 < product < 1e150:
                bound += math.log(product)
                product = 1.0
        else:
            bound += math.log(norm)
    bound += math.log(product)
    for k in range(kept):
        bound -= y[k] * math.log(tilt[k])
    return bound


@jit(fastmath={"reassoc", "contract"})
def _covariance(q: Array, matrix: Array) -> None:
    """Fill the Laplacian of the edge weights ``sum_i q_ik q_il``."""
    n, kept = q.shape
    matrix[:] = 0.0
    for i in range(n):
        for k in range(kept):
            value = q[i, k]
            for other in range(kept):
                matrix[k, other] -= value * q[i, other]
    for k in range(kept):
        matrix[k, k] = 0.0
        matrix[k, k] = -matrix[k].sum()


@jit()
def _solve(matrix: Array, right: Array) -> None:
    """Solve a symmetric positive definite system in place, by elimination."""
    size = len(right)
    for j in range(size):
        for k in range(j + 1, size):
            factor = matrix[k, j] / matrix[j, j]
            for other in range(j + 1, size):
                matrix[k, other] -= factor * matrix[j, other]
            right[k] -= factor * right[j]
    for j in range(size - 1, -1, -1):
        for k in range(j + 1, size):
            right[j] -= matrix[j, k] * right[k]
        right[j] /= matrix[j, j]


@jit()
def _respond(x: Array, covariance: Array, response: Array) -> None:
    """Fill the covariance and the matrix ``W``: see saddlepoint.respond."""
    kept = x.shape[1]
    _covariance(x, covariance)
    root, scale, trace = np.zeros(kept), np.zeros(kept), 0.0
    for k in range(kept):
        if covariance[k, k] > NIL:
            root[k] = math.sqrt(covariance[k, k])
            scale[k] = 1.0 / root[k]
            trace += covariance[k, k]
    trace = max(trace, 1e-300)
    matrix = np.empty((kept, kept))
    for k in range(kept):
        for other in range(kept):
            matrix[k, other] = root[k] * root[other] / trace
            if k == other:
                matrix[k, other] += 1.0 + RIDGE * scale[k] * scale[k]
            else:
                matrix[k, other] += covariance[k, other] * scale[k] * scale[other]
            response[k, other] = 1.0 if k == other else 0.0
    for j in range(kept):  # elimination, of all columns of the inverse at once
        pivot = 1.0 / matrix[j, j]
        for k in range(kept):
            if k != j:
                factor = matrix[k, j] * pivot
                for other in range(j + 1, kept):
                    matrix[k, other] -= factor * matrix[j, other]
                for other in range(kept):
                    response[k, other] -= factor * response[j, other]
    for k in range(kept):
        factor = (1.0 + RIDGE / 2 * scale[k] * scale[k]) * scale[k] / matrix[k, k]
        for other in range(kept):
            response[k, other] *= factor * root[other]


@jit()
def _mix(q: Array, m: Array, response: Array, gain: Array, u: Array) -> float:
    """Fill ``gain = W log m_i`` and ``u``, ``q exp(gain)`` normalised; the log-normalisers' sum."""
    n, kept = q.shape
    log_m, result = np.empty(kept), 0.0
    for i in range(n):
        for k in range(kept):
            log_m[k] = math.log(m[i, k])
        top = -np.inf
        for k in range(kept):
            value = 0.0
            for other in range(kept):
                value += response[k, other] * log_m[other]
            gain[i, k] = value
            if q[i, k] > 0:
                top = max(top, value)
        norm = 0.0
        for k in range(kept):
            u[i, k] = q[i, k] * math.exp(gain[i, k] - top) if q[i, k] > 0 else 0.0
            norm += u[i, k]
        for k in range(kept):
            u[i, k] /= norm
        result += top + math.log(norm)
    return result


@jit()
def _dimensions(response: Array, covariance: Array, share: Array) -> None:
    """Fill the weights of the margins: see saddlepoint.dimensions."""
    kept = len(share)
    root, scale = np.zeros(kept), np.zeros(kept)
    for k in range(kept):
        if covariance[k, k] > NIL:
            root[k] = math.sqrt(covariance[k, k])
            scale[k] = 1.0 / root[k]
    matrix = np.empty((kept, kept))
    for k in range(kept):
        share[k] = 0.0
        here = scale[k] * scale[k]
        for other in range(kept):
            matrix[k, other] = 1.0 + TINY
            if k != other:
                edge, there = -covariance[k, other], scale[other] * scale[other]
                far = (response[k, k] - response[other, k]) * here
                far += (response[other, other] - response[k, other]) * there
                share[k] += edge * far * scale[k]
                matrix[k, other] = edge * scale[k] * scale[other]
    _solve(matrix, share)
    for k in range(kept):
        share[k] = min(max(share[k] * root[k], 0.0), 1.0)


@jit(fastmath={"reassoc", "contract"})
def _leave_one_out(x: Array, m: Array, p: Array, k: int, y: int) -> float:
    """Replace column ``k`` of the factors ``m``; returns ``log C`` for the old ones."""
    n = len(x)
    if y >= n:
        return 0.0
    for i in range(n):
        p[i, 0] = x[i, k] / (max(1.0 - x[i, k], 1e-15) * m[i, k])  # odds
    move = 1.0
    for turn in range(CENTRINGS + 1):
        mean, variance = 0.0, 0.0
        for i in range(n):
            odds = p[i, 0] * move
            rest = 1.0 / (1.0 + odds)
            mean += odds * rest
            variance += odds * rest * rest
        if turn == CENTRINGS or abs(mean - y) < 0.01 or not (0 < mean < n and variance > 0):
            break
        log_odds = math.log(y * (n - mean) / (mean * (n - y)))
        move *= math.exp(min(max(log_odds * mean * (n - mean) / (n * variance), -4.0), 4.0))

    points = (min(math.ceil(6.0 * math.sqrt(variance)) + 11, n) + 1) | 1
    share = math.asin(math.sqrt(NEGLIGIBLE / max(variance - 0.25, NEGLIGIBLE))) / math.pi
    used = min((points + 1) // 2, math.ceil(points * share) + 1, _MOST_FREQUENCIES)
    cos2, sin2 = np.empty(used), np.empty(used)  # 2 cos^2(w / 2), sin(w)
    real, imag = np.ones(used), np.zeros(used)
    for j in range(used):
        half = math.pi * j / points
        cos2[j] = 2.0 * math.cos(half) ** 2
        sin2[j] = 2.0 * math.sin(half) * math.cos(half)
    for i in range(n):
        odds = p[i, 0] * move
        rest = 1.0 / (1.0 + odds)
        chance, gap = odds * rest, rest - odds * rest
        for j in range(used):
            a, b = gap + chance * cos2[j], chance * sin2[j]
            real[j], imag[j] = real[j] * a - imag[j] * b, real[j] * b + imag[j] * a
    total, log_c = 0.0, -y * math.log(move)
    more, less = np.empty(used), np.empty(used)
    for j in range(used):
        angle = 2.0 * math.pi * j / points * y
        share = (1.0 if j == 0 else 2.0) / points
        a, b = math.cos(angle) * share, -math.sin(angle) * share
        real[j], imag[j] = real[j] * a - imag[j] * b, real[j] * b + imag[j] * a
        total += real[j]
        # Times exp(i omega): one positive fewer among the others.
        a, b = cos2[j] - 1.0, sin2[j]
        more[j], less[j] = real[j] * a - imag[j] * b, real[j] * b + imag[j] * a
    for i in range(n):
        odds = p[i, 0] * move
        rest = 1.0 / (1.0 + odds)
        log_c -= math.log(rest / max(1.0 - x[i, k], 1e-15))
        chance, gap = odds * rest, rest - odds * rest
        same, fewer = 0.0, 0.0
        for j in range(used):
            a, b = gap + chance * cos2[j], chance * sin2[j]
            scale = 1.0 / (a * a + b * b)
            same += (real[j] * a + imag[j] * b) * scale
            fewer += (more[j] * a + less[j] * b) * scale
        m[i, k] = min(max(max(fewer, NOISE) / max(same, NOISE), LEAST), MOST)
    return math.log(max(total, 1e-300)) + log_c


@jit()
def _correction(covariance: Array, share: Array) -> float:
    """See saddlepoint.correction."""
    kept, value = len(share), 0.0
    left = covariance.copy()
    alive = np.ones(kept, np.bool_)
    for k in range(kept):
        value += share[k] * _log_width(covariance[k, k])
    for _ in range(kept - 1):
        at = -1
        for k in range(kept):
            if alive[k] and (at < 0 or left[k, k] > left[at, at]):
                at = k
        pivot = left[at, at]
        value -= _log_width(pivot)
        alive[at] = False
        if pivot > 1e-12:
            for k in range(kept):
                factor = left[k, at] / pivot
                if k != at:
                    for other in range(kept):
                        left[k, other] -= factor * left[at, other]
    return value


@jit()
def _log_width(variance: float) -> float:
    return math.log1p((2.0 * math.pi / SURE * max(variance, 0.0)) ** 2) / 4
