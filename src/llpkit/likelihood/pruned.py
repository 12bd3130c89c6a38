r"""The recursion of :mod:`.classes` over likely partial counts only, for confident bags.

Where most labels are nearly certain, few of the :math:`\prod_k (y_k + 1)` partial counts matter. In
the tilted measure with probabilities :math:`q_i` (see :mod:`.approximations`), the instances that
are still to come have approximately normal counts with mean :math:`\mu_k = \sum_i q_{ik}` and
variance :math:`v_k = \sum_i q_{ik} (1 - q_{ik})`, so a partial count that leaves :math:`r_k` of
each class and has the probability :math:`\alpha` contributes about

.. math:: \alpha \exp\Bigl(-\sum_k \frac{(r_k - \mu_k)^2}{2 (v_k + 1/12)}\Bigr)

to :math:`P(y)`, where 1/12 is the variance of rounding to whole counts. A move whose contribution
is below ``EPSILON`` of all contributions at the position before is left out. Everything else is
summed exactly, so that the result is a lower bound on :math:`P(y)`; the normal density only decides
what is left out. Sure instances come first, since they do not branch.

Partial counts are identified by a random linear hash.
"""

import torch
from torch import Tensor

from llpkit.ragged import bag_index, instances_of, ranges

EPSILON = 1e-5
ROUNDING = 1 / 12
WIDTH = 512
"""States per position, above which a bag is given up."""
STATES = 2**13
"""States of a bag, above which it is given up."""
FEW = 6.0
"""Bags in whose tilted measure the counts have a log-probability below minus this are left to the
saddlepoint."""

_CHUNK = 2**10


