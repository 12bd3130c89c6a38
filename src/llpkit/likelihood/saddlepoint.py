r"""The saddlepoint approximation for K classes: nearly exact, at a cost linear in the instances.

In the tilted measure (see :mod:`.approximations`) with probabilities :math:`q_i`, the counts have
mean :math:`y` and covariance :math:`\Sigma = \sum_i \operatorname{diag}(q_i) - q_i q_i^\top`, and
every single count has a Poisson-binomial margin :math:`P_k` that a Fourier sum gives exactly.

**Posterior.** :math:`\varphi_{ik} \propto q_{ik} P_{-i}(y - e_k)`, the counts of the others. If
these were normal, :math:`\log P_{-i}(y - e_k)` would be a linear function of the factors that
their margins would give,

.. math::

    \varphi_i \propto q_i \exp(W \log m_i), \qquad W = \Sigma^+ \operatorname{diag}(\Sigma), \qquad
    m_{ik} = \frac{P_{-i,k}(y_k - 1)}{P_{-i,k}(y_k)},

up to a tilt. This is used with the exact margins, and tilted so that columns sum to the counts.
Further passes take the margins from the improved posterior with each instance's own factor
:math:`m_{ik}` divided out, and the covariance from it too, as in belief propagation.

**Likelihood.** The first pass replaces the constraints by factors :math:`\exp(W \log m_i)`, whose
normaliser is known. What is left of the constraint on class ``k`` is the probability
:math:`C_k(y_k)` of its count if the labels are drawn from :math:`\varphi` and weighted by
:math:`1 / m_{ik}`. The normal density corrects for counts that are not independent:

.. math::

    \log P(y) \approx \text{bound} + \log \text{normaliser}
    + \sum_k w_k \bigl[\log C_k(y_k) + \tfrac12 \log 2\pi\Sigma_{kk}\bigr]
    - \tfrac12 \log\det 2\pi\Sigma - \sum_{ik} \varphi_{ik} (W \log m_i - w \log m_i)_k.

The weights :math:`w_k`, between 0 and 1, share out the K' - 1 dimensions of the counts of the K'
classes present (the last count follows from the others). :math:`\Sigma` is the Laplacian of a graph
with edge weights :math:`\sum_i q_{ik} q_{il}`; if its resistance between the classes ``k`` and
``l`` is :math:`D_k + D_l`, then :math:`w_k = D_k \Sigma_{kk}`. Where it is not, ``D`` is the least
squares fit. For equal instances :math:`w_k = 1 - y_k / n`.

Both formulas are exact for two classes. The remaining error is in confident bags of more classes,
which :mod:`.pruned` improves.
"""

import math

import torch
from torch import Tensor

from llpkit.likelihood.approximations import check_totals, derivative, solve, tilt
from llpkit.likelihood.binary import characteristic, frequencies
from llpkit.likelihood.pruned import refine
from llpkit.ragged import bag_index, segment_sum

# PASSES, SURE and RIDGE were chosen on simulated bags of 16 with ten classes.
PASSES = 3
NEGLIGIBLE = 9.5
"""Frequencies whose product is provably below ``exp(-2 * NEGLIGIBLE)`` are left out."""
CENTRINGS = 3
LEAST, MOST = 1e-9, 1e9
"""Range of the factors ``m``: beyond it they are rounding, of labels that are certain anyway."""
SURE = 1.5
"""A count with ``2 pi`` times its variance below this is practically certain."""
RIDGE = 1e-3
"""Added to variances in ``W``: a sum of counts with a smaller variance is as good as certain."""
TINY = 1e-9
NIL = 1e-30
"""A smaller variance is zero: its inverse may overflow."""
NOISE = 1e-12
"""Probabilities of margins below this are rounding."""


