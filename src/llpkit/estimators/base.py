"""Shared by all estimators: ``fit(X, y, groups)``, predictions from logits, checks."""

import warnings
from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from llpkit._arrays import Array
from llpkit._threads import threads_for
from llpkit.bags import Bags
from llpkit.bags.random import random_sample
from llpkit.errors import ApproximationWarning, LLPError, TooManyStates
from llpkit.estimators._bags_from_y import ROUTING, bags_of
from llpkit.estimators._text_columns import text_columns_named
from llpkit.likelihood import log_prob_and_posterior
from llpkit.likelihood.checks import Approximation, check_approximation
from llpkit.likelihood.choice import choice_note, resolve
from llpkit.probability import per_class
from llpkit.statistics import warn_unidentified

ENOUGH = 200_000
"""Rows beyond which a model with few parameters gains nothing."""


class BaseLLP(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""A per-row classifier that learns from the counts of bags.

    ``fit(X, y, groups)``: ``groups`` is the bag id of every row, ``(N,)``, and ``y`` what is known
    about that bag: its number of positives, ``(N,)``, the same in all rows of a bag; its counts of
    ``K`` classes, ``(N, K)``; or an :class:`~llpkit.Evidence` with one entry per row, or with one
    entry per bag in the order of the sorted ids, as from ``np.unique(groups)``. The classes are
    ``0 … K - 1``.

    Without ``groups`` every row is its own bag and ``y`` is its label, of any type, as with any
    other classifier.

    A subclass defines :meth:`_fit_bags` and :meth:`_logits`. With metadata routing enabled, ``fit``
    and ``score`` request ``groups``, so pipelines and searches pass them on.

    Attributes:
        classes_: The labels, ``(K,)``. Binary counts are counts of ``classes_[1]``.
        n_features_in_: Number of features.
    """

    __metadata_request__fit = {"groups": True}  # noqa: RUF012
    # A pipeline's score always mentions sample_weight, so its last step must declare it.
    __metadata_request__score = {"groups": True, "sample_weight": None}  # noqa: RUF012

    _multiclass = True
    """Whether :meth:`_fit_bags` takes more than two classes."""
    _sparse = False
    """Whether ``X`` may be a sparse matrix; it is converted to CSR."""

    classes_: Array

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Fit to the counts of bags.

        Args:
            X: Features ``(N, D)``.
            y: What is known about each row's bag; without ``groups``, each row's label.
            groups: The bag of every row, ``(N,)``.
        """
        with text_columns_named(X, self):
            X = self._checked(X, reset=True)
            bags = self._bags(X, y, groups, reset=True)
            with threads_for(cells(X)):
                self._fit_bags(X, bags)
        warn_unidentified(X, bags)  # after the fit, which refuses what it cannot use
        return self

    @abstractmethod
    def _fit_bags(self, X: Any, bags: Bags) -> None:
        """Fit. ``X`` is in the user's order; ``X[bags.rows]`` is in the order of the bags."""

    @abstractmethod
    def _logits(self, X: Any) -> Array:
        """Logits of checked rows, float64: ``(N,)`` of ``classes_[1]``, or ``(N, K)``."""

    def decision_function(self, X: Any) -> Array:
        """Logits: ``(N,)`` of ``classes_[1]`` for two classes, else ``(N, K)``."""
        check_is_fitted(self)
        with text_columns_named(X, self):
            return self._logits(self._checked(X, reset=False))

    def predict_proba(self, X: Any) -> Array:
        """Probability of every class, ``(N, K)``."""
        return probabilities(self.decision_function(X))

    def predict(self, X: Any) -> Array:
        """The most probable class of every row, ``(N,)``."""
        z = self.decision_function(X)
        chosen: Array = self.classes_[(z > 0).astype(np.intp) if z.ndim == 1 else z.argmax(1)]
        return chosen

    def posterior(self, X: Any, y: Any, groups: Any = None) -> Array:
        """Probability of every class, given what is known about the row's bag too, ``(N, K)``."""
        phi = self._solve(X, y, groups)[1]
        return per_class(torch.from_numpy(phi)).numpy()

    def score(self, X: Any, y: Any, groups: Any = None) -> float:
        """Mean log-likelihood of the bags' counts; higher is better.

        Without ``groups`` it is the mean log-likelihood of the labels. It is not the accuracy,
        which cannot be known from counts alone.
        """
        return float(self._solve(X, y, groups)[0].mean())

    def bags(self, X: Any, y: Any, groups: Any = None, multiplicity: Any = None) -> Bags:
        """The bags that these arguments describe to a fitted estimator, for statistics."""
        check_is_fitted(self)
        return self._bags(X, y, groups, reset=False, multiplicity=multiplicity)

    def _solve(self, X: Any, y: Any, groups: Any) -> tuple[Array, Array]:
        z = self.decision_function(X)
        bags = self._bags(X, y, groups, reset=False)
        return solve(z, bags, getattr(self, "approximation", None))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._multiclass
        tags.input_tags.sparse = self._sparse
        return tags

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """Valid features: finite float64, unless a subclass overrides this."""
        accepted = "csr" if self._sparse else False
        return validate_data(self, X, reset=reset, dtype=np.float64, accept_sparse=accepted)

    def _bags(self, X: Any, y: Any, groups: Any, *, reset: bool, multiplicity: Any = None) -> Bags:
        """The bags from ``y`` and ``groups``; ``reset`` learns the classes from them."""
        bags, classes = bags_of(X, y, groups, None if reset else self.classes_, multiplicity)
        if reset:
            if len(classes) > 2 and not self._multiclass:
                raise LLPError(
                    "Only binary classification is supported. The type of the target is "
                    f"multiclass: {type(self).__name__} takes counts of one class, and y has "
                    f"{len(classes)}; if y holds counts of bags, pass groups; for more classes use "
                    "LLPClassifier or LLPLogisticRegression"
                )
            if groups is None and len(classes) > 2 and classes.dtype.kind in "iuf":
                warnings.warn(
                    f"y has {len(classes)} different numbers and there are no groups, so y is "
                    "treated as the label of every row; if it holds counts of bags, pass groups "
                    f"(to a search or cross-validation as well, after {ROUTING})",
                    UserWarning,
                    stacklevel=3,  # the caller of fit
                )
            self.classes_ = classes
        return bags


def choose(approximation: Any, bags: Bags) -> Approximation:
    """The approximation to fit with; a warning if ``"auto"`` chose one."""
    check_approximation(approximation)
    chosen = resolve(approximation, bags.evidence, bags.sizes)
    if chosen is not None and approximation == "auto":
        warnings.warn(choice_note(chosen), ApproximationWarning, stacklevel=4)  # the caller of fit
    return chosen


def solve(z: Array, bags: Bags, approximation: Any = None) -> tuple[Array, Array]:
    """Log-likelihood of every bag ``(B,)`` and posteriors; both sides are in row order."""
    logits = torch.from_numpy(np.ascontiguousarray(z))[bags.rows]
    try:
        log_p, phi = log_prob_and_posterior(
            logits, bags.evidence, bags.offsets, approximation=approximation, validate=False
        )
    except TooManyStates as error:
        raise error.choosing('approximation="auto"') from error
    by_row = torch.empty_like(phi)
    by_row[bags.rows] = phi
    return log_p.numpy(), by_row.numpy()


def log_likelihood_and_residual(
    z: Array, bags: Bags, approximation: Any = None
) -> tuple[float, Array]:
    """Log-likelihood of all bags, and minus its gradient in the logits, ``p - phi``, in row order.

    ``p`` and ``phi`` are the probabilities of the second of two classes ``(N,)``, or of all classes
    ``(N, K)``.
    """
    log_p, phi = solve(z, bags, approximation)
    p = probabilities(z)
    return float(log_p.sum()), (p[:, 1] if z.ndim == 1 else p) - phi


def some_bags(bags: Bags, random: np.random.RandomState) -> Bags:
    """Random bags with at most :data:`ENOUGH` rows in total, plenty for a small model."""
    if bags.num_instances <= ENOUGH:
        return bags
    return bags[random_sample(bags.sizes.numpy(), ENOUGH, random)]


def cells(X: Any) -> int:
    """Rows times columns; of a sparse matrix the entries that are stored."""
    if sparse.issparse(X):
        return int(X.nnz)
    return int(np.prod(X.shape)) if hasattr(X, "shape") else len(X)


def probabilities(z: Array) -> Array:
    """Class probabilities ``(N, K)`` from logits ``(N,)`` or ``(N, K)``."""
    if z.ndim == 1:
        return np.stack([expit(-z), expit(z)], 1)
    p: Array = softmax(z, 1)
    return p


def linear_logits(X: Any, coef: Array, intercept: Array) -> Array:
    """Logits ``(N,)``, or ``(N, K)`` for several rows of ``coef``; ``X`` is dense or sparse."""
    z: Array = X @ coef.T + intercept
    return z[:, 0] if z.shape[1] == 1 else z


def bag_sums(X: Any, bags: Bags) -> Array:
    """Sum of the rows of every bag, ``(B, D)``; ``X`` in row order, dense or sparse.

    >>> bags = Bags.from_groups(["b", "a", "b"], {"a": 0, "b": 1})
    >>> bag_sums(np.array([[1.0], [2.0], [4.0]]), bags)
    array([[2.],
           [5.]])
    """
    # The rows and offsets of the bags are a CSR indicator matrix (B, N): one product, also for
    # sparse X.
    ones = np.ones(bags.num_instances, X.dtype)
    shape = (len(bags), bags.num_rows)
    total = sparse.csr_array((ones, bags.rows.numpy(), bags.offsets.numpy()), shape=shape) @ X
    return np.asarray(total.todense() if sparse.issparse(total) else total)


def exact_counts(bags: Bags, estimator: object) -> NDArray[np.int64]:
    """The counts ``(B,)`` or ``(B, K)``, for estimators that cannot use other evidence."""
    if not bags.evidence.is_exact:
        raise LLPError(
            f"{type(estimator).__name__} takes exact counts, but some of these are intervals or "
            "weights; use LLPClassifier or LLPLogisticRegression for them"
        )
    counts: NDArray[np.int64] = bags.counts.numpy()
    return counts
