"""Figures of one bar or interval per row: epoch times, differences, importances."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from llpkit.report.figure import (
    LABEL,
    TOP,
    Figure,
    frame,
    heading,
    room_for,
    shortened,
    text_beside,
)
from llpkit.report.spread import Interval, Spread
from llpkit.report.style import BOUND, INK, MUTED, RC, Style
from llpkit.report.table import decimals

COLUMNS = 15  # most columns whose importance is drawn
_BOTTOM = 20.0


def epoch_times(
    seconds: Mapping[str, Spread],
    ratios: Mapping[str, float],
    look: Mapping[str, Style],
    name: str,
) -> Figure | None:
    """Bars of the seconds per epoch by method, with the ratio to supervised training if known."""
    if not seconds:
        return None
    digits = decimals(each.mean for each in seconds.values())
    texts = [
        f"{each.mean:.{digits}f} s" + (f" · {ratios[method]:.2f}×" if method in ratios else "")
        for method, each in seconds.items()
    ]
    title, methods = "Seconds per epoch", list(seconds)
    with mpl.rc_context(RC | {"axes.grid.axis": "x", "axes.spines.left": False}):
        drawing, axes = _rows(title, methods, 27.0, 90)
        longest = _bars(axes, list(seconds.values()), texts, [look[m].light for m in methods])
        axes.set_xlim(0, 1.02 * longest or 1)
    tail = f" The ratio is to {BOUND}." if BOUND in methods else ""
    return Figure(name, f"{title}: {_spelled(methods, texts)}.{tail}", drawing)


def importance_bars(entries: Sequence[tuple[str, float, float]], style: Style) -> Figure:
    """Bars of ``(column, mean, standard deviation)`` in the given order; only the first 15."""
    drawn = entries[:COLUMNS]
    names = [_printable(name) for name, _, _ in drawn]
    texts = [f"{mean:.3f}" for _, mean, _ in drawn]
    title = "Loss of log-likelihood per bag"
    with mpl.rc_context(RC | {"axes.grid.axis": "x", "axes.spines.left": False}):
        drawing, axes = _rows(title, names, 20.0, 46)
        values = [Spread(mean, sd) for _, mean, sd in drawn]
        _bars(axes, values, texts, [style.light] * len(drawn))
    left_out = len(entries) - len(drawn)
    more = f"; {left_out} more columns are not shown" if left_out else ""
    spelled = _spelled(names, texts)
    return Figure("importances", f"{title} when a column is shuffled: {spelled}{more}.", drawing)


def _bars(
    axes: Axes, values: Sequence[Spread], texts: Sequence[str], colours: Sequence[str]
) -> float:
    """Bars with their deviations, and a text next to each; returns where the longest ends."""
    ys, means = _ys(values), [value.mean for value in values]
    sds = [value.sd or 0.0 for value in values]
    axes.barh(ys, means, height=0.62, color=colours)
    axes.errorbar(means, ys, xerr=sds, fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
    ends = [max(mean + sd, 0.0) for mean, sd in zip(means, sds, strict=True)]
    for text, end, y in zip(texts, ends, ys, strict=True):
        axes.annotate(
            text, (end, y), (5, 0), textcoords="offset points", va="center", fontsize=LABEL
        )
    return max(ends)


def _printable(name: str) -> str:
    """A column's name with a question mark for what no font has, such as control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def intervals(
    rows: Sequence[tuple[str, Interval]], look: Mapping[str, Style], name: str, title: str
) -> Figure | None:
    """Means with their intervals and a line at zero; one row per method."""
    if not rows:
        return None
    methods = [method for method, _ in rows]
    texts = [f"{interval:+.1f}" for _, interval in rows]
    right = 12 + 0.6 * LABEL * max(map(len, texts))
    with mpl.rc_context(RC | {"axes.grid.axis": "x", "axes.spines.left": False}):
        drawing, axes = _rows(title, methods, 27.0, right)
        axes.axvline(0, color=MUTED, lw=1)
        ends = [0.0]
        for y, (method, interval), text in zip(_ys(methods), rows, texts, strict=True):
            low, high = (
                interval.mean if end is None else end for end in (interval.low, interval.high)
            )
            style = look[method]
            axes.plot([low, high], [y, y], color=style.light, lw=2.2)
            axes.plot(interval.mean, y, style.marker, color=style.light, ms=6)
            ends += [low, high]
            text_beside(axes, y, text)
        room = 0.06 * ((max(ends) - min(ends)) or 1)
        axes.set(xlim=(min(ends) - room, max(ends) + room), ylim=(0.4, len(rows) + 0.6))
    return Figure(name, f"{title}: {_spelled(methods, texts)}.", drawing)


def _rows(title: str, names: Sequence[str], height: float, right: float) -> tuple[Drawing, Axes]:
    """Axes with one labelled row of this height per name."""
    left = room_for(names)
    drawing, axes = frame(left, right, _BOTTOM, TOP + _BOTTOM + height * len(names))
    heading(axes, title, left)
    axes.set_yticks(_ys(names), [shortened(name) for name in names], color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    return drawing, axes


def _ys(names: Sequence[object]) -> list[int]:
    return list(range(len(names), 0, -1))


def _spelled(names: Sequence[str], texts: Sequence[str]) -> str:
    return "; ".join(f"{name} {text}" for name, text in zip(names, texts, strict=True))
