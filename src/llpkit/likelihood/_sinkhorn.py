r"""The tilted bound for K classes: cheap at any size, and named for what it is.

Among all tilts ``t`` of the classes the best bound on the count likelihood is

.. math::

    \log P(y) \le \min_t \sum_i \bigl[\operatorname{lse}(z_i + t) - \operatorname{lse}(z_i)\bigr]
    - t \cdot y,

reached where the tilted probabilities :math:`\phi_i = \operatorname{softmax}(z_i + t)` sum to the
counts, as Sinkhorn's scaling makes them. By the envelope theorem its gradient is
:math:`\phi_i - \operatorname{softmax}(z_i)`: the identity of the exact likelihood.
"""

import torch
from torch import Tensor

from llpkit.errors import LLPError
from llpkit.likelihood._ragged import bag_index, segment_sum

_SWEEPS = 20
_STEPS = 200
_TOLERANCE = 1e-9


def evaluate(
    log_p: Tensor, counts: Tensor, offsets: Tensor, direction: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The bound ``(B,)``, tilted probabilities ``(N, K)``, their derivative along a direction."""
    bag, y = bag_index(offsets), counts.to(log_p.dtype)
    t = _solve(log_p, y, offsets, bag)
    tilted = log_p + t[bag]
    log_total = tilted.logsumexp(1)
    phi = (tilted - log_total[:, None]).exp()
    # Classes with y = 0 are tilted away entirely: 0 * -inf counts as nothing.
    bound = segment_sum(log_total, offsets) - torch.where(y > 0, t * y, 0.0).sum(1)
    if direction is None:
        return bound, phi, None
    # dphi = J (v + dt), where dt keeps the class totals fixed.
    total = segment_sum(_jacobian(phi, direction), offsets)
    dt = torch.linalg.solve(_hessian(phi, offsets), -total)
    return bound, phi, _jacobian(phi, direction + dt[bag])


def _jacobian(phi: Tensor, v: Tensor) -> Tensor:
    """Derivative of softmax at probabilities ``phi`` along ``v``."""
    return phi * (v - (phi * v).sum(1, keepdim=True))


def _hessian(phi: Tensor, offsets: Tensor) -> Tensor:
    """Second derivative of the bound in ``t``, made regular where moving ``t`` does nothing."""
    total = segment_sum(phi, offsets)  # (B, K)
    outer = segment_sum(phi[:, :, None] * phi[:, None, :], offsets)
    classes = phi.shape[1]
    used = (total > 0).to(phi.dtype)
    return (
        torch.diag_embed(total + (1 - used))
        - outer
        + used[:, :, None] * used[:, None, :] / classes
        + 1e-12 * torch.eye(classes, dtype=phi.dtype, device=phi.device)
    )


def _solve(log_p: Tensor, y: Tensor, offsets: Tensor, bag: Tensor) -> Tensor:
    """Tilts ``(B, K)``: a few of Sinkhorn's sweeps, then Newton's steps with halving."""
    t = torch.where(y > 0, 0.0, -torch.inf).to(log_p.dtype)

    def totals(t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        tilted = log_p + t[bag]
        log_total = tilted.logsumexp(1, keepdim=True)
        phi = (tilted - log_total).exp()
        bound = segment_sum(log_total[:, 0], offsets) - torch.where(y > 0, t * y, 0.0).sum(1)
        return bound, phi, segment_sum(phi, offsets)

    for _ in range(_SWEEPS):
        _, _, total = totals(t)
        t = torch.where(y > 0, t + y.log() - total.log(), -torch.inf)
    bound, phi, total = totals(t)
    scale = _TOLERANCE * y.sum(1).clamp(min=1)
    for _ in range(_STEPS):
        gap = total - y
        open_ = gap.abs().amax(1) > scale
        if not bool(open_.any()):
            break
        step = torch.linalg.solve(_hessian(phi, offsets), gap)
        length = torch.ones_like(bound)
        for _ in range(30):
            trial = torch.where(y > 0, t - length[:, None] * step, -torch.inf)
            new_bound, _, _ = totals(trial)
            worse = open_ & ~(new_bound <= bound + 1e-12 * bound.abs())
            if not bool(worse.any()):
                break
            length = torch.where(worse, length / 2, length)
        move = (open_ & ~worse)[:, None]
        t = torch.where(move, trial, t)
        bound, phi, total = totals(t)
        if not bool(move.any()):
            break
    off = (total - y).abs().amax(1)
    failed = ~(off <= 1e-6 * y.sum(1).clamp(min=1))
    if bool(failed.any()):
        b = int(failed.nonzero()[0])
        raise LLPError(
            f"bag {b}: the tilted class totals miss the counts by {float(off[b]):.3g}; its logits "
            'are too far apart for method="sinkhorn", or forbid what the counts ask for: use '
            'method="exact" or scale the logits down'
        )
    return t
