"""The models that learn as people count, and what they predict.

A model is a logistic regression on :class:`~llpkit.label.features.Features`, fitted by the exact
likelihood of the counts. This takes a fraction of a second and, with a few dozen bags, predicts
better than a network. As in cross-validation, each model leaves out one fold of the counted bags:
likelihoods, calibration and the search for miscounts use the model that was not fitted to the bag.
An item in no counted bag gets the mean of all models.
"""

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit._text import several
from llpkit.bags import Bags
from llpkit.evaluation import Gain, baseline_log_likelihood, constant_rate
from llpkit.likelihood import log_prob, pmf, posterior
from llpkit.ragged import bag_index

if TYPE_CHECKING:
    from llpkit.estimators import LLPLogisticRegression

FOLDS = 3
LEAST = 6
"""Counted bags before the first training."""

_C = 5.0
_DRAWS = 16
_AT_ONCE = 100  # bags whose information matrices are in memory together

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Beliefs:
    """What the models believe after one round of training."""

    members: Array
    """Logits ``(FOLDS, N)`` of all items by all models."""
    unseen_by: NDArray[np.int64]
    """``(N,)``: the model not fitted to the item's bag; -1 for items in no counted bag."""
    gain: Gain
    """How much better than a constant rate the models explain held-out counts and labels."""
    draws: Array
    """Logits ``(S, N)`` of models that the counts leave possible (see :func:`draws_of`); for items
    in a counted bag, of models not fitted to it."""
    test: Array | None = None
    """Logits of test items by a model of all bags, in demonstrations."""

    @property
    def logits(self) -> Array:
        """One logit ``(N,)`` per item: of the model not fitted to its bag, else the mean."""
        held_out = self.members[np.maximum(self.unseen_by, 0), np.arange(self.members.shape[1])]
        return np.where(self.unseen_by >= 0, held_out, self.members.mean(0))


def train(features: Tensor, bags: Bags, seed: int = 0, test: Tensor | None = None) -> Beliefs:
    """Train the models on the bags, perhaps in another process.

    Args:
        features: Features of all items, ``(N, D)``.
        bags: What is known about some of them.
        seed: Seed for the division into folds.
        test: Features of items that nobody counts, whose accuracy a demonstration shows.
    """
    torch.set_num_threads(1)  # the page must stay responsive
    # Dealt out, not drawn, so that no fold is empty.
    fold_of = np.empty(len(bags), np.int64)
    fold_of[np.random.default_rng(seed).permutation(len(bags))] = np.arange(len(bags)) % FOLDS
    x = features.numpy()
    members = []
    log_p, base = np.empty(len(bags)), np.empty(len(bags))
    unseen_by = np.full(len(x), -1)
    full_model = _fitted(x, bags)
    draws = draws_of(full_model, x, bags, seed)
    for fold in range(FOLDS):
        training = bags[np.flatnonzero(fold_of != fold)]
        held_out_at = np.flatnonzero(fold_of == fold)
        held_out = bags[held_out_at]
        model = _fitted(x, training)
        members.append(model.decision_function(x))
        rows = held_out.rows.numpy()
        unseen_by[rows] = fold
        draws[:, rows] = draws_of(model, x, training, seed)[:, rows]
        log_p[held_out_at] = _log_prob(draws, held_out)
        base[held_out_at] = baseline_log_likelihood(held_out, constant_rate(training)).numpy()
    return Beliefs(
        np.stack(members),
        unseen_by,
        Gain.of(torch.from_numpy(log_p), torch.from_numpy(base)),
        draws,
        None if test is None else full_model.decision_function(test.numpy()),
    )


def verdict(gain: Gain, counts: int, labels: int = 0) -> str:
    """Whether the models have learned anything, in words.

    Args:
        gain: On held-out counts and labels.
        counts: How many bags were counted.
        labels: How many items were labelled.

    >>> verdict(Gain(-1.0, -1.5, 0.5, 9), counts=9)  # doctest: +ELLIPSIS
    'Too few counts to be sure: after 9 counts, the gain ... 0.50 ... (95% interval -0.65 to ...'
    """
    after = several(counts, "count")
    after += f" and {several(labels, 'label')}" if labels else ""
    baseline = "a constant rate on held-out counts"
    if gain.better:
        return f"After {after}: better than {baseline}, by {gain.text}."
    if gain.better is False:
        return f"After {after}: no better than {baseline}; the gain is {gain.text}."
    return f"Too few counts to be sure: after {after}, the gain over {baseline} is {gain.text}."


def _fitted(x: Array, bags: Bags) -> "LLPLogisticRegression":
    from llpkit.estimators import LLPLogisticRegression

    with warnings.catch_warnings():
        # A few bags do not determine the weights, but the penalty does; the page shows how well.
        warnings.simplefilter("ignore")
        model = LLPLogisticRegression(C=_C, tol=1e-4, random_state=0)
        return model.fit(x[bags.rows.numpy()], bags.evidence, bag_index(bags.offsets).numpy())


