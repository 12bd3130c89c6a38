"""Restarts that look for contradicting models that explain the counts equally well."""

from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize

from llpkit._arrays import Array
from llpkit.bags import Bags
from llpkit.likelihood import log_prob_and_posterior
from llpkit.likelihood.budget import cost, tractability
from llpkit.probability import probability_of
from llpkit.ragged import instances_of
from llpkit.statistics.directions import standardised

_ROWS = 4_000
"""Rows of the sample that the models are fitted to; a few hundred bags are enough."""
_STATES = 2**18
"""Maximum number of states of the exact recursions of the sample, for many classes."""
_WIDTH = 20
"""Maximum number of features; more are reduced to principal components."""
_STARTS = 2
"""Random starts, of which the best is kept."""
_DIFFERENT = 0.1
"""Two models differ if their probabilities differ by this much on average."""
_CLEAR = 3.0
"""Standard errors by which one model must be better than another to be preferred."""


class Mode(NamedTuple):
    """A local maximum of the penalised likelihood of a linear model."""

    weights: Array  # (D + 1, K) or (D + 1, 1)
    log_likelihood: Array  # (B,)
    probability: Array  # (N,) or (N, K)


def contradicting_modes(x: Array, bags: Bags, seed: int) -> bool:
    """Whether the mirror image of the best linear model explains the counts equally well.

    Two classes are exchanged in the model, which is then fitted again from there. Vuong's test
    compares the two fits: the differences of the bags' log-likelihoods with their standard error.

    Args:
        x: Features ``(N, D)`` in the order of the bags.
        bags: The bags.
        seed: Seed for the sample of bags and the starts.
    """
    random = np.random.default_rng(seed)
    chosen = _sample(bags, random)
    if not len(chosen):
        return False
    rows = instances_of(bags.offsets, chosen)[0].numpy()
    x = _components(x[rows])
    bags = Bags(bags[chosen].offsets, bags[chosen].evidence)
    best = max(
        (_climb(x, bags, _start(x, bags, random)) for _ in range(_STARTS)),
        key=lambda mode: float(mode.log_likelihood.sum()),
    )
    width = best.weights.shape[1]
    pairs = [(0, 0)] if width == 1 else [(k, m) for k in range(width) for m in range(k)]
    return any(_as_good(best, _climb(x, bags, _mirrored(best.weights, *pair))) for pair in pairs)


def _sample(bags: Bags, random: np.random.Generator) -> torch.Tensor:
    """Random bags, as many as are cheap; none if the exact likelihood of each is intractable."""
    exact = tractability(bags.evidence, bags.sizes).exact
    order = torch.from_numpy(random.permutation(len(bags)))
    order = order[exact[order]]
    inside = bags.sizes[order].cumsum(0) <= _ROWS
    inside &= cost(bags.evidence, bags.sizes)[order].cumsum(0) <= _STATES
    inside[:1] = True
    return order[inside].sort().values


def _components(x: Array) -> Array:
    """Standardised features, or their principal components if there are many."""
    x, _ = standardised(x)
    if x.shape[1] <= _WIDTH:
        return x
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    scores: Array = u[:, :_WIDTH] * s[:_WIDTH]
    return np.asarray(scores / np.maximum(np.sqrt((scores * scores).mean(0)), 1e-12))


def _start(x: Array, bags: Bags, random: np.random.Generator) -> Array:
    width = bags.num_classes or 1
    weights = np.zeros((x.shape[1] + 1, width))
    weights[:-1] = random.normal(size=(x.shape[1], width)) / np.sqrt(x.shape[1])
    return weights


def _mirrored(weights: Array, first: int, second: int) -> Array:
    """The weights with two classes exchanged, except for the intercepts."""
    mirrored = weights.copy()
    if weights.shape[1] == 1:
        mirrored[:-1] *= -1
    else:
        mirrored[:-1, [first, second]] = weights[:-1, [second, first]]
    return mirrored


def _climb(x: Array, bags: Bags, start: Array) -> Mode:
    """The maximum of the penalised likelihood that L-BFGS reaches from this start."""
    number = len(x)
    width = start.shape[1]

    def logits(flat: Array) -> torch.Tensor:
        w = flat.reshape(-1, width)
        z = torch.from_numpy(x @ w[:-1] + w[-1])
        return z[:, 0] if width == 1 else z

    def objective(flat: Array) -> tuple[float, Array]:
        z = logits(flat)
        log_p, phi = log_prob_and_posterior(z, bags.evidence, bags.offsets, validate=False)
        p = probability_of(z)
        residual = (p - phi).numpy().reshape(number, width)
        slope = np.vstack([x.T @ residual, residual.sum(0)])
        w = flat.reshape(-1, width)
        # A weak ridge keeps the weights finite where the features separate the counts.
        slope += 0.1 * w
        return -float(log_p.sum()) + 0.05 * float((w * w).sum()), slope.ravel()

    flat = minimize(
        objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 60}
    ).x
    z = logits(flat)
    p = probability_of(z)
    log_p, _ = log_prob_and_posterior(z, bags.evidence, bags.offsets, validate=False)
    return Mode(flat.reshape(start.shape), log_p.numpy(), p.numpy())


def _as_good(best: Mode, other: Mode) -> bool:
    """Whether two models differ and neither is clearly better."""
    if np.abs(best.probability - other.probability).mean() < _DIFFERENT:
        return False
    # Bags are independent, so the sum of their differences has this standard error.
    gap = best.log_likelihood - other.log_likelihood
    error = float(gap.std()) * np.sqrt(len(gap))
    # The mirror image may be better than the best start.
    return bool(abs(gap.sum()) < max(_CLEAR * error, _CLEAR))
