"""Shared by InvCal and alter-∝SVM: the solver, the radial kernel, probabilities from margins."""

import contextlib
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils import gen_batches

from llpkit._arrays import Array
from llpkit._validation import number, one_of
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.estimators.base import BaseLLP, solve

KERNELS = ("linear", "rbf")
BLOCK = 2**23
"""Entries of a kernel matrix that are computed at a time."""
FAR = 1e100
"""Larger values are refused, as sums of their squares may overflow."""
WIDTH = 0.01
"""The hinge is rounded over this much of its argument, which gives it a gradient everywhere."""
MAX_STEPS = 10_000


class MarginClassifier(BaseLLP):
    """A binary classifier with a margin ``f``, linear or a sum of kernel functions.

    ``decision_function`` is the margin times ``scale_``: a logit with the sign of the margin.
    """

    _multiclass = False

    kernel: str
    gamma: float | str

    def _prepare(self, X: Any) -> None:
        one_of("kernel", self.kernel, KERNELS)
        largest = float(abs(X).max())
        if largest > FAR:
            raise LLPError(
                f"X goes up to {largest:.3g}, whose square is too large to compute with; "
                "standardise the features, and check the largest values for errors"
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
    """Rows ``Z`` with ``Z @ Z.T`` equal to a kernel matrix, and how to get back to the kernel."""

    Z: Array
    """``(N, R)``."""
    pivots: Array
    """``(R,)``: the rows of the kernel matrix that determine the others."""

    def dual(self, weight: Array) -> Array:
        """Coefficients of the pivots' kernel functions, ``(R,)``, from weights ``(R,)``."""
        # K[:, pivots] = Z @ corner.T, so for the same function corner.T @ dual = weight.
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
    # scipy has only LAPACK's own function for it, which counts pivots from one.
    lower, order, rank, _ = dpstrf(K, tol=1e-9 * float(K.diagonal().max()), lower=1)
    Z = np.zeros((len(K), rank))
    Z[order - 1] = np.tril(lower[:, :rank])
    return Root(Z, order[:rank] - 1)


def mean_kernel(X: Any, offsets: Array, gamma: float) -> Array:
    """Mean of the radial kernel over all pairs of rows of two bags, ``(B, B)``; rows by bag."""
    # One block of whole bags at a time: the kernel of all rows would not fit in memory.
    n, starts = np.diff(offsets), offsets[:-1]
    K = np.empty((len(n), len(n)))
    part_of = starts // max(1, BLOCK // X.shape[0])
    cuts = np.flatnonzero(np.diff(part_of)) + 1
    for first, last in zip([0, *cuts], [*cuts, len(n)], strict=True):
        rows = slice(offsets[first], offsets[last])
        by_bag = np.add.reduceat(rbf_kernel(X[rows], X, gamma=gamma), starts, axis=1)  # (rows, B)
        K[first:last] = np.add.reduceat(by_bag, starts[first:last] - starts[first], axis=0)
    K /= n[:, None] * n
    return K


def kernel_gamma(gamma: Any, X: Any) -> float:
    """The radial kernel's ``gamma`` as a number: ``"scale"`` and ``"auto"`` as in ``SVC``."""
    if not isinstance(gamma, str):
        return number("gamma", gamma, above=0)
    one_of("gamma", gamma, ("scale", "auto"))
    if gamma == "scale":  # SVC computes it in fit only, and keeps it private
        mean_square = (X.multiply(X) if hasattr(X, "multiply") else X * X).mean()
        variance = float(mean_square - X.mean() ** 2)
        return 1 / (X.shape[1] * variance) if variance > 0 else 1.0
    return 1 / int(X.shape[1])


def fit_scale(f: Array, bags: Bags) -> float:
    r"""The ``a > 0`` for which the probabilities :math:`\sigma(a f)` explain the counts best.

    .. math:: \max_a\; \sum_b \log P(y_b \mid a f) + 2 \log \sigma(-a m),
              \qquad m = \frac1N \sum_i |f_i|

    Platt's (1999) method for turning margins into probabilities, with counts instead of labels. His
    two artificial instances on the wrong side keep ``a`` finite if ``f`` makes no mistake. There is
    no offset, so the sign of ``f`` remains the prediction.
    """
    m = float(np.abs(f).mean())
    if m == 0:
        return 1.0

    # In log(a m), which is dimensionless: the bounds then suit margins of any scale.
    def loss(log_am: float) -> float:
        am = float(np.exp(log_am))
        return -float(solve(am / m * f, bags)[0].sum()) - 2 * float(log_expit(-am))

    return float(np.exp(minimize_scalar(loss, bounds=(-7.0, 7.0), method="bounded").x)) / m


class Plane(NamedTuple):
    """A function of rows: ``f(z) = z @ weight + intercept``."""

    weight: Array
    intercept: float

    def __call__(self, Z: Any) -> Array:
        return np.asarray(Z @ self.weight + self.intercept)


def hinge(u: Array) -> Array:
    r"""The positive part of ``u``, rounded between 0 and ``WIDTH``.

    .. math:: \psi(u) = 0,\quad \frac{u^2}{2 \delta},\quad u - \frac\delta2
              \qquad\text{for}\quad u \le 0,\quad 0 < u < \delta,\quad u \ge \delta

    >>> hinge(np.array([0.0, 1.0]))
    array([0.   , 0.995])
    """
    inside = u.clip(0.0, WIDTH)
    rounded: Array = inside * (u - inside / 2) / WIDTH
    return rounded


def fit_plane(
    Z: Array, sign: Array, level: Array, cost: float | Array, start: Plane | None = None
) -> Plane:
    r"""Minimise a ridge and a sum of hinges.

    .. math:: \tfrac12 \|w\|^2 + \sum_j c_j\, \psi\bigl(h_j - s_j (z_j^\top w + b)\bigr)

    The objective is convex, and the rounded hinges give it a gradient everywhere, which L-BFGS
    needs. The intercept has no penalty. After Chapelle, *Training a support vector machine in the
    primal*, Neural Computation (2007).

    Args:
        Z: Rows ``(J, D)``.
        sign: ``s``, ``(J,)``, plus or minus one.
        level: ``h``, ``(J,)``.
        cost: ``c``, a number or ``(J,)``.
        start: Where to begin; by default the zero function.

    >>> plane = fit_plane(np.array([[-1.0], [1.0]]), np.array([-1.0, 1.0]), np.ones(2), 10.0)
    >>> plane(np.array([[-1.0], [0.0], [1.0]])).round(2) + 0.0
    array([-1.,  0.,  1.])
    """
    plane = None
    with np.errstate(all="ignore"), contextlib.suppress(LinAlgError, RuntimeError, ValueError):
        plane = _fit_plane(Z, sign, level, cost, start)
    if plane is None or not np.isfinite(plane(Z)).all():
        raise LLPError(
            f"features go up to {np.abs(Z).max():.3g}, too large for the solver; standardise them, "
            "with StandardScaler for example, and check the largest values for errors"
        )
    return plane


def _fit_plane(Z: Array, sign: Array, level: Array, cost: Any, start: Plane | None) -> Plane:
    c = np.broadcast_to(np.asarray(cost, np.float64), sign.shape)

    def objective(flat: Array) -> tuple[float, Array]:
        w, b = flat[:-1], flat[-1]
        u = level - sign * (Z @ w + b)  # (J,) arguments of the hinges
        pull = sign * c * (u / WIDTH).clip(0.0, 1.0)  # (J,)
        grad = np.append(w - Z.T @ pull, -pull.sum())  # (D + 1,)
        return float(w @ w / 2 + c @ hinge(u)), grad

    w, b = start or Plane(np.zeros(Z.shape[1]), 0.0)
    options = {"maxiter": MAX_STEPS, "maxfun": 200_000, "gtol": 1e-6, "ftol": 1e-14, "maxcor": 20}
    found = minimize(objective, np.append(w, b), jac=True, method="L-BFGS-B", options=options)
    if found.status == 1:  # stopped by one of the two limits
        warnings.warn(
            f"the solver did not converge in {MAX_STEPS} steps; scale the features, lower C",
            ConvergenceWarning,
            stacklevel=6,
        )
    return Plane(found.x[:-1], float(found.x[-1]))
