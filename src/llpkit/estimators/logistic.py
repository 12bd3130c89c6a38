"""Logistic regression with the exact likelihood of counts, and calibration of other scores."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from llpkit._arrays import Array
from llpkit._threads import threads_for
from llpkit._validation import number, whole
from llpkit.bags import Bags
from llpkit.estimators._text_columns import text_columns_named
from llpkit.estimators.base import (
    BaseLLP,
    cells,
    choose,
    linear_logits,
    log_likelihood_and_residual,
)
from llpkit.likelihood.checks import Approximation
from llpkit.probability import per_class
from llpkit.progress import steps_to, task
from llpkit.statistics import warn_unidentified
from llpkit.statistics.rows import Rows, merged, rows_of


class LLPLogisticRegression(BaseLLP):
    r"""Logistic regression that maximises the exact likelihood of the bags' counts.

    .. math::

        \min_{w, b} \; \tfrac12 \|w\|^2 - C \sum_{\text{bags } B} \log P(y_B \mid X_B w + b)

    by L-BFGS in float64. The gradient of the loss is :math:`X^\top (p - \varphi)`; the engine
    returns the posteriors :math:`\varphi` with the likelihood. With bags of one this is
    scikit-learn's ``LogisticRegression``. The problem is not convex; if all bags have the same
    proportion, the start is a saddle point, and a small random step leaves it.

    :func:`llpkit.statistics.summary` adds standard errors.

    Args:
        C: Inverse strength of the penalty on the weights; the intercept has none. ``math.inf`` is
            plain maximum likelihood.
        fit_intercept: Whether there is an intercept.
        tol: Stop when no entry of the gradient, per instance, is larger than this.
        max_iter: Maximum number of L-BFGS iterations.
        warm_start: Start at the last solution.
        approximation: For many classes in large bags. ``"auto"`` is the exact likelihood where that
            is cheap, else ``"saddlepoint"``; ``None`` is always exact. See
            :func:`llpkit.likelihood.log_prob`.
        random_state: Seed for the step away from a saddle point.

    Attributes:
        coef_: ``(1, D)``, or ``(K, D)`` for more than two classes.
        intercept_: ``(1,)`` or ``(K,)``.
        n_iter_: L-BFGS iterations.
        classes_: The labels.
        approximation_: The approximation in use, ``None`` if exact.

    >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
    >>> groups, y = [0, 0, 0, 1, 1, 1], [0, 0, 0, 2, 2, 2]  # two of the last three are positive
    >>> LLPLogisticRegression(C=10).fit(X, y, groups).predict(X)
    array([0, 0, 0, 0, 1, 1])
    """

    _sparse = True

    coef_: Array
    intercept_: Array

    def __init__(
        self,
        C: float = 1.0,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-5,
        max_iter: int = 1000,
        warm_start: bool = False,
        approximation: Approximation = "auto",
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.approximation = approximation
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None, multiplicity: Any = None) -> Self:
        """Fit to the counts of bags.

        Args:
            X: Features ``(N, D)``.
            y: What is known about each row's bag; without ``groups``, each row's label.
            groups: The bag of every row, ``(N,)``.
            multiplicity: How many instances each row represents, ``(N,)``, so that a cross-table
                need not be expanded. Counts are then counts of instances.

        >>> X, precinct = np.array([[0.0], [1.0], [0.0], [1.0]]), [0, 0, 1, 1]
        >>> y = [30, 30, 50, 50]  # votes per precinct, of 100 and 80 voters
        >>> model = LLPLogisticRegression(C=np.inf)
        >>> model = model.fit(X, y, precinct, multiplicity=[80, 20, 20, 60])
        >>> model.predict_proba(X[:2])[:, 1].round(2)
        array([0.18, 0.78])
        """
        with text_columns_named(X, self):
            X = self._checked(X, reset=True)
        bags = self._bags(X, y, groups, reset=True, multiplicity=multiplicity)
        with threads_for(cells(X)):
            self._fit_rows(*self._prepared(X, rows_of(bags, multiplicity)))
        warn_unidentified(X, bags, multiplicity)
        return self

    def posterior(self, X: Any, y: Any, groups: Any = None, multiplicity: Any = None) -> Array:
        """Probability of every class, given what is known about the row's bag too, ``(N, K)``."""
        if multiplicity is None:
            return super().posterior(X, y, groups)
        rows, z = self._rows(X, y, groups, multiplicity)
        z.requires_grad_()
        slope = torch.autograd.grad(rows.log_prob(z).sum(), z)[0]
        m = rows.weight if z.dim() == 1 else rows.weight[:, None]
        with torch.no_grad():  # rows without instances keep their prior
            phi = torch.where(m > 0, (slope + rows.prior(z)) / m.clamp(min=1), rows.prior(z))
        by_row = torch.empty_like(phi)
        by_row[rows.bags.rows] = phi
        return per_class(by_row).numpy()

    def score(self, X: Any, y: Any, groups: Any = None, multiplicity: Any = None) -> float:
        """Mean log-likelihood of the bags' counts; higher is better."""
        if multiplicity is None:
            return super().score(X, y, groups)
        rows, z = self._rows(X, y, groups, multiplicity)
        return float(rows.log_prob(z).mean())

    def _rows(self, X: Any, y: Any, groups: Any, multiplicity: Any) -> tuple[Rows, Tensor]:
        """The rows of the bags and their logits, in the order of the bags."""
        z = torch.from_numpy(np.ascontiguousarray(self.decision_function(X)))
        bags = self.bags(X, y, groups, multiplicity)
        return rows_of(bags, multiplicity, self.approximation), z[bags.rows]

    def _prepared(self, X: Any, rows: Rows) -> tuple[Any, Rows]:
        """Choose the approximation; none is needed where equal rows can be merged."""
        self.approximation_: Approximation = None
        if rows.times is None and self.approximation == "auto":
            x, few, _ = merged(X, rows)
            X, rows = (X, rows) if few.times is None else (x, few)
        if rows.times is None:
            self.approximation_ = choose(self.approximation, rows.bags)
        return X, replace(rows, approximation=self.approximation_)

    def _fit_rows(self, X: Any, rows: Rows) -> None:
        number("C", self.C, above=0, infinite=True)
        number("tol", self.tol, above=0, infinite=True)
        whole("max_iter", self.max_iter, 1)
        start = None
        if self.warm_start and hasattr(self, "coef_"):
            start = np.vstack([self.coef_.T, self.intercept_])
            width = rows.num_classes or 1
            start = start if start.shape == (X.shape[1] + 1, width) else None
        optimum = fit_logistic(
            X,
            rows,
            C=self.C,
            fit_intercept=self.fit_intercept,
            tol=self.tol,
            max_iter=self.max_iter,
            start=start,
            random_state=self.random_state,
        )
        optimum.warn(self)
        self.coef_, self.intercept_ = optimum.weights[:-1].T, optimum.weights[-1]
        self.n_iter_ = optimum.n_iter

    def _logits(self, X: Any) -> Array:
        return linear_logits(X, self.coef_, self.intercept_)


