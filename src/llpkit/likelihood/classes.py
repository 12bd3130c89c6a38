r"""The exact count likelihood of bags with K classes (Poisson-multinomial), in plain torch.

A recursion in log-space over the instances of a bag. Its state is the count of each class among the
instances seen so far. One class :math:`d`, the one that saves most, is left out, because the counts
sum to the position. With exact counts there are :math:`\prod_{k \ne d} (y_k + 1)` states at every
position. Many bags are processed together: their states are concatenated on a flat axis.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from llpkit._validation import whole
from llpkit.errors import TooManyStates
from llpkit.evidence import Evidence
from llpkit.ragged import (
    bag_index,
    instances_of,
    ranges,
    segment_logsumexp,
    segment_sum,
    to_offsets,
)

MAX_STATES = 2**24
"""The default budget: (position, counts so far) pairs of one bag. 2^24 float64 are 128 MiB."""

_CHUNK = 2**22
"""States of the bags that are processed together, which bounds memory."""

LEAST = -1e10
"""The smallest log-likelihood of a possible bag: below it, float64 sums can no longer distinguish
label combinations."""


def log_prior(logits: Tensor) -> Tensor:
    """``log_softmax`` where ``+inf`` marks a known class; ``-inf`` where no class is possible."""
    known = (logits == torch.inf).any(1, keepdim=True) | (logits == -torch.inf).all(1, keepdim=True)
    safe = torch.where(known, 0.0, logits)
    certain = torch.where(logits == torch.inf, 0.0, -torch.inf)
    # Clamped because a bag that needs such an improbable class is below LEAST anyway.
    log_p = torch.where(safe == -torch.inf, safe, safe.log_softmax(1).clamp(min=2 * LEAST))
    return torch.where(known, certain, log_p)


class _States(NamedTuple):
    """The states of some bags on one flat axis, and the moves between them."""

    offsets: Tensor  # (B + 1,) each bag's range of states; its first state is all zeros
    bag: Tensor  # (S,)
    final: Tensor  # (S, K) the bag's counts if it ended here
    stride: Tensor  # (B, K) by how much one more of a class moves the state's index
    after: Tensor  # (K, S) the state after one more of class k, or itself if there is none
    grows: Tensor  # (K, S) bool: whether there is one
    before: Tensor  # (K, S)
    shrinks: Tensor  # (K, S) bool
    log_weight: Tensor  # (S,) log-weight of the state as a bag's final counts


def _extents(evidence: Evidence, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Number of values of each class in the state ``(B, K)``; the class left out ``(B, 1)``."""
    extent = torch.minimum(evidence.high, sizes[:, None]) + 1  # (B, K)
    left_out = extent.argmax(1, keepdim=True)
    return extent.scatter(1, left_out, 1), left_out


def count_states(evidence: Evidence, sizes: Tensor) -> Tensor:
    """The number of states of each bag's recursion, float64 ``(B,)`` since it may be huge."""
    return _extents(evidence, sizes)[0].to(torch.float64).prod(1) * (sizes + 1)


def check_budget(
    evidence: Evidence, sizes: Tensor, max_states: int, approximable: bool = True
) -> None:
    """Refuse a bag whose recursion is larger than the budget."""
    whole("max_states", max_states)
    states = count_states(evidence, sizes)
    over = states > max_states
    if bool(over.any()):
        b = int(over.nonzero()[0])
        raise TooManyStates(
            f"bag {b} ({int(sizes[b])} instances, {evidence.num_classes} classes) needs "
            f"{float(states[b]):.4g} states",
            f"but max_states = {max_states}; "
            + ('approximate it with approximation="saddlepoint", or ' if approximable else "")
            + "raise max_states",
            approximable,
        )


