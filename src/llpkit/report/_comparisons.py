"""Figures that compare methods over folds: curves of test measures, bag sizes, differences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.ticker import MaxNLocator

from llpkit.report._data import Series
from llpkit.report._figures import (
    LABEL,
    SIZES,
    TOP,
    Line,
    Plot,
    by_method,
    curves,
    frame,
    heading,
    mean_line,
    room_for,
    shortened,
)
from llpkit.report._style import INK, MUTED, RC, Style

_PANELS = (
    ("accuracy", "Accuracy on test instances", "test_accuracy"),
    ("log-likelihood", "Log-likelihood, mean of test bags", "test_log_likelihood"),
    ("proportion-error", "Proportion error, test bags", "test_proportion_error"),
    ("log-likelihood-training", "Log-likelihood in the training pass", "log_likelihood"),
)


@dataclass(frozen=True)
class SizePoint:
    """A method at one size of bags: mean and deviation over folds, as fractions."""

    method: str
    size: int
    mean: float
    sd: float | None


@dataclass(frozen=True)
class Interval:
    """A mean with the ends of its interval, where it has one."""

    method: str
    mean: float
    low: float | None
    high: float | None


def fold_curves(series: Sequence[Series], styles: Mapping[str, Style], prefix: str) -> list[Plot]:
    """Accuracy, likelihood and proportion error of the test fold by epoch, mean and deviation."""
    plots = [
        epoch_curves(series, styles, f"{prefix}-{name}", title, key, percent="accuracy" in name)
        for name, title, key in _PANELS
    ]
    return [plot for plot in plots if plot is not None]


def epoch_curves(
    series: Sequence[Series],
    styles: Mapping[str, Style],
    name: str,
    title: str,
    key: str,
    *,
    percent: bool = False,
) -> Plot | None:
    """One measure by epoch: the mean of each method's runs, and their deviation."""
    runs = by_method(series)
    lines = [mean_line(method, styles[method], runs[method], key, "epoch") for method in runs]
    return curves(name, title, lines, "epoch", percent=percent)


def size_curves(
    points: Sequence[SizePoint], styles: Mapping[str, Style], name: str, title: str
) -> Plot | None:
    """Accuracy against the size of bags, which doubles from tick to tick."""
    lines = []
    for method in dict.fromkeys(point.method for point in points):
        own = sorted((p for p in points if p.method == method), key=lambda p: p.size)
        some = any(p.sd is not None for p in own)
        sd = [math.nan if p.sd is None else p.sd for p in own] if some else []
        lines.append(Line(method, styles[method], [p.size for p in own], [p.mean for p in own], sd))
    return curves(name, title, lines, SIZES, percent=True)


def intervals(
    rows: Sequence[Interval], styles: Mapping[str, Style], name: str, title: str
) -> Plot | None:
    """Means with their intervals beside a line at zero."""
    if not rows:
        return None
    left, bottom = room_for([row.method for row in rows]), 20.0
    height = TOP + bottom + 27.0 * len(rows)
    texts = [_between(row) for row in rows]
    right = 12 + 0.6 * LABEL * max(map(len, texts))
    with mpl.rc_context(RC | {"axes.grid.axis": "x", "axes.spines.left": False}):
        figure, axes = frame(left, right, bottom, height)
        heading(axes, title, left)
        axes.axvline(0, color=MUTED, lw=1)
        ends = [0.0]
        for place, row, text in zip(range(len(rows), 0, -1), rows, texts, strict=True):
            style = styles[row.method]
            low, high = (row.mean if end is None else end for end in (row.low, row.high))
            axes.plot([low, high], [place, place], color=style.light, lw=2.2)
            axes.plot(row.mean, place, style.marker, color=style.light, ms=6)
            ends += [low, high]
            axes.annotate(
                text,
                (1, place),
                (8, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center",
                fontsize=LABEL,
                color=INK,
            )
        axes.set_yticks(range(len(rows), 0, -1), [shortened(row.method) for row in rows], color=INK)
        room = 0.06 * ((max(ends) - min(ends)) or 1)
        axes.set(xlim=(min(ends) - room, max(ends) + room), ylim=(0.4, len(rows) + 0.6))
        axes.xaxis.set_major_locator(MaxNLocator(4))
    said = "; ".join(f"{row.method} {text}" for row, text in zip(rows, texts, strict=True))
    return Plot(name, f"{title}: {said}.", figure)


def _between(row: Interval) -> str:
    span = "" if row.low is None else f" ({row.low:+z.1f} to {row.high:+z.1f})"
    return f"{row.mean:+z.1f}{span}".replace("-", "−")
