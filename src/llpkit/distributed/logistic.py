r"""Logistic regression by sums over partitions.

The likelihood of the counts and its gradient :math:`X^\top(p - \varphi)` are sums over bags, so
every worker sums over its partitions and sends only :math:`D + 1` numbers for each. These are added
up in the order of the partitions, so the result does not depend on which worker computed them, to
the last bit.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from llpkit._arrays import Array
from llpkit.bags import Bags
from llpkit.distributed.parts import Part
from llpkit.distributed.ranks import Log
from llpkit.estimators import LLPLogisticRegression
from llpkit.estimators.base import bag_sums, choose, log_likelihood_and_residual
from llpkit.estimators.logistic import Optimum, fit_logistic, lbfgs, penalised
from llpkit.likelihood.checks import Approximation
from llpkit.statistics.rows import Rows

_WIDEST = 2000
"""Maximum number of weights for which the information matrix is formed."""
_ROWS = 65_536
"""Rows that are converted to float64 at a time."""

Over = Callable[..., list[Any]]
"""``over(function, *more)`` calls ``function(part, *more)`` for all parts; results are in order."""


def sums(part: Part, weights: Array, approximation: Approximation) -> tuple[float, Array]:
    """Log-likelihood of a partition, and minus its gradient, ``(D + 1, width)``."""
    z = np.concatenate(
        [block.astype(np.float64) @ weights[:-1] + weights[-1] for block in _blocks(part.X)]
    )  # (n, width)
    log_p, residual = _log_likelihood_and_residual(z, part.bags, approximation)
    slope = np.zeros(weights.shape)
    for block, of_block in zip(_blocks(part.X), _blocks(residual), strict=True):
        slope[:-1] += block.astype(np.float64).T @ of_block
    slope[-1] = residual.sum(0)
    return log_p, slope


def _log_likelihood_and_residual(
    z: Array, bags: Bags, approximation: Approximation
) -> tuple[float, Array]:
    """As in :mod:`llpkit.estimators.base`, but logits and residual are always ``(n, width)``."""
    logits = z[:, 0] if z.shape[1] == 1 else z
    log_p, residual = log_likelihood_and_residual(logits, bags, approximation)
    return log_p, residual.reshape(z.shape)


def _blocks(X: Array) -> list[Array]:
    return [X[i : i + _ROWS] for i in range(0, len(X), _ROWS)]


def fit_parts(
    estimator: LLPLogisticRegression, over: Over, rows: int, sample: Part, log: Log
) -> tuple[Optimum, int, Approximation]:
    """The optimum over all partitions, the number of passes over them, and the approximation.

    L-BFGS starts at the optimum for a sample and is preconditioned by the information of the
    sample, so that few passes are needed.
    """
    strength = 1 / (estimator.C * rows)
    # One approximation for all partitions, chosen by the sample.
    chosen = choose(estimator.approximation, sample.bags)
    X = sample.X.astype(np.float64)
    near = fit_logistic(
        X,
        Rows(sample.bags, None, chosen),
        C=estimator.C * rows / len(X),
        fit_intercept=estimator.fit_intercept,
        tol=estimator.tol,
        max_iter=estimator.max_iter,
        random_state=estimator.random_state,
    ).weights
    root = _information_root(X, sample.bags, near, strength, estimator.fit_intercept, chosen)
    log({"step": "start", "rows": len(X)})
    passes = 0

    def objective(u: Array) -> tuple[float, Array]:
        nonlocal passes
        passes += 1
        # As a function of u, the loss has about the identity as its Hessian near the optimum.
        w = near + solve_triangular(root, u, lower=True, trans="T").reshape(near.shape)
        results = over(sums, w, chosen)
        loss = -sum(log_p for log_p, _ in results) / rows
        slope = sum(part for _, part in results) / rows
        loss, slope = penalised(loss, slope, w, strength, estimator.fit_intercept)
        return loss, solve_triangular(root, slope, lower=True)

    # tol is for the gradient in the weights, which is at most ‖root‖ times the one in u.
    tol = estimator.tol / float(np.linalg.norm(root, 2))
    optimum = lbfgs(objective, np.zeros(near.size), tol, estimator.max_iter)
    moved = solve_triangular(root, optimum.weights, lower=True, trans="T")
    return optimum._replace(weights=near + moved.reshape(near.shape)), passes, chosen


def _information_root(
    X: Array,
    bags: Bags,
    weights: Array,
    strength: float,
    fit_intercept: bool,
    approximation: Approximation,
) -> Array:
    """The Cholesky root of the mean outer product of the bags' gradients, per instance."""
    size = weights.size
    if size > _WIDEST:
        return np.eye(size)
    _, residual = _log_likelihood_and_residual(X @ weights[:-1] + weights[-1], bags, approximation)
    design = np.column_stack([X, np.ones(len(X))])  # (n, D + 1)
    slopes = bag_sums((design[:, :, None] * residual[:, None]).reshape(len(X), size), bags)
    if not fit_intercept:
        slopes[:, -residual.shape[1] :] = 0  # a step must not move it
    matrix = slopes.T @ slopes / len(X)
    # Directions without information in the sample keep the step of plain L-BFGS.
    ridge = strength + 1e-6 * float(np.trace(matrix)) / size
    return np.asarray(np.linalg.cholesky(matrix + ridge * np.eye(size)))
