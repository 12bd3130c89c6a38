"""The Numba backend of the pruned recursion: see :mod:`llpkit.likelihood.pruned`."""

import math

import numpy as np

from llpkit.likelihood.kernels.numba_binary import Array, jit
from llpkit.likelihood.pruned import EPSILON, ROUNDING, STATES, WIDTH

_SLOTS = 4 * WIDTH


@jit()
def pruned(q: Array, y: Array, alpha: Array, child: Array, phi: Array) -> float:
    """``log P`` of the counts of one bag, NaN if it has too many states; fills ``phi``.

    Args:
        q: Tilted probabilities ``(n, K)`` of the classes present.
        y: Counts ``(K,)``, all positive.
        alpha: Room for the probabilities of ``STATES`` states.
        child: Room for the states after one more of a class, int16 ``(STATES, K)``.
        phi: Posterior ``(n, K)``.
    """
    n, kept = q.shape
    sure, code = np.empty(n), np.empty(kept, np.int64)
    mean, variance = np.zeros(kept), np.zeros(kept)  # of the counts among instances to come
    for i in range(n):
        sure[i] = 0.0
        for k in range(kept):
            sure[i] = max(sure[i], q[i, k])
            mean[k] += q[i, k]
            variance[k] += q[i, k] * (1.0 - q[i, k])
    order = np.argsort(-sure, kind="mergesort")  # stable
    hashed = np.int64(1)
    for k in range(kept):
        hashed = hashed * np.int64(6364136223846793005) + np.int64(1442695040888963407)
        code[k] = hashed
    # States of two positions: their number in the hash table, key, and counts still to come.
    slot = np.full(_SLOTS, -1, np.int64)
    key, left = np.empty((2, WIDTH), np.int64), np.empty((2, WIDTH, kept), np.int64)
    start = np.zeros(n + 2, np.int64)
    key[0, 0], alpha[0], start[1] = 0, 1.0, 1
    for k in range(kept):
        left[0, 0, k] = y[k]
    reference = 1.0
    for i in range(n):
        row, here, there = order[i], i % 2, 1 - i % 2
        for k in range(kept):
            mean[k] -= q[row, k]
            variance[k] -= q[row, k] * (1.0 - q[row, k])
        first, found, total = start[i + 1], 0, 0.0
        for s in range(start[i], first):
            guide, own = 0.0, s - start[i]
            for k in range(kept):
                far = left[here, own, k] - mean[k]
                guide -= far * far / (2.0 * (variance[k] + ROUNDING))
            for k in range(kept):
                child[s, k] = -1
                weight = alpha[s] * q[row, k]
                # The normal density is at most 1.
                if left[here, own, k] == 0 or weight <= EPSILON * reference:
                    continue
                far = left[here, own, k] - mean[k]
                weighed = guide + (2.0 * far - 1.0) / (2.0 * (variance[k] + ROUNDING))
                likely = weight * math.exp(weighed)
                if likely <= EPSILON * reference:
                    continue
                total += likely
                code_there = key[here, own] + code[k]
                # Upper bits: the lowest bits of such a generator repeat after few numbers.
                at = (code_there >> 40) & (_SLOTS - 1)
                base = i * WIDTH  # smaller numbers in the table are of earlier positions
                while slot[at] >= base and key[there, slot[at] - base] != code_there:
                    at = (at + 1) & (_SLOTS - 1)
                if slot[at] < base:
                    if found == WIDTH or first + found == STATES:
                        return np.nan
                    slot[at] = base + found
                    key[there, found] = code_there
                    for other in range(kept):
                        left[there, found, other] = left[here, own, other]
                    left[there, found, k] -= 1
                    alpha[first + found] = 0.0
                    found += 1
                child[s, k] = slot[at] - base
                alpha[first + slot[at] - base] += weight
        if found == 0:
            return np.nan
        start[i + 2], reference = first + found, total
    result = alpha[start[n]]  # all counts are used up, so there is one state
    beta, before = np.empty(WIDTH), np.empty(WIDTH)
    beta[0] = 1.0
    for i in range(n - 1, -1, -1):
        row = order[i]
        for k in range(kept):
            phi[row, k] = 0.0
        for s in range(start[i], start[i + 1]):
            value = 0.0
            for k in range(kept):
                if child[s, k] >= 0:
                    flow = q[row, k] * beta[child[s, k]]
                    value += flow
                    phi[row, k] += alpha[s] * flow / result
            before[s - start[i]] = value
        beta, before = before, beta
    return math.log(result)
