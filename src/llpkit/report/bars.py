"""Bars of the importance of columns."""

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.ticker import MaxNLocator

from llpkit.report.figure import LABEL, TOP, Figure, frame, heading, room_for, shortened
from llpkit.report.style import INK, RC, Style

COLUMNS = 15  # most columns whose importance is drawn
_ROW, _BOTTOM, _RIGHT = 20.0, 20.0, 46.0


def importance_bars(entries: Sequence[tuple[str, float, float]], style: Style) -> Figure:
    """Bars of ``(column, mean, standard deviation)`` in the given order; only the first 15."""
    drawn = [(_printable(name), mean, sd) for name, mean, sd in entries[:COLUMNS]]
    names, means, sds = ([*column] for column in zip(*drawn, strict=True))
    title, left = "Loss of log-likelihood per bag", room_for(names)
    ys = range(len(drawn), 0, -1)
    with mpl.rc_context(RC | {"axes.grid.axis": "x", "axes.spines.left": False}):
        drawing, axes = frame(left, _RIGHT, _BOTTOM, TOP + _BOTTOM + _ROW * len(drawn))
        heading(axes, title, left)
        axes.set_yticks(ys, [shortened(name) for name in names], color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.barh(ys, means, height=0.62, color=style.light)
        axes.errorbar(means, ys, xerr=sds, fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
        for y, (_, mean, sd) in zip(ys, drawn, strict=True):
            axes.annotate(
                f"{mean:.3f}",
                (max(mean + sd, 0.0), y),
                (5, 0),
                textcoords="offset points",
                va="center",
                fontsize=LABEL,
            )
    spelled = "; ".join(f"{name} {mean:.3f}" for name, mean, _ in drawn)
    left_out = len(entries) - len(drawn)
    more = f"; {left_out} more columns are not shown" if left_out else ""
    return Figure("importances", f"{title} when a column is shuffled: {spelled}{more}.", drawing)


def _printable(name: str) -> str:
    """A column's name with a question mark for what no font has, such as control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)
