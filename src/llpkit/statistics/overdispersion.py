"""Do bags differ more than the model allows? A score test for a random effect per bag."""

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from llpkit.errors import LLPError
from llpkit.losses import two_columns
from llpkit.ragged import segment_sum
from llpkit.statistics.covariance import estimated
from llpkit.statistics.effect import effect_basis
from llpkit.statistics.models import adapt
from llpkit.statistics.rows import merged


class Overdispersion(NamedTuple):
    """A test of the hypothesis that bags do not differ beyond their features."""

    statistic: float
    """Standard normal under the hypothesis; large if counts vary too much."""
    p_value: float
    """One-sided."""
    ratio: float
    """Squared distance of the counts from their means over the variance, averaged over bags; 1 is
    expected."""


def overdispersion(
    model: Any, X: Any, y: Any, groups: Any = None, *, multiplicity: Any = None
) -> Overdispersion:
    r"""Test whether a fitted model without a random effect needs one.

    The score test of :math:`\tau^2 = 0` in :class:`~llpkit.estimators.LLPMixedLogisticRegression`.
    It needs no other fit: the derivative of a bag's log-likelihood in :math:`\tau^2` is
    :math:`\tfrac12 [(y - \mu)^2 - \sigma^2]`, with the mean and variance of its count. The
    variance of the sum over bags allows for the estimated parameters. For K classes, the counts of
    all classes enter.

    Args:
        model: A fitted model as for :func:`summary`.
        X: The features that it was fitted to.
        y: What is known about each row's bag; counts must be exact.
        groups: The bag of every row.
        multiplicity: How many instances every row represents.

    >>> from llpkit.estimators import LLPLogisticRegression
    >>> random = np.random.default_rng(0)
    >>> X, groups = random.normal(size=(2000, 1)), np.repeat(np.arange(100), 20)
    >>> z = X[:, 0] + 0.5 * random.normal(size=100)[groups]
    >>> y = np.bincount(groups, random.random(2000) < 1 / (1 + np.exp(-z))).astype(int)[groups]
    >>> model = LLPLogisticRegression().fit(X, y, groups)
    >>> overdispersion(model, X, y, groups).p_value < 0.001
    True
    """
    adapter, inner = adapt(model, X)
    rows = adapter.rows(inner, y, groups, multiplicity)
    if not rows.bags.evidence.is_exact:
        raise LLPError("the test takes exact counts, but some of these are intervals or weights")
    if adapter.sd is not None:
        raise LLPError(
            "the model has a random effect already; see effect_sd_ and effect_p_value_, or test an "
            "LLPLogisticRegression"
        )
    derivatives = estimated(adapter, inner, rows)
    x, rows, _ = merged(inner, rows)
    z, jacobian = adapter.logits(x)
    p, m = two_columns(z).softmax(1), rows.weight
    basis = effect_basis(p.shape[1])  # (K, d)
    gap = (rows.counts - segment_sum(m[:, None] * p, rows.offsets)) @ basis  # (B, d)
    move, square = p @ basis, p @ basis**2  # (R, d): moments of the shift that a label has
    variance = segment_sum(m[:, None] * (square - move**2), rows.offsets)  # (B, d)
    score = 0.5 * ((gap**2).sum(1) - variance.sum(1)).numpy()  # (B,)
    # The variance of the score and its covariance with the scores of the parameters: for two
    # classes, from the cumulants of the counts.
    if p.shape[1] == 2:
        q = p[:, 1] * p[:, 0]
        fourth = segment_sum(m * q * (1 - 6 * q), rows.offsets)
        own = 0.25 * float((fourth + 2 * variance[:, 0] ** 2).sum())
        third = m * q * (p[:, 0] - p[:, 1])
        cross = 0.5 * (third[:, None] * jacobian[:, 0]).sum(0).numpy()
    else:  # products of the observed scores in place of their expectations
        own, cross = float(score @ score), score @ derivatives.scores
    inverse = np.linalg.pinv(derivatives.information)
    spread = own - float(cross @ inverse @ cross)  # estimated parameters explain a part
    statistic = float(score.sum()) / float(np.sqrt(max(spread, 1e-300)))
    ratio = float((gap**2).sum(1).div(variance.sum(1).clamp(min=1e-300)).mean())
    return Overdispersion(statistic, float(stats.norm.sf(statistic)), ratio)
