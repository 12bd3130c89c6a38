"""Shares of groups without a model of the instances: deterministic bounds."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Bounds(NamedTuple):
    """Smallest and largest possible share of every group and class, ``(G, K)``."""

    low: Array
    high: Array


def bounds(cells: Any, counts: Any) -> Bounds:
    r"""Shares of groups that are possible at all, given the counts (Duncan and Davis, 1953).

    Of the :math:`m_{bg}` members of group g in bag b, the number with label k lies between
    :math:`\max(0, y_{bk} - (n_b - m_{bg}))` and :math:`\min(m_{bg}, y_{bk})`. Summed over bags this
    bounds the group's share, whatever the labels are.

    Args:
        cells: Members of every group in every bag, ``(B, G)``.
        counts: Instances of every class in every bag, ``(B, K)``.

    >>> found = bounds(cells=[[8, 2], [1, 9]], counts=[[3, 7], [9, 1]])
    >>> found.low.round(2).tolist(), found.high.round(2).tolist()
    ([[0.11, 0.56], [0.73, 0.0]], [[0.44, 0.89], [1.0, 0.27]])
    """
    m = np.asarray(cells, np.float64)[:, :, None]  # (B, G, 1)
    y = np.asarray(counts, np.float64)[:, None, :]  # (B, 1, K)
    n = m.sum(1, keepdims=True)  # (B, 1, 1)
    total = np.maximum(m.sum(0), 1)  # (G, 1)
    low, high = np.maximum(0, y - (n - m)).sum(0), np.minimum(m, y).sum(0)
    return Bounds(low / total, high / total)
