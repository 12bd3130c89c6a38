"""Figures of one bar or interval per row: epoch times, differences, importances."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from llpkit.report.figure import LABEL, TOP, Figure, frame, heading, room_for, shortened
from llpkit.report.spread import Interval
from llpkit.report.style import BOUND, INK, MUTED, RC, Style
from llpkit.report.table import decimals

COLUMNS = 15  # most columns whose importance is drawn
_BOTTOM = 20.0


class EpochTime(NamedTuple):
    """Seconds per epoch with their deviation, and the ratio to supervised training."""

    method: str
    seconds: float
    sd: float | None = None
    ratio: float | None = None


def epoch_times(rows: Sequence[EpochTime], look: Mapping[str, Style], name: str) -> Figure | None:
    """Bars of the time per epoch, with the ratio to supervised training."""
    if not rows:
        return None
    digits = decimals(row.seconds for row in rows)
    texts = [
        f"{row.seconds:.{digits}f} s" + ("" if row.ratio is None else f" · {row.ratio:.2f}×")
        for row in rows
    ]
    seconds, sds = [row.seconds for row in rows], [row.sd or 0.0 for row in rows]
    title, methods = "Seconds per epoch", [row.method for row in rows]
    with mpl.rc_context(RC | {"axes.grid.axis": "x", "axes.spines.left": False}):
        drawing, axes = _rows(title, methods, 27.0, 90)
        places = _places(methods)
        axes.barh(places, seconds, height=0.62, color=[look[method].light for method in methods])
        axes.errorbar(seconds, places, xerr=sds, fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
        for place, second, sd, text in zip(places, seconds, sds, texts, strict=True):
            _beside(axes, text, second + sd, place)
        axes.set_xlim(0, 1.02 * max(v + sd for v, sd in zip(seconds, sds, strict=True)) or 1)
    tail = f" The ratio is to {BOUND}." if BOUND in methods else ""
    return Figure(name, f"{title}: {_spelled(methods, texts)}.{tail}", drawing)


def importance_bars(entries: Sequence[tuple[str, float, float]], style: Style) -> Figure:
    """Bars of ``(column, mean, standard deviation)`` in the given order; only the first 15."""
    drawn = entries[:COLUMNS]
    names, means = [_printable(name) for name, _, _ in drawn], [mean for _, mean, _ in drawn]
    sds = [sd for _, _, sd in drawn]
    texts = [f"{mean:.3f}" for mean in means]
    title = "Loss of log-likelihood per bag"
    with mpl.rc_context(RC | {"axes.grid.axis": "x", "axes.spines.left": False}):
        drawing, axes = _rows(title, names, 20.0, 46)
        places = _places(names)
        axes.barh(places, means, height=0.62, color=style.light)
        axes.errorbar(means, places, xerr=sds, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
        for place, mean, sd, text in zip(places, means, sds, texts, strict=True):
            _beside(axes, text, max(mean + sd, 0), place)
    left_out = len(entries) - len(drawn)
    more = f"; {left_out} more columns are not shown" if left_out else ""
    spelled = _spelled(names, texts)
    return Figure("importances", f"{title} when a column is shuffled: {spelled}{more}.", drawing)


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
        for place, (method, interval), text in zip(_places(methods), rows, texts, strict=True):
            low, high = (
                interval.mean if end is None else end for end in (interval.low, interval.high)
            )
            style = look[method]
            axes.plot([low, high], [place, place], color=style.light, lw=2.2)
            axes.plot(interval.mean, place, style.marker, color=style.light, ms=6)
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
        room = 0.06 * ((max(ends) - min(ends)) or 1)
        axes.set(xlim=(min(ends) - room, max(ends) + room), ylim=(0.4, len(rows) + 0.6))
    return Figure(name, f"{title}: {_spelled(methods, texts)}.", drawing)


def _rows(title: str, names: Sequence[str], height: float, right: float) -> tuple[Drawing, Axes]:
    """Axes with one labelled row of this height per name."""
    left = room_for(names)
    drawing, axes = frame(left, right, _BOTTOM, TOP + _BOTTOM + height * len(names))
    heading(axes, title, left)
    axes.set_yticks(_places(names), [shortened(name) for name in names], color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    return drawing, axes


def _places(names: Sequence[str]) -> list[int]:
    return list(range(len(names), 0, -1))


def _beside(axes: Axes, text: str, x: float, y: float) -> None:
    axes.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center", fontsize=LABEL)


def _spelled(names: Sequence[str], texts: Sequence[str]) -> str:
    return "; ".join(f"{name} {text}" for name, text in zip(names, texts, strict=True))
