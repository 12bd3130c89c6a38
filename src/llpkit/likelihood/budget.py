"""The cost of a bag's likelihood; for evaluation, exact within a budget, else approximate."""

from typing import NamedTuple

import torch
from torch import Tensor

from llpkit.evidence import Evidence
from llpkit.likelihood.api import log_prob, log_prob_and_posterior
from llpkit.likelihood.classes import MAX_STATES, count_states
from llpkit.ragged import instances_of


class Tractability(NamedTuple):
    """How the likelihood of each bag can be computed, ``(B,)`` bool each."""

    exact: Tensor
    approximate: Tensor
    """Exactly intractable, but the counts are exact, so that the saddlepoint formula applies."""


def tractability(evidence: Evidence, sizes: Tensor) -> Tractability:
    """Whether a bag's states are within the budget; if not, whether it can be approximated."""
    everyone = torch.ones_like(sizes, dtype=torch.bool)
    if evidence.num_classes in (None, 2):
        return Tractability(everyone, ~everyone)
    exact = count_states(evidence, sizes) <= MAX_STATES
    return Tractability(exact, ~exact & evidence.exactly_known)


def cost(evidence: Evidence, sizes: Tensor) -> Tensor:
    """Cost of each bag's likelihood in states of its recursion, float64 ``(B,)``.

    For two classes and for the approximation it is linear in the number of instances.
    """
    linear = (sizes + 1).to(torch.float64)
    if evidence.num_classes in (None, 2):
        return linear
    return torch.where(tractability(evidence, sizes).exact, count_states(evidence, sizes), linear)


def even_sample(cost: Tensor, budget: float) -> Tensor:
    """Indices of evenly spread bags whose total cost is within the budget; at least one.

    Bags that exceed the budget alone are left out; if all do, the cheapest is taken.

    >>> even_sample(torch.ones(10), 5)
    tensor([1, 3, 5, 7, 9])
    """
    if float(cost.sum()) <= budget:
        return torch.arange(len(cost))
    cost = cost.cpu()
    fit = (cost <= budget).nonzero()[:, 0]  # indices
    if len(fit) == 0:
        return cost.argmin()[None]
    kept = min(len(fit), 1 + int(len(fit) * budget / float(cost[fit].sum())))
    while True:
        steps = (torch.arange(kept, dtype=torch.float64) + 0.5) * len(fit) / kept
        places = fit[steps.long()]
        if kept == 1 or float(cost[places].sum()) <= budget:
            return places
        kept -= max(1, kept // 10)


def best_log_prob(logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
    """Log-likelihood of every bag ``(B,)``: exact within the budget, else approximate.

    NaN for a bag beyond the budget whose counts are not exact, as the approximation needs these.
    """
    if evidence.num_classes in (None, 2):
        return log_prob(logits, evidence, offsets, validate=False)
    return _best(logits, evidence, offsets, validate=False)[0]


def best_posterior(
    logits: Tensor, evidence: Evidence, offsets: Tensor, *, validate: bool = False
) -> Tensor:
    """Posterior of every instance, ``(N,)`` or ``(N, K)``: exact within the budget, or close.

    In a bag that has neither it is the prior from the logits alone.
    """
    return _best(logits, evidence, offsets, validate)[1]


def _best(
    logits: Tensor, evidence: Evidence, offsets: Tensor, validate: bool
) -> tuple[Tensor, Tensor]:
    sizes = offsets.diff()
    exact, approximate = tractability(evidence, sizes)
    if evidence.num_classes in (None, 2) or bool(exact.all()):
        return log_prob_and_posterior(logits, evidence, offsets, validate=validate)
    log_p = logits.new_full((len(sizes),), torch.nan)
    phi = logits.softmax(1)
    for chosen, approximation in ((exact, None), (approximate, "saddlepoint")):
        rows, inner = instances_of(offsets, chosen)
        log_p[chosen], phi[rows] = log_prob_and_posterior(
            logits[rows],
            evidence[chosen],
            inner,
            approximation=approximation,  # type: ignore[arg-type]
            validate=validate and approximation is None,
        )
    return log_p, phi
