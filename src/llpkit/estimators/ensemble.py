"""Several estimators, weighted by the likelihood of held-out bags."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from llpkit._validation import whole
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.estimators.base import Array, BaseLLP, choose, probabilities, solve
from llpkit.estimators.em import LLPClassifier, fold_of_rows
from llpkit.estimators.logistic import LLPLogisticRegression, lbfgs
from llpkit.estimators.network import LLPNetworkClassifier
from llpkit.likelihood.checks import Approximation
from llpkit.progress import Task, task
from llpkit.statistics.rows import take_rows

_JUDGED = 20_000
"""Rows whose bags decide the weights: a few numbers need no more."""
_SHRINKAGE = 3.0
"""Of the weights, towards equal ones: with few bags, the most likely weights are mostly noise."""


class LLPEnsembleClassifier(BaseLLP):
    r"""A weighted sum of the logits of several estimators, weighted by held-out bags.

    .. math:: z(x) = \sum_v w_v z_v(x) + b, \qquad
              w, b = \arg\max_{w \ge 0} \sum_{\text{bags}} \log P(y \mid z)
                     - \tfrac32 \|w - 1/V\|^2

    A voice :math:`z_v` is an estimator, or the mean of estimators that differ only by their seed,
    on the scale at which it alone makes the counts most likely. Scales and weights are found with
    logits of bags that an estimator was not fitted to, in ``n_folds`` folds of whole bags. So
    counts alone decide whether a linear model, trees or a network suits the table; where they
    decide little, all have a say. With fewer than two bags per fold all weights are equal.

    Args:
        estimators: Estimators of this package; by default logistic regression, EM around boosting,
            and three small networks, on standardised columns.
        n_folds: Folds that the weights are found with. The time is that of about ``n_folds`` fits.
        approximation: For many classes in large bags, passed on to the estimators; see
            :func:`llpkit.likelihood.log_prob`.
        random_state: Seed, generator or ``None``.

    Attributes:
        estimators_: The estimators, fitted to all bags.
        weights_: Their weights, with the scales of the voices, ``(M,)``.
        shift_: The intercept, ``()`` or ``(K,)``.
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # members that stop early get a low weight
            judged = len(members) > 1 and len(bags) >= 2 * self.n_folds
            rounds = 1 + (self.n_folds if judged else 0)
            with task("fit", kinds=[_kind(member) for member in members] * rounds) as steps:
                if judged:
                    few = _few(bags, random)
                    folds = fold_of_rows(few, self.n_folds, random)
                    unseen = _unseen(members, X, few, folds, steps)
                    voices = _voices(members)
                    self.weights_, self.shift_ = _weights(unseen, voices, few, self.approximation_)
                self.estimators_ = [_fitted(member, X, bags, steps) for member in members]

    def _logits(self, X: Any) -> Array:
        z = self.shift_ + sum(
            w * _centred(member.decision_function(X))
            for w, member in zip(self.weights_, self.estimators_, strict=True)
        )
        return np.asarray(z)

    def _members(self, random: np.random.RandomState) -> list[BaseLLP]:
        given = self.estimators
        if given is None:
            given = _default()
        if not given or not all(isinstance(member, BaseLLP) for member in given):
            raise LLPError(
                f"estimators = {given!r}; give a list of estimators of llpkit.estimators, such as "
                "[LLPLogisticRegression(), LLPClassifier()]"
            )
        members = [clone(member) for member in given]
        for member in members:
            known = member.get_params(deep=False)
            if known.get("random_state", 0) is None:
                member.set_params(random_state=random.randint(2**31 - 1))
            if "approximation" in known:
                member.set_params(approximation=self.approximation_)
        return members


def _default() -> list[BaseLLP]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    # Half of the usual trees: boosting takes most of the time, and it is not alone.
    trees = HistGradientBoostingClassifier(max_iter=50, early_stopping=False)
    # Networks differ by their first weights, and several are better than one.
    networks = [LLPNetworkClassifier() for _ in range(3)]
    return [LLPLogisticRegression(), LLPClassifier(trees), *networks]


