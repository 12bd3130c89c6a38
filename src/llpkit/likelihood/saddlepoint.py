r"""The saddlepoint approximation for K classes: close to exact at a cost linear in the instances.

In the tilted measure (see :mod:`.approximations`) with probabilities :math:`q_i`, the counts have
mean :math:`y` and covariance :math:`\Sigma = \sum_i \operatorname{diag}(q_i) - q_i q_i^\top`, and
every single count has a Poisson-binomial margin :math:`P_k` that a Fourier sum gives exactly.

**Likelihood.** The normal density at the mean, corrected by the margins:

.. math::

    \log P(y) \approx \text{bound} - \tfrac12 \log\det 2\pi\Sigma
    + \sum_k w_k \bigl[\log P_k(y_k) + \tfrac12 \log 2\pi\Sigma_{kk}\bigr].

The weights :math:`w_k`, between 0 and 1, share out the K' - 1 dimensions of the counts of the K'
classes present (the last count follows from the others). :math:`\Sigma` is the Laplacian of a graph
with edge weights :math:`\sum_i q_{ik} q_{il}`; if its resistance between the classes ``k`` and
``l`` is :math:`D_k + D_l`, then :math:`w_k = D_k \Sigma_{kk}`. Where it is not, ``D`` is the least
squares fit. For equal instances :math:`w_k = 1 - y_k / n`.

**Posterior.** :math:`\varphi_{ik} \propto q_{ik} P_{-i}(y - e_k)`, the counts of the others, with

.. math::

    P_{-i}(y - e_k) \approx \prod_l P_{-i,l}^{w_l}, \qquad \varphi_{ik} \propto
    q_{ik}\, m_{ik}^{w_k}, \qquad m_{ik} = \frac{P_{-i,k}(y_k - 1)}{P_{-i,k}(y_k)},

tilted again so that it sums to the counts. A second pass takes the margins from the improved
posterior with each instance's own factor :math:`m_{ik}` divided out, as in belief propagation.
Both formulas are exact for two classes.
"""

import math

import torch
from torch import Tensor

from llpkit.likelihood.approximations import check_totals, derivative, solve, tilt
from llpkit.likelihood.binary import characteristic
from llpkit.ragged import bag_index, segment_sum

PASSES = 2
NEGLIGIBLE = 9.5
"""Frequencies whose product is provably below ``exp(-2 * NEGLIGIBLE)`` are left out."""
CENTRINGS = 3
LEAST, MOST = 1e-9, 1e9
"""Range of the factors ``m``: beyond it they are rounding, of labels that are certain anyway."""
SURE = 0.7
"""A count with ``2 pi`` times its variance below this is practically certain."""
RIDGE = 1e-9
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
    for step in range(PASSES):
        share, covariance = dimensions(phi, offsets)
        m, log_margin = leave_one_out(phi, m, y, offsets)
        if step == 0:
            log_prob = bound + correction(covariance, share, log_margin, y)
        log_phi = q.log() + share[bag] * m.log()
        log_phi = log_phi - log_phi.logsumexp(1, keepdim=True)
        phi = tilt(log_phi, y, offsets, solve(log_phi, y, offsets))[1]
    # If too few instances can belong to a class, no label combination agrees with the counts.
    fits = (segment_sum((log_p > -torch.inf).to(y.dtype), offsets) >= y).all(1)
    log_prob = torch.where(fits, log_prob, -torch.inf)
    phi = torch.where(fits[bag, None], phi, log_p.exp())
    return log_prob, phi, None if direction is None else derivative(phi, offsets, direction)


