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

import torch
from torch import Tensor

from llpkit.errors import LLPError
from llpkit.likelihood.dispatch import Solver
from llpkit.likelihood.kernels.numba_binary import in_threads
from llpkit.likelihood.kernels.numba_repeated import DECAY, run_repeated
from llpkit.ragged import bag_index, segment_sum

_SWEEPS, _STEPS, _HALVINGS = 6, 25, 12
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
        # The sum is exact at any tilt, but only near the counts is it well above rounding.
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
            # Near the minimum, values differ by rounding alone. Negated so that NaN is worse.
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
    decay = 0.5 * DECAY / (0.5 * variance).clamp(min=0.5 * DECAY)
    used = torch.minimum(points, 2 * points * decay.sqrt().asin() / math.pi + 3)
    return torch.where(y.sort(1).values[:, :-1] > 0, used, 1.0).prod(1) / 2


def _check_grid(counts: Tensor, offsets: Tensor) -> None:
    """Refuse counts if the sum over all frequencies would take minutes."""
    if float((offsets.diff() * grid_size(counts)).sum()) > _MAX_GRID:
        raise LLPError(
            f"{counts.shape[1]} classes are too many for aggregated rows in bags this large; give "
            'one row per instance and approximation="saddlepoint", or merge rare classes'
        )