def _unseen(members: list[BaseLLP], X: Any, bags: Bags, folds: Array, steps: Task) -> list[Array]:
    """Each member's logits of the bags' rows, from fits to the other folds, in row order."""
    shape = (bags.num_rows,) if bags.num_classes is None else (bags.num_rows, bags.num_classes)
    z = [np.zeros(shape) for _ in members]
    full = np.flatnonzero(bags.sizes.numpy() > 0)
    first = bags.rows[bags.offsets[:-1]][full].numpy()  # one row of every bag gives its fold
    for fold in np.unique(folds[first]):
        inside = folds[first] == fold
        rows = bags[full[inside]].rows.numpy()
        # All members in every fold: after the first, the time of all is known.
        for own, member in zip(z, members, strict=True):
            model = _fitted(clone(member), X, bags[full[~inside]], steps)
            own[rows] = _centred(model.decision_function(take_rows(X, rows)))
    return z


def _fitted(member: BaseLLP, X: Any, bags: Bags, steps: Task) -> BaseLLP:
    rows = take_rows(X, bags.rows.numpy())
    fitted = member.fit(rows, bags.evidence, bags.bag_index.numpy())
    steps.step()
    return fitted


def _kind(member: BaseLLP) -> str:
    """The name of a member that its progress is shown with."""
    inner = getattr(member, "estimator", None)
    return type(member if inner is None else inner).__name__


def _centred(z: Array) -> Array:
    """Logits whose common part, which means nothing with K classes, is zero."""
    return z if z.ndim == 1 else z - z.mean(1, keepdims=True)


def _few(bags: Bags, random: np.random.RandomState) -> Bags:
    """Random bags with about :data:`_JUDGED` rows together, and enough of them."""
    order = random.permutation(len(bags))
    inside = np.cumsum(bags.sizes.numpy()[order]) <= _JUDGED
    inside[: min(64, len(bags))] = True
    return bags[np.sort(order[inside])]


def _voices(members: list[BaseLLP]) -> Array:
    """Members that differ only by their seed make up a voice: their shares of it, ``(V, M)``."""
    kinds = []
    for member in members:
        same = clone(member)
        if "random_state" in same.get_params(deep=False):
            same.set_params(random_state=None)
        kinds.append(repr(same))
    table = np.array([[kind == voice for kind in kinds] for voice in dict.fromkeys(kinds)])
    return np.asarray(table / table.sum(1, keepdims=True))


def _weights(
    unseen: list[Array], voices: Array, bags: Bags, approximation: Any
) -> tuple[Array, Array]:
    """The weights of the members and the shift that make the counts most likely."""
    parts = np.stack([z[bags.rows.numpy()] for z in unseen])  # (M, N) or (M, N, K)

    def scale(z: Array) -> Array:
        """The factor of a member or voice alone: it may be far too sure in bags it has not seen."""
        return _most_likely(z[None], np.ones(1), 1e-6, bags, approximation)[0]

    voices = voices * np.concatenate([scale(z) for z in parts])
    voices *= np.stack([scale(np.tensordot(voice, parts, 1)) for voice in voices])
    equal = np.full(len(voices), 1 / len(voices))
    spoken = np.tensordot(voices, parts, 1)  # (V, N) or (V, N, K)
    shares, shift = _most_likely(spoken, equal, _SHRINKAGE, bags, approximation)
    return shares @ voices, shift


def _most_likely(
    parts: Array, centre: Array, shrinkage: float, bags: Bags, approximation: Any
) -> tuple[Array, Array]:
    """Weights of at least zero and a shift, with a penalty on the distance from the centre."""
    number = len(parts)
    judge = Bags(bags.offsets, bags.evidence)
    start = np.concatenate([centre, np.zeros(bags.num_classes or 1)])

    def objective(flat: Array) -> tuple[float, Array]:
        w, shift = flat[:number], flat[number:]
        z = np.tensordot(w, parts, 1) + (shift[0] if parts.ndim == 2 else shift)
        log_p, phi = solve(z, judge, approximation)
        p = probabilities(z)
        slope = (p[:, 1] if z.ndim == 1 else p) - phi  # of the negative likelihood
        away = w - centre
        gradient = (parts * slope).reshape(number, -1).sum(1) + shrinkage * away
        of_shift = np.atleast_1d(slope.sum(0)) + 1e-6 * shift
        value = -float(log_p.sum()) + shrinkage / 2 * float(away @ away)
        scale = len(bags)
        return (value + 5e-7 * float(shift @ shift)) / scale, np.append(gradient, of_shift) / scale

    bounds = [(0.0, None)] * number + [(None, None)] * (len(start) - number)
    found = lbfgs(objective, start, 1e-6, 200, bounds).weights
    shift = found[number:]
    return found[:number], shift if bags.num_classes else shift[0] * np.ones(())
