r"""The tilted upper bound for K classes, cheap for bags of any size.

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
from llpkit.ragged import bag_index, instances_of, segment_sum

_SWEEPS, _STEPS, _HALVINGS = 20, 30, 30
_TOLERANCE = 1e-9
"""How far class totals may be from the counts, relative to the bag size."""
_COOLING = 4.0
"""Factor between the scales of the logits in :func:`_cooled`."""


def sinkhorn(
    log_p: Tensor,
    counts: Tensor,
    offsets: Tensor,
    direction: Tensor | None = None,
    *,
    strict: bool = True,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The bound ``(B,)``, tilted probabilities ``(N, K)``, their derivative along a direction.

    ``strict`` refuses a bag whose best tilt cannot be found. Without it the closest tilt is used,
    whose bound is still valid; the bound is ``-inf`` if too few instances can belong to a class.
    """
    y = counts.to(log_p.dtype)
    t = solve(log_p, y, offsets)
    bound, phi, total = tilt(log_p, y, offsets, t)
    if strict:
        check_totals(total, y)
    enough = segment_sum((log_p > -torch.inf).to(y.dtype), offsets) >= y
    bound = torch.where(enough.all(1), bound, -torch.inf)
    return bound, phi, None if direction is None else derivative(phi, offsets, direction)


def derivative(phi: Tensor, offsets: Tensor, direction: Tensor) -> Tensor:
    """Change of tilted probabilities ``phi`` along a direction of the logits, ``(N, K)``."""
    # dphi = J (v + dt), where dt keeps the class totals fixed.
    total = segment_sum(_jacobian(phi, direction), offsets)
    dt, _ = torch.linalg.solve_ex(_hessian(phi, offsets), -total)  # (B, K)
    return _jacobian(phi, direction + dt[bag_index(offsets)])


def _jacobian(phi: Tensor, v: Tensor) -> Tensor:
    """Derivative of softmax at probabilities ``phi`` along ``v``."""
    return phi * (v - (phi * v).sum(1, keepdim=True))


def _hessian(phi: Tensor, offsets: Tensor) -> Tensor:
    """Second derivative of the bound in ``t``, regularised in directions that do not matter."""
    total = segment_sum(phi, offsets)  # (B, K)
    classes = phi.shape[1]
    # One class at a time: all products at once would take K times the memory of the logits.
    outer = torch.stack([segment_sum(phi * phi[:, k : k + 1], offsets) for k in range(classes)], 1)
    used = (total > 0).to(phi.dtype)
    # Adding a constant to t changes nothing (softmax), and neither do tilts of unused classes: a
    # rank-one term and ones on the diagonal make both directions regular.
    return (
        torch.diag_embed(total + (1 - used))
        - outer
        + used[:, :, None] * used[:, None, :] / classes
        + 1e-12 * torch.eye(classes, dtype=phi.dtype, device=phi.device)
    )


def tilt(log_p: Tensor, y: Tensor, offsets: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """At tilts ``(B, K)``: bound ``(B,)``, tilted probabilities ``(N, K)``, their totals."""
    tilted = log_p + t[bag_index(offsets)]  # (N, K)
    log_total = tilted.logsumexp(1, keepdim=True)  # (N, 1)
    phi = (tilted - log_total).exp()
    # Classes with y = 0 have tilt -inf; their term 0 * -inf must be zero, not NaN.
    bound = segment_sum(log_total[:, 0], offsets) - torch.where(y > 0, t * y, 0.0).sum(1)
    return bound, phi, segment_sum(phi, offsets)


def solve(log_p: Tensor, y: Tensor, offsets: Tensor) -> Tensor:
    """Tilts ``(B, K)``: a few Sinkhorn sweeps, then Newton steps for bags not yet converged."""
    t = torch.where(y > 0, 0.0, -torch.inf).to(log_p.dtype)
    for _ in range(_SWEEPS):
        total = tilt(log_p, y, offsets, t)[2]
        t = torch.where(y > 0, t + y.log() - total.log(), -torch.inf)
    for refine in (_newton, _cooled):
        left = _open(tilt(log_p, y, offsets, t)[2], y)  # (B,) bool
        if not bool(left.any()):
            break
        t[left] = refine(*_some(left, log_p, y, offsets), t[left])
    return t


def _some(
    chosen: Tensor, log_p: Tensor, y: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The problem of some bags, ``(B,)`` bool."""
    rows, inner = instances_of(offsets, chosen)
    return log_p[rows], y[chosen], inner


def _open(total: Tensor, y: Tensor) -> Tensor:
    """Bags whose totals have not reached the counts yet, ``(B,)`` bool."""
    # Negated so that NaN counts as open.
    return ~((total - y).abs().amax(1) <= _TOLERANCE * y.sum(1).clamp(min=1))


def _newton(log_p: Tensor, y: Tensor, offsets: Tensor, t: Tensor) -> Tensor:
    """Newton steps with step halving, until all bags have converged or none improves."""
    best, here = t.clone(), torch.arange(len(t), device=t.device)  # here: the bags still in play
    bound, phi, total = tilt(log_p, y, offsets, t)
    moving = _open(total, y)
    for _ in range(_STEPS):
        if not bool(moving.any()):
            break
        if 2 * int(moving.sum()) <= len(moving):  # drop the bags that are done
            here, t = here[moving], t[moving]
            log_p, y, offsets = _some(moving, log_p, y, offsets)
            bound, phi, total = tilt(log_p, y, offsets, t)
            moving = torch.ones_like(bound, dtype=torch.bool)
        step, _ = torch.linalg.solve_ex(_hessian(phi, offsets), total - y)  # (B, K)
        length = torch.ones_like(bound)  # (B,)
        for _ in range(_HALVINGS):
            trial = torch.where(y > 0, t - length[:, None] * step, -torch.inf)
            new_bound = tilt(log_p, y, offsets, trial)[0]
            # Near the minimum, bounds differ by rounding alone. Negated so that NaN is worse.
            worse = moving & ~(new_bound <= bound + 1e-12 * bound.abs())
            if not bool(worse.any()):
                break
            length = torch.where(worse, length / 2, length)
        moving = moving & ~worse
        t = torch.where(moving[:, None], trial, t)
        best[here] = t
        bound, phi, total = tilt(log_p, y, offsets, t)
        moving = moving & _open(total, y)
    return best


def _cooled(log_p: Tensor, y: Tensor, offsets: Tensor, t: Tensor) -> Tensor:
    """Newton steps for logits far apart: flatter logits first, each solution starting the next."""
    spread = float(torch.where(log_p.isfinite(), log_p, 0.0).abs().amax())
    heat = max(1.0, spread / 8)
    warm = torch.where(y > 0, 0.0, -torch.inf).to(t.dtype)
    while True:
        warm = heat * _newton(log_p / heat, y, offsets, warm / heat)
        if heat == 1:
            break
        heat = max(1.0, heat / _COOLING)
    better = tilt(log_p, y, offsets, warm)[0] < tilt(log_p, y, offsets, t)[0]
    return torch.where((better | t.isnan().any(1))[:, None], warm, t)


def check_totals(total: Tensor, y: Tensor) -> None:
    """Refuse a bag whose tilted totals miss its counts."""
    off = (total - y).abs().amax(1)
    failed = ~(off <= 1e-6 * y.sum(1).clamp(min=1))
    if bool(failed.any()):
        b = int(failed.nonzero()[0])
        raise LLPError(
            f"bag {b}: the tilted class totals miss the counts by {float(off[b]):.3g}; its logits "
            'are too far apart for approximation="sinkhorn", or rule out the counts; drop the '
            "approximation, or scale the logits down"
        )
