"""Metrics on bags, which need no labels: likelihood of the counts, proportions, baselines."""

import warnings
from typing import Any

import torch
from torch import Tensor

from llpkit.bags import Bags
from llpkit.errors import ApproximationWarning, LLPError
from llpkit.evaluation._inputs import check_bags, check_length, check_logits, check_probabilities
from llpkit.likelihood.budget import (
    Tractability,
    best_log_prob,
    best_posterior,
    cost,
    even_sample,
    tractability,
)
from llpkit.probability import probability_of
from llpkit.ragged import segment_sum

_RATE_BUDGET, _RATE_STEPS = 2**18, 100


def bag_log_likelihood(logits: Any, bags: Bags) -> Tensor:
    """Exact log-likelihood of every bag's counts ``(B,)``, logits in engine order.

    It needs no instance labels, so use it for model selection and early stopping. With many classes
    the exact likelihood of a large bag may be intractable. You then get a warning, and the value
    for the bag is the saddlepoint approximation, or NaN if its counts are not exact.
    """
    z = check_logits(logits, bags)
    warn_of_approximation(bags)
    return best_log_prob(z, bags.evidence, bags.offsets)


def mean_log_likelihood(logits: Any, bags: Bags) -> float:
    """Mean of :func:`bag_log_likelihood` over :func:`measurable` bags, without a warning."""
    log_p = best_log_prob(check_logits(logits, bags).detach(), bags.evidence, bags.offsets)
    return float(log_p[measurable(bags)].mean())


def measurable(bags: Bags) -> Tensor:
    """Which bags a model can be evaluated on, ``(B,)`` bool.

    They have an exact or approximate log-likelihood, and a count that rules something out: if
    nothing is known, every model has a likelihood of one.
    """
    exact, approximate = _tractability(bags)
    return (exact | approximate) & bags.informative


def number_approximated(bags: Bags) -> int:
    """Number of bags too large for an exact log-likelihood with their number of classes."""
    return int((~_tractability(bags).exact).sum())


def approximation_note(*parts: Bags) -> str | None:
    """A note if the metrics of these bags are not exact, else ``None``."""
    intractable = sum(number_approximated(bags) for bags in parts)
    if not intractable:
        return None
    approximate = sum(int(_tractability(bags).approximate.sum()) for bags in parts)
    neither = intractable - approximate
    total = sum(map(len, parts))
    text = f"the exact likelihood of {intractable:,} of {total:,} bags is intractable: "
    if approximate:
        text += "their log-likelihood and posteriors are approximate (saddlepoint)"
        if neither:
            text += f", except for {neither:,} whose counts are not exact and which have neither"
    else:
        text += "they have no log-likelihood and no posterior, because their counts are not exact"
    return text


def warn_of_approximation(*parts: Bags, stacklevel: int = 3) -> None:
    """Issue :func:`approximation_note` as a warning, by default at the caller's caller."""
    text = approximation_note(*parts)
    if text is not None:
        warnings.warn(text, ApproximationWarning, stacklevel=stacklevel)


def constant_rate(bags: Bags) -> Tensor:
    """The probability, the same for every instance, that maximises the likelihood of the counts.

    A scalar for the positive class, or ``(K,)``; float64. For exact counts it is the pooled
    proportion; otherwise it is found by EM, on an even sample if there are many bags.

    >>> constant_rate(Bags(offsets=[0, 2, 5], counts=[1, 1]))
    tensor(0.4000, dtype=torch.float64)
    """
    bags = bags.to("cpu")
    if not bags.evidence.is_exact:
        bags = bags[even_sample(cost(bags.evidence, bags.sizes), _RATE_BUDGET)]
    classes, n = bags.num_classes, bags.sizes
    low, high = bags.evidence.low, bags.evidence.high
    high = torch.minimum(high, n if classes is None else n[:, None])
    # For exact counts this is the solution; otherwise EM starts from the middle of the ranges.
    rate = (low + high).double().sum(0) / 2
    rate = rate / (max(1, bags.num_instances) if classes is None else rate.sum().clamp(min=1e-300))
    if bags.evidence.is_exact or bags.num_instances == 0:
        return rate
    for _ in range(_RATE_STEPS):
        before = rate
        phi = best_posterior(_constant_logits(rate, bags), bags.evidence, bags.offsets)
        rate = phi.mean(0)
        if float((rate - before).abs().max()) < 1e-7:
            break
    return rate


