"""Shared by InvCal and alter-∝SVM: the solver, the radial kernel, probabilities from margins."""

import contextlib
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpstrf
from scipy.optimize import brentq, minimize_scalar
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
TOLERANCE = 1e-9
"""Newton's method stops when the predicted decrease is below this share of the objective."""
MAX_STEPS = 1000


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

    The objective is convex and piecewise quadratic, so Newton's method with a line search converges
    in a few steps, and in fewer from a good start. The intercept has no penalty. After Chapelle,
    *Training a support vector machine in the primal*, Neural Computation (2007).

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
    # Our own solver, because it is faster, and because L-BFGS stalls, without a warning, on columns
    # with large offsets or very different scales. One start of alter-∝SVM on the tables of
    # benchmarks/classical.py (C = 1, bags of 2 and 32: 30 to 47 fits, each starting from the last)
    # took 0.04 to 0.18 s of CPU. On the same fits scikit-learn's SVC, which has no warm start, took
    # 1.1 to 13 times as long, scipy's L-BFGS 0.7 to 7 times and Newton-CG 2 to 14 times. SVC
    # minimises the hinge without rounding; its value of that objective is 0.02 to 2 % lower.
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
    if Z.shape[1] > len(Z):  # the best weights are in the span of the rows: solve there
        q, r = np.linalg.qr(Z.T)
        start = start and Plane(q.T @ start.weight, start.intercept)
        plane = _fit_plane(r.T, sign, level, cost, start)
        return Plane(q @ plane.weight, plane.intercept)
    c = np.broadcast_to(np.asarray(cost, np.float64), sign.shape)
    w, b = start or Plane(np.zeros(Z.shape[1]), 0.0)
    u = level - sign * (Z @ w + b)  # (J,) arguments of the hinges
    for _ in range(MAX_STEPS):
        pull = sign * c * (u / WIDTH).clip(0.0, 1.0)  # (J,)
        grad = np.append(w - Z.T @ pull, -pull.sum())  # (D + 1,)
        step = _newton_step(Z, c, u, grad)
        fall = -float(grad @ step)
        if fall <= TOLERANCE * float(w @ w / 2 + c @ hinge(u)):
            break
        v = sign * (Z @ step[:-1] + step[-1])
        t = _step_length(w, step[:-1], u, v, c, fall)
        w, b, u = w + t * step[:-1], b + t * step[-1], u - t * v
    else:
        warnings.warn(
            f"Newton's method did not converge in {MAX_STEPS} steps; scale the features, lower C",
            ConvergenceWarning,
            stacklevel=6,
        )
    return Plane(w, float(b))


def _newton_step(Z: Array, c: Array, u: Array, grad: Array) -> Array:
    """Minus the inverse Hessian times the gradient, ``(D + 1,)``."""
    curved = (u > 0) & (u < WIDTH)
    rows, weight = Z[curved], c[curved] / WIDTH
    # Without a curved hinge the intercept has no second derivative; this bounds its step.
    least = 1e-3 * float(c.sum())
    if len(rows) >= Z.shape[1]:
        H = np.eye(Z.shape[1] + 1)  # (D + 1, D + 1)
        scaled = weight[:, None] * rows
        H[:-1, :-1] += rows.T @ scaled
        H[:-1, -1] = H[-1, :-1] = scaled.sum(0)
        H[-1, -1] = max(float(weight.sum()), least)
        return -_solve_positive(H, grad)
    # With fewer curved rows than weights, solve in the space of these rows (Woodbury).
    M = rows @ rows.T  # (A, A)
    M[np.diag_indices(len(M))] += 1 / weight
    ones, inner = np.ones(len(rows)), rows @ grad[:-1]
    both = _solve_positive(M, np.stack([ones, inner], 1))  # (A, 2)
    lack = max(least - float(weight.sum()), 0.0)
    step_b = -float(grad[-1] - ones @ both[:, 1]) / (float(ones @ both[:, 0]) + lack)
    step_w = -grad[:-1] + rows.T @ (both[:, 1] - both[:, 0] * step_b)
    return np.append(step_w, step_b)


def _solve_positive(H: Array, right: Array) -> Array:
    """Solve with a positive definite matrix, however its rows are scaled."""
    if len(H) == 0:
        return right
    scale = 1 / np.sqrt(H.diagonal())
    unit = H * scale[:, None] * scale
    unit[np.diag_indices(len(unit))] += 1e-13  # or else rounding may make it indefinite
    scaled = cho_solve(cho_factor(unit, check_finite=False), (scale * right.T).T)
    solved: Array = (scale * scaled.T).T
    return solved


def _step_length(w: Array, d: Array, u: Array, v: Array, c: Array, fall: float) -> float:
    """A step length at which the slope of the objective along the direction is nearly zero."""
    wd, dd = float(w @ d), float(d @ d)

    def slope(t: float) -> float:
        return wd + t * dd - float((c * v) @ ((u - t * v) / WIDTH).clip(0.0, 1.0))

    t = 1.0
    if abs(slope(t)) > 0.1 * fall:
        low = 0.0
        while slope(t) < 0:
            low, t = t, 2 * t
        t = float(brentq(slope, low, t, xtol=1e-300, maxiter=5000))  # the root may be tiny
    while t > 0 and abs(slope(t / 2)) <= 0.1 * fall:  # if the objective is flat, stay close
        t /= 2
    return t
