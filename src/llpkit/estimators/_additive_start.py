"""A first guess for EM: an additive model of the columns, fitted to the exact likelihood.

EM climbs from where it starts, and from the bags' proportions it climbs slowly when bags are large.
An additive model (a line and a few steps a column, a weight a category) takes a second or two and
lies much closer to what any classifier will find.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from llpkit.bags import Bags
from llpkit.estimators.base import Array, solve, some_bags, take_rows
from llpkit.estimators.logistic import fit_logistic

_LEVELS = 64
"""A column with so many different values or fewer is taken for categories."""
_STEPS = 8
_WIDE = 512
"""From so many columns on a line is all that each gets."""
_C = 0.3


def additive_start(
    X: Any, bags: Bags, approximation: str | None, random_state: np.random.RandomState
) -> Array:
    """Posteriors ``(N,)`` or ``(N, K)`` under an additive model of the columns of ``X``."""
    chosen = some_bags(bags, random_state)
    part = take_rows(X, chosen.rows.numpy())
    columns = _columns(part)
    found = fit_logistic(
        _design(columns, part),
        Bags(chosen.offsets, chosen.evidence),
        C=_C,
        tol=1e-4,
        max_iter=200,
        approximation=approximation,
        random_state=random_state,
    )
    if sparse.issparse(X):
        z = np.asarray(X @ found.weights[:-1])
    else:
        z = np.zeros((bags.num_rows, found.weights.shape[1]))
        place = 0
        for j, column in columns:
            column.add(z, _values(X, j), found.weights[place : place + column.width])
            place += column.width
    z += found.weights[-1]
    return solve(z[:, 0] if z.shape[1] == 1 else z, bags, approximation)[1]


def is_table(X: Any) -> bool:
    """Whether ``X`` has columns of numbers or categories to make an additive model of."""
    return getattr(X, "ndim", 1) == 2 and X.shape[1] > 0


@dataclass(frozen=True)
class _Line:
    """Standardised numbers, zero where missing, and a feature that says so."""

    mean: float
    scale: float
    width: int = 2

    def _parts(self, values: Array) -> tuple[Array, Array]:
        missing = np.isnan(values)
        z = (values - self.mean) / self.scale
        return np.where(missing, 0.0, z.clip(-1e6, 1e6)), missing

    def features(self, values: Array) -> Any:
        return sparse.csr_array(np.stack(self._parts(values), 1))

    def add(self, z: Array, values: Array, weights: Array) -> None:
        line, missing = self._parts(values)
        for k in range(z.shape[1]):
            z[:, k] += weights[0, k] * line
            if weights[1, k]:
                z[:, k] += weights[1, k] * missing


@dataclass(frozen=True)
class _Levels:
    """One of the values seen, or one of the intervals between some of them."""

    marks: Array
    between: bool = False

    @property
    def width(self) -> int:
        return len(self.marks) + self.between

    def _codes(self, values: Array) -> tuple[Array, Array]:
        """The number of each value's level, and whether it has one."""
        if self.between:
            return np.searchsorted(self.marks, values, side="right"), ~np.isnan(values)
        code = np.searchsorted(self.marks, values).clip(max=len(self.marks) - 1)
        return code, self.marks[code] == values

    def features(self, values: Array) -> Any:
        code, known = self._codes(values)
        return _one_hot(code, known, self.width)

    def add(self, z: Array, values: Array, weights: Array) -> None:
        code, known = self._codes(values)
        z += np.where(known[:, None], weights[code], 0.0)


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
            found.append((j, _Levels(np.unique(levels[at]), between=True)))
    return found


def _design(columns: list[tuple[int, Any]], X: Any) -> Any:
    """The features of all columns, CSR."""
    if sparse.issparse(X):
        return sparse.csr_array(X, dtype=np.float64)
    parts = [column.features(_values(X, j)) for j, column in columns]
    if not parts:
        return sparse.csr_array((X.shape[0], 1))
    return sparse.hstack(parts, format="csr")
