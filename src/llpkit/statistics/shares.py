"""Shares of groups: of the instances with some value of a column, how many have which label?"""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from llpkit._validation import share
from llpkit.errors import LLPError
from llpkit.statistics._text import html_table, text_table
from llpkit.statistics.covariance import estimated, take
from llpkit.statistics.curvature import Labels, as_array
from llpkit.statistics.ecological import Bounds, Goodman, bounds, goodman
from llpkit.statistics.models import Adapter, adapt, features
from llpkit.statistics.rows import Rows, merged

Array = NDArray[Any]


@dataclass(frozen=True)
class Shares:
    """The share of every class in every group; printed, a table.

    Made by :func:`shares`.
    """

    groups: list[Any]
    """The values of the column, sorted."""
    classes: list[Any]
    sizes: Array
    """Instances in every group, ``(G,)``."""
    share: Array
    """Expected share of every class in every group, given the counts, ``(G, K)``."""
    low: Array
    """``(G, K)``."""
    high: Array
    """``(G, K)``."""
    model_sd: Array
    """Standard deviation because the parameters are estimated, ``(G, K)``."""
    label_sd: Array
    """Standard deviation because the counts leave the labels open, ``(G, K)``."""
    covariance: Array = field(repr=False)
    """Of all shares, in the order of ``share.ravel()``, ``(G K, G K)``."""
    bounds: Bounds | None
    """What the counts alone imply; ``None`` if they are not exact."""
    goodman: Goodman | None
    """Goodman's regression, for comparison."""
    level: float
    by: str

    def to_frame(self) -> Any:
        """A pandas table with one row per group and class."""
        import pandas as pd

        shape = self.share.shape
        columns: dict[str, Any] = {
            self.by: np.repeat(np.array(self.groups, object), shape[1]),
            "class": np.tile(np.array(self.classes, object), shape[0]),
            "instances": np.repeat(self.sizes, shape[1]),
        }
        for name in ("share", "low", "high", "model_sd", "label_sd"):
            columns[name] = getattr(self, name).ravel()
        if self.bounds is not None:
            columns |= {"least": self.bounds.low.ravel(), "most": self.bounds.high.ravel()}
        if self.goodman is not None:
            columns["goodman"] = self.goodman.share.ravel()
        return pd.DataFrame(columns).infer_objects()

    def difference(self, group: Any, other: Any, label: Any = None) -> tuple[float, float, float]:
        """The difference between the shares of two groups, with its interval.

        Args:
            group: A value of the column.
            other: Another.
            label: The class; the last by default.
        """
        at = [_place(self.groups, each, self.by) for each in (group, other)]
        k = len(self.classes) - 1 if label is None else _place(self.classes, label, "class")
        places = [g * len(self.classes) + k for g in at]
        gap = float(self.share[at[0], k] - self.share[at[1], k])
        part = self.covariance[np.ix_(places, places)]
        half = _quantile(self.level) * float(np.sqrt(part[0, 0] + part[1, 1] - 2 * part[0, 1]))
        return gap, gap - half, gap + half

    def figure(self) -> Any:
        """A picture: shares with their intervals, the bounds behind, and Goodman's estimates.

        Returns a :class:`llpkit.report.Figure`; ``.write(folder)`` saves it as PNG and PDF.
        """
        from llpkit.report.shares import share_intervals

        return share_intervals(self)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        tail = f"{(1 - self.level) / 2:.3g}", f"{(1 + self.level) / 2:.3g}"
        heads = [self.by, "class", "instances", "share", f"[{tail[0]}", f"{tail[1]}]"]
        heads += ["least", "most"] * (self.bounds is not None)
        heads += ["Goodman"] * (self.goodman is not None)
        rows = []
        shown = [1] if len(self.classes) == 2 else range(len(self.classes))
        for g, name in enumerate(self.groups):
            for k in shown:
                cells = [str(name), str(self.classes[k]), f"{self.sizes[g]:,.0f}"]
                numbers = [self.share, self.low, self.high]
                if self.bounds is not None:
                    numbers += [self.bounds.low, self.bounds.high]
                if self.goodman is not None:
                    numbers.append(self.goodman.share)
                rows.append(cells + [f"{values[g, k]:.3f}" for values in numbers])
        return heads, rows

    def __str__(self) -> str:
        return text_table(f"Shares by {self.by}", [], *self._cells())

    def _repr_html_(self) -> str:
        return html_table(f"Shares by {self.by}", [], *self._cells())


