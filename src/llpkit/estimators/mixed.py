"""Logistic regression from counts with a random effect per bag."""

from typing import Any

import numpy as np
import torch
from scipy.stats import chi2

from llpkit.errors import LLPError
from llpkit.estimators.base import Array
from llpkit.estimators.logistic import LLPLogisticRegression, Optimum, lbfgs
from llpkit.losses import two_columns
from llpkit.statistics.effect import effect_mean, effect_term
from llpkit.statistics.rows import Rows

_START = 0.3
_LEAST = 1e-3
"""An effect with a smaller standard deviation counts as none."""


class LLPMixedLogisticRegression(LLPLogisticRegression):
    r"""Logistic regression from counts whose bags differ by a random effect.

    .. math::

        P(y_B) = \int P(y_B \mid X_B w + b + \tau u) \, \mathcal{N}(u; 0, 1) \, du

    Bags such as precincts, hospitals or slides differ in ways that no feature describes. Without
    the effect, such data make :class:`LLPLogisticRegression` too sure of itself. The integral is
    computed by adaptive Gauss–Hermite quadrature; exact counts are needed. With K classes every
    class has its own effect with standard deviation :math:`\tau`.

    ``decision_function`` and ``predict`` are for an effect of zero; ``predict_proba`` is the
    average over the effect, the probability in a new bag. ``posterior`` given exact counts is the
    same for every effect.

    Args:
        C: Inverse strength of the penalty on the weights; the intercept has none.
        fit_intercept: Whether there is an intercept.
        tol: Stop when no entry of the gradient, per instance, is larger.
        max_iter: Most L-BFGS iterations.
        warm_start: Begin at the last solution.
        approximation: As for :class:`LLPLogisticRegression`.
        random_state: For the step from a saddle point.

    Attributes:
        effect_sd_: Standard deviation :math:`\tau` of the effect, in logits.
        effect_lr_: Likelihood ratio statistic of the model with the effect against the one without.
        effect_p_value_: Its p-value. Zero is at the edge of the possible deviations, so the
            statistic is half the time zero and otherwise chi-squared with one degree of freedom.

    >>> random = np.random.default_rng(0)
    >>> X, groups = random.normal(size=(2000, 1)), np.repeat(np.arange(200), 10)
    >>> z = 2 * X[:, 0] + random.normal(size=200)[groups]  # bags differ with deviation 1
    >>> labels = random.random(2000) < 1 / (1 + np.exp(-z))
    >>> y = np.bincount(groups, labels).astype(int)[groups]
    >>> model = LLPMixedLogisticRegression().fit(X, y, groups)
    >>> print(f"{model.effect_sd_:.1f}, {model.coef_[0, 0]:.1f}")
    1.0, 1.8
    """

    effect_sd_: float
    effect_lr_: float
    effect_p_value_: float

    def _fit_rows(self, X: Any, rows: Rows) -> None:
        if not rows.bags.evidence.is_exact:
            raise LLPError(
                "LLPMixedLogisticRegression takes exact counts, but some of these are intervals or "
                "weights; use LLPLogisticRegression for them"
            )
        super()._fit_rows(X, rows)  # the model without the effect is the start
        found, self.effect_lr_ = _fit_mixed(X, rows, self)
        found.warn(self)
        weights = found.weights[:-1].reshape(X.shape[1] + 1, -1)
        self.coef_, self.intercept_ = weights[:-1].T, weights[-1]
        sd = float(found.weights[-1])
        self.effect_sd_ = sd if sd > _LEAST else 0.0
        if self.effect_sd_ == 0:
            self.effect_lr_ = 0.0
        self.effect_p_value_ = 0.5 * float(chi2.sf(self.effect_lr_, 1)) if self.effect_lr_ else 1.0
        self.n_iter_ += found.n_iter

    def predict_proba(self, X: Any) -> Array:
        """Probability of every class in a new bag, ``(N, K)``."""
        z = torch.from_numpy(self.decision_function(X))
        return effect_mean(two_columns(z), torch.tensor(self.effect_sd_).double()).numpy()

    def score(self, X: Any, y: Any, groups: Any = None, multiplicity: Any = None) -> float:
        """Mean log-likelihood of the bags' counts, integrated over the effect."""
        rows, z = self._rows(X, y, groups, multiplicity)
        sd = torch.full((len(rows.bags),), self.effect_sd_, dtype=torch.float64)
        parts = two_columns(z), rows.weight, rows.counts, rows.offsets, sd
        return float((rows.log_prob(z) + effect_term(*parts)).mean())


def _fit_mixed(X: Any, rows: Rows, model: LLPLogisticRegression) -> tuple[Optimum, float]:
    """Weights, flat, and the standard deviation of the effect; the likelihood ratio statistic."""
    order = rows.bags.rows
    design = X[order.numpy()]
    transposed = design.T.tocsr() if hasattr(design, "tocsr") else design.T
    width = rows.num_classes or 1
    n = float(rows.weight.sum())
    strength = 1 / (model.C * n)

    def objective(flat: Array) -> tuple[float, Array]:
        w = flat[:-1].reshape(-1, width)
        inner = design @ w[:-1] + w[-1]  # (R, width)
        z = torch.from_numpy(inner[:, 0] if width == 1 else inner).requires_grad_()
        sd = torch.tensor(flat[-1], dtype=torch.float64, requires_grad=True)
        parts = two_columns(z), rows.weight, rows.counts, rows.offsets, sd.expand(len(rows.bags))
        total = (rows.log_prob(z) + effect_term(*parts)).sum()
        slope_z, slope_sd = torch.autograd.grad(total, (z, sd))
        residual = -slope_z.numpy().reshape(inner.shape) / n
        slope = np.vstack([transposed @ residual, residual.sum(0)])
        slope[:-1] += strength * w[:-1]
        if not model.fit_intercept:
            slope[-1] = 0
        value = -float(total.detach()) / n + 0.5 * strength * float((w[:-1] ** 2).sum())
        return value, np.append(slope.ravel(), -float(slope_sd) / n)

    weights = np.vstack([model.coef_.T, model.intercept_]).ravel()
    bounds = [(None, None)] * len(weights) + [(0.0, None)]
    # The gradient per instance shrinks as bags grow, but what counts is the number of bags.
    tol = model.tol * len(rows.bags) / n
    begin = np.append(weights, _START)
    found = lbfgs(objective, begin, tol, model.max_iter, bounds, name="random effect")
    gain = objective(np.append(weights, 0.0))[0] - objective(found.weights)[0]
    return found, max(0.0, 2 * n * gain)
