"""Several estimators, weighted by the likelihood of held-out bags."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils import check_random_state

from llpkit._arrays import Array
from llpkit._validation import whole
from llpkit.bags import Bags
from llpkit.bags.random import random_sample
from llpkit.errors import LLPError
from llpkit.estimators.base import BaseLLP, choose, log_likelihood_and_residual
from llpkit.estimators.em import LLPClassifier, fold_of_rows
from llpkit.estimators.logistic import LLPLogisticRegression, lbfgs
from llpkit.estimators.network import LLPNetworkClassifier
from llpkit.likelihood.checks import Approximation
from llpkit.progress import TaskProgress, task
from llpkit.statistics.rows import take_rows

_HELD_OUT_ROWS = 20_000
"""Rows that are enough to determine a few weights."""
_SHRINKAGE = 3.0
"""Strength of the pull towards equal weights: with few bags, the best weights are mostly noise."""


class LLPEnsembleClassifier(BaseLLP):
    r"""A weighted sum of the logits of several estimators, weighted by held-out bags.

    .. math:: z(x) = \sum_v w_v z_v(x) + b, \qquad
              w, b = \arg\max_{w \ge 0} \sum_{\text{bags}} \log P(y \mid z)
                     - \tfrac32 \|w - 1/V\|^2

    :math:`z_v` are the logits of one estimator, or the mean of estimators that differ only in their
    seed, scaled so that they alone make the counts most likely. Scales and weights are fitted to
    out-of-fold logits, with ``n_folds`` folds of whole bags. So the counts decide whether a linear
    model, trees or a network suits the table; if they favour none, the weights stay nearly equal.
    With fewer than two bags per fold all weights are equal.

    Args:
        estimators: Estimators of this package; by default logistic regression, EM around boosting,
            and three small networks, on standardised columns.
        n_folds: Folds for fitting the weights; every estimator is fitted once more per fold.
        approximation: For many classes in large bags, passed on to the estimators; see
            :func:`llpkit.likelihood.log_prob`.
        random_state: Seed, generator or ``None``.

    Attributes:
        estimators_: The estimators, fitted to all bags.
        weights_: Their weights, including the scales, ``(M,)``.
        shift_: The intercept, ``()`` or ``(K,)``.
        parts_: By kind of estimator, its share of the sum of the :math:`w_v`.
        approximation_: The approximation in use, ``None`` if exact.

    >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
    >>> groups, y = [0, 0, 0, 1, 1, 1], [0, 0, 0, 2, 2, 2]
    >>> members = [LLPLogisticRegression(C=1), LLPLogisticRegression(C=10)]
    >>> LLPEnsembleClassifier(members).fit(X, y, groups).predict(X)
    array([0, 0, 0, 0, 1, 1])
    """

    estimators_: list[BaseLLP]
    weights_: Array
    shift_: Array
    parts_: dict[str, float]

    def __init__(
        self,
        estimators: Sequence[BaseLLP] | None = None,
        *,
        n_folds: int = 3,
        approximation: Approximation = "auto",
        random_state: Any = None,
    ) -> None:
        self.estimators = estimators
        self.n_folds = n_folds
        self.approximation = approximation
        self.random_state = random_state

    def _fit_bags(self, X: Any, bags: Bags) -> None:
        whole("n_folds", self.n_folds, 2)
        random = check_random_state(self.random_state)
        self.approximation_ = choose(self.approximation, bags)
        members = self._members(random)
        self.weights_ = np.full(len(members), 1 / len(members))
        self.shift_ = np.zeros(() if bags.num_classes is None else bags.num_classes)
        shares = _shares_by_kind(members)
        of_kinds = np.full(len(shares), 1 / len(shares))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # members that stop early get a low weight
            weighted = len(members) > 1 and len(bags) >= 2 * self.n_folds
            rounds = 1 + (self.n_folds if weighted else 0)
            with task("fit", kinds=[_kind(member) for member in members] * rounds) as steps:
                if weighted:
                    few = bags[random_sample(bags.sizes.numpy(), _HELD_OUT_ROWS, random, least=64)]
                    folds = fold_of_rows(few, self.n_folds, random)
                    z = _out_of_fold(members, X, few, folds, steps)
                    of_kinds, shares, self.shift_ = _weights(z, shares, few, self.approximation_)
                    self.weights_ = of_kinds @ shares
                self.estimators_ = [_fitted(member, X, bags, steps) for member in members]
        total = of_kinds.sum() or 1.0
        self.parts_ = {}
        for share, weight in zip(shares, of_kinds, strict=True):
            name = _kind(members[int(share.argmax())])
            self.parts_[name] = self.parts_.get(name, 0.0) + float(weight / total)

    def _logits(self, X: Any) -> Array:
        z = self.shift_ + sum(
            w * _centred(member.decision_function(X))
            for w, member in zip(self.weights_, self.estimators_, strict=True)
        )
        return np.asarray(z)

    def _members(self, random: np.random.RandomState) -> list[BaseLLP]:
        chosen = _default() if self.estimators is None else self.estimators
        if not chosen or not all(isinstance(member, BaseLLP) for member in chosen):
            raise LLPError(
                f"estimators = {chosen!r}; give a list of estimators of llpkit.estimators, such as "
                "[LLPLogisticRegression(), LLPClassifier()]"
            )
        members = [clone(member) for member in chosen]
        for member in members:
            known = member.get_params(deep=False)
            if known.get("random_state", 0) is None:
                member.set_params(random_state=random.randint(2**31 - 1))
            if "approximation" in known:
                member.set_params(approximation=self.approximation_)
        return members


def _default() -> list[BaseLLP]:
    # Half the usual number of trees: boosting takes most of the time, and the others help.
    trees = HistGradientBoostingClassifier(max_iter=50, early_stopping=False)
    # Networks differ in their initial weights, and several are better than one.
    networks = [LLPNetworkClassifier() for _ in range(3)]
    return [LLPLogisticRegression(), LLPClassifier(trees), *networks]


def _out_of_fold(
    members: list[BaseLLP], X: Any, bags: Bags, folds: Array, steps: TaskProgress
) -> list[Array]:
    """Each member's logits of the rows of the bags, from fits to the other folds, in row order."""
    shape = (bags.num_rows,) if bags.num_classes is None else (bags.num_rows, bags.num_classes)
    z = [np.zeros(shape) for _ in members]
    full = np.flatnonzero(bags.sizes.numpy() > 0)
    first = bags.rows[bags.offsets[:-1]][full].numpy()  # one row of every bag gives its fold
    for fold in np.unique(folds[first]):
        inside = folds[first] == fold
        rows = bags[full[inside]].rows.numpy()
        # Folds in the outer loop: after the first one the progress has timed every member.
        for logits, member in zip(z, members, strict=True):
            model = _fitted(clone(member), X, bags[full[~inside]], steps)
            logits[rows] = _centred(model.decision_function(take_rows(X, rows)))
    return z