def dimensions(q: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """The weights ``w`` of the margins ``(B, K)``, and the covariance of the counts."""
    classes = q.shape[1]
    # One class at a time: all products at once would take K times the memory of the logits.
    edges = torch.stack([segment_sum(q * q[:, k : k + 1], offsets) for k in range(classes)], 1)
    edges = edges - torch.diag_embed(edges.diagonal(dim1=1, dim2=2))  # (B, K, K)
    variance = edges.sum(2)  # (B, K)
    covariance = torch.diag_embed(variance) - edges
    # Scaled to a unit diagonal, because variances range over many orders of magnitude.
    scale = torch.where(variance > 0, variance.rsqrt(), 0.0)
    scaled = edges * scale[:, :, None] * scale[:, None, :]
    null = variance.sqrt() / variance.sum(1, keepdim=True).clamp(min=1e-300).sqrt()
    eye = torch.eye(classes, dtype=q.dtype, device=q.device)
    inverse, _ = torch.linalg.inv_ex(
        (1 + RIDGE) * eye - scaled + null[:, :, None] * null[:, None, :]
    )
    own = inverse.diagonal(dim1=1, dim2=2) * scale * scale  # (B, K)
    resistance = (
        own[:, :, None] + own[:, None, :] - 2 * inverse * scale[:, :, None] * scale[:, None, :]
    )
    right = (edges * resistance).sum(2) * scale
    fit, _ = torch.linalg.solve_ex((1 + RIDGE) * eye + scaled, right)  # (B, K)
    return (fit * variance.sqrt()).clamp(0, 1), covariance


def leave_one_out(phi: Tensor, m: Tensor, y: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Factors ``m`` ``(N, K)`` and the log-probability of every margin at its count ``(B, K)``.

    The margins are those of ``phi`` with the old factors divided out. Their tilt does not matter;
    it is chosen so that they are centred at the counts.
    """
    bag, n = bag_index(offsets), offsets.diff().to(phi.dtype)[:, None]  # (B, 1)
    odds = phi / ((1 - phi).clamp(min=1e-15) * m)
    inner = (y > 0) & (y < n)
    for _ in range(CENTRINGS):
        p = odds / (1 + odds)
        mean, variance = segment_sum(p, offsets), segment_sum(p / (1 + odds), offsets)
        step = (y * (n - mean) / (mean * (n - y))).log() * mean * (n - mean) / (n * variance)
        step = torch.where(inner & step.isfinite(), step.clamp(-4, 4), 0.0)
        odds = odds * step.exp()[bag]
    p, rest = odds / (1 + odds), 1 / (1 + odds)
    mean, variance = segment_sum(p, offsets), segment_sum(p * rest, offsets)  # (B, K)

    points = torch.minimum((6 * variance.sqrt()).ceil() + 11, n) + 1
    points = 2 * torch.div(points, 2, rounding_mode="floor") + 1  # odd: no factor vanishes
    share = (NEGLIGIBLE / (variance - 0.25).clamp(min=NEGLIGIBLE)).sqrt().asin() / math.pi
    used = torch.minimum((points + 1) / 2, (points * share).ceil() + 1)
    total = torch.zeros_like(mean)
    here, less = torch.zeros_like(p), torch.zeros_like(p)  # P(y) and P(y - 1) of the others
    for index in range(int(used.max()) if used.numel() else 0):
        omega = 2 * math.pi * index / points  # (B, K)
        weight = torch.where(index < used, (1 if index == 0 else 2) / points, 0.0)
        factor, log_abs, phase = characteristic(p, rest, bag, offsets, omega)
        product = torch.polar(log_abs.exp() * weight, phase + omega * (mean - y))
        total += product.real
        others = product[bag] / factor
        here += others.real
        less += (others * torch.polar(torch.ones_like(omega), omega)[bag]).real
    ratio = (less.clamp(min=NOISE) / here.clamp(min=NOISE)).clamp(LEAST, MOST)
    m = torch.where(inner[bag], ratio, 1.0)
    return m, torch.where(inner, total.clamp(min=1e-300).log(), 0.0)


def correction(covariance: Tensor, share: Tensor, log_margin: Tensor, y: Tensor) -> Tensor:
    """What the approximation adds to the bound, ``(B,)``: determinant and margins.

    The determinant is the product of conditional variances, each class given those before it, the
    most variable first. A count that is certain has probability one, whatever its variance.
    """
    variance = covariance.diagonal(dim1=1, dim2=2)
    value = (share * (log_margin + _log_width(variance))).sum(1)
    left = covariance.clone()
    alive = y > 0  # (B, K)
    for _ in range(y.shape[1] - 1):
        diagonal = torch.where(alive, left.diagonal(dim1=1, dim2=2), -torch.inf)
        pivot, at = diagonal.max(1, keepdim=True)  # (B, 1)
        another = alive.sum(1) > 1
        value = value - torch.where(another, _log_width(pivot[:, 0]), 0.0)
        column = left.gather(2, at[:, :, None].expand(-1, y.shape[1], 1))[:, :, 0]  # (B, K)
        safe = torch.where(pivot > 1e-12, pivot, torch.inf)
        left = left - column[:, :, None] * column[:, None, :] / safe[:, :, None]
        alive = alive.scatter(1, at, False)
    return value


def _log_width(variance: Tensor) -> Tensor:
    """``log sqrt(2 pi v)`` up to a constant that cancels; zero where the count is certain."""
    return ((2 * math.pi / SURE * variance.clamp(min=0)) ** 4).log1p() / 8
