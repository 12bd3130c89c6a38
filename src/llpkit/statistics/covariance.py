r"""The covariance of estimated parameters: observed information, or the sandwich by bag."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llpkit._validation import one_of
from llpkit.statistics.curvature import Curvature, as_array
from llpkit.statistics.models import Adapter, features
from llpkit.statistics.rows import Rows, merged, take_rows

Array = NDArray[Any]
KINDS = ("observed", "sandwich")
_FLAT = 1e-9
"""A direction with less information than this, on the scale of a correlation, is undetermined."""


class Estimated(NamedTuple):
    """Derivatives at the estimate, and the covariance that follows."""

    log_likelihood: float
    scores: Array  # (B, P)
    information: Array  # (P, P) observed, without the penalty
    inverse: Array  # (P, P) of information and penalty, on the directions that are determined
    flat: Array  # (P, F) the other directions

    def covariance(self, kind: str = "observed", turn: Array | None = None) -> Array:
        """The covariance ``(P, P)``, infinite for parameters that the data do not determine.

        ``turn`` is a linear map to other parameters, ``(Q, P)``; the result is then theirs.
        """
        found = self._known(kind)
        turn = np.eye(len(found)) if turn is None else turn
        found = turn @ found @ turn.T
        lost = self._lost(turn)
        found[lost, :] = found[:, lost] = 0.0
        found[lost, lost] = np.inf
        return found

    def _known(self, kind: str) -> Array:
        """The covariance on the directions that are determined, ``(P, P)``."""
        if one_of("covariance", kind, KINDS) == "observed":
            return self.inverse
        centred = self.scores - self.scores.mean(0)
        spread = centred.T @ centred * len(centred) / max(1, len(centred) - 1)
        return np.asarray(self.inverse @ spread @ self.inverse)

    def variance(self, kind: str, turn: Array) -> Array:
        """The variances of combinations ``(Q, P)``, ``(Q,)``, without their covariances."""
        found = ((turn @ self._known(kind)) * turn).sum(1)
        return np.where(self._lost(turn), np.inf, found)

    def distance(self, slope: Array) -> float:
        """How far the estimate is from the maximum, in standard errors.

        ``slope`` is the derivative of the penalised log-likelihood at the estimate, ``(P,)``.
        """
        return math.sqrt(max(0.0, float(slope @ self.inverse @ slope)))

    def _lost(self, turn: Array) -> Array:
        """Whether a combination takes part in an undetermined direction, so has no error."""
        part = np.abs(turn @ self.flat).max(1, initial=0.0)
        return np.asarray(part > 1e-3 * np.abs(turn).max(1, initial=0.0) + 1e-12)


def take(X: Any, order: Array) -> Any:
    """Rows of an array, a tensor, a table, a sparse matrix or a list."""
    return take_rows(X if hasattr(X, "shape") else features(X), order)


def estimated(adapter: Adapter, X: Any, rows: Rows) -> Estimated:
    r"""Derivatives of the log-likelihood, for the covariance of the estimate.

    With the information :math:`I = -\nabla^2 \ell`, the penalty's second derivative Q and the
    bags' scores :math:`s_b`, it is :math:`(I + Q)^{-1}`, or for the sandwich
    :math:`(I + Q)^{-1} J (I + Q)^{-1}`, where
    :math:`J = \frac{B}{B - 1} \sum_b (s_b - \bar s)(s_b - \bar s)^\top`.
    """
    x, rows, _ = merged(take(X, rows.bags.rows.numpy()), rows)
    z, jacobian = adapter.at(x)
    found = Curvature(z, rows, adapter.sd)
    scores = as_array(found.scores(jacobian))
    information = -as_array(found.hessian(jacobian)) - adapter.bend(x, found.slope)
    inverse, flat = _inverse(information + adapter.penalty)
    log_p = float(found.log_prob.detach().sum())
    return Estimated(log_p, scores, information, inverse, flat)


def _inverse(matrix: Array) -> tuple[Array, Array]:
    """The inverse on the directions with information, and the other directions ``(P, F)``."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(matrix)), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    good = values > _FLAT * max(1.0, values.max(initial=0.0))
    inner = vectors[:, good] / values[good] @ vectors[:, good].T
    directions = vectors[:, ~good] / scale[:, None]
    norm = np.linalg.norm(directions, axis=0)
    return inner / np.outer(scale, scale), directions / np.where(norm > 0, norm, 1.0)
