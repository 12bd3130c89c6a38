"""The shares of groups as a table and as a figure."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llpkit._arrays import Array
from llpkit._text import html_table
from llpkit.errors import LLPError
from llpkit.statistics._text import frame, interval_heads, text_table
from llpkit.statistics.ecological import Bounds, Goodman
from llpkit.statistics.prediction import quantile


@dataclass(frozen=True)
class Shares:
    """The share of every class in every group, from :func:`shares`; prints as a table."""

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
    """Standard deviation due to estimated parameters, ``(G, K)``."""
    label_sd: Array
    """Standard deviation due to labels that the counts leave open, ``(G, K)``."""
    covariance: Array = field(repr=False)
    """Of all shares, in the order of ``share.ravel()``: ``(G K, G K)``."""
    bounds: Bounds | None
    """What the counts alone imply; ``None`` if they are not exact."""
    goodman: Goodman | None
    """Goodman's regression, for comparison."""
    level: float
    by: str
    notes: list[str] = field(default_factory=list)
    """What the counts do not determine."""

    def records(self) -> list[dict[str, Any]]:
        """One mapping per group and class."""
        records = []
        for g, group in enumerate(self.groups):
            for k, label in enumerate(self.classes):
                row: dict[str, Any] = {self.by: group, "class": label}
                row["instances"] = int(self.sizes[g])
                for name in ("share", "low", "high", "model_sd", "label_sd"):
                    row[name] = float(getattr(self, name)[g, k])
                if self.bounds is not None:
                    row["least"] = float(self.bounds.low[g, k])
                    row["most"] = float(self.bounds.high[g, k])
                if self.goodman is not None:
                    row["goodman"] = float(self.goodman.share[g, k])
                records.append(row)
        return records

    def to_frame(self) -> Any:
        """A pandas table with one row per group and class."""
        return frame(self.records())

    def difference(self, group: Any, other: Any, label: Any = None) -> tuple[float, float, float]:
        """The difference between the shares of two groups, with its interval.

        Args:
            group: A value of the column.
            other: The value to subtract.
            label: The class; the last by default.
        """
        g, h = (_position(self.groups, value, self.by) for value in (group, other))
        k = len(self.classes) - 1 if label is None else _position(self.classes, label, "class")
        i, j = g * len(self.classes) + k, h * len(self.classes) + k
        gap = float(self.share[g, k] - self.share[h, k])
        variance = self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j]
        half = quantile(self.level) * float(np.sqrt(variance))
        return gap, max(-1.0, gap - half), min(1.0, gap + half)

    def figure(self) -> Any:
        """Shares with their intervals, in front of the bounds, and Goodman's estimates.

        Returns a :class:`llpkit.report.Figure`; ``.write(folder)`` saves it as PNG and PDF.
        """
        from llpkit.report.shares import share_intervals

        return share_intervals(self)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        heads = [self.by, "class", "instances", "share", *interval_heads(self.level)]
        heads += ["least", "most"] * (self.bounds is not None)
        heads += ["Goodman"] * (self.goodman is not None)
        rows = []
        listed = [1] if len(self.classes) == 2 else range(len(self.classes))
        for g, name in enumerate(self.groups):
            for k in listed:
                cells = [str(name), str(self.classes[k]), f"{self.sizes[g]:,.0f}"]
                numbers = [self.share, self.low, self.high]
                if self.bounds is not None:
                    numbers += [self.bounds.low, self.bounds.high]
                if self.goodman is not None:
                    numbers.append(self.goodman.share)
                rows.append(cells + [f"{values[g, k]:.3f}" for values in numbers])
        return heads, rows

    def __str__(self) -> str:
        return text_table(f"Shares by {self.by}", [], *self._cells(), self.notes)

    def _repr_html_(self) -> str:
        return html_table(f"Shares by {self.by}", [], *self._cells(), self.notes)


def _position(known: list[Any], value: Any, name: str) -> int:
    if value not in known:
        raise LLPError(f"{name} = {value!r} is unknown; give one of {known}")
    return known.index(value)
