r"""A random effect per bag: all logits of bag b are shifted by one draw.

.. math::

    \log \int P(y \mid z + \tau A u) \, \mathcal{N}(u; 0, I) \, du

with a scalar u and A = 1 for binary labels. For K classes A is an orthonormal basis of the vectors
that sum to zero, :math:`(K, K - 1)`: up to a common shift, which changes nothing, every class has
an independent effect with standard deviation :math:`\tau`.

A shift of all logits is an exponential tilt, so for exact counts the engine is needed only once:

.. math::

    \log P(y \mid z + s) = \log P(y \mid z) + s \cdot y - \sum_i m_i
    \bigl[\operatorname{lse}(z_i + s) - \operatorname{lse}(z_i)\bigr],

and the rest of the integrand is log-concave in u. Gauss–Hermite nodes are centred at its mode
and scaled by its curvature (adaptive quadrature). The posterior of the labels given the counts does
not depend on the effect.
"""

import math
from functools import cache

import numpy as np
import torch
from scipy.linalg import helmert
from torch import Tensor

from llpkit.ragged import bag_index

_NODES = {1: 15, 2: 9, 3: 5}
"""Nodes per dimension; with more dimensions one node, which is Laplace's approximation."""
_STEPS = 30


def effect_term(z: Tensor, times: Tensor, counts: Tensor, offsets: Tensor, sd: Tensor) -> Tensor:
    """The change in every bag's log-probability due to the effect, ``(B,)``; twice differentiable.

    Args:
        z: Logits ``(R, K)``.
        times: Multiplicities ``(R,)``.
        counts: ``(B, K)``, float64.
        offsets: ``(B + 1,)``.
        sd: Standard deviation of the effect, ``(B,)``.
    """
    basis = effect_basis(z.shape[1])  # (K, d)
    bag = bag_index(offsets)
    with torch.no_grad():  # the integral does not depend on where its nodes are
        mode, root = _mode(z.detach(), times, counts, bag, sd.detach(), basis)
    x, log_w = nodes(basis.shape[1])  # (Q, d), (Q,)
    u = mode[:, None, :] + x @ root.transpose(1, 2)  # (B, Q, d)
    shift = sd[:, None, None] * (u @ basis.T)  # (B, Q, K)
    change = (z[:, None, :] + shift[bag]).logsumexp(2) - z.logsumexp(1)[:, None]  # (R, Q)
    # index_add, because segment_reduce cannot be differentiated twice.
    total = _by_bag(times[:, None] * change, bag, len(counts))
    inner = (shift * counts[:, None, :]).sum(2) - total
    # The weights are for N(x), but the integral is over u:
    # N(u) du = N(x) exp((x² - u²) / 2) |root| dx.
    inner = inner + log_w - 0.5 * (u**2).sum(2) + 0.5 * (x**2).sum(1)
    log_det = root.diagonal(dim1=1, dim2=2).log().sum(1)
    return inner.logsumexp(1) + log_det


def effect_mean(z: Tensor, sd: Tensor) -> Tensor:
    """Class probabilities ``(R, K)`` of instances in a new bag, averaged over the effect."""
    shifts, weights = effect_shifts(z.shape[1])
    p = (z[:, None, :] + sd * shifts).softmax(2)  # (R, Q, K)
    return (p * weights[:, None]).sum(1)


def effect_shifts(classes: int) -> tuple[Tensor, Tensor]:
    """Shifts ``(Q, K)`` of the logits by a unit effect, and their weights ``(Q,)``."""
    basis = effect_basis(classes)
    depth = basis.shape[1]
    # These nodes are not adaptive, so in many dimensions a single node would omit the effect.
    x, log_w = nodes(depth, 25 if depth == 1 else None) if depth in _NODES else points(depth)
    return x @ basis.T, log_w.exp()


@cache
def effect_basis(classes: int) -> Tensor:
    """The directions in which the effect shifts the logits, ``(K, d)``."""
    if classes == 2:  # only the difference of the logits matters, so it gets the whole effect
        return torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    return torch.from_numpy(helmert(classes).T.copy())


@cache
def nodes(dimensions: int, number: int | None = None) -> tuple[Tensor, Tensor]:
    """Gauss–Hermite nodes ``(Q, d)`` and log-weights ``(Q,)`` for a standard normal vector."""
    number = number or _NODES.get(dimensions, 1)
    x, w = np.polynomial.hermite_e.hermegauss(number)
    log_w = np.log(w) - 0.5 * math.log(2 * math.pi)
    grid = np.stack(np.meshgrid(*[x] * dimensions, indexing="ij"), -1).reshape(-1, dimensions)
    log_grid = np.stack(np.meshgrid(*[log_w] * dimensions, indexing="ij"), -1)
    log_grid = log_grid.reshape(-1, dimensions).sum(1)
    return torch.from_numpy(grid), torch.from_numpy(log_grid)


@cache
def points(dimensions: int, power: int = 9) -> tuple[Tensor, Tensor]:
    """Quasi-Monte Carlo points ``(Q, d)`` and log-weights ``(Q,)`` for a standard normal vector."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    uniform = qmc.Sobol(dimensions, seed=0).random_base2(power)  # scrambled, so never 0 or 1
    log_w = torch.full((len(uniform),), -math.log(len(uniform)), dtype=torch.float64)
    return torch.from_numpy(ndtri(uniform)), log_w


def _mode(
    z: Tensor, times: Tensor, counts: Tensor, bag: Tensor, sd: Tensor, basis: Tensor
) -> tuple[Tensor, Tensor]:
    """The mode ``(B, d)`` of the integrand, and a root of its inverse curvature ``(B, d, d)``."""
    size, depth = len(counts), basis.shape[1]
    u = z.new_zeros((size, depth))
    eye = torch.eye(depth, dtype=z.dtype)
    scale = sd[:, None, None] * basis  # (B, K, d)

    def at(u: Tensor) -> tuple[Tensor, Tensor]:
        moved = z + (scale @ u[:, :, None])[:, :, 0][bag]
        total = moved.logsumexp(1)
        value = _by_bag(times * total, bag, size) + 0.5 * (u**2).sum(1)
        value = value - ((scale @ u[:, :, None])[:, :, 0] * counts).sum(1)
        return value, (moved - total[:, None]).exp()

    # Newton's method for all bags at once: the negative logarithm of the integrand is convex.
    value, p = at(u)
    for _ in range(_STEPS):
        weighted = times[:, None] * p
        total = _by_bag(weighted, bag, size)  # (B, K)
        outer = _by_bag(weighted[:, :, None] * p[:, None, :], bag, size)
        slope = (scale.transpose(1, 2) @ (total - counts)[:, :, None])[:, :, 0] + u
        covariance = torch.diag_embed(total) - outer  # of the counts
        curvature = scale.transpose(1, 2) @ covariance @ scale + eye
        if bool((slope.abs() <= 1e-8).all()):
            break
        step = torch.linalg.solve(curvature, slope)
        length = torch.ones_like(value)
        for _ in range(20):  # halve the step of each bag until its value does not get worse
            new, p_new = at(u - length[:, None] * step)
            # Near the mode, values differ by rounding alone. Negated so that NaN is worse.
            worse = ~(new <= value + 1e-12 * value.abs())
            if not bool(worse.any()):
                break
            length = torch.where(worse, length / 2, length)
        u = u - length[:, None] * step
        value, p = new, p_new
    return u, torch.linalg.cholesky(torch.linalg.inv(curvature))


def _by_bag(values: Tensor, bag: Tensor, size: int) -> Tensor:
    return values.new_zeros((size, *values.shape[1:])).index_add(0, bag, values)
