"""The Numba kernel for rows with multiplicities: the sum over frequencies.

The mathematics is in :mod:`llpkit.statistics.repeated`, which tilts the probabilities beforehand.
"""

import math

import numpy as np

from llpkit.likelihood.kernels.numba_binary import Array, jit

DECAY = 26.0
"""Frequencies with ``|F|`` below ``exp(-DECAY)`` are left out."""
_TINY = 1e-300


@jit()
def run_repeated(
    first: int,
    last: int,
    p: Array,
    times: Array,
    y: Array,
    offsets: Array,
    v: Array,
    log_p: Array,
    mean: Array,
    second: Array,
) -> int:
    """Solve the bags ``first … last - 1``; with directions ``v`` also their second moments."""
    classes = p.shape[1]
    directed = v.shape[0] > 0
    depth = classes - 1
    order, points = np.empty(classes, np.int64), np.empty(depth)
    used, at = np.empty(depth, np.int64), np.empty(depth, np.int64)
    together = np.empty((classes, classes))
    omega, wave = np.zeros(classes), np.ones(classes, np.complex128)
    for b in range(first, last):
        begin, end = offsets[b], offsets[b + 1]
        rows = end - begin
        together[:] = 0.0
        n = 0.0
        for i in range(begin, end):
            n += times[i]
            for j in range(classes):
                for k in range(classes):
                    together[j, k] += times[i] * p[i, j] * p[i, k]
        # Leave out the class with the largest variance. The tilt makes y the expected counts, so
        # the variance of class k is the sum of m p (1 - p) = y - together.
        left_out, largest = 0, -1.0
        for k in range(classes):
            variance = y[b, k] - together[k, k]
            if variance > largest:
                left_out, largest = k, variance
        free = 0
        for k in range(classes):
            if k != left_out:
                order[free] = k
                free += 1
        weight = 1.0
        for a in range(depth):
            k = order[a]
            variance = max(0.0, y[b, k] - together[k, k])
            m = min(n, math.ceil(7.5 * math.sqrt(variance)) + 17) + 1
            while m % 2 == 0 or m % 3 == 0:  # then no factor of equal probabilities vanishes
                m += 1
            if y[b, k] == 0:
                m = 1
            points[a] = m
            weight /= m
            used[a] = int((m + 1) // 2)
            # Given the other classes, the variance is at least half as large.
            decay = 0.5 * DECAY / max(variance * (0.5 if depth > 1 else 1.0), 0.5 * DECAY)
            used[a] = min(used[a], int(m * math.asin(math.sqrt(decay)) / math.pi) + 2)
        # An odometer over the frequencies. Opposite ones are complex conjugates, so the first
        # class runs over the non-negative half only, and its positive terms count twice below.
        at[0] = 0
        for a in range(1, depth):
            at[a] = 1 - used[a]
        factor = np.empty(rows, np.complex128)
        total = 0.0
        while True:
            for a in range(depth):
                omega[order[a]] = 2 * math.pi * at[a] / points[a]
            omega[left_out] = 0.0
            bound = 0.0  # |F| is at most exp(-bound)
            for j in range(classes):
                for k in range(j):
                    bound += together[j, k] * (1 - math.cos(omega[j] - omega[k]))
            if bound < DECAY:
                log_abs, phase = 0.0, 0.0
                for k in range(classes):
                    wave[k] = complex(math.cos(omega[k]), math.sin(omega[k]))
                    phase -= omega[k] * y[b, k]
                for r in range(rows):
                    i = begin + r
                    f = 0j
                    for k in range(classes):
                        f += p[i, k] * wave[k]
                    size = max(f.real * f.real + f.imag * f.imag, _TINY)
                    log_abs += times[i] * 0.5 * math.log(size)
                    phase += times[i] * math.atan2(f.imag, f.real)
                    factor[r] = f.conjugate() / size  # 1 / f: F without one instance of the row
                if log_abs > -DECAY:
                    scale = weight * math.exp(log_abs) * (1 if at[0] == 0 else 2)
                    term = complex(scale * math.cos(phase), scale * math.sin(phase))
                    total += term.real
                    along = 0j
                    if directed:
                        for r in range(rows):
                            i = begin + r
                            for k in range(classes):
                                along += times[i] * v[i, k] * p[i, k] * wave[k] * factor[r]
                    # The transform of an expected total is F with f replaced by p e^(i omega) for
                    # one instance of the row; for products of totals, for two instances.
                    for r in range(rows):
                        i = begin + r
                        own = term * factor[r] * times[i]
                        rest = along
                        if directed:
                            for k in range(classes):  # an instance is not paired with itself
                                rest -= v[i, k] * p[i, k] * wave[k] * factor[r]
                        for k in range(classes):
                            g = own * p[i, k] * wave[k]
                            mean[i, k] += g.real
                            if directed:
                                second[i, k] += (g * (rest + v[i, k])).real
            a = 0  # the next frequency
            while a < depth:
                at[a] += 1
                if at[a] < used[a]:
                    break
                at[a] = 0 if a == 0 else 1 - used[a]
                a += 1
            if a == depth:
                break
        log_p[b] = math.log(total) if total > 0 else np.nan
        for i in range(begin, end):
            for k in range(classes):
                mean[i, k] /= total
                if directed:
                    second[i, k] /= total
    return 0
