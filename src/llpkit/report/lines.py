"""Lines with bands, each labelled at its end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.figure import FigureBase
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from llpkit.report.figure import (
    BOTTOM,
    HEIGHT,
    LABEL,
    LEFT,
    TOP,
    WIDTH,
    Figure,
    frame_in,
    heading,
    room_for,
    shortened,
)
from llpkit.report.style import MUTED, RC, Style

EPOCHS, ITERATIONS, SIZES = "epoch", "iteration", "instances per bag"


@dataclass(frozen=True)
class Line:
    """One curve: points, their standard deviation over runs (empty for one run), its style.

    If only some points have a deviation, it is NaN for the others.
    """

    label: str
    style: Style
    x: Sequence[float]
    y: Sequence[float]
    sd: Sequence[float] = ()


def draw_lines(
    name: str,
    title: str,
    drawn: Sequence[Line | None],
    x: str,
    *,
    percent: bool = False,
    selected: int | None = None,
) -> Figure | None:
    """Lines with bands, each labelled at its end; ``x`` names the axis and chooses its scale.

    The ``selected`` epoch is marked.
    """
    lines = [line for line in drawn if line is not None]
    if not lines:
        return None
    with mpl.rc_context(RC):
        drawing = Drawing(figsize=(WIDTH / 72, HEIGHT / 72))
        names = draw_into(drawing, title, lines, x, percent=percent, selected=selected)
    spell = "{:.1%}".format if percent else "{:.3g}".format
    ends = "; ".join(f"{n} ends at {spell(v.y[-1])}" for n, v in zip(names, lines, strict=True))
    tail = "" if selected is None else f" Epoch {selected} was selected."
    return Figure(name, f"{title} by {x}: {ends}.{tail}", drawing)


def draw_into(
    drawing: FigureBase,
    title: str,
    lines: Sequence[Line],
    x: str,
    *,
    percent: bool = False,
    selected: int | None = None,
) -> list[str]:
    """The same in a figure, or a part of one, of the usual size; returns the labels."""
    names = [shortened(line.label) for line in lines]
    axes = frame_in(drawing, LEFT, room_for(names), BOTTOM, HEIGHT)
    heading(axes, title, LEFT)
    axes.set_xlabel(x, loc="right", labelpad=1)
    _scale(axes, x, lines)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}%"))
    for line in lines:
        _draw(axes, line)
    short = all(len(line.y) <= 10 for line in lines)  # there is no settled half to fit
    axes.set_ylim(*_limits(lines, whole=short or x == SIZES, percent=percent))
    if selected is not None:
        _mark_selected(axes, selected, lines[0])
    axes.margins(x=0.02)
    label_ends(axes, [(n, v.x[-1], v.y[-1], v.style) for n, v in zip(names, lines, strict=True)])
    return names


def _scale(axes: Axes, x: str, lines: Sequence[Line]) -> None:
    if x == SIZES:
        sizes = sorted({size for line in lines for size in line.x})
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xticks(_epoch_ticks(max(line.x[-1] for line in lines)))


def _epoch_ticks(last: float) -> list[float]:
    """Round numbers, with the last epoch replacing the tick closest to it.

    >>> _epoch_ticks(120)
    [0.0, 25.0, 50.0, 75.0, 100.0, 120.0]
    """
    found = MaxNLocator(5, integer=True).tick_values(0, last)
    return [*(float(tick) for tick in found if tick <= 0.85 * last), float(last)]


def _draw(axes: Axes, line: Line) -> None:
    colour, order = line.style.light, 3 + line.style.width
    if line.sd:
        low = [y - s for y, s in zip(line.y, line.sd, strict=True)]
        high = [y + s for y, s in zip(line.y, line.sd, strict=True)]
        axes.fill_between(line.x, low, high, color=colour, alpha=0.14, linewidth=0)
        if len(line.x) == 1:  # the band of a single point would have no width
            axes.errorbar(line.x, line.y, line.sd, ecolor=colour, capsize=3, elinewidth=1.2)
    width, stroke, marker = line.style.width, line.style.stroke, line.style.marker
    axes.plot(line.x, line.y, color=colour, lw=width, ls=stroke, zorder=order)
    axes.plot(line.x[-1], line.y[-1], marker, color=colour, ms=5, zorder=order, clip_on=False)


def _mark_selected(axes: Axes, epoch: int, line: Line) -> None:
    rises = line.y[-1] >= line.y[0]
    early = epoch <= 0.4 * line.x[-1]
    axes.axvline(epoch, color=MUTED, lw=1, ls=(0, (1, 2)))
    axes.annotate(
        "selected",
        (epoch, 0 if rises else 1),  # rising curves leave room at the bottom
        (3 if early else -3, 3 if rises else -3),  # at the axis it would cover the numbers
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="left" if early else "right",
        va="bottom" if rises else "top",
        fontsize=LABEL,
        color=MUTED,
    )


def _limits(lines: Sequence[Line], whole: bool, percent: bool) -> tuple[float, float]:
    """Vertical limits that fit the last half of the curves with their bands.

    An extreme epoch may leave the frame, and so may a band in the first half: one unusual fold
    would flatten all curves. Likelihoods vary more than percentages, so they get less extra room.
    With ``whole`` nothing leaves the frame. Percentages stop at 0 and 100, even if a band does not.
    """
    around = 3 if percent else 1.5
    settled: list[float] = []
    every: list[float] = []
    for line in lines:
        sds = [0.0 if math.isnan(s) else s for s in line.sd] or [0.0] * len(line.y)
        ends = [end for y, s in zip(line.y, sds, strict=True) for end in (y - s, y + s)]
        if percent:
            ends = [min(max(end, 0.0), 1.0) for end in ends]
        every += ends if whole else line.y
        settled += ends[0 if whole else 2 * (len(line.y) // 2) :]
    few = 0 if whole or percent else len(settled) // 40  # outliers that may be cut off
    low, high = sorted(settled)[few], sorted(settled)[-1 - few]
    room = (high - low) or 0.1 * abs(high) or 0.1
    # Extend the frame towards the extremes of all epochs, by a few times its height at most.
    low = min(low, max(min(every), low - around * room))
    high = max(high, min(max(every), high + around * room))
    return low - 0.08 * room, high + 0.08 * room


def label_ends(axes: Axes, ends: Sequence[tuple[str, float, float, Style]]) -> None:
    """Label every line, given as ``(name, x, y, style)`` of its last point, next to the frame."""
    low, high = axes.get_ylim()
    tall = HEIGHT - TOP - BOTTOM
    # In points from the bottom of the axes, the unit of the font size.
    wanted = [tall * (y - low) / (high - low) for _, _, y, _ in ends]
    heights = spread(wanted, gap=1.22 * LABEL, low=0.0, high=tall)
    for (name, x, y, style), y_label in zip(ends, heights, strict=True):
        axes.annotate(
            name,
            xy=(x, y),
            xytext=(1.05, y_label / tall),
            textcoords="axes fraction",
            color=style.light,
            fontsize=LABEL,
            fontweight="bold" if style.width > 2 else "normal",
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": style.light,
                "lw": 0.7,
                "alpha": 0.55,
                "shrinkA": 1,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places in ``[low, high]`` near the wanted ones, in the same order, at least ``gap`` apart.

    >>> spread([5.0, 5.0, 30.0], gap=10, low=0, high=40)
    [0.0, 10.0, 30.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    gap = min(gap, (high - low) / max(len(wanted) - 1, 1))  # too many labels: overlap evenly
    # Labels that touch form a block, placed at the mean of its members' wishes. A new label starts
    # its own block and absorbs the blocks below it until none touches (isotonic regression).
    blocks: list[tuple[list[float], float]] = []
    for i in order:
        members = [wanted[i]]
        while True:
            # Member k sits k gaps above the first, so its wish for the first is w - k gap.
            first = sum(w - k * gap for k, w in enumerate(members)) / len(members)
            first = min(max(first, low), high - (len(members) - 1) * gap)
            if not blocks or blocks[-1][1] + len(blocks[-1][0]) * gap <= first:
                break
            members = blocks.pop()[0] + members
        blocks.append((members, first))
    placed = [first + k * gap for members, first in blocks for k in range(len(members))]
    result = [0.0] * len(wanted)
    for i, at in zip(order, placed, strict=True):
        result[i] = at
    return result