def _states(evidence: Evidence, sizes: Tensor) -> _States:
    extent, left_out = _extents(evidence, sizes)
    # Mixed-radix numbering: the stride of a class is the product of the extents after it.
    reverse = extent.flip(1).cumprod(1).flip(1)  # (B, K)
    stride = torch.cat([reverse[:, 1:], torch.ones_like(reverse[:, :1])], 1)
    stride = stride.scatter(1, left_out, 0)
    number = reverse[:, 0]  # (B,) states of each bag
    offsets = to_offsets(number)
    bag = bag_index(offsets)
    local = ranges(torch.zeros_like(number), number)  # (S,) within the bag
    counts = local[:, None] // stride[bag].clamp(min=1) % extent[bag]  # (S, K)
    here = torch.arange(len(bag), device=bag.device)
    free = left_out[bag] == torch.arange(extent.shape[1], device=bag.device)  # (S, K)
    grows = (counts + 1 < extent[bag]) | free
    shrinks = (counts > 0) | free
    step = stride[bag]
    final = counts.scatter(1, left_out[bag], (sizes[bag] - counts.sum(1))[:, None])  # (S, K)
    return _States(
        offsets,
        bag,
        final,
        stride,
        torch.where(grows, here[:, None] + step, here[:, None]).T.contiguous(),
        grows.T.contiguous(),
        torch.where(shrinks, here[:, None] - step, here[:, None]).T.contiguous(),
        shrinks.T.contiguous(),
        log_weight(evidence, bag, final).sum(1),
    )


def log_weight(evidence: Evidence, bag: Tensor, counts: Tensor) -> Tensor:
    """Log-weight of every class's count ``(S, K)`` in the bags ``(S,)``."""
    low, high = evidence.low[bag], evidence.high[bag]
    inside = (counts >= low) & (counts <= high)
    log_w = torch.where(inside, 0.0, -torch.inf).to(evidence.table.dtype)
    if len(evidence.table) == 0:
        return log_w
    classes = counts.shape[1]
    cell = bag[:, None] * classes + torch.arange(classes, device=bag.device)
    inside &= evidence.table_offsets.diff()[cell] > 0
    index = torch.where(inside, evidence.table_offsets[cell] + counts - low, 0)
    return torch.where(inside, evidence.table[index], log_w)


def as_binary(evidence: Evidence, offsets: Tensor) -> Evidence:
    r"""Evidence about two class counts ``(B, 2)`` as evidence about the second one, ``(B,)``.

    .. math:: w(y) = w_0(n - y)\, w_1(y)

    >>> as_binary(Evidence.exact([[1, 2]]), torch.tensor([0, 3])).counts
    tensor([2])
    """
    n = offsets.diff()
    if len(evidence.table):
        second = ranges(torch.zeros_like(n), n + 1)
        bag = bag_index(to_offsets(n + 1))
        both = torch.stack([n[bag] - second, second], 1)
        log_w = log_weight(evidence, bag, both).sum(1)
        return Evidence(torch.zeros_like(n), n, log_w, to_offsets(n + 1))
    low = torch.maximum(evidence.low[:, 1], n - evidence.high[:, 0])
    high = torch.minimum(evidence.high[:, 1], n - evidence.low[:, 0])
    return Evidence(low, high, evidence.table, low.new_zeros(len(low) + 1))


