"""The share of each class among the instances that have the same value of a column."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import expit, logit
from torch import Tensor

from llpkit._arrays import Array
from llpkit._validation import one_of, share
from llpkit.errors import LLPError
from llpkit.statistics.bootstrap import bags_of, bootstrap
from llpkit.statistics.covariance import KINDS, Curvature, estimated
from llpkit.statistics.ecological import bounds, goodman
from llpkit.statistics.models import Adapter, adapt, features, last_step
from llpkit.statistics.prediction import quantile
from llpkit.statistics.rows import Rows, merged, rows_of
from llpkit.statistics.share_table import Shares
from llpkit.statistics.summary import Summary, problem_notes

_MOST = 500
"""Most groups; each takes an evaluation of all bags."""


def shares(
    model: Any,
    X: Any,
    y: Any,
    groups: Any = None,
    *,
    by: Any,
    level: float = 0.95,
    covariance: Literal["observed", "sandwich", "bootstrap"] | Array | Summary = "observed",
    multiplicity: Any = None,
    **options: Any,
) -> Shares:
    r"""For every value of a column, the share of each class among its instances, over all bags.

    This answers the question of ecological inference ("how did group A vote?") for the bags at
    hand. The expected share of group g is the mean of its posteriors, so it agrees with the counts
    of every bag. Its variance has two uncorrelated parts: the parameters are estimated, and the
    counts do not determine the labels,

    .. math::

        \frac{1}{N_g^2} \left[ d_g^\top V d_g + 1_g^\top C \, 1_g \right], \qquad
        C = \mathrm{Cov}(h \mid y), \quad d_g = J^\top C \, 1_g,

    with the covariance V of the parameters and the Jacobian J of the logits. Both follow from the
    product :math:`C \, 1_g`, which the engine computes in linear time. Intervals are computed on
    the scale of log-odds and cut to what the counts allow.

    Args:
        model: A fitted model as for :func:`summary`; with ``covariance="bootstrap"`` any estimator.
        X: Features ``(N, D)``.
        y: What is known about each row's bag, as for ``fit``.
        groups: The bag of every row.
        by: The column: its name, if ``X`` is a table; its number; or the group of every row,
            ``(N,)``.
        level: Probability that an interval contains the share.
        covariance: As for :func:`summary`; or, if the model was fitted to other bags, its summary
            for those; or the matrix V, ``(P, P)``. With ``"bootstrap"`` the model is refitted to
            resampled bags, and the shares of every refit are computed.
        multiplicity: How many instances every row represents.
        options: Options of :func:`bootstrap`, for ``covariance="bootstrap"``.

    >>> from llpkit.estimators import LLPLogisticRegression
    >>> random = np.random.default_rng(0)
    >>> woman, precinct = random.random(4000) < random.random(100).repeat(40), np.arange(4000) // 40
    >>> votes = random.random(4000) < np.where(woman, 0.7, 0.4)
    >>> y = np.bincount(precinct, votes).astype(int)[precinct]
    >>> X = woman[:, None].astype(float)
    >>> model = LLPLogisticRegression(C=np.inf).fit(X, y, precinct)
    >>> print(shares(model, X, y, precinct, by=np.where(woman, "women", "men")))
    =====================================================================
                               Shares by group
    =====================================================================
    group  class  instances  share  [0.025  0.975]  least   most  Goodman
    ---------------------------------------------------------------------
    men        1      2,049  0.394   0.374   0.414  0.234  0.714    0.393
    women      1      1,951  0.702   0.681   0.723  0.366  0.870    0.704
    =====================================================================
    """
    share("level", level)
    name, code = _column(X, by)
    if isinstance(covariance, str) and covariance == "bootstrap":
        return _bootstrapped(model, X, y, groups, name, code, level, multiplicity, options)
    if options:
        raise LLPError(f"{', '.join(options)}: only with covariance='bootstrap'")
    adapter, inner = adapt(model, X)
    rows = adapter.rows(inner, y, groups, multiplicity)
    of_parameters = _covariance(covariance, adapter, inner, rows)
    notes = problem_notes(inner, rows.bags, multiplicity)
    values, inverse = _values(code)
    index = torch.from_numpy(inverse)[rows.bags.rows]  # (R,) in the order of the bags
    x, rows, index = merged(inner, rows, index)
    z, jacobian = adapter.logits(x)
    moments, slopes = _label_moments(z, rows, index, len(values), jacobian)
    moments = replace(moments, model=of_parameters(slopes))
    table = _shares(moments, rows, index, values.tolist(), list(adapter.classes), level, name)
    return replace(table, notes=notes)


def _covariance(source: Any, adapter: Adapter, X: Any, rows: Rows) -> Callable[[Array], Array]:
    """A function that returns the covariance ``(Q, Q)`` of combinations ``(Q, P)`` of parameters.

    A combination that the data do not determine has infinite variance.
    """
    if isinstance(source, str):
        one_of("covariance", source, (*KINDS, "bootstrap"))
        return partial(estimated(adapter, X, rows).covariance, source)
    if isinstance(source, Summary):
        return partial(source.derivatives.covariance, source.kind)
    V = np.asarray(source, np.float64)
    if V.shape != (len(adapter.estimate),) * 2:
        raise LLPError(
            f"covariance has shape {V.shape}, but the model has {len(adapter.estimate)} parameters"
        )
    if not np.isfinite(V).all():
        raise LLPError("covariance is not finite; pass the summary itself instead")
    return lambda turn: turn @ V @ turn.T


@dataclass(frozen=True)
class _Moments:
    """Expected shares and the two parts of their covariance."""

    mean: Array  # (G, K)
    model: Array  # (G K, G K)
    labels: Array  # (G K, G K)
    sizes: Array  # (G,)


class _Labels:
    """The labels of the rows given the counts: expected totals and their covariance."""

    def __init__(self, logits: Tensor, rows: Rows) -> None:
        # A random effect shifts all logits of a bag, which does not change this distribution.
        self._at = Curvature(logits, rows)
        self._rows = rows

    @property
    def totals(self) -> Tensor:
        """Expected totals of every row, in the shape of the logits."""
        return self._at.slope + self._rows.prior(self._at.z.detach())

    def covariance(self, v: Tensor) -> Tensor:
        """The covariance of all totals times a vector, both in the shape of the logits."""
        # The second derivative of the log-likelihood lacks the covariance before the counts.
        z, m = self._at.z.detach(), self._rows.weight
        if z.dim() == 1:
            return self._at.product(v) + m * z.sigmoid() * (-z).sigmoid() * v
        p = z.softmax(1)
        return self._at.product(v) + m[:, None] * p * (v - (p * v).sum(1, keepdim=True))


def _label_moments(
    z: Tensor, rows: Rows, index: Tensor, number: int, jacobian: Tensor | None = None
) -> tuple[_Moments, Array]:
    """Shares and their covariance given the parameters, and the derivatives of the shares.

    The derivatives in the parameters are ``(G K, P)``, or ``(G K, 0)`` without a Jacobian.
    """
    labels = _Labels(z, rows)
    member = torch.nn.functional.one_hot(index, number).double()  # (R, G)
    sizes = (rows.weight[:, None] * member).sum(0).numpy()
    totals = labels.totals
    columns = totals.reshape(len(totals), -1)  # (R, K')
    mean = (member.T @ columns).numpy()  # (G, K')
    if z.dim() == 1:
        mean = np.stack([sizes - mean[:, 0], mean[:, 0]], 1)
    if jacobian is None:
        jacobian = z.new_zeros((*columns.shape, 0))
    free = max(1, columns.shape[1] - 1)
    # The covariance of all totals times the indicator of a group and a class gives that row of the
    # covariance of the groups' totals, and the derivative in the logits.
    covariances, slopes = [], []
    for g in range(number):
        for k in range(free):
            v = torch.zeros_like(columns)
            v[:, k] = member[:, g]
            product = labels.covariance(v.reshape(totals.shape)).reshape(columns.shape)
            covariances.append((member.T @ product[:, :free]).reshape(-1))
            slopes.append((product[:, :, None] * jacobian).sum((0, 1)))
    turn = _all_classes(number, z)
    covariance = torch.stack(covariances).numpy()
    covariance = turn @ (covariance + covariance.T) @ turn.T / 2
    scale = np.repeat(np.maximum(sizes, 1), mean.shape[1])  # (G K,)
    moments = _Moments(
        mean / np.maximum(sizes, 1)[:, None],
        np.zeros_like(covariance),
        covariance / np.outer(scale, scale),
        sizes,
    )
    return moments, turn @ torch.stack(slopes).numpy() / scale[:, None]


def _all_classes(number: int, z: Tensor) -> Array:
    """A map from totals of the free classes to totals of all: one class follows from the others."""
    free = 1 if z.dim() == 1 else z.shape[1] - 1
    last = -np.ones((1, free))
    of_group = np.vstack([last, np.eye(1)] if z.dim() == 1 else [np.eye(free), last])
    return np.kron(np.eye(number), of_group)  # (G K, G free)


def _bootstrapped(
    model: Any,
    X: Any,
    y: Any,
    groups: Any,
    by: str,
    code: Array,
    level: float,
    multiplicity: Any,
    options: dict[str, Any],
) -> Shares:
    """Shares of any estimator, with the uncertainty of its parameters from refits."""
    bags = bags_of(model, X, y, groups, multiplicity)
    rows = rows_of(bags, multiplicity, "auto")
    values, inverse = _values(code)
    index = torch.from_numpy(inverse)[bags.rows]
    member = torch.nn.functional.one_hot(index, len(values)).double()

    def logits(fitted: Any) -> Tensor:
        return torch.from_numpy(np.asarray(fitted.decision_function(X), np.float64))[bags.rows]

    z = logits(model)
    free = 1 if z.dim() == 1 else z.shape[1] - 1

    def statistic(fitted: Any) -> Array:
        totals = _Labels(logits(fitted), rows).totals
        totals = totals.reshape(len(totals), -1)[:, :free]
        return (member.T @ totals).numpy()

    drawn = bootstrap(
        model, X, y, groups, statistic=statistic, multiplicity=multiplicity, **options
    )
    moments, _ = _label_moments(z, rows, index, len(values))
    turn = _all_classes(len(values), z)
    scale = np.repeat(np.maximum(moments.sizes, 1), moments.mean.shape[1])
    moments = replace(moments, model=turn @ drawn.covariance @ turn.T / np.outer(scale, scale))
    classes = list(last_step(model).classes_)
    return _shares(moments, rows, index, values.tolist(), classes, level, by)


def _shares(
    moments: _Moments,
    rows: Rows,
    index: Tensor,
    values: list[Any],
    classes: list[Any],
    level: float,
    by: str,
) -> Shares:
    model_sd, label_sd = (
        np.sqrt(np.maximum(np.diag(part), 0)).reshape(moments.mean.shape)
        for part in (moments.model, moments.labels)
    )
    limits = baseline = None
    if rows.bags.evidence.is_exact:
        cells = np.zeros((len(rows.bags), len(values)))
        np.add.at(cells, (rows.bags.bag_index.numpy(), index.numpy()), rows.weight.numpy())
        counts = rows.counts.numpy()
        limits, baseline = bounds(cells, counts), goodman(cells, counts)
    low, high = _interval(moments.mean, np.hypot(model_sd, label_sd), level)
    if limits is not None:
        low, high = np.maximum(low, limits.low), np.minimum(high, limits.high)
    return Shares(
        groups=values,
        classes=classes,
        sizes=moments.sizes,
        share=moments.mean,
        low=low,
        high=high,
        model_sd=model_sd,
        label_sd=label_sd,
        covariance=moments.model + moments.labels,
        bounds=limits,
        goodman=baseline,
        level=level,
        by=by,
    )


def _interval(p: Array, sd: Array, level: float) -> tuple[Array, Array]:
    """Ends of an interval that is symmetric in log-odds."""
    inside = np.clip(p, 1e-12, 1 - 1e-12)
    half = quantile(level) * sd / (inside * (1 - inside))
    odds = logit(inside)
    # Where nothing is uncertain, the interval is the share itself.
    low, high = (np.where(sd > 0, expit(odds + sign * half), p) for sign in (-1, 1))
    return low, high


def _column(X: Any, by: Any) -> tuple[str, Array]:
    """The name of a column and the group of every row."""
    size = X.shape[0] if hasattr(X, "shape") else len(X)
    if isinstance(by, str):
        if not hasattr(X, "columns") or by not in X.columns:
            raise LLPError(
                f"by = {by!r}, but X has no such column; give the name of a column of a table, a "
                "column number, or one value per row"
            )
        return by, np.asarray(X[by])
    if isinstance(by, int | np.integer) and not isinstance(by, bool):
        table = features(X)
        if not 0 <= by < table.shape[1]:
            raise LLPError(f"by = {by}, but X has the columns 0 to {table.shape[1] - 1}")
        return f"x{by}", table[:, by]
    values = np.asarray(by)
    if values.shape != (size,):
        raise LLPError(
            f"by has shape {values.shape}, but X has {size} rows; give one value per row"
        )
    return str(getattr(by, "name", None) or "group"), values


def _values(code: Array) -> tuple[Array, Array]:
    """The distinct groups, sorted, and the position of every row's group among them."""
    try:
        values, inverse = np.unique(code, return_inverse=True)
    except TypeError as error:
        raise LLPError(
            "by has missing values, or values of several types, which cannot be sorted; give them "
            "as text, such as 'missing'"
        ) from error
    if len(values) > _MOST:
        raise LLPError(
            f"by has {len(values):,} different values; give up to {_MOST}, such as age ranges"
        )
    return values, inverse