def shares(
    model: Any,
    X: Any,
    y: Any,
    groups: Any = None,
    *,
    by: Any,
    level: float = 0.95,
    covariance: Literal["observed", "sandwich"] | Array = "observed",
    multiplicity: Any = None,
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
    :math:`C \, 1_g`, which the engine computes in linear time, gives both. Intervals are computed on
    the scale of log-odds and cut to what the counts allow.

    Args:
        model: A fitted model as for :func:`summary`.
        X: Features ``(N, D)``.
        y: What is known about each row's bag, as for ``fit``.
        groups: The bag of every row.
        by: The column: its name, if ``X`` is a table; its number; or the group of every row,
            ``(N,)``.
        level: Probability that an interval holds the share.
        covariance: As for :func:`summary`; or the matrix V, ``(P, P)``, such as that of a summary
            or of a bootstrap.
        multiplicity: How many instances every row stands for.

    >>> from llpkit.estimators import LLPLogisticRegression
    >>> random = np.random.default_rng(0)
    >>> woman, precinct = random.random(4000) < random.random(100).repeat(40), np.arange(4000) // 40
    >>> votes = random.random(4000) < np.where(woman, 0.7, 0.4)
    >>> y = np.bincount(precinct, votes).astype(int)[precinct]
    >>> X = woman[:, None].astype(float)
    >>> model = LLPLogisticRegression(C=np.inf).fit(X, y, precinct)
    >>> print(shares(model, X, y, precinct, by=np.where(woman, "women", "men")))
    """
    share("level", level)
    names, code = _column(X, by)
    adapter, inner = adapt(model, X)
    rows = adapter.rows(inner, y, groups, multiplicity)
    if isinstance(covariance, str):
        V = estimated(adapter, inner, rows, covariance).covariance
    else:
        V = np.asarray(covariance, np.float64)
        if V.shape != (len(adapter.estimate),) * 2:
            raise LLPError(
                f"covariance has shape {V.shape}, but the model has {len(adapter.estimate)} "
                "parameters"
            )
    values, index = np.unique(code, return_inverse=True)
    index = torch.from_numpy(index)[rows.bags.rows]  # (R,) in the order of the bags
    x, rows, index = merged(take(inner, rows.bags.rows.numpy()), rows, index)
    found = _moments(adapter, x, rows, index, len(values), np.where(np.isinf(V), 0.0, V))
    return _shares(found, rows, index, values.tolist(), list(adapter.classes), level, names)


@dataclass(frozen=True)
class _Moments:
    mean: Array  # (G, K) shares
    model: Array  # (G K, G K)
    labels: Array  # (G K, G K)
    sizes: Array  # (G,)


def _moments(
    adapter: Adapter, x: Any, rows: Rows, index: Tensor, number: int, V: Array
) -> _Moments:
    """Expected shares and the two parts of their covariance."""
    z, jacobian = adapter.at(x)
    labels = Labels(z, rows)
    member = torch.nn.functional.one_hot(index, number).double()  # (R, G)
    sizes = (rows.weight[:, None] * member).sum(0).numpy()
    totals = labels.totals
    columns = totals.reshape(len(totals), -1)  # (R, K')
    mean = (member.T @ columns).numpy()  # (G, K')
    width = columns.shape[1]
    free = max(1, width - 1)  # the shares of the last class follow from the others
    slopes, inside = [], []
    for g in range(number):
        for k in range(free):
            v = torch.zeros_like(columns)
            v[:, k] = member[:, g]
            product = labels.covariance(v.reshape(totals.shape)).reshape(len(v), width)
            slopes.append((product[:, :, None] * jacobian).sum((0, 1)))
            inside.append((member.T @ product[:, :free]).reshape(-1))
    slope, spread = as_array(torch.stack(slopes)), as_array(torch.stack(inside))
    if width == 1:
        mean = np.stack([sizes - mean[:, 0], mean[:, 0]], 1)
        turn = np.array([[-1.0], [1.0]])
    else:
        turn = np.vstack([np.eye(free), -np.ones(free)])
    turn = np.kron(np.eye(number), turn)  # (G K, G free)
    model = turn @ slope @ V @ slope.T @ turn.T
    spread = turn @ (spread + spread.T) @ turn.T / 2
    scale = np.repeat(np.maximum(sizes, 1), mean.shape[1])
    area = np.outer(scale, scale)
    return _Moments(mean / np.maximum(sizes, 1)[:, None], model / area, spread / area, sizes)


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
    half = _quantile(level) * sd / (inside * (1 - inside))
    odds = np.log(inside) - np.log1p(-inside)
    # Where nothing is uncertain, the interval is the share itself.
    ends = [np.where(sd > 0, 1 / (1 + np.exp(-(odds + s * half))), p) for s in (-1, 1)]
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
        return f"x{by}", features(X)[:, by]
    values = np.asarray(by)
    if values.shape != (size,):
        raise LLPError(f"by has shape {values.shape}, but X has {size} rows; give one value per row")
    return str(getattr(by, "name", None) or "group"), values


def _place(known: list[Any], wanted: Any, what: str) -> int:
    if wanted not in known:
        raise LLPError(f"{what} = {wanted!r} is not there; there are {known}")
    return known.index(wanted)


def _quantile(level: float) -> float:
    return float(stats.norm.ppf((1 + level) / 2))
