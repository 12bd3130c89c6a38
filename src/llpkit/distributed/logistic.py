r"""Logistic regression by sums over partitions.

The likelihood of the counts and its gradient :math:`X^\top(p - \varphi)` are sums over bags, so
every partition computes its own and only :math:`D + 1` numbers per partition travel. The sums are
added up in the order of the partitions: whichever worker computed them, and however often, the
result is the same to the last bit.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.linalg import solve_triangular

from llpkit.bags import Bags
from llpkit.distributed.parts import Array, Part
from llpkit.estimators import LLPLogisticRegression
from llpkit.estimators.base import bag_sums, choose, probabilities
from llpkit.estimators.logistic import Optimum, fit_logistic, lbfgs
from llpkit.likelihood import log_prob_and_posterior
from llpkit.likelihood.checks import Approximation
from llpkit.statistics.rows import Rows

_WIDEST = 2000
"""Most weights for which their information matrix is formed."""
_ROWS = 65_536
"""Rows that are converted to float64 at a time."""

Map = Callable[..., list[Any]]
"""``map(function, *more)`` calls ``function(part, *more)`` for all parts, results in order."""


def sums(part: Part, weights: Array, approximation: Approximation) -> tuple[float, Array]:
    """Log-likelihood of a partition, and the sum of its gradients ``(D + 1, width)``, negated."""
    z = np.concatenate(
        [block.astype(np.float64) @ weights[:-1] + weights[-1] for block in _blocks(part.X)]
    )  # (n, width)
    logits = z[:, 0] if z.shape[1] == 1 else z
    log_p, phi = log_prob_and_posterior(
        torch.from_numpy(np.ascontiguousarray(logits)),
        part.evidence,
        part.offsets,
        approximation=approximation,
        validate=False,
    )
    p = probabilities(logits)
    residual = ((p[:, 1] if logits.ndim == 1 else p) - phi.numpy()).reshape(z.shape)
    slope = np.zeros(weights.shape)
    for i, block in enumerate(_blocks(part.X)):
        rest = residual[i * _ROWS : (i + 1) * _ROWS]
        slope[:-1] += block.astype(np.float64).T @ rest
    slope[-1] = residual.sum(0)
    return float(log_p.sum()), slope


def _blocks(X: Array) -> list[Array]:
    return [X[i : i + _ROWS] for i in range(0, len(X), _ROWS)]


def fit_parts(
    estimator: LLPLogisticRegression,
    over: Map,
    rows: int,
    sample: Part,
    log: Callable[[dict[str, Any]], None],
) -> tuple[Optimum, int, Approximation]:
    """The optimum over all partitions, the number of passes over them, and the approximation.

    L-BFGS begins at the optimum for a sample and measures steps by the information of the sample,
    so that few passes are needed.
    """
    strength = 1 / (estimator.C * rows)
    bags = Bags(sample.offsets, sample.evidence)
    # One approximation for all partitions, chosen by the sample.
    chosen = choose(estimator.approximation, bags)
    X = sample.X.astype(np.float64)
    near = fit_logistic(
        X,
        Rows(bags, None, chosen),
        C=estimator.C * rows / len(X),
        fit_intercept=estimator.fit_intercept,
        tol=estimator.tol,
        max_iter=estimator.max_iter,
        random_state=estimator.random_state,
    ).weights
    root = _information(X, bags, near, strength, estimator.fit_intercept, chosen)
    log({"step": "start", "rows": len(X)})
    passes = 0

    def objective(u: Array) -> tuple[float, Array]:
        nonlocal passes
        passes += 1
        w = near + solve_triangular(root, u, lower=True, trans="T").reshape(near.shape)
        found = over(sums, w, chosen)
        total = -sum(value for value, _ in found) / rows
        slope = sum(part for _, part in found) / rows
        slope[:-1] += strength * w[:-1]
        if not estimator.fit_intercept:
            slope[-1] = 0
        total += 0.5 * strength * float((w[:-1] ** 2).sum())
        return total, solve_triangular(root, slope.ravel(), lower=True)

    # tol is for the gradient in the weights, which is at most ‖root‖ times the one in u.
    tol = estimator.tol / float(np.linalg.norm(root, 2))
    found = lbfgs(objective, np.zeros(near.size), tol, estimator.max_iter)
    moved = solve_triangular(root, found.weights, lower=True, trans="T")
    return found._replace(weights=near + moved.reshape(near.shape)), passes, chosen


def _information(
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
    z = X @ weights[:-1] + weights[-1]
    logits = z[:, 0] if z.shape[1] == 1 else z
    _, phi = log_prob_and_posterior(
        torch.from_numpy(np.ascontiguousarray(logits)),
        bags.evidence,
        bags.offsets,
        approximation=approximation,
        validate=False,
    )
    p = probabilities(logits)
    residual = ((p[:, 1] if logits.ndim == 1 else p) - phi.numpy()).reshape(z.shape)
    one = np.column_stack([X, np.ones(len(X))])
    slopes = bag_sums((one[:, :, None] * residual[:, None]).reshape(len(X), size), bags)
    if not fit_intercept:
        slopes[:, -z.shape[1] :] = 0  # a step must not move it
    matrix = slopes.T @ slopes / len(X)
    # A direction in which the sample says nothing keeps the step of plain L-BFGS.
    ridge = strength + 1e-6 * float(np.trace(matrix)) / size
    return np.asarray(np.linalg.cholesky(matrix + ridge * np.eye(size)))
