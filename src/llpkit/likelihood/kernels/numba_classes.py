r"""The Numba backend for exact counts of K classes on the CPU.

The recursion of :mod:`llpkit.likelihood.classes`, but in linear space and in the tilted measure: a
few Sinkhorn sweeps choose ``t`` so that the expected counts are close to the known ones. There the
probability of the counts is not small and every term is positive, so nothing cancels or underflows.
A bag where that fails (its logits are too far apart) is left to the torch backend.
"""

import math
from collections.abc import Callable

import numpy as np
from torch import Tensor

from llpkit.likelihood.kernels.numba_binary import Array, in_threads, jit

_SWEEPS = 12
LEAST = 1e-140
"""A tilted probability below this is not trusted: its terms may have underflowed."""


def evaluate(log_p: Tensor, offsets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability ``(B,)``, NaN for an unsolved bag; posterior ``(N, K)``."""
    # An instance costs as much as its bag has states, far more than in a binary bag.
    return over_bags(run_classes, log_p, offsets, counts, least=2**7)


def over_bags(
    kernel: Callable[..., int], log_p: Tensor, offsets: Tensor, *known: Tensor, least: int
) -> tuple[Tensor, Tensor]:
    """Run a kernel that fills the log-probability ``(B,)`` and the posterior ``(N, K)``."""
    log_prob, phi = log_p.new_empty(len(offsets) - 1), log_p.new_zeros(log_p.shape)
    tensors = (log_p, offsets, *known, log_prob, phi)
    arrays = [x.detach().contiguous().numpy() for x in tensors]
    in_threads(kernel, arrays, arrays[1], least=least)
    return log_prob, phi


@jit()
def run_classes(
    first: int, last: int, log_p: Array, offsets: Array, counts: Array, log_prob: Array, phi: Array
) -> int:
    """Solve the bags ``first … last - 1``."""
    classes = log_p.shape[1]
    stride, tilt = np.empty(classes, np.int64), np.empty(classes)
    for b in range(first, last):
        begin, end = offsets[b], offsets[b + 1]
        y = counts[b]
        if y.sum() != end - begin or y.min() < 0:
            log_prob[b] = -np.inf
            phi[begin:end] = np.exp(log_p[begin:end])
            continue
        # The count of one class follows from the others. The largest would cost the most states.
        left_out = int(np.argmax(y))
        states = 1
        for k in range(classes - 1, -1, -1):
            stride[k] = 0 if k == left_out else states
            states *= 1 if k == left_out else y[k] + 1
        move = np.empty((end - begin, classes))
        scale = tilt_to(log_p[begin:end], y, tilt, move)
        p = _recursion(move, y, left_out, stride, states, phi[begin:end])
        log_prob[b] = math.log(p) + scale if p > LEAST and math.isfinite(scale) else np.nan
    return 0


@jit()
def tilt_to(log_p: Array, y: Array, t: Array, move: Array) -> float:
    """Write tilted class probabilities to ``move``; returns ``log P(y) - log P_t(y)``."""
    n, classes = log_p.shape
    for k in range(classes):
        t[k] = 0.0 if y[k] > 0 else -np.inf
    total = np.empty(classes)
    for sweep in range(_SWEEPS + 1):  # the last one does not move the tilt
        scale = 0.0
        total[:] = 0.0
        for i in range(n):
            top, norm = -np.inf, 0.0
            for k in range(classes):
                top = max(top, log_p[i, k] + t[k])
            for k in range(classes):
                move[i, k] = math.exp(log_p[i, k] + t[k] - top)
                norm += move[i, k]
            for k in range(classes):
                move[i, k] /= norm
                total[k] += move[i, k]
            scale += top + math.log(norm)
        if sweep < _SWEEPS:
            for k in range(classes):
                if y[k] > 0:
                    t[k] += math.log(y[k] / total[k])
    for k in range(classes):
        if y[k] > 0:
            scale -= t[k] * y[k]
    return scale


# All terms are positive, so they may be added in any order, which lets loops be vectorised.
@jit(fastmath={"reassoc", "contract"})
def _recursion(
    move: Array, y: Array, left_out: int, stride: Array, states: int, phi: Array
) -> float:
    """P of the counts; fills ``phi``. One more of class ``k`` moves ``stride[k]`` states ahead.

    Within a block of ``stride[k] * (y[k] + 1)`` states the moves of class ``k`` are one shift.
    """
    n, classes = move.shape
    alpha = np.zeros((n + 1, states))
    alpha[0, 0] = 1.0
    for i in range(n):
        here, there = alpha[i], alpha[i + 1]
        w = move[i, left_out]
        for s in range(states):
            there[s] = w * here[s]
        for k in range(classes):
            if k != left_out and y[k] > 0:
                w, step = move[i, k], stride[k]
                for block in range(0, states, step * (y[k] + 1)):
                    for s in range(block, block + step * y[k]):
                        there[s + step] += w * here[s]
    total = alpha[n, states - 1]
    if not total > 0:
        return 0.0
    beta, new = np.zeros(states), np.empty(states)
    beta[states - 1] = 1.0
    for i in range(n - 1, -1, -1):
        here = alpha[i]
        w, value = move[i, left_out], 0.0
        for s in range(states):
            new[s] = w * beta[s]
            value += here[s] * beta[s]
        phi[i, left_out] = min(w * value / total, 1.0)
        for k in range(classes):
            if k != left_out and y[k] > 0:
                w, step, value = move[i, k], stride[k], 0.0
                for block in range(0, states, step * (y[k] + 1)):
                    for s in range(block, block + step * y[k]):
                        new[s] += w * beta[s + step]
                        value += here[s] * beta[s + step]
                phi[i, k] = min(w * value / total, 1.0)
        beta, new = new, beta
    return float(total)
