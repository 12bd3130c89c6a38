"""The figure of what the columns of a table are worth."""

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.ticker import MaxNLocator

from llpkit.report._figures import LABEL, TOP, Plot, frame, heading, room_for, shortened
from llpkit.report._style import INK, RC, Style

SHOWN = 15


def importance_bars(entries: Sequence[tuple[str, float, float]], style: Style) -> Plot:
    """Bars of ``(column, mean, standard deviation)``, as they come; those past 15 are left out."""
    drawn = list(entries[:SHOWN])
    names = [shortened(name) for name, _, _ in drawn]
    bottom, left = 20.0, room_for(names)
    height = TOP + bottom + 20.0 * len(drawn)
    title = "Fall of a bag's log-likelihood"
    with mpl.rc_context(RC | {"axes.grid.axis": "x", "axes.spines.left": False}):
        figure, axes = frame(left, 46, bottom, height)
        heading(axes, title, left)
        places = range(len(drawn), 0, -1)
        means, sds = [mean for _, mean, _ in drawn], [sd for _, _, sd in drawn]
        axes.barh(places, means, height=0.62, color=style.light)
        axes.errorbar(means, places, xerr=sds, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
        for place, mean, sd in zip(places, means, sds, strict=True):
            end = (max(mean + sd, 0), place)
            axes.annotate(
                f"{mean:.3f}", end, (4, 0), textcoords="offset points", va="center", fontsize=LABEL
            )
        axes.set_yticks(list(places), names, color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(4))
    said = "; ".join(f"{name} {mean:.3f}" for name, mean, _ in drawn)
    left_out = len(entries) - len(drawn)
    more = f"; {left_out} more columns are not shown" if left_out else ""
    return Plot("importances", f"{title} when a column is shuffled: {said}{more}.", figure)
