"""The bins of boosting: intervals whose ends are quantiles of a sample.

A number counts as the lower end of its interval, so thresholds are numbers of the table and mean
the same for the numbers themselves: ``x < t`` holds for a number if and only if it holds for the
lower end of its interval. As no column has more than 256 such values, XGBoost's own bins are these
intervals, however the rows are spread over workers.
"""

from typing import NamedTuple

import numpy as np

from llpkit._arrays import Array

MISSING = 255


class Bins(NamedTuple):
    """The intervals of all columns."""

    marks: tuple[Array, ...]  # rising ends, float32, at most 254 per column
    values: Array  # (D, 256) what XGBoost sees for a code

    @classmethod
    def of(cls, X: Array) -> "Bins":
        """Intervals with about equally many of these rows ``(n, D)``.

        >>> bins = Bins.of(np.array([[1.0], [2.0], [2.0], [np.nan]]))
        >>> bins.code(np.array([[0.5], [1.5], [9.0], [np.nan]])).ravel()
        array([  0,   1,   2, 255], dtype=uint8)
        """
        marks = []
        values = np.full((X.shape[1], 256), np.nan, np.float32)
        for j, column in enumerate(X.T.astype(np.float32)):
            there = column[np.isfinite(column)]
            ends = np.zeros(1, np.float32)
            if len(there):
                ends = np.unique(np.quantile(there, np.linspace(0, 1, 254), method="lower"))
            marks.append(ends)
            values[j, 0] = np.nextafter(ends[0], np.float32(-np.inf))
            values[j, 1 : 1 + len(ends)] = ends
        return cls(tuple(marks), values)

    def code(self, X: Array) -> Array:
        """Codes ``(n, D)``, uint8."""
        codes = np.empty(X.shape, np.uint8)
        for j, ends in enumerate(self.marks):
            column = X[:, j].astype(np.float32)
            codes[:, j] = np.searchsorted(ends, column, side="right")
            codes[np.isnan(column), j] = MISSING
        return codes

    def numbers(self, codes: Array) -> Array:
        """What XGBoost sees, float32 ``(n, D)``."""
        return np.take_along_axis(self.values.T, codes, 0)
