r"""The exact likelihood of counts if rows have multiplicities: sums of multinomials.

Row i represents :math:`m_i` instances with the same logits. In the measure tilted by
:math:`t \in \mathbb{R}^K`, under which the counts y are expected, the counts of all classes but one
have the characteristic function

.. math::

    F(\omega) = \prod_i f_i(\omega)^{m_i}, \qquad f_i(\omega) = \sum_k p_{ik} e^{i \omega_k}, \qquad
    P_t(y) = \frac{1}{\prod_k M_k} \sum_{\omega} e^{-i \omega \cdot y} F(\omega),

summed over a grid of :math:`M_k` points per class. The cost depends on the number of rows, not of
instances. The class with the largest variance is left out, so that the others are at most weakly
correlated. Since :math:`|f_i|^2 = 1 - 2 \sum_{j<k} p_{ij} p_{ik} (1 - \cos(\omega_j -
\omega_k))`, a bound on ``|F|`` costs nothing, and frequencies where it is negligible are skipped.
"""

import math

import numpy as np
import torch
from torch import Tensor

from llpkit.errors import LLPError
from llpkit.likelihood.dispatch import Solver
from llpkit.likelihood.kernels.numba_binary import Array, in_threads, jit
from llpkit.ragged import bag_index, segment_sum

_SWEEPS, _STEPS, _HALVINGS = 6, 25, 12
_DECAY = 26.0
"""Frequencies with ``|F|`` below ``exp(-_DECAY)`` are left out."""
_MAX_GRID = 2e9
"""Maximum number of pairs of a row and a frequency: about a minute."""
_TINY = 1e-300


class RepeatedSolver(Solver):
    """Rows with multiplicities and exact counts, for :func:`llpkit.likelihood.dispatch.solve`.

    ``evaluate`` returns expected totals ``(R, K)``: multiplicity times posterior.
    """

    def __init__(self, offsets: Tensor, times: Tensor, counts: Tensor) -> None:
        self.offsets = offsets
        self.times = times
        self.counts = counts
        _check_grid(counts, offsets)

    def evaluate(
        self, z: Tensor, direction: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Log-probability ``(B,)``, totals ``(R, K)``, covariance of the totals times a vector."""
        z, y, bag = z.detach(), self.counts.to(z.dtype), bag_index(self.offsets)
        t = tilt(z, self.times, y, self.offsets)
        tilted = z + t[bag]
        total = tilted.logsumexp(1)  # (R,)
        shift = segment_sum(self.times * (total - z.logsumexp(1)), self.offsets)
        # A class with count zero has tilt -inf; its term 0 * -inf must be zero, not NaN.
        shift = shift - torch.where(y > 0, t * y, 0.0).sum(1)
        p = (tilted - total[:, None]).exp()
        log_p, mean = z.new_empty(len(y)), torch.zeros_like(p)
        v = z.new_zeros((0, 0)) if direction is None else direction
        second = torch.zeros_like(v)
        tensors = (p, self.times, y, self.offsets, v, log_p, mean, second)
        arrays = [x.contiguous().numpy() for x in tensors]
        in_threads(run_repeated, arrays, arrays[3], least=2**7)
        if direction is None:
            return log_p + shift, mean, None
        along = segment_sum((v * mean).sum(1), self.offsets)[bag]
        return log_p + shift, mean, second - mean * along[:, None]

    def prior(self, z: Tensor) -> Tensor:
        """Expected totals before the counts are known."""
        return self.times[:, None] * z.softmax(1)

    def refuse_impossible(self, z: Tensor) -> None:
        """With finite logits all counts are possible."""


def tilt(z: Tensor, times: Tensor, y: Tensor, offsets: Tensor) -> Tensor:
    """Tilts ``(B, K)`` under which the expected counts are ``y``, up to a fraction of a count.

    They minimise a convex function, the tilted bound: a few scaling sweeps, then Newton steps.
    """
    bag = bag_index(offsets)
    classes = y.shape[1]
    absent = torch.where(y > 0, 0.0, -torch.inf).to(z.dtype)
    t = absent.clone()

    def at(t: Tensor) -> tuple[Tensor, Tensor]:
        tilted = z + t[bag]
        total = tilted.logsumexp(1)
        value = segment_sum(times * total, offsets) - torch.where(y > 0, t * y, 0.0).sum(1)
        return value, (tilted - total[:, None]).exp()

    for _ in range(_SWEEPS):
        total = segment_sum(times[:, None] * at(t)[1], offsets)
        t = torch.where(y > 0, t + y.log() - total.clamp(min=_TINY).log(), absent)
    value, p = at(t)
    eye = torch.eye(classes, dtype=z.dtype)
    for _ in range(_STEPS):
        total = segment_sum(times[:, None] * p, offsets)  # (B, K)
        gap = total - y
        spread = segment_sum(times[:, None] * p * (1 - p), offsets).sqrt()
        if bool((gap.abs() <= 0.05 * spread + 0.02).all()):
            break
        outer = segment_sum(times[:, None, None] * p[:, :, None] * p[:, None, :], offsets)
        # Neither a common part of a tilt nor the tilt of an absent class changes the value: the
        # added constant and the ones on the diagonal make the Hessian invertible all the same.
        hessian = torch.diag_embed(total + (y == 0)) - outer + 1 / classes + 1e-9 * eye
        step = torch.linalg.solve_ex(hessian, gap)[0]
        length = torch.ones_like(value)
        for _ in range(_HALVINGS):
            trial = torch.where(y > 0, t - length[:, None] * step, absent)
            worse = ~(at(trial)[0] <= value + 1e-12 * value.abs())
            if not bool(worse.any()):
                break
            length = torch.where(worse, length / 2, length)
        t = torch.where(worse[:, None], t, trial)
        value, p = at(t)
    return t


def grid_size(counts: Tensor) -> Tensor:
    """About how many frequencies a bag with these counts ``(B, K)`` needs, float64 ``(B,)``."""
    y = counts.double()
    n = y.sum(1, keepdim=True).clamp(min=1)
    variance = (y * (1 - y / n)).sort(1).values[:, :-1]  # the largest that equal rows can have
    points = torch.minimum(n, 7.5 * variance.sqrt() + 17) + 1
    decay = 0.5 * _DECAY / (0.5 * variance).clamp(min=0.5 * _DECAY)
    used = torch.minimum(points, 2 * points * decay.sqrt().asin() / math.pi + 3)
    return torch.where(y.sort(1).values[:, :-1] > 0, used, 1.0).prod(1) / 2


def _check_grid(counts: Tensor, offsets: Tensor) -> None:
    """Refuse counts if the sum over all frequencies would take minutes."""
    if float((offsets.diff() * grid_size(counts)).sum()) > _MAX_GRID:
        raise LLPError(
            f"{counts.shape[1]} classes are too many for aggregated rows in bags this large; give "
            'one row per instance and approximation="saddlepoint", or merge rare classes'
        )


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
            decay = 0.5 * _DECAY / max(variance * (0.5 if depth > 1 else 1.0), 0.5 * _DECAY)
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
            if bound < _DECAY:
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
                if log_abs > -_DECAY:
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
