"""What the large-margin estimators share: the radial kernel, and probabilities from margins."""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf
from scipy.optimize import minimize_scalar
from scipy.special import log_expit
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils import gen_batches

from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.estimators._base import Array, BaseLLP, solve
from llpkit.estimators._check import check_word
from llpkit.estimators._classical import positive

KERNELS = ("linear", "rbf")
BLOCK = 2**23
"""Entries of a kernel matrix computed at a time."""


FAR = 1e100
"""Values from which on sums of squares may overflow."""


class MarginClassifier(BaseLLP):
    """A binary classifier by a margin ``f``, linear or a sum of kernel functions.

    ``decision_function`` is the margin times ``scale_``: a logit, of the margin's sign.
    """

    _multiclass = False

    kernel: str
    gamma: float | str

    def _prepare(self, X: Any) -> None:
        check_word("kernel", self.kernel, KERNELS)
        largest = float(abs(X).max())
        if largest > FAR:
            raise LLPError(
                f"X goes up to {largest:.3g}, whose square is too large to compute with; "
                "standardise the features, and look for slips among the largest"
            )
        if self.kernel == "rbf":
            self.gamma_ = kernel_gamma(self.gamma, X)

    def _keep_linear(self, weight: Array, intercept: float, X: Any, bags: Bags) -> None:
        self.coef_, self.intercept_ = weight[None], np.array([intercept])
        self.scale_ = fit_scale(self._logits(X), bags)
        self.coef_, self.intercept_ = self.scale_ * self.coef_, self.scale_ * self.intercept_

    def _keep_kernel(self, support: Any, dual: Array, intercept: float, X: Any, bags: Bags) -> None:
        self.support_vectors_, self.dual_coef_ = support, dual[None]
        self.intercept_ = np.array([intercept])
        self.scale_ = fit_scale(self._logits(X), bags)
        self.dual_coef_ = self.scale_ * self.dual_coef_
        self.intercept_ = self.scale_ * self.intercept_

    def _logits(self, X: Any) -> Array:
        if self.kernel == "linear":
            z: Array = X @ self.coef_[0] + self.intercept_
            return z
        z = np.empty(X.shape[0])
        support, dual = self.support_vectors_, self.dual_coef_[0]
        for part in gen_batches(len(z), max(1, BLOCK // max(1, len(dual)))):
            z[part] = rbf_kernel(X[part], support, gamma=self.gamma_) @ dual
        z += self.intercept_
        return z


class Root(NamedTuple):
    """Rows ``Z`` with ``Z @ Z.T`` equal to a kernel matrix, and the way back to the kernel."""

    Z: Array
    """``(N, R)``."""
    pivots: Array
    """``(R,)``: the rows of the kernel matrix that the others follow from."""

    def dual(self, weight: Array) -> Array:
        """Coefficients of the pivots' kernel functions, ``(R,)``, from weights ``(R,)``."""
        corner = self.Z[self.pivots]  # (R, R), lower triangular
        coefficients: Array = solve_triangular(corner, weight, lower=True, trans="T")
        return coefficients


def root(K: Array) -> Root:
    """Pivoted Cholesky decomposition of a kernel matrix ``(N, N)``.

    >>> K = np.array([[2.0, 1.0, 1.0], [1.0, 1.0, 0.5], [1.0, 0.5, 0.5]])
    >>> Z, pivots = root(K)
    >>> Z.shape, bool(np.allclose(Z @ Z.T, K))
    ((3, 2), True)
    """
    lower, order, rank, _ = dpstrf(K, tol=1e-9 * float(K.diagonal().max()), lower=1)
    Z = np.zeros((len(K), rank))
    Z[order - 1] = np.tril(lower[:, :rank])
    return Root(Z, order[:rank] - 1)


def mean_kernel(X: Any, offsets: Array, gamma: float) -> Array:
    """Mean of the radial kernel over all pairs of rows of two bags, ``(B, B)``; rows by bag."""
    n, starts = np.diff(offsets), offsets[:-1]
    K = np.empty((len(n), len(n)))
    part_of = starts // max(1, BLOCK // X.shape[0])
    cuts = np.flatnonzero(np.diff(part_of)) + 1
    for first, last in zip([0, *cuts], [*cuts, len(n)], strict=True):
        rows = slice(offsets[first], offsets[last])
        by_bag = np.add.reduceat(rbf_kernel(X[rows], X, gamma=gamma), starts, axis=1)
        K[first:last] = np.add.reduceat(by_bag, starts[first:last] - starts[first], axis=0)
    K /= n[:, None] * n
    return K


def kernel_gamma(gamma: Any, X: Any) -> float:
    """The radial kernel's ``gamma`` as a number: ``"scale"`` and ``"auto"`` as in ``SVC``."""
    if not isinstance(gamma, str):
        return positive("gamma", gamma)
    check_word("gamma", gamma, ("scale", "auto"))
    if gamma == "scale":
        mean_square = (X.multiply(X) if hasattr(X, "multiply") else X * X).mean()
        variance = float(mean_square - X.mean() ** 2)
        return 1 / (X.shape[1] * variance) if variance > 0 else 1.0
    return 1 / int(X.shape[1])


def fit_scale(f: Array, bags: Bags) -> float:
    r"""The ``a > 0`` for which probabilities :math:`\sigma(a f)` explain the counts best.

    .. math:: \max_a\; \sum_b \log P(y_b \mid a f) + 2 \log \sigma(-a m),
              \qquad m = \frac1N \sum_i |f_i|

    Platt's (1999) way from margins to probabilities, from counts in place of labels. His two
    made-up instances on the wrong side keep ``a`` finite where ``f`` makes no mistake. There is no
    offset, so the sign of ``f`` stays the prediction.
    """
    m = float(np.abs(f).mean())
    if m == 0:
        return 1.0

    def loss(log_am: float) -> float:
        am = float(np.exp(log_am))
        return -float(solve(am / m * f, bags)[0].sum()) - 2 * float(log_expit(-am))

    return float(np.exp(minimize_scalar(loss, bounds=(-7.0, 7.0), method="bounded").x)) / m