def draws_of(model: "LLPLogisticRegression", x: Array, bags: Bags, seed: int) -> Array:
    r"""Logits ``(S, N)`` under weights drawn from their approximate posterior distribution.

    The penalty is a Gaussian prior, and around the fitted weights the likelihood is nearly
    Gaussian too, with the Fisher information of the counts as its inverse variance (Laplace).
    """
    from llpkit.statistics import bag_information

    design = np.column_stack([x, np.ones(len(x))])
    weights = np.append(model.coef_[0], model.intercept_[0])
    precision = np.eye(len(weights)) / _C
    for first in range(0, len(bags), _AT_ONCE):
        batch = bags[np.arange(first, min(first + _AT_ONCE, len(bags)))]
        precision += bag_information(design[batch.rows.numpy()], weights, batch.offsets).sum(0)
    noise = np.random.default_rng(seed).standard_normal((len(weights), _DRAWS))
    # With precision = L L', the solution of L' e = noise has the inverse as its covariance.
    errors = np.linalg.solve(np.linalg.cholesky(precision).T, noise)
    drawn: Array = (design @ (weights[:, None] + errors)).T
    return drawn


def _log_prob(draws: Array, bags: Bags) -> Array:
    """Log-probability ``(B,)`` of the counts, averaged over the draws."""
    z = torch.from_numpy(draws)[:, bags.rows]
    each = torch.stack([log_prob(draw, bags.evidence, bags.offsets) for draw in z])
    mean: Array = (each.logsumexp(0) - math.log(len(z))).numpy()
    return mean


def information(models: Array, bag_items: list[list[int]]) -> Array:
    r"""What the count of each bag is expected to reveal about the model, in nats, ``(B,)``.

    .. math:: H\Bigl(\tfrac1M \sum_m P_m(y)\Bigr) - \tfrac1M \sum_m H\bigl(P_m(y)\bigr)

    The mutual information between the count and the choice of one of the models: large where they
    disagree about the count, zero where they agree, however uncertain they are.
    """
    if not bag_items:
        return np.empty(0)
    rows = np.concatenate([np.asarray(items) for items in bag_items])
    offsets = np.cumsum([0, *map(len, bag_items)])
    each = [pmf(torch.from_numpy(z[rows]), offsets) for z in models]
    ends = each[0].offsets.numpy()
    p = np.stack([count.probability.numpy() for count in each])  # (M, S)
    mean_entropy: Array = np.mean([_entropies(model, ends) for model in p], 0)
    return _entropies(p.mean(0), ends) - mean_entropy


def _entropies(p: Array, ends: NDArray[np.int64]) -> Array:
    terms = -p * np.log(np.maximum(p, 1e-300))
    sums: Array = np.add.reduceat(terms, ends[:-1])
    return sums


def after_count(beliefs: Beliefs, bags: Bags) -> Array:
    """Probabilities ``(N,)`` of the bags' instances given their counts, in engine order."""
    z = torch.from_numpy(beliefs.logits)[bags.rows]
    return posterior(z, bags.evidence, bags.offsets).numpy()


def surprise(beliefs: Beliefs, bags: Bags) -> Array:
    """The p-value of each bag's count, ``(B,)``: the probability of a count at most as likely.

    Small values are possible miscounts. The models were not fitted to the bag.
    """
    # Averaged over the draws, because a model errs on similar items together.
    each = [pmf(z, bags.offsets) for z in torch.from_numpy(beliefs.draws)[:, bags.rows]]
    p = np.mean([count.probability.numpy() for count in each], 0)
    ends, log_p = each[0].offsets.numpy(), _log_prob(beliefs.draws, bags)
    observed = np.repeat(np.exp(log_p), np.diff(ends))
    tail = np.where(p <= observed * (1 + 1e-9), p, 0.0)
    return np.minimum(1.0, np.add.reduceat(tail, ends[:-1]))


def calibration(beliefs: Beliefs, bags: Bags, bins: int = 5) -> list[dict[str, Any]]:
    """Expected and counted share of positives, in bins of bags sorted by the expected share."""
    p = torch.from_numpy(beliefs.draws)[:, bags.rows].sigmoid().mean(0).numpy()
    expected = np.add.reduceat(p, bags.offsets[:-1].numpy())
    evidence, sizes = bags.evidence, bags.sizes.numpy()
    counted = (evidence.low.numpy() + np.minimum(evidence.high.numpy(), sizes)) / 2
    order = np.argsort(expected / sizes)
    return [
        {
            "expected": float(expected[chosen].sum() / sizes[chosen].sum()),
            "counted": float(counted[chosen].sum() / sizes[chosen].sum()),
            "bags": len(chosen),
        }
        for chosen in np.array_split(order, min(bins, len(order)))
    ]