def _positions(offsets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For each position: bags long enough to have it ``(B,)`` bool, and the row of the instance."""
    sizes = offsets.diff()
    for position in range(int(sizes.max()) if len(sizes) else 0):
        yield position < sizes, torch.where(position < sizes, offsets[:-1] + position, 0)


def _groups(sizes: Tensor, evidence: Evidence) -> Iterator[Tensor]:
    """Bags to process together: of similar size, and as many as fit into memory."""
    states = count_states(evidence, sizes)
    order = sizes.argsort(stable=True)
    group = (states[order].cumsum(0) / _CHUNK).floor()
    for g in torch.unique(group).tolist():
        yield order[group == g]


def evaluate(
    log_p: Tensor, offsets: Tensor, evidence: Evidence, direction: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log-probability ``(B,)``, posterior ``(N, K)`` and its derivative along a direction.

    ``log_p`` are log-probabilities of the classes; ``direction`` is a change of the logits.
    """
    sizes = offsets.diff()
    log_prob = log_p.new_empty(len(sizes))
    phi = torch.zeros_like(log_p)
    product = None if direction is None else torch.zeros_like(log_p)
    change = None
    if direction is not None:
        # From a change of the logits to one of the log-probabilities; known labels do not change.
        change = direction - (log_p.exp() * direction).sum(1, keepdim=True)
        known = ((log_p == 0) | (log_p == -torch.inf)).all(1, keepdim=True)
        change = torch.where(known, 0.0, change)
    for chosen in _groups(sizes, evidence):
        rows, inner = instances_of(offsets, chosen)
        some = None if change is None else change[rows]
        states = _states(evidence[chosen], sizes[chosen])
        part = _forward_backward(log_p[rows], inner, states, some)
        log_prob[chosen], phi[rows] = part[0], part[1]
        if product is not None and part[2] is not None:
            product[rows] = part[2]
    impossible = (log_prob == -torch.inf)[bag_index(offsets), None]
    # The rows sum to one up to rounding, which is large only for extreme logits.
    phi = torch.where(impossible, log_p.exp(), phi / phi.sum(1, keepdim=True))
    return log_prob, phi, product


def _forward_backward(
    log_p: Tensor, offsets: Tensor, states: _States, change: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    alphas, alpha_dots = _forward(log_p, offsets, states, change)
    alpha = alphas[-1] + states.log_weight
    phi = torch.zeros_like(log_p)
    phi_dot = None if change is None else torch.zeros_like(log_p)

    # Backward: beta(s) is the log-probability of matching the evidence from state s on. Only the
    # forward states are kept; each step combines its alpha with the running beta.
    beta, beta_dot = states.log_weight, torch.zeros_like(alpha)
    log_prob = segment_logsumexp(alpha, states.offsets)  # (B,)
    total = torch.where(log_prob.isfinite(), log_prob, 0.0)  # avoids -inf - -inf
    total_dot = segment_sum((alpha - total[states.bag]).exp() * alpha_dots[-1], states.offsets)
    positions = list(_positions(offsets))
    for index in range(len(positions) - 1, -1, -1):
        active, row = positions[index]
        move = log_p[row][states.bag].T  # (K, S)
        terms = torch.where(states.grows, beta[states.after], -torch.inf) + move
        joint = (alphas[index] + terms - total[states.bag]).exp()  # (K, S)
        phi[row[active]] = segment_sum(joint.T.contiguous(), states.offsets)[active]
        new = terms.logsumexp(0)
        if change is not None and phi_dot is not None:
            slope = beta_dot[states.after] + change[row][states.bag].T
            along = joint * (alpha_dots[index] + slope - total_dot[states.bag])
            phi_dot[row[active]] = segment_sum(along.T.contiguous(), states.offsets)[active]
            share = (terms - new).exp().nan_to_num(0.0)
            beta_dot = torch.where(active[states.bag], (share * slope).sum(0), beta_dot)
        beta = torch.where(active[states.bag], new, beta)
    return log_prob, phi, phi_dot


def _forward(
    log_p: Tensor, offsets: Tensor, states: _States, change: Tensor | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """Log-probability ``(S,)`` of every state at every position, and its change."""
    start = torch.full((len(states.bag),), -torch.inf, dtype=log_p.dtype, device=log_p.device)
    start[states.offsets[:-1]] = 0.0
    alphas, dots = [start], [torch.zeros_like(start)]
    for active, row in _positions(offsets):
        move = log_p[row][states.bag].T
        terms = torch.where(states.shrinks, alphas[-1][states.before], -torch.inf) + move
        new = terms.logsumexp(0)
        if change is None:
            dots.append(dots[-1])
        else:
            share = (terms - new).exp().nan_to_num(0.0)
            slope = dots[-1][states.before] + change[row][states.bag].T
            dots.append(torch.where(active[states.bag], (share * slope).sum(0), dots[-1]))
        alphas.append(torch.where(active[states.bag], new, alphas[-1]))
    return alphas, dots


def pmf(log_p: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Probability of every bag's count vectors, flat, in lexicographic order; the vectors."""
    sizes, classes = offsets.diff(), log_p.shape[1]
    anything = Evidence.unknown(len(sizes), classes).to(log_p.device)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for chosen in _groups(sizes, anything):
        rows, inner = instances_of(offsets, chosen)
        states = _states(anything[chosen], sizes[chosen])
        alpha = _forward(log_p[rows], inner, states)[0][-1]
        real = (states.final >= 0).all(1)
        parts.append((chosen[states.bag[real]], alpha[real].exp(), states.final[real]))
    if not parts:
        empty = log_p.new_zeros(0)
        return empty, offsets.new_zeros((0, classes)), offsets.new_zeros(1)
    bag, probability, counts = (torch.cat(column) for column in zip(*parts, strict=True))
    # Stable sorts by the last key first give the lexicographic order of (bag, counts).
    order = torch.arange(len(bag), device=bag.device)
    for column in (*counts.T.flip(0), bag):
        order = order[column[order].argsort(stable=True)]
    number = torch.bincount(bag, minlength=len(sizes))
    return probability[order], counts[order], to_offsets(number)


def draw(
    log_p: Tensor,
    offsets: Tensor,
    evidence: Evidence,
    generator: torch.Generator | None,
    copies: int | None,
) -> Tensor:
    """Classes ``(copies, N)`` drawn from the posterior, or the most probable ones for ``None``."""
    sizes = offsets.diff()
    labels = torch.zeros((copies or 1, len(log_p)), dtype=torch.int64, device=log_p.device)
    for chosen in _groups(sizes, evidence):
        rows, inner = instances_of(offsets, chosen)
        states = _states(evidence[chosen], sizes[chosen])
        betas = _backward(log_p[rows], inner, states, best=copies is None)
        for copy in range(len(labels)):
            labels[copy, rows] = _walk(log_p[rows], inner, states, betas, generator, copies is None)
    return labels


def _backward(log_p: Tensor, offsets: Tensor, states: _States, best: bool) -> list[Tensor]:
    """For every position, the log of the sum (or the maximum) over all continuations of a state."""
    betas = [states.log_weight]
    for active, row in reversed(list(_positions(offsets))):
        terms = torch.where(states.grows, betas[-1][states.after], -torch.inf)
        terms = terms + log_p[row][states.bag].T
        new = terms.amax(0) if best else terms.logsumexp(0)
        betas.append(torch.where(active[states.bag], new, betas[-1]))
    return betas[::-1]


def _walk(
    log_p: Tensor,
    offsets: Tensor,
    states: _States,
    betas: list[Tensor],
    generator: torch.Generator | None,
    best: bool,
) -> Tensor:
    """One path through the states of every bag."""
    labels = torch.zeros(len(log_p), dtype=torch.int64, device=log_p.device)
    here = states.offsets[:-1].clone()
    bags = torch.arange(len(here), device=here.device)
    for (active, row), beta in zip(_positions(offsets), betas[1:], strict=True):
        ahead = torch.where(states.grows[:, here], beta[states.after[:, here]], -torch.inf).T
        terms = torch.where(active[:, None], ahead + log_p[row], 0.0)  # (B, K)
        if best:
            choice = terms.argmax(1)
        else:
            choice = torch.multinomial(terms.softmax(1), 1, generator=generator)[:, 0]
        labels[row[active]] = choice[active]
        here = torch.where(active, here + states.stride[bags, choice], here)
    return labels