def baseline_log_likelihood(bags: Bags, rate: Any = None) -> Tensor:
    """Log-likelihood of every bag's counts ``(B,)`` under one constant rate for every instance.

    A model that has learned nothing from the instances reaches this; a useful model has a higher
    :func:`bag_log_likelihood`. For exact counts it has a closed form at any bag size, the binomial
    or multinomial probability. It is NaN if the likelihood is intractable.

    Args:
        bags: The bags to measure.
        rate: The :func:`constant_rate` of the training bags; by default that of ``bags``. A given
            rate is clamped to at least 1e-6 for every class.

    >>> bags = Bags(offsets=[0, 2, 5], counts=[1, 2])
    >>> baseline_log_likelihood(bags, 0.5).exp()
    tensor([0.5000, 0.3750], dtype=torch.float64)
    """
    bags = bags.to("cpu")
    if rate is None:
        rate = constant_rate(bags)
    else:
        rate = torch.as_tensor(rate, dtype=torch.float64).cpu().clamp(1e-6, 1 - 1e-6)
    if rate.dim() != (bags.num_classes is not None) or rate.numel() != (bags.num_classes or 1):
        need = "one number" if bags.num_classes is None else f"{bags.num_classes} numbers"
        raise LLPError(f"rate has shape {tuple(rate.shape)}; these bags need {need}")
    evidence, n = bags.evidence, bags.sizes.double()
    known = bags.evidence.exactly_known
    counts, p = evidence.low.double(), rate
    if bags.num_classes is None:
        counts, p = torch.stack([n - counts, counts], 1), torch.stack([1 - p, p])  # two classes
    # The logarithm of the binomial or multinomial probability.
    result = torch.lgamma(n + 1) - torch.lgamma(counts + 1).sum(1) + torch.xlogy(counts, p).sum(1)
    if not bool(known.all()):
        rest = bags[~known]
        z = _constant_logits(rate, rest)
        result[~known] = best_log_prob(z, rest.evidence, rest.offsets)
    return result


def _constant_logits(rate: Tensor, bags: Bags) -> Tensor:
    """The same logits for every instance: ``(N,)`` or ``(N, K)``."""
    z = rate.logit() if rate.dim() == 0 else rate.log()
    return z.expand(bags.num_instances, *rate.shape).contiguous()


def proportion_error(probability: Any, bags: Bags) -> float:
    """Mean absolute difference between predicted and known proportions, in engine order.

    If a count is a range, the distance to the range is used; if it is noisy, the distance to the
    most likely counts. Empty bags and bags without a count are left out.
    """
    p = check_length(check_probabilities(probability), "probabilities", bags)
    n = bags.sizes.clamp(min=1).to(p.dtype)
    low, high = bags.evidence.likeliest
    if p.dim() == 2:
        n = n[:, None]
    total = segment_sum(p, bags.offsets)  # (B,) or (B, K)
    gap = (low - total).clamp(min=0) + (total - high).clamp(min=0)
    kept = bags.informative
    return float((gap / n)[kept].mean()) if bool(kept.any()) else 0.0


def posterior_of(logits: Tensor, bags: Bags) -> Tensor:
    """Label probabilities given the counts, one row per row of the table, as logits have."""
    phi = probability_of(logits)  # rows in no bag keep it
    phi[bags.rows] = best_posterior(logits[bags.rows], bags.evidence, bags.offsets, validate=True)
    return phi


def _tractability(bags: Any) -> Tractability:
    check_bags(bags)
    return tractability(bags.evidence, bags.sizes)