def refine(
    q: Tensor, y: Tensor, offsets: Tensor, bound: Tensor, log_prob: Tensor, phi: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-probability ``(B,)`` and posterior ``(N, K)`` of the saddlepoint, improved where it pays.

    Args:
        q: Tilted probabilities ``(N, K)``.
        y: Counts ``(B, K)``.
        offsets: int64 ``(B + 1,)``.
        bound: The tilted bound ``(B,)``.
        log_prob: The saddlepoint's log-probability ``(B,)``.
        phi: The saddlepoint's posterior ``(N, K)``.
    """
    share = weight(bound - log_prob, (y > 0).sum(1))
    share = torch.where(offsets.diff() < STATES, share, 0.0)  # there is a state per instance
    chosen = (share > 0).nonzero()[:, 0]
    chosen = chosen[offsets.diff()[chosen].argsort(stable=True)]  # similar sizes together
    log_prob, phi = log_prob.clone(), phi.clone()
    for bags in chosen.split(_CHUNK) if len(chosen) else ():
        rows, inner = instances_of(offsets, bags)
        log_p, exact = evaluate(q[rows], y[bags].long(), inner)
        part = torch.where(log_p.isfinite(), share[bags], 0.0)
        log_p = torch.where(part > 0, bound[bags] + log_p, 0.0)
        log_prob[bags] += part * (log_p - log_prob[bags])
        phi[rows] += part[bag_index(inner), None] * (exact - phi[rows])
    return log_prob, phi


def weight(gap: Tensor, present: Tensor) -> Tensor:
    """Weight of the pruned recursion ``(B,)``; the rest is the saddlepoint's.

    Args:
        gap: By how much the tilted bound exceeds the log-probability, ``(B,)``: about the logarithm
            of the number of count vectors that are likely in the tilted measure.
        present: The number of classes with a positive count ``(B,)``. The saddlepoint is exact for
            two, and close if single counts vary much.
    """
    share = (present.clamp(max=FEW) - gap).clamp(0, 1)
    return torch.where((present > 2) & gap.isfinite(), share, 0.0)


def codes(number: int) -> Tensor:
    """Random numbers, int64, which multiplied by counts and added up identify these."""
    values = [1]
    for _ in range(number):  # a linear congruential generator: Knuth's constants for 64 bits
        following = values[-1] * 6364136223846793005 + 1442695040888963407
        values.append((following + 2**63) % 2**64 - 2**63)  # wraps around, like int64
    return torch.tensor(values[1:])


def evaluate(q: Tensor, y: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """``log P`` of the counts in the tilted measure ``(B,)`` and the posterior ``(N, K)``.

    NaN and zero for a bag that is given up.
    """
    sizes, (num_bags, classes) = offsets.diff(), y.shape
    longest = int(sizes.max())
    rows = q.amax(1).argsort(descending=True, stable=True)  # sure instances first
    rows = rows[bag_index(offsets)[rows].argsort(stable=True)]
    # Bags are padded in front, with instances that are certain to be of one class more.
    place = bag_index(offsets) * longest + ranges(longest - sizes, sizes)
    padded = q.new_zeros(num_bags * longest, classes + 1)
    padded[:, classes] = 1.0
    padded[place] = torch.nn.functional.pad(q[rows], (0, 1))
    padded = padded.reshape(num_bags, longest, classes + 1)
    mean, variance = padded.sum(1), (padded * (1 - padded)).sum(1)  # (B, K + 1)

    state_bag = torch.arange(num_bags, device=q.device)
    left = torch.cat([y, (longest - sizes)[:, None]], 1)  # counts still to come (S, K + 1)
    code = codes(classes + 2).to(q.device)
    key = state_bag * code[-1]
    alpha, reference = q.new_ones(num_bags), q.new_ones(num_bags)
    used = torch.ones_like(state_bag)  # states of each bag so far
    steps = []
    for i in range(longest):
        move = padded[:, i]  # (B, K + 1)
        mean, variance = mean - move, variance - move * (1 - move)
        precision = 1 / (2 * (variance + ROUNDING))[state_bag]  # (S, K + 1)
        far = left - mean[state_bag]
        guide = -(far.square() * precision).sum(1, keepdim=True) + (2 * far - 1) * precision
        value = alpha[:, None] * move[state_bag]
        likely = torch.where(left > 0, value * guide.exp(), 0.0)
        state, k = (likely > EPSILON * reference[state_bag, None]).nonzero().T
        unique, child = torch.unique(key[state] + code[k], return_inverse=True)
        new_bag = torch.empty_like(unique).scatter(0, child, state_bag[state])
        width = torch.bincount(new_bag, minlength=num_bags)
        used += torch.where(i >= longest - sizes, width, 0)  # padding does not count
        # The states of bags that have too many are dropped.
        kept = ((width <= WIDTH) & (used <= STATES))[new_bag]
        number = kept.cumsum(0) - 1
        state, k, child = (x[kept[child]] for x in (state, k, child))
        child = number[child]
        key, new_bag = unique[kept], new_bag[kept]
        steps.append((alpha, state_bag, state, k, child))
        reference = q.new_zeros(num_bags).index_add(0, state_bag[state], likely[state, k])
        new_left = left.new_empty(len(key), classes + 1)
        new_left[child] = left[state] - torch.nn.functional.one_hot(k, classes + 1)
        alpha = q.new_zeros(len(key)).index_add(0, child, value[state, k])
        left, state_bag = new_left, new_bag

    total = q.new_full((num_bags,), torch.nan).scatter(0, state_bag, alpha)  # one state per bag
    beta = 1 / alpha
    exact = torch.zeros_like(padded)
    for i in range(longest - 1, -1, -1):
        alpha, state_bag, state, k, child = steps[i]
        flow = padded[state_bag[state], i, k] * beta[child]
        at = (state_bag[state] * longest + i) * (classes + 1) + k
        exact.view(-1).index_add_(0, at, alpha[state] * flow)
        beta = q.new_zeros(len(alpha)).index_add(0, state, flow)
    phi = torch.zeros_like(q)
    phi[rows] = exact.view(-1, classes + 1)[place, :classes]
    return total.log(), phi