class Optimum(NamedTuple):
    """The result of L-BFGS: ``weights`` in the shape of the start."""

    weights: Array
    n_iter: int
    converged: bool

    def warn(self, estimator: object) -> None:
        """Warn ``fit``'s caller about too few iterations; for ``_fit_bags`` and ``_fit_rows``."""
        if not self.converged:
            warnings.warn(
                f"{type(estimator).__name__} did not converge in {self.n_iter} iterations; scale "
                "the features, or raise max_iter",
                ConvergenceWarning,
                stacklevel=4,
            )


def fit_logistic(
    X: Any,
    rows: Rows,
    *,
    C: float = 1.0,
    fit_intercept: bool = True,
    tol: float = 1e-5,
    max_iter: int = 1000,
    start: Array | None = None,
    random_state: Any = None,
    name: str = "logistic regression",
) -> Optimum:
    """Weights ``(D + 1, 1)``, or ``(D + 1, K)``, that maximise the penalised likelihood.

    The last row holds the intercepts. ``X`` is float64, dense or CSR, in row order. The start is
    all zeros, with the intercept at the overall proportion if that is known. ``name`` labels the
    progress.
    """
    width = rows.num_classes or 1
    transposed = X.T.tocsr() if hasattr(X, "tocsr") else X.T
    instances = float(rows.weight.sum())
    strength = 1 / (C * instances)

    def objective(flat: Array) -> tuple[float, Array]:
        w = flat.reshape(-1, width)
        z = X @ w[:-1] + w[-1]  # (N, width)
        loss, residual = _loss_and_residual(z[:, 0] if width == 1 else z, rows)
        residual = residual.reshape(z.shape)
        slope = np.vstack([transposed @ residual, residual.sum(0)])  # (D + 1, width)
        return penalised(loss, slope, w, strength, fit_intercept)

    if start is None:
        start = np.zeros((X.shape[1] + 1, width))
        if fit_intercept and rows.bags.evidence.is_exact:
            start[-1] = _overall(rows)
        # If all proportions are equal, the start is a saddle point: leave it by a random step on
        # the scale of the features.
        if np.abs(objective(start.ravel())[1]).max() <= tol:
            step = check_random_state(random_state).normal(size=start[:-1].shape)
            spread = np.sqrt(_squares(X) / X.shape[0])
            # No step along a column of zeros, or of values so small that the penalty forbids it.
            scale = np.where(spread > max(0.1 * np.sqrt(strength), 1e-100), spread, np.inf)
            start[:-1] = 0.1 * step / scale[:, None] / np.sqrt(max(1, X.shape[1]))
    return lbfgs(objective, start, tol, max_iter, name=name)


