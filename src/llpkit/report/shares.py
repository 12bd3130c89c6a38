"""The figure of shares of groups, with intervals, and what the counts alone allow."""

from typing import Any

import matplotlib as mpl
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

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
from llpkit.report.style import GRID, INK, MUTED, RC, styles

_ROW, _GAP, _BOTTOM, _LEGEND = 20.0, 10.0, 24.0, 20.0
_MOST = 60
"""Maximum number of rows drawn; a figure with more would be hard to read."""


def share_intervals(shares: Any) -> Figure:
    """Shares with their intervals, the possible range behind them, Goodman's estimate as a stroke.

    One row per group and class; for two classes only the second is drawn.

    Args:
        shares: A :class:`llpkit.statistics.Shares`.
    """
    two = len(shares.classes) == 2
    drawn = [1] if two else list(range(len(shares.classes)))
    cells = [(g, k) for g in range(len(shares.groups)) for k in drawn][:_MOST]
    labels = [
        str(shares.groups[g]) if two else f"{shares.groups[g]}: {shares.classes[k]}"
        for g, k in cells
    ]
    texts = [f"{100 * float(shares.share[g, k]):.1f}%" for g, k in cells]
    title = f"Share by {shares.by}" if not two else f"Share of {shares.classes[1]} by {shares.by}"
    left, right = room_for(labels), 16 + 0.6 * LABEL * max(map(len, texts))
    rows, bottom = [], 0.0
    for i, (g, _) in enumerate(cells):  # a gap between groups of several classes
        bottom -= _ROW + (_GAP if i and not two and g != cells[i - 1][0] else 0.0)
        rows.append(bottom)
    look = styles([f"class {k}" for k in drawn])
    height = TOP + _BOTTOM + _LEGEND - bottom + 0.4 * _ROW
    with mpl.rc_context(RC | {"axes.grid.axis": "x", "axes.spines.left": False}):
        drawing, axes = frame(left, right, _BOTTOM + _LEGEND, height)
        heading(axes, title, left)
        for (g, k), y, text in zip(cells, rows, texts, strict=True):
            colour = look[f"class {k}"].light
            if shares.bounds is not None:
                ends = [100 * float(end[g, k]) for end in shares.bounds]
                axes.plot(ends, [y] * 2, color=GRID, lw=9, solid_capstyle="butt")
            ends = [100 * float(end[g, k]) for end in (shares.low, shares.high)]
            axes.plot(ends, [y] * 2, color=colour, lw=2.4)
            axes.plot(100 * float(shares.share[g, k]), y, "o", color=colour, ms=5)
            if shares.goodman is not None:
                x = 100 * float(shares.goodman.share[g, k])
                if 0 <= x <= 100:
                    axes.plot(x, y, "|", color=INK, ms=14, mew=1.5)
            text_beside(axes, y, text)
        axes.set(xlim=(0, 100), ylim=(bottom - 0.7 * _ROW, -0.3 * _ROW))
        axes.set_yticks(rows, [shortened(label) for label in labels], color=INK)
        axes.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
        colour = look[f"class {drawn[0]}"].light
        known: list[Any] = [
            Line2D([], [], color=colour, marker="o", lw=2.4, label=f"{shares.level:.0%} interval")
        ]
        if shares.bounds is not None:
            known.append(Patch(color=GRID, label="possible"))
        if shares.goodman is not None:
            known.append(
                Line2D([], [], color=INK, marker="|", ls="", ms=11, mew=1.5, label="Goodman")
            )
        drawing.legend(
            handles=known,
            loc="lower left",
            ncols=3,
            frameon=False,
            fontsize=LABEL - 1.5,
            labelcolor=MUTED,
            handlelength=1.6,
            columnspacing=1.2,
            bbox_to_anchor=(0.0, 0.0),
            borderaxespad=0.1,
        )
    pairs = zip(labels, texts, strict=True)
    alt = f"{title}: {'; '.join(f'{label} {text}' for label, text in pairs)}."
    return Figure("shares", alt, drawing)
