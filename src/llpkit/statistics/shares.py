"""Shares of groups: of the instances with some value of a column, how many have which label?"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit
from torch import Tensor

from llpkit._validation import one_of, share
from llpkit.errors import LLPError
from llpkit.statistics.bootstrap import bags_of, bootstrap
from llpkit.statistics.covariance import KINDS, estimated, take
from llpkit.statistics.curvature import Labels, as_array
from llpkit.statistics.ecological import bounds, goodman
from llpkit.statistics.models import Adapter, adapt, features, last_step
from llpkit.statistics.prediction import quantile
from llpkit.statistics.rows import Rows, merged, rows_of
from llpkit.statistics.share_table import Shares
from llpkit.statistics.summary import Summary, problem_notes

Array = NDArray[Any]

_MOST = 500
"""Most groups: each takes an evaluation of all bags."""


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
    hand. The expected share of group g is the mean of its posteriors, so the known counts are
    met in every bag. Its variance has two parts, which are uncorrelated: the parameters are
    estimated, and the counts leave the labels open,

    .. math::

        \frac{1}{N_g^2} \left[ d_g^\top V d_g + 1_g^\top C \, 1_g \right], \qquad
        C = \mathrm{Cov}(h \mid y), \quad d_g = J^\top C \, 1_g,

    with the covariance V of the parameters and the Jacobian J of the logits. One product
    :math:`C \, 1_g`, which the engine computes in linear time, gives both. Intervals are computed
    on the scale of log-odds and cut to what the counts allow.

    Args:
        model: A fitted model as for :func:`summary`; with ``covariance="bootstrap"`` any estimator.
        X: Features ``(N, D)``.
        y: What is known about each row's bag, as for ``fit``.
        groups: The bag of every row.
        by: The column: its name, if ``X`` is a table; its number; or the group of every row,
            ``(N,)``.
        level: Probability that an interval holds the share.
        covariance: As for :func:`summary`; or, if the model was fitted to other bags, its summary
            there; or the matrix V, ``(P, P)``. With ``"bootstrap"`` the model is refitted to
            resampled bags, and the shares of every refit are computed.
        multiplicity: How many instances every row represents.
        options: For ``covariance="bootstrap"``, those of :func:`bootstrap`.

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
    names, code = _column(X, by)
    if isinstance(covariance, str) and covariance == "bootstrap":
        return _bootstrapped(model, X, y, groups, names, code, level, multiplicity, options)
    if options:
        raise LLPError(f"{', '.join(options)}: only with covariance='bootstrap'")
    adapter, inner = adapt(model, X)
    rows = adapter.rows(inner, y, groups, multiplicity)
    spread = _spread(covariance, adapter, inner, rows)
    notes = problem_notes(inner, rows.bags, multiplicity)
    values, inverse = _values(code)
    index = torch.from_numpy(inverse)[rows.bags.rows]  # (R,) in the order of the bags
    x, rows, index = merged(take(inner, rows.bags.rows.numpy()), rows, index)
    found = _moments(adapter, x, rows, index, len(values), spread)
    table = _shares(found, rows, index, values.tolist(), list(adapter.classes), level, names)
    return replace(table, notes=notes)


def _spread(given: Any, adapter: Adapter, X: Any, rows: Rows) -> Callable[[Array], Array]:
    """A function that returns the covariance ``(Q, Q)`` of combinations ``(Q, P)`` of parameters.

    A combination that the data do not determine has infinite variance.
    """
    if isinstance(given, str):
        one_of("covariance", given, (*KINDS, "bootstrap"))
        return partial(estimated(adapter, X, rows).covariance, given)
    if isinstance(given, Summary):
        return partial(given.derivatives.covariance, given.kind)
    V = np.asarray(given, np.float64)
    if V.shape != (len(adapter.estimate),) * 2:
        raise LLPError(
            f"covariance has shape {V.shape}, but the model has {len(adapter.estimate)} parameters"
        )
    if not np.isfinite(V).all():
        raise LLPError("covariance is not finite; give the summary that it is from instead")
    return lambda turn: turn @ V @ turn.T


@dataclass(frozen=True)
class _Moments:
    mean: Array  # (G, K) shares
    model: Array  # (G K, G K)
    labels: Array  # (G K, G K)
    sizes: Array  # (G,)


def _moments(
    adapter: Adapter,
    x: Any,
    rows: Rows,
    index: Tensor,
    number: int,
    spread: Callable[[Array], Array],
) -> _Moments:
    """Expected shares and the two parts of their covariance, by the delta method."""
    z, jacobian = adapter.at(x)
    slopes: list[Tensor] = []

    def note(product: Tensor) -> None:
        slopes.append((product.reshape(len(jacobian), -1)[:, :, None] * jacobian).sum((0, 1)))

    found = _label_moments(z, rows, index, number, note)
    slope = _turn(number, z) @ as_array(torch.stack(slopes)) / _scale(found)[:, None]
    return replace(found, model=spread(slope))


def _label_moments(z: Tensor, rows: Rows, index: Tensor, number: int, note: Any = None) -> _Moments:
    """Expected shares and their covariance given the parameters.

    ``note`` is called with the covariance of all labels with the total of every group and class.
    """
    labels = Labels(z, rows)
    member = torch.nn.functional.one_hot(index, number).double()  # (R, G)
    sizes = (rows.weight[:, None] * member).sum(0).numpy()
    totals = labels.totals
    columns = totals.reshape(len(totals), -1)  # (R, K')
    mean = (member.T @ columns).numpy()  # (G, K')
    if z.dim() == 1:
        mean = np.stack([sizes - mean[:, 0], mean[:, 0]], 1)
    free = max(1, columns.shape[1] - 1)
    inside = []
    for g in range(number):
        for k in range(free):
            v = torch.zeros_like(columns)
            v[:, k] = member[:, g]
            product = labels.covariance(v.reshape(totals.shape))
            if note is not None:
                note(product)
            inside.append((member.T @ product.reshape(columns.shape)[:, :free]).reshape(-1))
    spread, turn = as_array(torch.stack(inside)), _turn(number, z)
    spread = turn @ (spread + spread.T) @ turn.T / 2
    found = _Moments(mean / np.maximum(sizes, 1)[:, None], 0 * spread, spread, sizes)
    scale = _scale(found)
    return replace(found, labels=spread / np.outer(scale, scale))


def _turn(number: int, z: Tensor) -> Array:
    """From totals of the free classes to those of all: one class follows from the others."""
    free = 1 if z.dim() == 1 else z.shape[1] - 1
    last = -np.ones((1, free))
    whole = np.vstack([last, np.eye(1)] if z.dim() == 1 else [np.eye(free), last])
    return np.kron(np.eye(number), whole)  # (G K, G free)


def _scale(found: _Moments) -> Array:
    return np.repeat(np.maximum(found.sizes, 1), found.mean.shape[1])


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
    """Shares of any estimator, whose uncertainty comes from refits."""
    bags = bags_of(model, X, y, groups, multiplicity)
    rows = rows_of(bags, multiplicity, "auto")
    values, inverse = _values(code)
    index = torch.from_numpy(inverse)[bags.rows]
    member = torch.nn.functional.one_hot(index, len(values)).double()

    def logits(fitted: Any) -> Tensor:
        z = torch.from_numpy(np.asarray(fitted.decision_function(X), np.float64))
        return z[bags.rows]

    def statistic(fitted: Any) -> Array:
        totals = Labels(logits(fitted), rows).totals
        return (member.T @ totals.reshape(len(totals), -1)).numpy()

    drawn = bootstrap(
        model, X, y, groups, statistic=statistic, multiplicity=multiplicity, **options
    )
    z = logits(model)
    found = _label_moments(z, rows, index, len(values))
    width = 1 if z.dim() == 1 else z.shape[1]
    whole = np.kron(np.eye(len(values)), [[-1.0], [1.0]] if width == 1 else np.eye(width))
    scale = _scale(found)
    part = whole @ drawn.covariance @ whole.T / np.outer(scale, scale)
    found = replace(found, model=part)
    classes = list(last_step(model).classes_)
    return _shares(found, rows, index, values.tolist(), classes, level, by)


def _shares(
    found: _Moments,
    rows: Rows,
    index: Tensor,
    values: list[Any],
    classes: list[Any],
    level: float,
    by: str,
) -> Shares:
    shape = found.mean.shape
    model_sd, label_sd = (
        np.sqrt(np.maximum(np.diag(part), 0)).reshape(shape) for part in (found.model, found.labels)
    )
    limits = baseline = None
    if rows.bags.evidence.is_exact:
        cells = np.zeros((len(rows.bags), len(values)))
        np.add.at(cells, (rows.bags.bag_index.numpy(), index.numpy()), rows.weight.numpy())
        counts = rows.counts.numpy()
        limits, baseline = bounds(cells, counts), goodman(cells, counts)
    low, high = _interval(found.mean, np.hypot(model_sd, label_sd), level)
    if limits is not None:
        low, high = np.maximum(low, limits.low), np.minimum(high, limits.high)
    return Shares(
        groups=values,
        classes=classes,
        sizes=found.sizes,
        share=found.mean,
        low=low,
        high=high,
        model_sd=model_sd,
        label_sd=label_sd,
        covariance=found.model + found.labels,
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
    ends = [np.where(sd > 0, expit(odds + s * half), p) for s in (-1, 1)]
    return ends[0], ends[1]


def _column(X: Any, by: Any) -> tuple[str, Array]:
    """A name and the group of every row, from a column's name or number or the values."""
    size = len(X) if not hasattr(X, "shape") else X.shape[0]
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
    """The groups, and the number of the group of every row."""
    try:
        values, inverse = np.unique(code, return_inverse=True)
    except TypeError as error:
        raise LLPError(
            "by has missing values, or values of several types, which cannot be sorted; give them "
            "as text, such as 'missing'"
        ) from error
    if len(values) > _MOST:
        raise LLPError(
            f"by has {len(values):,} different values; give up to {_MOST} groups, such as ages in "
            "classes"
        )
    return values, inverse
