"""A first guess for EM: an additive model of the columns, fitted to the exact likelihood.

EM climbs from where it starts, and from the bags' proportions it climbs slowly when bags are large.
An additive model (a line and a few steps a column, a weight a category) takes a second or two and
lies much closer to what any classifier will find.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing

from llpkit.bags import Bags
from llpkit.estimators._base import Array, solve
from llpkit.estimators._logistic import fit_logistic

_LEVELS = 64
"""A column with so many different values or fewer is taken for categories."""
_STEPS = 8
_WIDE = 512
"""From so many columns on a line is all that each gets."""
_ROWS = 200_000
"""Rows that the model is fitted to; more would cost time and change little."""
_CHUNK = 2**20
_C = 0.3


def additive_start(X: Any, bags: Bags, method: str, random_state: np.random.RandomState) -> Array:
    """Posteriors ``(N,)`` or ``(N, K)`` under an additive model of the columns of ``X``."""
    chosen = bags
    if bags.num_instances > _ROWS:
        order = random_state.permutation(len(bags))
        inside = np.cumsum(bags.sizes.numpy()[order]) <= _ROWS
        inside[0] = True
        chosen = bags[np.sort(order[inside])]
    rows = chosen.rows.numpy()
    part = _safe_indexing(X, rows)
    columns = _columns(part)
    own = Bags(chosen.offsets, chosen.evidence)
    found = fit_logistic(
        _design(columns, part),
        own,
        C=_C,
        tol=1e-4,
        max_iter=200,
        method=method,
        random_state=random_state,
    )
    z = np.empty((bags.num_rows, found.weights.shape[1]))
    for start in range(0, len(z), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(z)))
        z[rows] = _design(columns, _safe_indexing(X, rows)) @ found.weights[:-1]
    z += found.weights[-1]
    return solve(z[:, 0] if z.shape[1] == 1 else z, bags, method)[1]


def is_table(X: Any) -> bool:
    """Whether ``X`` has columns of numbers or categories to make an additive model of."""
    return getattr(X, "ndim", 1) == 2 and X.shape[1] > 0


@dataclass(frozen=True)
class _Line:
    """Standardised numbers, zero where missing, and a feature that says so."""

    mean: float
    scale: float

    def features(self, values: Array) -> Any:
        missing = np.isnan(values)
        z = np.where(missing, 0.0, (values - self.mean) / self.scale).clip(-1e6, 1e6)
        return sparse.csr_array(np.stack([z, missing], 1))


@dataclass(frozen=True)
class _Steps:
    """One of ``S + 1`` intervals."""

    edges: Array  # (S,)

    def features(self, values: Array) -> Any:
        code = np.searchsorted(self.edges, values, side="right")
        return _one_hot(code, ~np.isnan(values), len(self.edges) + 1)


@dataclass(frozen=True)
class _Levels:
    """One of the values seen."""

    levels: Array

    def features(self, values: Array) -> Any:
        code = np.searchsorted(self.levels, values).clip(max=len(self.levels) - 1)
        return _one_hot(code, self.levels[code] == values, len(self.levels))


def _one_hot(code: Array, known: Array, width: int) -> Any:
    ends = np.concatenate([[0], np.cumsum(known)])
    return sparse.csr_array((np.ones(ends[-1]), code[known], ends), shape=(len(code), width))


def _values(X: Any, j: int) -> Array:
    """Column ``j``: float64, NaN where missing; or text where it cannot be numbers."""
    column = X.iloc[:, j].to_numpy() if hasattr(X, "iloc") else np.asarray(X[:, j])
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    try:
        return column.astype(np.float64)
    except (TypeError, ValueError):
        return column.astype(str)


def _columns(X: Any) -> list[tuple[int, Any]]:
    """For each column what is made of it; a column of one value gets nothing."""
    if sparse.issparse(X):
        return []
    found: list[tuple[int, Any]] = []
    for j in range(X.shape[1]):
        values = _values(X, j)
        if values.dtype.kind == "U":
            levels, number = np.unique(values, return_counts=True)
            common = np.sort(np.argsort(-number, kind="stable")[:_LEVELS])
            found.append((j, _Levels(levels[common])))
            continue
        there = values[np.isfinite(values)]
        levels, number = np.unique(there, return_counts=True)
        if len(levels) < 2:
            continue
        if len(levels) <= _LEVELS and X.shape[1] < _WIDE:
            found.append((j, _Levels(levels)))
            continue
        found.append((j, _Line(float(there.mean()), float(there.std()) or 1.0)))
        if X.shape[1] < _WIDE:
            # Between equal shares of the rows and of the different values: a column that is
            # mostly zero keeps steps among its other values.
            share = np.cumsum(np.sqrt(number))
            at = np.searchsorted(share, share[-1] * np.arange(1, _STEPS) / _STEPS)
            found.append((j, _Steps(np.unique(levels[at]))))
    return found


def _design(columns: list[tuple[int, Any]], X: Any) -> Any:
    """The features of all columns, CSR."""
    if sparse.issparse(X):
        return sparse.csr_array(X, dtype=np.float64)
    parts = [column.features(_values(X, j)) for j, column in columns]
    if not parts:
        return sparse.csr_array((X.shape[0], 1))
    return sparse.hstack(parts, format="csr")
