r"""Derivatives of the log-likelihood of counts, and the covariance of estimated parameters.

The covariance is the inverse of the observed information, or the sandwich with one score per bag.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import Array
from llpkit._validation import one_of
from llpkit.losses import two_columns
from llpkit.ragged import segment_sum
from llpkit.statistics.effect import effect_term
from llpkit.statistics.models import Adapter
from llpkit.statistics.rows import Rows, merged

KINDS = ("observed", "sandwich")
_FLAT = 1e-9
"""A direction with less information than this, on the scale of a correlation, is undetermined."""


class Curvature:
    r"""The log-likelihood at given logits, with its first two derivatives.

    With the labels :math:`h`, the derivative in the logits is :math:`E[h \mid y] - E[h]`, and the
    second derivative is :math:`\mathrm{Cov}(h \mid y) - \mathrm{Cov}(h)`. Only products of the
    second derivative with vectors are computed, each at the cost of one evaluation.
    """

    def __init__(self, logits: Tensor, rows: Rows, sd: float | None = None) -> None:
        self.rows = rows
        self.z = logits.detach().clone().requires_grad_()
        self.log_sd: Tensor | None = None
        self.log_prob = rows.log_prob(self.z)  # (B,)
        self._inputs = [self.z]
        if sd is not None:
            # One copy per bag, so that its derivative is per bag, too.
            self.log_sd = torch.full((len(rows.bags),), sd, dtype=torch.float64).log()
            self.log_sd.requires_grad_()
            self._inputs.append(self.log_sd)
            self.log_prob = self.log_prob + effect_term(
                two_columns(self.z), rows.weight, rows.counts, rows.offsets, self.log_sd.exp()
            )
        self._slopes = torch.autograd.grad(self.log_prob.sum(), self._inputs, create_graph=True)

    @property
    def slope(self) -> Tensor:
        """Derivative in the logits, in their shape."""
        return self._slopes[0].detach()

    def scores(self, jacobian: Tensor) -> Array:
        """Derivative of every bag's log-likelihood in the parameters, ``(B, P)``."""
        slope = self.slope.reshape(len(jacobian), -1)
        by_row = (slope[:, :, None] * jacobian).sum(1)  # (R, P)
        scores = segment_sum(by_row, self.rows.offsets)
        if self.log_sd is not None:
            scores[:, -1] += self._slopes[1].detach()
        return scores.numpy()

    def hessian(self, jacobian: Tensor) -> Array:
        """Second derivative of the log-likelihood in the parameters, ``(P, P)``.

        The curvature of the logits themselves is not included.
        """
        matrix = torch.stack([self._hessian_row(jacobian, p) for p in range(jacobian.shape[2])])
        return ((matrix + matrix.T) / 2).numpy()

    def product(self, v: Tensor) -> Tensor:
        """The second derivative in the logits times a vector, both in their shape."""
        return torch.autograd.grad(self._slopes[0], self.z, v, retain_graph=True)[0]

    def _hessian_row(self, jacobian: Tensor, p: int) -> Tensor:
        v = [jacobian[:, :, p].reshape(self.z.shape)]
        if self.log_sd is not None:  # the last parameter, on which no logit depends
            is_last = float(p == jacobian.shape[2] - 1)
            v.append(torch.full_like(self.log_sd, is_last))
        # The gradient of slope @ v is the second derivative times v.
        out = torch.autograd.grad(self._slopes, self._inputs, v, retain_graph=True)
        row = (out[0].reshape(len(jacobian), -1)[:, :, None] * jacobian).sum((0, 1))
        if self.log_sd is not None:
            row[-1] += out[1].sum()
        return row


class Estimated(NamedTuple):
    """Derivatives at the estimate, and the covariance that follows."""

    log_likelihood: float
    scores: Array
    """``(B, P)``."""
    information: Array
    """Observed, without the penalty, ``(P, P)``."""
    inverse: Array
    """Of information and penalty, on the directions that are determined, ``(P, P)``."""
    flat: Array
    """The other directions, ``(P, F)``."""

    def covariance(self, kind: str = "observed", turn: Array | None = None) -> Array:
        """The covariance ``(P, P)``, infinite for parameters that the data do not determine.

        With a linear map ``turn`` to other parameters, ``(Q, P)``, their covariance ``(Q, Q)``.
        """
        known = self._on_determined(kind)
        turn = np.eye(len(known)) if turn is None else turn
        covariance = turn @ known @ turn.T
        lost = self._undetermined(turn)
        covariance[lost, :] = covariance[:, lost] = 0.0
        covariance[lost, lost] = np.inf
        return covariance

    def variance(self, kind: str, turn: Array) -> Array:
        """The variances ``(Q,)`` of combinations ``(Q, P)``, without their covariances."""
        variance = ((turn @ self._on_determined(kind)) * turn).sum(1)
        return np.where(self._undetermined(turn), np.inf, variance)

    def _on_determined(self, kind: str) -> Array:
        if one_of("covariance", kind, KINDS) == "observed":
            return self.inverse
        # With a penalty, the scores at the estimate do not sum to zero.
        centred = self.scores - self.scores.mean(0)
        spread = centred.T @ centred * len(centred) / max(1, len(centred) - 1)
        return np.asarray(self.inverse @ spread @ self.inverse)

    def _undetermined(self, turn: Array) -> Array:
        """Which combinations depend on an undetermined direction, ``(Q,)`` bool."""
        # The flat directions have length one. Rounding leaves a little of them in any combination.
        part = np.abs(turn @ self.flat).max(1, initial=0.0)
        return np.asarray(part > 1e-3 * np.abs(turn).max(1, initial=0.0) + 1e-12)


def estimated(adapter: Adapter, X: Any, rows: Rows) -> Estimated:
    r"""Derivatives of the log-likelihood, for the covariance of the estimate.

    With the information :math:`I = -\nabla^2 \ell`, the penalty's second derivative Q and the
    bags' scores :math:`s_b`, the covariance is :math:`(I + Q)^{-1}`, or for the sandwich
    :math:`(I + Q)^{-1} J (I + Q)^{-1}`, where
    :math:`J = \frac{B}{B - 1} \sum_b (s_b - \bar s)(s_b - \bar s)^\top`.
    """
    x, rows, _ = merged(X, rows)
    z, jacobian = adapter.logits(x)
    at = Curvature(z, rows, adapter.sd)
    information = -at.hessian(jacobian) - adapter.curvature(x, at.slope)
    inverse, flat = _inverse(information + adapter.penalty)
    log_p = float(at.log_prob.detach().sum())
    return Estimated(log_p, at.scores(jacobian), information, inverse, flat)


def _inverse(matrix: Array) -> tuple[Array, Array]:
    """The inverse on the directions with information, and the other directions ``(P, F)``."""
    # Scaled to a correlation, so that the units of the columns do not matter.
    scale = np.sqrt(np.maximum(np.abs(np.diag(matrix)), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    good = values > _FLAT * max(1.0, values.max(initial=0.0))
    inner = vectors[:, good] / values[good] @ vectors[:, good].T
    directions = vectors[:, ~good] / scale[:, None]
    norm = np.linalg.norm(directions, axis=0)
    return inner / np.outer(scale, scale), directions / np.where(norm > 0, norm, 1.0)
