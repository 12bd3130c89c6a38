"""What all estimators share: bags from ``(y, groups)``, and answers from logits."""

import warnings
from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _num_samples,
    assert_all_finite,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from llpkit._bag_input import Speech, _read, checked_evidence, group
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.likelihood import Evidence, log_prob_and_posterior
from llpkit.likelihood._problem import _of_second
from llpkit.likelihood._ragged import to_offsets

Array = NDArray[Any]

_ROUTING = "sklearn.set_config(enable_metadata_routing=True)"


class BaseLLP(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""A classifier of rows that learns from the counts of bags.

    ``fit(X, y, groups)``: ``groups`` is the bag id of every row, ``(N,)``, and ``y`` tells of each
    row's bag: the number of its positives, ``(N,)``, so that the rows of a bag agree; the counts of
    its ``K`` classes, ``(N, K)``; or an :class:`~llpkit.Evidence`, with an entry a row, or an entry
    a bag in the order in which the bags first appear in ``groups``. The classes are ``0 … K - 1``.

    Without ``groups`` every row is a bag of its own and ``y`` its label, of any type, as with any
    other classifier.

    A subclass defines :meth:`_fit_bags` and :meth:`_logits`. With metadata routing enabled,
    ``groups`` is requested by ``fit`` and ``score``, so pipelines and searches hand it on.

    Attributes:
        classes_: The labels, ``(K,)``. Binary counts are those of ``classes_[1]``.
        n_features_in_: Number of features.
    """

    __metadata_request__fit = {"groups": True}  # noqa: RUF012
    __metadata_request__score = {"groups": True}  # noqa: RUF012

    _multiclass = True
    """Whether :meth:`_fit_bags` takes more than two classes."""
    _sparse = False
    """Whether ``X`` may be a sparse matrix; it comes as CSR."""

    classes_: Array

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Fit to what is known of the bags.

        Args:
            X: Features ``(N, D)``.
            y: What is known of each row's bag; without ``groups``, each row's label.
            groups: The bag of every row, ``(N,)``.
        """
        X = self._checked(X, reset=True)
        self._fit_bags(X, self._bags(X, y, groups, reset=True))
        return self

    @abstractmethod
    def _fit_bags(self, X: Any, bags: Bags) -> None:
        """Learn. ``X`` is in the user's order; ``X[bags.rows]`` is in that of the bags."""

    @abstractmethod
    def _logits(self, X: Any) -> Array:
        """Logits of checked rows, float64: ``(N,)`` of ``classes_[1]``, or ``(N, K)``."""

    def decision_function(self, X: Any) -> Array:
        """Logits: ``(N,)`` of ``classes_[1]`` for two classes, else ``(N, K)``."""
        check_is_fitted(self)
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
        """Probability of every class given also what is known of the row's bag, ``(N, K)``."""
        phi = self._solve(X, y, groups)[1]
        return np.stack([1 - phi, phi], 1) if phi.ndim == 1 else phi

    def score(self, X: Any, y: Any, groups: Any = None) -> float:
        """Mean log-likelihood of the bags' counts: the greater, the better.

        Without ``groups`` this is the mean log-likelihood of the labels. It is not the accuracy:
        where only counts are known, no accuracy is.
        """
        return float(self._solve(X, y, groups)[0].mean())

    def _solve(self, X: Any, y: Any, groups: Any) -> tuple[Array, Array]:
        z = self.decision_function(X)
        bags = self._bags(X, y, groups, reset=False)
        return solve(z, bags, getattr(self, "method", "exact"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._multiclass
        tags.input_tags.sparse = self._sparse
        return tags

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """Features as the subclass wants them: finite float64, unless it says otherwise."""
        return validate_data(
            self,
            X,
            reset=reset,
            dtype=np.float64,
            accept_sparse="csr" if self._sparse else False,
        )

    def _bags(self, X: Any, y: Any, groups: Any, *, reset: bool) -> Bags:
        """The bags that ``y`` and ``groups`` tell of; ``reset`` learns the classes from them."""
        if y is None:
            raise LLPError(
                f"{type(self).__name__} requires y to be passed, but the target y is None; give "
                "the count of each row's bag, or without groups its label"
            )
        if isinstance(y, list | tuple) and y and isinstance(y[0], Evidence):
            y = Evidence.concat(list(y))
        if not isinstance(y, Evidence):
            y = _read(y, "y")
        if groups is None and not isinstance(y, Evidence) and (y.ndim < 2 or y.shape[1:] == (1,)):
            evidence = self._labels(X, y, reset=reset)
            rows = torch.arange(len(evidence))
            return Bags._make(torch.arange(len(rows) + 1), rows, evidence, rows.tolist(), len(rows))
        if groups is None:
            groups = np.arange(len(y))
        bags = grouped(X, y, groups)
        if bags.num_classes == 2:
            evidence = _of_second(bags.evidence, bags.offsets)
            bags = Bags._make(bags.offsets, bags.rows, evidence, bags.ids, bags.num_rows)
        classes = bags.num_classes or 2
        if reset:
            self._check_classes(classes)
            self.classes_ = np.arange(classes)
        elif len(self.classes_) != classes:
            raise LLPError(
                f"y tells of {classes} classes, but the estimator was fitted to "
                f"{len(self.classes_)}; give as many counts a bag"
            )
        return bags

    def _labels(self, X: Any, y: Any, *, reset: bool) -> Evidence:
        """Labels as the exact counts of bags of one."""
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        if reset:
            classes, codes = np.unique(y, return_inverse=True)
            if len(classes) < 2:
                raise LLPError(
                    f"y has 1 class, {classes.tolist()}; give rows of two classes or more"
                )
            self._check_classes(len(classes))
            if len(classes) > 2 and classes.dtype.kind in "iuf":
                warnings.warn(
                    f"y has {len(classes)} different numbers and there are no groups, so y is "
                    "taken for the label of every row; if it holds counts of bags, pass groups "
                    f"(to a search or cross-validation as well, after {_ROUTING})",
                    UserWarning,
                    stacklevel=4,
                )
            self.classes_ = classes
        else:
            codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
            strange = self.classes_[codes] != y
            if strange.any():
                row = int(strange.argmax())
                raise LLPError(
                    f"y[{row}] = {y[row]!r} is not a class, which are {self.classes_.tolist()}; if "
                    f"y holds counts of bags, pass groups (in a search, after {_ROUTING})"
                )
        if len(self.classes_) == 2:
            return Evidence.exact(codes)
        return Evidence.exact(codes[:, None] == np.arange(len(self.classes_)))

    def _check_classes(self, number: int) -> None:
        if number > 2 and not self._multiclass:
            raise LLPError(
                "Only binary classification is supported. The type of the target is multiclass: "
                f"{type(self).__name__} takes counts of one class, and y has {number} classes; if "
                "y holds counts of bags, pass groups; for more classes use LLPClassifier or "
                "LLPLogisticRegression"
            )


def grouped(X: Any, y: Any, groups: Any) -> Bags:
    """Bags from what is known of each row's bag, in the order in which they appear."""
    rows, sizes, ids = group(groups)
    if len(rows) != _num_samples(X):
        raise LLPError(
            f"groups has {len(rows)} rows but X has {_num_samples(X)}; give one bag id a row"
        )
    offsets = to_offsets(torch.from_numpy(sizes))
    per_bag = isinstance(y, Evidence) and len(y) == len(sizes)
    if not per_bag:
        y = _of_bags(y, rows.numpy(), offsets.numpy(), ids)
    evidence = checked_evidence(y, sizes, Speech(ids))
    return Bags._make(offsets, rows, evidence, ids, len(rows))


def _of_bags(y: Any, rows: Array, offsets: Array, ids: Any) -> Any:
    """One entry a bag, from one a row: the rows of a bag must agree."""
    if not isinstance(y, Evidence):
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim not in (1, 2):
            raise LLPError(f"y has shape {y.shape}; give (N,), or (N, K) for K classes")
    if len(y) != len(rows):
        raise LLPError(
            f"y has {len(y)} entries but groups has {len(rows)} rows; give what is known of its "
            "bag in every row"
        )
    starts = rows[offsets[:-1]]  # (B,)
    first = np.repeat(starts, np.diff(offsets))  # (N,) the first row of the row's bag
    differs = _differs(y[rows], y[first])
    if differs.any():
        # Of all rows that disagree with their bag's first, the first in the table.
        found = np.flatnonzero(differs)
        place = found[rows[found].argmin()]
        one, two = int(first[place]), int(rows[place])
        name = ids[int(np.searchsorted(offsets, place, side="right")) - 1]
        if isinstance(y, Evidence):
            said = f"the evidence of rows {one} and {two}, both in bag {name!r}, differs"
        else:
            said = f"y[{one}] = {y[one]} but y[{two}] = {y[two]}, both in bag {name!r}"
        raise LLPError(f"{said}; y tells of the whole bag, so all its rows must agree")
    return y[starts]


def _differs(a: Any, b: Any) -> Array:
    """Which entries of two arrays, or of two pieces of evidence, are not the same, ``(N,)``."""
    if not isinstance(a, Evidence):
        unequal: Array = a != b
        return np.asarray(unequal.reshape(len(a), -1).any(1))
    lengths = a.table_offsets.diff()
    unequal = _differs(a.low.numpy(), b.low.numpy()) | _differs(a.high.numpy(), b.high.numpy())
    if torch.equal(a.table_offsets, b.table_offsets):
        cell = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        wrong = cell[a.table != b.table] // (a.num_classes or 1)
        unequal[wrong.numpy()] = True
        return unequal
    other = b.table_offsets.diff().reshape(len(b), -1)
    return unequal | _differs(lengths.reshape(len(a), -1).numpy(), other.numpy())


def solve(z: Array, bags: Bags, method: Any = "exact") -> tuple[Array, Array]:
    """Log-likelihood of every bag ``(B,)`` and posteriors, logits and posteriors in row order."""
    logits = torch.from_numpy(np.ascontiguousarray(z))[bags.rows]
    log_p, phi = log_prob_and_posterior(
        logits, bags.evidence, bags.offsets, method=method, validate=False
    )
    back = torch.empty_like(phi)
    back[bags.rows] = phi
    return log_p.numpy(), back.numpy()


def probabilities(z: Array) -> Array:
    """Class probabilities ``(N, K)`` from logits ``(N,)`` or ``(N, K)``."""
    if z.ndim == 1:
        return np.stack([expit(-z), expit(z)], 1)
    p: Array = softmax(z, 1)
    return p


def bag_sums(X: Any, bags: Bags) -> Array:
    """Sum of the rows of every bag, ``(B, D)``; ``X`` in row order, dense or sparse.

    >>> bags = Bags.from_groups(["b", "a", "b"], [1, 0])
    >>> bag_sums(np.array([[1.0], [2.0], [4.0]]), bags)
    array([[5.], [2.]])
    """
    ones = np.ones(bags.num_instances, X.dtype)
    shape = (len(bags), bags.num_rows)
    total = sparse.csr_array((ones, bags.rows.numpy(), bags.offsets.numpy()), shape=shape) @ X
    return np.asarray(total.todense() if sparse.issparse(total) else total)
