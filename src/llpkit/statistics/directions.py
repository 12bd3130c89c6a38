r"""The information of counts about each direction of the features, relative to labels.

If all instances have the same probability, the count of a bag depends on its features only through
their sum, so the information about the weights is

.. math:: A = \sum_b \rho_b\, s_b s_b^\top / n_b, \qquad s_b = \sum_{i \in b} (x_i - \bar x),

compared with :math:`T = \sum_i (x_i - \bar x)(x_i - \bar x)^\top` for labelled instances, in units
of :math:`p(1 - p)`. :math:`\rho_b` is the share of the variance of the count that the evidence
explains: one for an exact count. The eigenvalues of :math:`A` relative to :math:`T` are the
efficiencies of counts relative to labels: about one over the bag size in random bags, and zero in a
direction in which all bags are alike. The sign of an effect in this direction cannot be known.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from scipy.special import chdtr

from llpkit._arrays import Array
from llpkit.bags import Bags
from llpkit.ragged import segment_sum

_WEAK = 0.05
"""A direction is weak if it has less than this share of the information of random bags, …"""
_FEW = 5.0
"""… and less information than this many labelled instances."""
_CHANCE = 1e-3
"""… and random bags would be that weak in some direction with less than this probability."""
_FEWEST = 3
"""Fewest bags whose features are examined."""
_HUGE = 1e100
"""Columns with larger values are left out: their squares overflow."""
_WIDE = 200
"""Maximum number of columns whose combinations are examined; with more, each column by itself."""


class Directions(NamedTuple):
    """What the counts can reveal about the features."""

    efficiency: Array
    """Information relative to labels, from 0 to 1, one per direction, ascending."""
    weak: list[tuple[str, ...]]
    """The main columns of each direction about which the counts carry no information."""
    bag_columns: tuple[str, ...]
    """Columns that are the same in all rows of every bag."""
    only_bags: bool
    """Whether all columns are."""
    spanning: bool
    """Whether these columns distinguish (nearly) all bags."""


def numeric(X: Any, feature_names: Sequence[str] | None) -> tuple[Array | None, list[str]]:
    """The numeric columns, float64 ``(R, D)``, with missing values replaced, and their names."""
    if X is None or getattr(X, "ndim", 2) != 2:
        return None, []
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    if sparse.issparse(X):
        if X.shape[1] > _WIDE:
            return None, []
        X = X.toarray()
    if feature_names is None:
        default = [f"x{j}" for j in range(np.shape(X)[1])]
        feature_names = getattr(X, "columns", default)
    columns, names = [], []
    for j, name in enumerate(feature_names):
        try:
            values = np.asarray(X.iloc[:, j] if hasattr(X, "iloc") else X[:, j], np.float64)
        except (TypeError, ValueError):
            continue  # text
        known = np.isfinite(values)
        if not known.any() or np.abs(values[known]).max() > _HUGE:
            continue
        columns.append(np.where(known, values, values[known].mean()))
        names.append(str(name))
    return (np.stack(columns, 1), names) if columns else (None, [])


def standardised(x: Array) -> tuple[Array, Array]:
    """Columns ``(N, D)`` of mean 0 and variance 1, and their standard deviations ``(D,)``.

    A column that is constant up to rounding becomes 0, and so does its standard deviation.
    """
    centred = x - x.mean(0)
    spread = np.sqrt((centred * centred).mean(0))
    spread[spread <= 1e-12 * np.abs(x).max(0)] = 0.0
    return centred / np.where(spread > 0, spread, np.inf), spread


def directions(x: Array, names: list[str], bags: Bags, rho: Array) -> Directions:
    """Examine the features ``(N, D)``, in the order of the bags.

    ``rho`` is the share of the variance of each count that the evidence explains, ``(B,)``.
    """
    sizes = np.maximum(bags.sizes.numpy(), 1)
    x, spread = standardised(x)
    x, names = x[:, spread > 0], [n for n, s in zip(names, spread, strict=True) if s]
    if not names or int((bags.sizes > 1).sum()) < _FEWEST:
        return Directions(np.empty(0), [], (), False, False)
    sums = segment_sum(torch.from_numpy(np.ascontiguousarray(x)), bags.offsets).numpy()  # (B, D)
    between = (sums * sums / sizes[:, None]).sum(0) / len(x)  # (D,) of a variance of one
    constant = 1 - between < 1e-9  # within bags
    bag_columns = tuple(
        name for name, is_constant in zip(names, constant, strict=True) if is_constant
    )
    enough = max(4.0, 0.8 * len(bags) - 1)  # this many columns can distinguish nearly all bags
    spanning = len(bag_columns) >= enough and _rank(sums[:, constant]) >= enough
    efficiency, loadings, freedom = _efficiencies(x, sums, sizes, rho)
    random = float(rho.sum()) / len(x)  # the efficiency of random bags
    weak = []
    for value, loading in zip(efficiency, loadings.T, strict=True):
        # With many columns and few bags, some columns have similar means in all bags by chance.
        chance = len(names) * chdtr(freedom, len(bags) * value / max(random, 1e-300))
        if value < _WEAK * random and value * len(x) < _FEW and chance < _CHANCE:
            weak.append(_largest(loading, names))
    return Directions(np.sort(efficiency), weak, bag_columns, bool(constant.all()), spanning)


def _rank(values: Array) -> int:
    return int(np.linalg.matrix_rank(values - values.mean(0)))


def _efficiencies(x: Array, sums: Array, sizes: Array, rho: Array) -> tuple[Array, Array, int]:
    """Efficiencies, the loadings ``(D, ...)`` of their directions, and degrees of freedom.

    In random bags, an efficiency has a chi-square distribution with these degrees of freedom, up to
    a factor. All directions are examined if there are enough bags to distinguish a weak direction
    from chance, otherwise each column by itself.
    """
    scaled = sums * np.sqrt(rho / sizes)[:, None]
    number, width = scaled.shape
    if width > min(_WIDE, number // 2):
        own = (scaled * scaled).sum(0) / np.maximum((x * x).sum(0), 1e-300)
        return own, np.eye(width), max(1, number - 1)
    # Directions in which no row varies change no prediction, so they are left out.
    variance, axes = np.linalg.eigh(x.T @ x)
    real = variance > 1e-8 * variance.max()
    whiten = axes[:, real] / np.sqrt(variance[real])
    efficiency, rotated = np.linalg.eigh(whiten.T @ (scaled.T @ scaled) @ whiten)
    return efficiency.clip(0, 1), whiten @ rotated, number - width


def _largest(loading: Array, names: list[str]) -> tuple[str, ...]:
    """The columns with the largest weights in a direction."""
    weight = np.abs(loading)
    order = np.argsort(-weight)
    return tuple(names[j] for j in order if weight[j] >= 0.5 * weight.max())