def _fitted(member: BaseLLP, X: Any, bags: Bags, steps: TaskProgress) -> BaseLLP:
    rows = take_rows(X, bags.rows.numpy())
    fitted = member.fit(rows, bags.evidence, bags.bag_index.numpy())
    steps.step()
    return fitted


def _kind(member: BaseLLP) -> str:
    """The name of a member in the progress."""
    inner = getattr(member, "estimator", None)
    return type(member if inner is None else inner).__name__


def _centred(z: Array) -> Array:
    """Logits without the common part, which is arbitrary with K classes."""
    return z if z.ndim == 1 else z - z.mean(1, keepdims=True)


def _shares_by_kind(members: list[BaseLLP]) -> Array:
    """The share of each member in the mean of those that differ only in their seed, ``(V, M)``."""
    kinds = []
    for member in members:
        same = clone(member)
        if "random_state" in same.get_params(deep=False):
            same.set_params(random_state=None)
        kinds.append(repr(same))
    table = np.array([[kind == other for other in kinds] for kind in dict.fromkeys(kinds)])
    return np.asarray(table / table.sum(1, keepdims=True))


def _weights(
    out_of_fold: list[Array], shares: Array, bags: Bags, approximation: Any
) -> tuple[Array, Array, Array]:
    """The weights of the kinds that make the counts most likely, their shares, and the shift."""
    parts = np.stack([z[bags.rows.numpy()] for z in out_of_fold])  # (M, N) or (M, N, K)

    def scale(z: Array) -> Array:
        """The factor that makes logits alone most likely: an overfitted member is overconfident."""
        return _most_likely(z[None], np.ones(1), 1e-6, bags, approximation)[0]

    shares = shares * np.concatenate([scale(z) for z in parts])
    # Once more for each kind: the mean of several members is less confident than one of them.
    shares *= np.stack([scale(np.tensordot(share, parts, 1)) for share in shares])
    z = np.tensordot(shares, parts, 1)  # (V, N) or (V, N, K)
    equal = np.full(len(z), 1 / len(z))
    weights, shift = _most_likely(z, equal, _SHRINKAGE, bags, approximation)
    return weights, shares, shift


def _most_likely(
    parts: Array, centre: Array, shrinkage: float, bags: Bags, approximation: Any
) -> tuple[Array, Array]:
    """Non-negative weights and a shift, with a penalty on the distance from the centre."""
    number = len(parts)
    by_bag = Bags(bags.offsets, bags.evidence)  # of rows in the order of the bags, as in parts
    start = np.concatenate([centre, np.zeros(bags.num_classes or 1)])

    def objective(flat: Array) -> tuple[float, Array]:
        w, shift = flat[:number], flat[number:]
        z = np.tensordot(w, parts, 1) + (shift[0] if parts.ndim == 2 else shift)
        total, residual = log_likelihood_and_residual(z, by_bag, approximation)
        away = w - centre
        gradient = (parts * residual).reshape(number, -1).sum(1) + shrinkage * away
        of_shift = np.atleast_1d(residual.sum(0)) + 1e-6 * shift
        value = -total + shrinkage / 2 * float(away @ away)
        value += 5e-7 * float(shift @ shift)
        return value / len(bags), np.append(gradient, of_shift) / len(bags)

    bounds = [(0.0, None)] * number + [(None, None)] * (len(start) - number)
    weights, shift = np.split(lbfgs(objective, start, 1e-6, 200, bounds).weights, [number])
    return weights, shift if bags.num_classes else shift.reshape(())