def penalised(
    loss: float, slope: Array, w: Array, strength: float, fit_intercept: bool
) -> tuple[float, Array]:
    """The loss with a ridge on the weights ``w`` ``(D + 1, width)``, and its gradient, flat.

    ``slope`` is the gradient of the loss alone. The intercepts, in the last row, have no penalty.
    """
    slope[:-1] += strength * w[:-1]
    if not fit_intercept:
        slope[-1] = 0  # L-BFGS then never moves it
    return loss + 0.5 * strength * float((w[:-1] ** 2).sum()), slope.ravel()


class Scale(NamedTuple):
    """Logits from scores: ``slope * score + shift``."""

    slope: float
    shift: Array  # () or (K,)

    def __call__(self, score: Array) -> Array:
        """The logits of scores ``(N,)`` or ``(N, K)``."""
        return np.asarray(self.slope * score + self.shift)


def calibrate(score: Array, bags: Bags, approximation: Approximation = None) -> Scale:
    """Platt scaling of scores to logits, by the exact likelihood of the counts.

    Scores are ``(N,)`` for two classes or ``(N, K)`` for more, in row order. A weak penalty keeps
    the slope finite if the scores explain all counts.
    """
    # L-BFGS works on standardised scores; the scale is converted back at the end.
    spread = float(score.std()) or 1.0
    middle = score.mean(0)
    unit = (score - middle) / spread
    strength = 1 / bags.num_instances
    rows = Rows(bags, None, approximation)

    def objective(w: Array) -> tuple[float, Array]:
        z = w[0] * unit + (w[1] if unit.ndim == 1 else w[1:])
        loss, residual = _loss_and_residual(z, rows)
        # The tiny penalty pins the shifts of K classes, whose common part changes nothing.
        shift = np.atleast_1d(residual.sum(0)) + 1e-9 * w[1:]
        slope = float((residual * unit).sum()) + strength * w[0]
        loss += 0.5 * (strength * w[0] ** 2 + 1e-9 * float(w[1:] @ w[1:]))
        return loss, np.concatenate([[slope], shift])

    start = np.concatenate([[1.0], np.zeros(bags.num_classes or 1)])
    start[1:] = middle if bags.num_classes else 0.0
    if bags.num_classes is None and bags.evidence.is_exact:
        start[1] = _overall(rows)
    # A negative slope would reverse what the classifier learned.
    bounds = [(0.0, None)] + [(None, None)] * (len(start) - 1)
    slope, *shift = lbfgs(objective, start, 1e-6, 200, bounds).weights
    bias = np.asarray(shift if bags.num_classes else shift[0]) - slope / spread * middle
    return Scale(float(slope / spread), np.asarray(bias))


def _loss_and_residual(z: Array, rows: Rows) -> tuple[float, Array]:
    """Negative log-likelihood per instance, and its gradient in the logits."""
    n = float(rows.weight.sum())
    if rows.times is not None:
        by_bag = torch.from_numpy(np.ascontiguousarray(z))[rows.bags.rows].requires_grad_()
        total = rows.log_prob(by_bag).sum()
        slope = torch.zeros(z.shape, dtype=by_bag.dtype)
        slope[rows.bags.rows] = torch.autograd.grad(total, by_bag)[0]
        return -float(total.detach()) / n, -slope.numpy() / n
    log_p, residual = log_likelihood_and_residual(z, rows.bags, rows.approximation)
    return -log_p / n, residual / n


def _overall(rows: Rows) -> Array:
    """Logits of the classes' shares in all bags; an absent class counts as half an instance."""
    share = np.log(np.maximum(rows.counts.sum(0).numpy(), 0.5))
    return np.asarray(share[1] - share[0] if rows.num_classes is None else share - share.mean())


def _squares(X: Any) -> Array:
    return np.asarray((X.multiply(X) if hasattr(X, "multiply") else X * X).sum(0)).ravel()


def lbfgs(
    objective: Callable[[Array], tuple[float, Array]],
    start: Array,
    tol: float,
    max_iter: int,
    bounds: Any = None,
    name: str | None = None,
) -> Optimum:
    """Minimise a function that returns its value and gradient; with a ``name``, show progress."""
    slopes: list[float] = []  # the largest entry of the gradient at every evaluation

    def tracked(flat: Array) -> tuple[float, Array]:
        value, gradient = objective(flat)
        slopes.append(float(np.abs(gradient).max()))
        return value, gradient

    with nullcontext() if name is None else task(name) as steps:

        def count(_: Array) -> None:
            if steps is not None:
                steps.step(f"gradient {slopes[-1]:.1e}", steps_to(slopes, tol))

        result = minimize(
            tracked,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            callback=count,
            options={"maxiter": max_iter, "maxfun": 20 * max_iter, "gtol": tol, "ftol": 1e-15},
        )
    # A line search that fails at the precision of float64 is as good as converged.
    converged = bool(result.success) or result.nit < max_iter
    return Optimum(result.x.reshape(start.shape), int(result.nit), converged)
