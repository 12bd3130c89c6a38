"""The Numba backend for imprecise counts of K classes on the CPU: ranges, bounds and noise.

The recursion of :mod:`.numba_classes` with weights at the end: its last state is not one count
vector but all of them, each with its weight. The classes are tilted towards the counts with the
largest weights. A bag where linear space fails is left to the torch backend.

Counts with negligible weight are left out, which saves most states. In the tilted measure
probabilities are at most one, so the largest weight of the counts left out bounds their share; if
it exceeds :data:`NEGLIGIBLE` of the result, the bag is solved again with all counts.
"""

import math

import numpy as np
from torch import Tensor

from llpkit.evidence import Evidence
from llpkit.likelihood.kernels.numba_binary import Array, jit
from llpkit.likelihood.kernels.numba_classes import LEAST, over_bags, tilt_to

NEGLIGIBLE = 1e-12
_FAR = 40.0
"""Counts whose log-weight is this far below the largest are left out at first."""


def evaluate(log_p: Tensor, offsets: Tensor, evidence: Evidence) -> tuple[Tensor, Tensor]:
    """Log-probability ``(B,)``, NaN for an unsolved bag; posterior ``(N, K)``."""
    known = (evidence.low, evidence.high, evidence.table, evidence.table_offsets)
    return over_bags(run_evidence, log_p, offsets, *known, least=2**7)


@jit()
def run_evidence(
    first: int,
    last: int,
    log_p: Array,
    offsets: Array,
    low: Array,
    high: Array,
    table: Array,
    table_offsets: Array,
    log_prob: Array,
    phi: Array,
) -> int:
    """Solve the bags ``first … last - 1``."""
    classes = log_p.shape[1]
    for b in range(first, last):
        begin, end = offsets[b], offsets[b + 1]
        n = end - begin
        weight = np.full((classes, n + 1), -np.inf)  # log-weight of every count of every class
        for k in range(classes):
            at = table_offsets[b * classes + k]
            tabled = table_offsets[b * classes + k + 1] > at
            for c in range(max(low[b, k], 0), min(high[b, k], n) + 1):
                weight[k, c] = table[at + c - low[b, k]] if tabled else 0.0
        log_prob[b] = _bag(log_p[begin:end], weight, phi[begin:end])
    return 0


@jit()
def _bag(log_p: Array, weight: Array, phi: Array) -> float:
    """Log-probability of one bag, NaN if it is left to torch; fills ``phi``."""
    n, classes = log_p.shape
    target = _target(log_p, weight)
    tilt, move = np.empty(classes), np.empty((n, classes))
    scale = tilt_to(log_p, target, tilt, move)
    if not math.isfinite(scale):
        return np.nan
    # Weights in the tilted measure, relative to the best count of each class.
    for k in range(classes):
        scale += tilt[k] * target[k]  # tilt_to has subtracted it
        for c in range(n + 1):
            weight[k, c] -= tilt[k] * c
        best = weight[k].max()
        if best == -np.inf:
            return np.nan
        scale += best
        weight[k] -= best
    for attempt in range(2):
        most = np.empty(classes, np.int64)
        lost = 0.0
        for k in range(classes):
            most[k] = n
            # The second time only impossible counts are left out.
            while most[k] > 0 and weight[k, most[k]] < (-_FAR if attempt == 0 else -1e300):
                most[k] -= 1
            for c in range(most[k] + 1, n + 1):
                lost = max(lost, math.exp(weight[k, c]))
        total = _recursion(move, np.exp(weight), most, phi)
        if total > LEAST and lost * classes <= NEGLIGIBLE * total:
            return math.log(total) + scale
    return math.log(total) + scale if total > LEAST else np.nan


@jit()
def _target(log_p: Array, weight: Array) -> Array:
    """Counts to tilt to: the expected ones, moved to where the weights are, summing to ``n``."""
    n, classes = log_p.shape
    target = np.zeros(classes)
    for i in range(n):
        for k in range(classes):
            target[k] += math.exp(log_p[i, k])
    for k in range(classes):
        best, where = -np.inf, target[k]
        for c in range(n + 1):
            # Flat weights leave the expected count as it is.
            value = weight[k, c] - 1e-3 * abs(c - target[k])
            if value > best:
                best, where = value, float(c)
        target[k] = max(where, 0.1)  # an expected count of zero would need an infinite tilt
    return target * (n / max(target.sum(), 1e-300))


# All terms are positive, so they may be added in any order, which lets loops be vectorised.
@jit(fastmath={"reassoc", "contract"})
def _recursion(move: Array, weight: Array, most: Array, phi: Array) -> float:
    """The weighted sum over all counts up to ``most``; fills ``phi``.

    States are in rows, one per combination of all but the last class of the state, and only those
    that ``i`` instances can reach are visited: a simplex, not a cube.
    """
    n, classes = move.shape
    left_out = int(np.argmax(most))
    last = classes - 1 if left_out < classes - 1 else classes - 2
    stride, states = np.zeros(classes, np.int64), 1
    for k in range(classes - 1, -1, -1):
        if k != left_out:
            stride[k] = states
            states *= most[k] + 1
    width = most[last] + 1
    used = np.zeros(states // width, np.int64)  # instances that a row's counts take up
    beta, new = np.zeros(states), np.zeros(states)
    for row in range(len(used)):
        value = 1.0
        for k in range(classes):
            if k != left_out and k != last:
                c = row * width // stride[k] % (most[k] + 1)
                used[row] += c
                value *= weight[k, c]
        for c in range(min(most[last], n - used[row]) + 1):
            rest = n - used[row] - c
            beta[row * width + c] = value * weight[last, c] * weight[left_out, rest]
    alpha = np.zeros((n + 1, states))
    alpha[0, 0] = 1.0
    for i in range(n):
        here, there = alpha[i], alpha[i + 1]
        for row in range(len(used)):
            if used[row] > i:
                continue
            begin = row * width
            end = begin + min(most[last], i - used[row]) + 1
            w = move[i, left_out]
            for s in range(begin, end):
                there[s] += w * here[s]
            w = move[i, last]
            for s in range(begin, min(end, begin + most[last])):
                there[s + 1] += w * here[s]
            for k in range(classes):
                if k != left_out and k != last:
                    w, step = move[i, k], stride[k]
                    if begin // step % (most[k] + 1) < most[k]:
                        for s in range(begin, end):
                            there[s + step] += w * here[s]
    total = 0.0
    for s in range(states):
        total += alpha[n, s] * beta[s]
    if not total > 0:
        return 0.0
    found = np.empty(classes)
    for i in range(n - 1, -1, -1):
        here = alpha[i]
        found[:] = 0.0
        for row in range(len(used)):
            if used[row] > i:
                continue
            begin = row * width
            end = begin + min(most[last], i - used[row]) + 1
            w, part = move[i, left_out], 0.0
            for s in range(begin, end):
                new[s] = w * beta[s]
                part += here[s] * beta[s]
            found[left_out] += part
            w, part = move[i, last], 0.0
            for s in range(begin, min(end, begin + most[last])):
                new[s] += w * beta[s + 1]
                part += here[s] * beta[s + 1]
            found[last] += part
            for k in range(classes):
                if k != left_out and k != last:
                    w, step, part = move[i, k], stride[k], 0.0
                    if begin // step % (most[k] + 1) < most[k]:
                        for s in range(begin, end):
                            new[s] += w * beta[s + step]
                            part += here[s] * beta[s + step]
                        found[k] += part
        for k in range(classes):
            phi[i, k] = min(move[i, k] * found[k] / total, 1.0)
        beta, new = new, beta
    return total
