"""A first guess for EM: an additive model of the columns, fitted to the exact likelihood.

EM depends on its start, and from the bags' proportions it is slow if bags are large. An additive
model (a line and a few steps per column, a weight per category) takes a second or two and is much
closer to the solution of any classifier.

The features are not scikit-learn's: ``KBinsDiscretizer`` refuses missing values and merges bins
that are all zeros (if 90 % of a column are zero, one bin of eight remains). ``OneHotEncoder`` gives
the same features as ``_Levels`` but took 2 times as long for numbers and 15 times for text (200,000
rows, one column).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from llpkit._arrays import Array
from llpkit.bags import Bags
from llpkit.estimators.base import solve, some_bags
from llpkit.estimators.logistic import fit_logistic
from llpkit.likelihood.checks import Approximation
from llpkit.statistics.rows import rows_of

_LEVELS = 64
"""A column with at most this many distinct values is treated as categories."""
_STEPS = 8
"""Steps of a column of numbers, in addition to its line."""
_WIDE = 512
"""With this many columns or more, each has only a line."""
_C = 0.3


def additive_start(
    X: Any, bags: Bags, approximation: Approximation, random_state: np.random.RandomState
) -> Array:
    """Posteriors ``(N,)`` or ``(N, K)`` under an additive model of the columns of ``X``."""
    chosen = some_bags(bags, random_state)
    rows = chosen.rows.numpy()
    columns = [] if sparse.issparse(X) else _columns(X, rows)
    features = [column.features(_values(X, j)[rows]) for j, column in columns]
    if sparse.issparse(X):
        design = sparse.csr_array(X, dtype=np.float64)[rows]
    elif features:
        design = sparse.hstack([sparse.csr_array(part) for part in features], format="csr")
    else:
        design = sparse.csr_array((len(rows), 1))
    weights = fit_logistic(
        design,
        rows_of(Bags(chosen.offsets, chosen.evidence), None, approximation),
        C=_C,
        tol=1e-4,
        max_iter=200,
        random_state=random_state,
        name="first guess",
    ).weights
    # One column at a time: the features of all rows may need more memory than X.
    z = np.zeros((bags.num_rows, weights.shape[1]))
    if sparse.issparse(X):
        z += X @ weights[:-1]
    ends = np.cumsum([part.shape[1] for part in features])[:-1]
    by_column = np.split(weights[:-1], ends)
    for (j, column), w in zip(columns, by_column, strict=False):  # no columns if X is sparse
        z += column.features(_values(X, j)) @ w
    z += weights[-1]
    return solve(z[:, 0] if z.shape[1] == 1 else z, bags, approximation)[1]


def is_table(X: Any) -> bool:
    """Whether ``X`` has columns of numbers or categories for an additive model."""
    return getattr(X, "ndim", 1) == 2 and X.shape[1] > 0


@dataclass(frozen=True)
class _Line:
    """Two features: the standardised number, and whether it is missing."""

    mean: float
    scale: float

    def features(self, values: Array) -> Any:
        missing = np.isnan(values)
        z = ((values - self.mean) / self.scale).clip(-1e6, 1e6)
        return np.stack([np.where(missing, 0.0, z), missing], 1)


@dataclass(frozen=True)
class _Levels:
    """One feature per value in ``marks``, or per interval between two of them."""

    marks: Array
    between: bool = False

    def features(self, values: Array) -> Any:
        if self.between:
            code, known = np.searchsorted(self.marks, values, side="right"), ~np.isnan(values)
        else:
            code = np.searchsorted(self.marks, values).clip(max=len(self.marks) - 1)
            known = self.marks[code] == values
        # A row has one entry, or none if its value is missing or was not seen.
        ends = np.concatenate([[0], np.cumsum(known)])
        shape = len(values), len(self.marks) + self.between
        return sparse.csr_array((np.ones(ends[-1]), code[known], ends), shape=shape)


def _values(X: Any, j: int) -> Array:
    """Column ``j`` as float64 with NaN for missing values, or as text if not numeric."""
    column = X.iloc[:, j].to_numpy() if hasattr(X, "iloc") else np.asarray(X[:, j])
    try:
        return column.astype(np.float64)
    except (TypeError, ValueError):
        return column.astype(str)


def _columns(X: Any, rows: Array) -> list[tuple[int, _Line | _Levels]]:
    """Column numbers with their features; a column with a single value has none."""
    columns: list[tuple[int, _Line | _Levels]] = []
    for j in range(X.shape[1]):
        # The whole column decides whether it is text, as these rows alone may be all numbers.
        values = _values(X, j)[rows]
        if values.dtype.kind == "U":
            levels, number = np.unique(values, return_counts=True)
            common = np.sort(np.argsort(-number, kind="stable")[:_LEVELS])
            columns.append((j, _Levels(levels[common])))
            continue
        finite = values[np.isfinite(values)]
        levels, number = np.unique(finite, return_counts=True)
        if len(levels) < 2:
            continue
        if len(levels) <= _LEVELS and X.shape[1] < _WIDE:
            columns.append((j, _Levels(levels)))
            continue
        columns.append((j, _Line(float(finite.mean()), float(finite.std()) or 1.0)))
        if X.shape[1] < _WIDE:
            # Steps between equal shares of the square roots of the counts: a compromise between
            # rows and different values, so that a column that is mostly zero keeps steps among
            # its other values.
            share = np.cumsum(np.sqrt(number))
            at = np.searchsorted(share, share[-1] * np.arange(1, _STEPS) / _STEPS)
            columns.append((j, _Levels(np.unique(levels[at]), between=True)))
    return columns
