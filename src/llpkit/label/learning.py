"""The models that learn while somebody counts, and what they believe.

A model is a logistic regression on :class:`~llpkit.label.features.Features` with the exact
likelihood of the counts. It takes a fraction of a second, and with a few dozen bags it knows more
than a network does. Several are trained, each without one part of the counted bags. A bag is judged
by the model that has not seen it, so the likelihoods, the calibration and the search for miscounts
are honest; an item in no counted bag gets the mean of all models.
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
    """``(N,)``: the model that has not seen the item's bag; -1 for items in no counted bag."""
    gain: Gain
    """How well the models explain counted bags and labels, each by the model that has not seen it,
    compared with a constant rate."""
    draws: Array
    """Logits ``(S, N)`` of models that the counts leave possible, see :func:`draws_of`; of an item
    in a counted bag, by models that have not seen the bag."""
    test: Array | None = None
    """Logits of test items by a model of all bags, in demonstrations."""

    @property
    def logits(self) -> Array:
        """One logit ``(N,)`` per item: of the model that has not seen it, else the mean."""
        seen = self.members[np.maximum(self.unseen_by, 0), np.arange(self.members.shape[1])]
        return np.where(self.unseen_by >= 0, seen, self.members.mean(0))


def train(features: Tensor, bags: Bags, seed: int = 0, test: Tensor | None = None) -> Beliefs:
    """Train the models on the bags. A function of its arguments: it may run in another process.

    Args:
        features: Those of all items, ``(N, D)``.
        bags: What is known about some of them.
        seed: Of the division into parts.
        test: Features of items that nobody counts, to see in a demonstration how good it is.
    """
    torch.set_num_threads(1)  # the page must stay responsive
    # Bags go to the parts in a random order of their own; a part is never empty.
    order = np.random.default_rng(seed).permutation(len(bags))
    part = np.empty(len(bags), np.int64)
    part[order] = np.arange(len(bags)) % FOLDS
    x = features.numpy()
    members = []
    log_p, base = np.empty(len(bags)), np.empty(len(bags))
    unseen_by = np.full(len(x), -1)
    whole = _fitted(x, bags)
    draws = draws_of(whole, x, bags, seed)
    for fold in range(FOLDS):
        training = bags[np.flatnonzero(part != fold)]
        own = np.flatnonzero(part == fold)
        unseen = bags[own]
        model = _fitted(x, training)
        members.append(model.decision_function(x))
        rows = unseen.rows.numpy()
        unseen_by[rows] = fold
        draws[:, rows] = draws_of(model, x, training, seed)[:, rows]
        log_p[own] = _log_prob(draws, unseen)
        base[own] = baseline_log_likelihood(unseen, rate=constant_rate(training)).numpy()
    error = float((log_p - base).std(ddof=1)) / math.sqrt(len(bags))
    return Beliefs(
        np.stack(members),
        unseen_by,
        Gain(float(log_p.mean()), float(base.mean()), error, len(bags)),
        draws,
        None if test is None else whole.decision_function(test.numpy()),
    )


def learned(gain: Gain, counts: int, labels: int = 0) -> str:
    """Whether models have learned anything, in words.

    Args:
        gain: On what they have not seen.
        counts: How many bags were counted.
        labels: How many items were labelled.

    >>> learned(Gain(-1.0, -1.5, 0.5, 9), counts=9)  # doctest: +ELLIPSIS
    'Too few counts to be sure: after 9 counts, the gain ... +0.50 ... (95 % interval -0.65 to ...'
    """
    low, high = gain.interval
    after = several(counts, "count")
    after += f" and {several(labels, 'label')}" if labels else ""
    unseen = "a constant rate on counts it has not seen"
    how = f"{gain.mean:+.2f} in log-likelihood per bag (95 % interval {low:.2f} to {high:.2f})"
    if low > 0:
        return f"After {after}: better than {unseen}, {how}."
    if high < 0:
        return f"After {after}: no better than {unseen}, {how}."
    return f"Too few counts to be sure: after {after}, the gain over {unseen} is {how}."