def saddlepoint(
    log_p: Tensor,
    counts: Tensor,
    offsets: Tensor,
    direction: Tensor | None = None,
    *,
    strict: bool = True,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log-probability ``(B,)``, posterior ``(N, K)``, and its derivative along a direction.

    The derivative is that of tilted probabilities equal to the posterior. ``strict`` refuses a bag
    whose tilt cannot be found.
    """
    y = counts.to(log_p.dtype)
    bound, q, total = tilt(log_p, y, offsets, solve(log_p, y, offsets))
    if strict:
        check_totals(total, y)
    bag = bag_index(offsets)
    phi, m, log_prob = q, torch.ones_like(q), bound
    share = torch.zeros_like(y)
    for step in range(PASSES):
        response, covariance = respond(phi, offsets)
        m, log_margin = leave_one_out(phi, m, y, offsets)
        if step == 1:
            log_prob = log_prob + (share * log_margin).sum(1)
        gain = mix(response, m.log(), offsets)
        log_phi = q.log() + gain
        log_norm = log_phi.logsumexp(1, keepdim=True)
        log_phi = log_phi - log_norm
        more, phi, _ = tilt(log_phi, y, offsets, solve(log_phi, y, offsets))
        if step == 0:
            share = dimensions(response, covariance)
            extra = (phi * (gain - share[bag] * m.log())).sum(1)
            log_prob = bound + more + segment_sum(log_norm[:, 0] - extra, offsets)
            log_prob = log_prob + correction(covariance, share, y)
    # If too few instances can belong to a class, no label combination agrees with the counts.
    fits = (segment_sum((log_p > -torch.inf).to(y.dtype), offsets) >= y).all(1)
    log_prob, phi = refine(q, y, offsets, bound, log_prob, phi)
    log_prob = torch.where(fits, log_prob, -torch.inf)
    phi = torch.where(fits[bag, None], phi, log_p.exp())
    return log_prob, phi, None if direction is None else derivative(phi, offsets, direction)


def respond(q: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix ``W`` of each bag and the covariance of its counts, ``(B, K, K)`` each."""
    classes = q.shape[1]
    # One class at a time: all products at once would take K times the memory of the logits.
    edges = torch.stack([segment_sum(q * q[:, k : k + 1], offsets) for k in range(classes)], 1)
    edges = edges - torch.diag_embed(edges.diagonal(dim1=1, dim2=2))  # (B, K, K)
    variance = edges.sum(2)  # (B, K)
    covariance = torch.diag_embed(variance) - edges
    # Scaled to a unit diagonal, because variances range over many orders of magnitude, and with
    # ones in place of the null space.
    root, scale = variance.sqrt(), torch.where(variance > NIL, variance.rsqrt(), 0.0)
    null = root / variance.sum(1, keepdim=True).clamp(min=1e-300).sqrt()
    ridge = RIDGE * scale * scale
    matrix = torch.diag_embed(1 + ridge) - edges * scale[:, :, None] * scale[:, None, :]
    inverse, _ = torch.linalg.inv_ex(matrix + null[:, :, None] * null[:, None, :])
    # Pairs of classes have the eigenvalue 2: the factor makes up for their ridge.
    return inverse * ((1 + ridge / 2) * scale)[:, :, None] * root[:, None, :], covariance


def mix(response: Tensor, log_m: Tensor, offsets: Tensor) -> Tensor:
    """``W log m_i`` for every instance, ``(N, K)``."""
    bag, total = bag_index(offsets), torch.zeros_like(log_m)
    for k in range(log_m.shape[1]):  # one class at a time, to save memory
        total += response[bag, :, k] * log_m[:, k : k + 1]
    return total


def dimensions(response: Tensor, covariance: Tensor) -> Tensor:
    """The weights ``w`` of the margins ``(B, K)``."""
    variance = covariance.diagonal(dim1=1, dim2=2)
    scale = torch.where(variance > NIL, variance.rsqrt(), 0.0)
    edges = torch.diag_embed(variance) - covariance
    inverse = response * (scale * scale)[:, None, :]
    own = inverse.diagonal(dim1=1, dim2=2)  # (B, K)
    resistance = own[:, :, None] + own[:, None, :] - inverse - inverse.mT
    right = (edges * resistance).sum(2) * scale
    matrix = edges * scale[:, :, None] * scale[:, None, :]
    matrix = matrix + torch.diag_embed(torch.full_like(right, 1 + TINY))
    fit: Tensor = torch.linalg.solve_ex(matrix, right)[0]  # (B, K)
    return (fit * variance.sqrt()).clamp(0, 1)


def leave_one_out(phi: Tensor, m: Tensor, y: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Factors ``m`` ``(N, K)``, and the logarithm of ``C`` for the old ones ``(B, K)``.

    The margins are those of ``phi`` with the old factors divided out. Their tilt does not matter;
    it is chosen so that they are centred at the counts.
    """
    bag, n = bag_index(offsets), offsets.diff().to(phi.dtype)[:, None]  # (B, 1)
    other = (1 - phi).clamp(min=1e-15)  # the odds of a certain label stay finite
    odds = phi / (other * m)
    inner = (y > 0) & (y < n)
    moved = torch.zeros_like(y)
    for _ in range(CENTRINGS):
        p = odds / (1 + odds)
        mean, variance = segment_sum(p, offsets), segment_sum(p / (1 + odds), offsets)
        step = (y * (n - mean) / (mean * (n - y))).log() * mean * (n - mean) / (n * variance)
        # Any tilt will do, so a bounded step is good enough, and it cannot overflow.
        step = torch.where(inner & step.isfinite(), step.clamp(-4, 4), 0.0)
        odds, moved = odds * step.exp()[bag], moved + step
    p, rest = odds / (1 + odds), 1 / (1 + odds)
    mean, variance = segment_sum(p, offsets), segment_sum(p * rest, offsets)  # (B, K)

    points = torch.minimum((6 * variance.sqrt()).ceil() + 11, n) + 1
    points = 2 * torch.div(points, 2, rounding_mode="floor") + 1  # odd: no factor vanishes
    total = torch.zeros_like(mean)
    here, less = torch.zeros_like(p), torch.zeros_like(p)  # P(y) and P(y - 1) of the others
    for omega, weight in frequencies(points, variance - 0.25, NEGLIGIBLE):  # (B, K) each
        factor, log_abs, phase = characteristic(p, rest, bag, offsets, omega)
        product = torch.polar(log_abs.exp() * weight, phase + omega * (mean - y))
        total += product.real
        others = product[bag] / factor
        here += others.real
        less += (others * torch.polar(torch.ones_like(omega), omega)[bag]).real
    ratio = (less.clamp(min=NOISE) / here.clamp(min=NOISE)).clamp(LEAST, MOST)
    m = torch.where(inner[bag], ratio, 1.0)
    log_c = segment_sum((other * (1 + odds)).log(), offsets) - y * moved
    return m, torch.where(inner, total.clamp(min=1e-300).log() + log_c, 0.0)


def correction(covariance: Tensor, share: Tensor, y: Tensor) -> Tensor:
    """The normal density's part of the log-probability, ``(B,)``: determinant and margins.

    The determinant is the product of conditional variances, each class given those before it, the
    most variable first. A count that is certain has probability one, whatever its variance.
    """
    variance = covariance.diagonal(dim1=1, dim2=2)
    value = (share * _log_width(variance)).sum(1)
    left = covariance.clone()
    alive = y > 0  # (B, K)
    for _ in range(y.shape[1] - 1):
        diagonal = torch.where(alive, left.diagonal(dim1=1, dim2=2), -torch.inf)
        pivot, at = diagonal.max(1, keepdim=True)  # (B, 1)
        another = alive.sum(1) > 1
        value = value - torch.where(another, _log_width(pivot[:, 0]), 0.0)
        column = left.gather(2, at[:, :, None].expand(-1, y.shape[1], 1))[:, :, 0]  # (B, K)
        # A count that is certain says nothing about the others.
        safe = torch.where(pivot > 1e-12, pivot, torch.inf)
        left = left - column[:, :, None] * column[:, None, :] / safe[:, :, None]
        alive = alive.scatter(1, at, False)
    return value


def _log_width(variance: Tensor) -> Tensor:
    """``log sqrt(2 pi v)`` up to a constant that cancels; zero where the count is certain."""
    return ((2 * math.pi / SURE * variance.clamp(min=0)) ** 2).log1p() / 4
