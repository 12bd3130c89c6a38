r"""The covariance of estimated parameters: observed information, or the sandwich by bag."""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llpkit._validation import one_of
from llpkit.statistics.curvature import Curvature, as_array
from llpkit.statistics.models import Adapter, features
from llpkit.statistics.rows import Rows, merged

Array = NDArray[Any]
Kind = Literal["observed", "sandwich"]
KINDS = ("observed", "sandwich")
_FLAT = 1e-9
"""A direction with less information than this, on the scale of a correlation, is undetermined."""


class Estimated(NamedTuple):
    """Derivatives at the estimate, and the covariance that follows."""

    log_likelihood: float
    scores: Array  # (B, P)
    information: Array  # (P, P) observed, without the penalty
    covariance: Array  # (P, P); infinite for parameters that the data do not determine
    flat: Array  # (P, F) directions that the data do not determine

    def sandwich(self) -> Array:
        """The sandwich covariance, from the observed one."""
        inner = np.where(np.isinf(self.covariance), 0.0, self.covariance)
        centred = self.scores - self.scores.mean(0)
        spread = centred.T @ centred * len(centred) / max(1, len(centred) - 1)
        found = inner @ spread @ inner
        return np.where(np.isinf(self.covariance), np.inf, found)


def take(X: Any, order: Array) -> Any:
    """Rows of an array, a tensor, a table or a sparse matrix."""
    if hasattr(X, "iloc"):
        return X.iloc[order]
    return X[order] if hasattr(X, "shape") else features(X)[order]


def estimated(adapter: Adapter, X: Any, rows: Rows, kind: str = "observed") -> Estimated:
    r"""Derivatives of the log-likelihood, and the covariance of the estimate.

    With the information :math:`I = -\nabla^2 \ell`, the penalty's second derivative Q and the
    bags' scores :math:`s_b`, it is :math:`(I + Q)^{-1}`, or for the sandwich
    :math:`(I + Q)^{-1} J (I + Q)^{-1}`, where :math:`J = \frac{B}{B - 1} \sum_b (s_b - \bar s)(s_b -
    \bar s)^\top`.
    """
    one_of("covariance", kind, KINDS)
    x, rows, _ = merged(take(X, rows.bags.rows.numpy()), rows)
    z, jacobian = adapter.at(x)
    found = Curvature(z, rows, adapter.sd)
    scores = as_array(found.scores(jacobian))
    information = -as_array(found.hessian(jacobian)) - adapter.bend(x, found.slope)
    inverse, flat = _inverse(information + adapter.penalty)
    # A parameter that takes part in an undetermined direction has no standard error.
    lost = np.abs(flat).max(1, initial=0.0) > 1e-3
    inverse[lost, :] = inverse[:, lost] = 0.0
    inverse[lost, lost] = np.inf
    log_p = float(found.log_prob.detach().sum())
    result = Estimated(log_p, scores, information, inverse, flat)
    return result._replace(covariance=result.sandwich()) if kind == "sandwich" else result


def _inverse(matrix: Array) -> tuple[Array, Array]:
    """The inverse on the directions with information, and the other directions ``(P, F)``."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(matrix)), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    good = values > _FLAT * max(1.0, values.max(initial=0.0))
    inner = vectors[:, good] / values[good] @ vectors[:, good].T
    directions = vectors[:, ~good] / scale[:, None]
    norm = np.linalg.norm(directions, axis=0)
    return inner / np.outer(scale, scale), directions / np.where(norm > 0, norm, 1.0)