def _fitted(x: Array, bags: Bags) -> "LLPLogisticRegression":
    from llpkit.estimators import LLPLogisticRegression

    with warnings.catch_warnings():
        # A few bags do not determine the weights; the penalty does, and the page shows how well.
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
        some = bags[np.arange(first, min(first + _AT_ONCE, len(bags)))]
        precision += bag_information(design[some.rows.numpy()], weights, some.offsets).sum(0)
    noise = np.random.default_rng(seed).standard_normal((len(weights), _DRAWS))
    # With precision = L L', the solution of L' e = noise has the inverse as its covariance.
    errors = np.linalg.solve(np.linalg.cholesky(precision).T, noise)
    drawn: Array = (design @ (weights[:, None] + errors)).T
    return drawn


def _log_prob(draws: Array, bags: Bags) -> Array:
    """Log-probability ``(B,)`` of the counts, over all that the models may be."""
    z = torch.from_numpy(draws)[:, bags.rows]
    each = torch.stack([log_prob(one, bags.evidence, bags.offsets) for one in z])
    found: Array = (each.logsumexp(0) - math.log(len(z))).numpy()
    return found


def information(models: Array, bag_items: list[list[int]]) -> Array:
    r"""What the count of each bag is expected to say about the model, in nats, ``(B,)``.

    .. math:: H\Bigl(\tfrac1M \sum_m P_m(y)\Bigr) - \tfrac1M \sum_m H\bigl(P_m(y)\bigr)

    The mutual information between the count and the choice of one of the models: large where they
    disagree on the count, zero where all expect the same, however uncertain they are.
    """
    if not bag_items:
        return np.empty(0)
    rows = np.concatenate([np.asarray(items) for items in bag_items])
    offsets = np.cumsum([0, *map(len, bag_items)])
    each = [pmf(torch.from_numpy(z[rows]), offsets) for z in models]
    ends = each[0].offsets.numpy()
    p = np.stack([found.probability.numpy() for found in each])  # (M, S)
    single: Array = np.mean([_entropies(one, ends) for one in p], 0)
    return _entropies(p.mean(0), ends) - single


def _entropies(p: Array, ends: NDArray[np.int64]) -> Array:
    terms = -p * np.log(np.maximum(p, 1e-300))
    found: Array = np.add.reduceat(terms, ends[:-1])
    return found


def after_count(beliefs: Beliefs, bags: Bags) -> Array:
    """Probabilities ``(N,)`` of the bags' instances given their counts, in engine order."""
    z = torch.from_numpy(beliefs.logits)[bags.rows]
    return posterior(z, bags.evidence, bags.offsets).numpy()


def surprise(beliefs: Beliefs, bags: Bags) -> Array:
    """How unlikely each bag's count is, ``(B,)``: the probability of a count at most as likely.

    Small values are probable miscounts. Each bag is judged by the model that has not seen it.
    """
    # Over the draws, because items that look alike are misjudged together.
    each = [pmf(z, bags.offsets) for z in torch.from_numpy(beliefs.draws)[:, bags.rows]]
    p = np.mean([found.probability.numpy() for found in each], 0)
    ends, log_p = each[0].offsets.numpy(), _log_prob(beliefs.draws, bags)
    seen = np.repeat(np.exp(log_p), np.diff(ends))
    return np.minimum(1.0, np.add.reduceat(np.where(p <= seen * (1 + 1e-9), p, 0.0), ends[:-1]))


def calibration(beliefs: Beliefs, bags: Bags, bins: int = 5) -> list[dict[str, Any]]:
    """Expected against counted share of positives, for bags sorted by the expected share."""
    p = torch.from_numpy(beliefs.draws)[:, bags.rows].sigmoid().mean(0).numpy()
    expected = np.add.reduceat(p, bags.offsets[:-1].numpy())
    evidence, sizes = bags.evidence, bags.sizes.numpy()
    counted = (evidence.low.numpy() + np.minimum(evidence.high.numpy(), sizes)) / 2
    order = np.argsort(expected / sizes)
    return [
        {
            "expected": float(expected[some].sum() / sizes[some].sum()),
            "counted": float(counted[some].sum() / sizes[some].sum()),
            "bags": len(some),
        }
        for some in np.array_split(order, min(bins, len(order)))
    ]
