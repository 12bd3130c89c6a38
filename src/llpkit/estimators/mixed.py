"""Logistic regression from counts with a random effect per bag."""

from typing import Any

import numpy as np
import torch
from scipy.stats import chi2

from llpkit._arrays import Array
from llpkit.estimators.base import exact_counts
from llpkit.estimators.logistic import LLPLogisticRegression, Optimum, lbfgs, penalised
from llpkit.losses import two_columns
from llpkit.statistics.effect import effect_mean, effect_term
from llpkit.statistics.rows import Rows

_START = 0.3
"""Initial standard deviation of the effect."""
_LEAST = 1e-3
"""An effect with a smaller standard deviation counts as none."""


class LLPMixedLogisticRegression(LLPLogisticRegression):
    r"""Logistic regression from counts whose bags differ by a random effect.

    .. math::

        P(y_B) = \int P(y_B \mid X_B w + b + \tau u) \, \mathcal{N}(u; 0, 1) \, du

    Bags such as precincts, hospitals or slides differ in ways that no feature describes; without
    the effect, :class:`LLPLogisticRegression` is then overconfident. The integral is computed by
    adaptive Gauss–Hermite quadrature; exact counts are needed. With K classes, each class has an
    independent effect with standard deviation :math:`\tau`.

    ``decision_function`` and ``predict`` assume an effect of zero; ``predict_proba`` averages over
    the effect: it is the probability in a new bag. ``posterior``, given exact counts, does not
    depend on the effect.

    Args:
        C: Inverse strength of the penalty on the weights; the intercept has none.
        fit_intercept: Whether there is an intercept.
        tol: Stop when no entry of the gradient, per instance, is larger than this.
        max_iter: Maximum number of L-BFGS iterations.
        warm_start: Start at the last solution.
        approximation: As for :class:`LLPLogisticRegression`.
        random_state: Seed for the step away from a saddle point.

    Attributes:
        effect_sd_: Standard deviation :math:`\tau` of the effect, in logits.
        effect_lr_: Likelihood ratio statistic of the model with the effect against that without.
        effect_p_value_: Its p-value. As a deviation of zero is on the boundary, the statistic is
            zero half of the time and otherwise chi-squared with one degree of freedom.

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
        exact_counts(rows.bags, self)
        super()._fit_rows(X, rows)  # the model without the effect is the start
        optimum, ratio = _fit_mixed(X, rows, self)
        optimum.warn(self)
        weights = optimum.weights[:-1].reshape(X.shape[1] + 1, -1)
        self.coef_, self.intercept_ = weights[:-1].T, weights[-1]
        sd = float(optimum.weights[-1])
        self.effect_sd_, self.effect_lr_ = (sd, ratio) if sd > _LEAST else (0.0, 0.0)
        self.effect_p_value_ = 0.5 * float(chi2.sf(self.effect_lr_, 1)) if self.effect_lr_ else 1.0
        self.n_iter_ += optimum.n_iter

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
    """The weights, then the effect's standard deviation; and the likelihood ratio statistic."""
    order = rows.bags.rows
    design = X[order.numpy()]
    transposed = design.T.tocsr() if hasattr(design, "tocsr") else design.T
    width = rows.num_classes or 1
    n = float(rows.weight.sum())
    strength = 1 / (model.C * n)

    def objective(flat: Array) -> tuple[float, Array]:
        w = flat[:-1].reshape(-1, width)
        logits = design @ w[:-1] + w[-1]  # (R, width)
        z = torch.from_numpy(logits[:, 0] if width == 1 else logits).requires_grad_()
        sd = torch.tensor(flat[-1], dtype=torch.float64, requires_grad=True)
        parts = two_columns(z), rows.weight, rows.counts, rows.offsets, sd.expand(len(rows.bags))
        total = (rows.log_prob(z) + effect_term(*parts)).sum()
        slope_z, slope_sd = torch.autograd.grad(total, (z, sd))
        residual = -slope_z.numpy().reshape(logits.shape) / n
        slope = np.vstack([transposed @ residual, residual.sum(0)])
        loss = -float(total.detach()) / n
        loss, slope = penalised(loss, slope, w, strength, model.fit_intercept)
        return loss, np.append(slope, -float(slope_sd) / n)

    weights = np.vstack([model.coef_.T, model.intercept_]).ravel()
    bounds = [(None, None)] * len(weights) + [(0.0, None)]
    # The gradient per instance shrinks as bags grow, but the precision depends on the bags.
    tol = model.tol * len(rows.bags) / n
    start = np.append(weights, _START)
    optimum = lbfgs(objective, start, tol, model.max_iter, bounds, name="random effect")
    gain = objective(np.append(weights, 0.0))[0] - objective(optimum.weights)[0]
    return optimum, max(0.0, 2 * n * gain)
