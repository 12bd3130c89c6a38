"""Shares of groups without a model of the instances: bounds, and Goodman's regression."""

from typing import Any, NamedTuple

import numpy as np

from llpkit._arrays import Array
from llpkit.errors import LLPError


class Bounds(NamedTuple):
    """The least and the greatest possible share of every group and class, ``(G, K)``."""

    low: Array
    high: Array


class Goodman(NamedTuple):
    """Goodman's estimates of the shares of every group and class, with their standard errors."""

    share: Array
    """``(G, K)``. A share outside 0 and 1 shows that the assumption is wrong; NaN means that the
    bags do not determine it, for example with fewer bags than groups."""
    standard_error: Array
    """``(G, K)``, robust to unequal variances."""


def bounds(cells: Any, counts: Any) -> Bounds:
    r"""The range of shares that the counts allow (Duncan and Davis, 1953).

    Of the :math:`m_{bg}` members of group g in bag b, the number with label k lies between
    :math:`\max(0, y_{bk} - (n_b - m_{bg}))` and :math:`\min(m_{bg}, y_{bk})`. Summed over bags this
    bounds the share of the group.

    Args:
        cells: Members of every group in every bag, ``(B, G)``.
        counts: Instances of every class in every bag, ``(B, K)``.

    >>> found = bounds(cells=[[8, 2], [1, 9]], counts=[[3, 7], [9, 1]])
    >>> found.low.round(2).tolist(), found.high.round(2).tolist()
    ([[0.11, 0.56], [0.73, 0.0]], [[0.44, 0.89], [1.0, 0.27]])
    """
    m, y = _checked(cells, counts)
    inside, outside = m[:, :, None], (m.sum(1, keepdims=True) - m)[:, :, None]  # (B, G, 1)
    low = np.maximum(0, y[:, None, :] - outside).sum(0)
    high = np.minimum(inside, y[:, None, :]).sum(0)
    total = np.maximum(m.sum(0), 1)[:, None]  # (G, 1)
    return Bounds(low / total, high / total)


def goodman(cells: Any, counts: Any) -> Goodman:
    r"""Goodman's ecological regression (1953), a baseline.

    It assumes that a group has the same expected shares in all bags, so that the proportion of
    label k in bag b is :math:`\sum_g \beta_{gk} m_{bg} / n_b` plus noise, and estimates
    :math:`\beta` by least squares, weighted by the sizes of the bags.

    Args:
        cells: Members of every group in every bag, ``(B, G)``.
        counts: Instances of every class in every bag, ``(B, K)``.

    >>> goodman(cells=[[8, 2], [1, 9], [5, 5]], counts=[[3, 7], [9, 1], [6, 4]]).share.round(2)
    array([[0.15, 0.85],
           [1.  , 0.  ]])
    """
    m, y = _checked(cells, counts)
    n = np.maximum(m.sum(1, keepdims=True), 1)  # (B, 1)
    x, target = m / np.sqrt(n), y / np.sqrt(n)  # proportions times the root of the weight
    inverse = np.linalg.pinv(x.T @ x)
    share = inverse @ x.T @ target  # (G, K)
    # A group's share is determined if its unit vector is in the row space of the cells.
    lost = np.abs(np.eye(m.shape[1]) - inverse @ (x.T @ x)).max(1, initial=0.0) > 1e-6
    share[lost] = np.nan
    residual = target - x @ (inverse @ x.T @ target)  # (B, K)
    freedom = len(m) - m.shape[1]
    variance = (inverse @ x.T) ** 2 @ residual**2  # (G, K)
    error = np.sqrt(variance * len(m) / freedom) if freedom > 0 else share * np.nan
    error[lost] = np.nan
    return Goodman(share, error)


def _checked(cells: Any, counts: Any) -> tuple[Array, Array]:
    try:
        m, y = np.asarray(cells, np.float64), np.asarray(counts, np.float64)
    except (TypeError, ValueError) as error:
        raise LLPError(f"cells and counts: {error}; give numbers") from error
    if m.ndim != 2 or y.ndim != 2 or len(m) != len(y):
        raise LLPError(
            f"cells has shape {m.shape} and counts {y.shape}; give (bags, groups) and "
            "(bags, classes)"
        )
    if not ((m >= 0).all() and (y >= 0).all()):
        raise LLPError("cells or counts are negative or missing; give non-negative whole numbers")
    if not np.array_equal(m.sum(1), y.sum(1)):
        b = int((m.sum(1) != y.sum(1)).argmax())
        raise LLPError(
            f"bag {b} has {m[b].sum():g} members in its groups but {y[b].sum():g} counts; give a "
            "count for every class, and a group for every instance"
        )
    return m, y
