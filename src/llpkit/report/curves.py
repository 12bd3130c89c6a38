"""Figures of curves: measures by epoch, by training time, by bag size."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from llpkit.report.end_labels import label_ends
from llpkit.report.figure import (
    BOTTOM,
    HEIGHT,
    LABEL,
    LEFT,
    Figure,
    frame,
    heading,
    room_for,
    shortened,
)
from llpkit.report.series import Series, by_method
from llpkit.report.style import MUTED, RC, TRAINING, Style

EPOCHS, SECONDS, SIZES = "epoch", "seconds of training", "instances per bag"


@dataclass(frozen=True)
class Line:
    """One curve: points, their standard deviation over runs (empty for one run), its style.

    A point without a deviation, beside others that have one, has not-a-number.
    """

    label: str
    style: Style
    x: Sequence[float]
    y: Sequence[float]
    sd: Sequence[float] = ()


@dataclass(frozen=True)
class SizePoint:
    """A method at one bag size: mean and deviation over folds, as fractions."""

    method: str
    size: int
    mean: float
    sd: float | None


def run_curves(run: Series, style: Style) -> list[Figure | None]:
    """The learning curves of one run: test accuracy, and training bags beside held-out bags."""

    def panel(
        name: str, title: str, *keys: tuple[str, str, Style], percent: bool = False
    ) -> Figure | None:
        lines = [mean_line(label, style, [run], key) for label, key, style in keys]
        return curves(name, title, lines, EPOCHS, percent=percent, kept=run.selected_epoch)

    def beside(name: str, title: str, key: str) -> Figure | None:
        training, held_out = ("training", key, TRAINING), ("held out", f"held_out_{key}", style)
        return panel(name, title, training, held_out)

    tested, lost = (run.method, "test_accuracy", style), (run.method, "loss", style)
    return [
        panel("accuracy", "Accuracy on test instances", tested, percent=True),
        beside("log-likelihood", "Log-likelihood, mean of bags", "log_likelihood"),
        beside("proportion-error", "Proportion error", "proportion_error"),
        panel("loss", "Training loss", lost),
    ]


def epoch_curves(
    series: Sequence[Series],
    look: Mapping[str, Style],
    name: str,
    title: str,
    key: str,
    *,
    percent: bool = False,
) -> Figure | None:
    """One measure by epoch: mean and deviation over each method's runs."""
    lines = [mean_line(m, look[m], runs, key) for m, runs in by_method(series).items()]
    return curves(name, title, lines, EPOCHS, percent=percent)


def time_curves(series: Sequence[Series], look: Mapping[str, Style], name: str) -> Figure | None:
    """Test accuracy against training time."""
    lines = [
        mean_line(m, look[m], runs, "test_accuracy", timed=True)
        for m, runs in by_method(series).items()
    ]
    return curves(name, "Accuracy on test instances", lines, SECONDS, percent=True)


def size_curves(
    points: Sequence[SizePoint], look: Mapping[str, Style], name: str, title: str
) -> Figure | None:
    """Accuracy against bag size, on a logarithmic axis."""
    lines = []
    for method in dict.fromkeys(point.method for point in points):
        own = sorted((p for p in points if p.method == method), key=lambda p: p.size)
        some = any(p.sd is not None for p in own)
        sd = [math.nan if p.sd is None else p.sd for p in own] if some else []
        lines.append(Line(method, look[method], [p.size for p in own], [p.mean for p in own], sd))
    return curves(name, title, lines, SIZES, percent=True)


def mean_line(
    label: str, style: Style, runs: Sequence[Series], key: str, *, timed: bool = False
) -> Line | None:
    """Mean and standard deviation of ``key`` over runs, at the epochs that all of them have.

    ``timed`` places the points at the training time of their epoch, the mean over runs.
    """
    values = [run.points(key) for run in runs]
    epochs = sorted(set.intersection(*map(set, values))) if values else []
    if not epochs:
        return None
    where = [float(epoch) for epoch in epochs]
    if timed:
        clocks = [_clock(run) for run in runs]
        if not all(epoch in clock for clock in clocks for epoch in epochs):
            return None
        where = [fmean(clock[epoch] for clock in clocks) for epoch in epochs]
        if where[0] <= 0:  # the axis is logarithmic
            return None
    columns = [[value[epoch] for value in values] for epoch in epochs]
    sd = [stdev(column) for column in columns] if len(runs) > 1 else []
    return Line(label, style, where, [fmean(column) for column in columns], sd)


def _clock(run: Series) -> dict[int, float]:
    total, clock = 0.0, {}
    for epoch, seconds in sorted(run.points("seconds").items()):
        total += seconds
        clock[epoch] = total
    return clock


def curves(
    name: str,
    title: str,
    drawn: Sequence[Line | None],
    x: str,
    *,
    percent: bool = False,
    kept: int | None = None,
) -> Figure | None:
    """Lines with bands, each labelled at its end; ``x`` names the axis and chooses its scale.

    ``kept`` marks the epoch whose weights were kept.
    """
    lines = [line for line in drawn if line is not None]
    if not lines:
        return None
    names = [shortened(line.label) for line in lines]
    with mpl.rc_context(RC):
        drawing, axes = frame(LEFT, room_for(names), BOTTOM, HEIGHT)
        heading(axes, title, LEFT)
        axes.set_xlabel(x, loc="right", labelpad=1)
        _scale(axes, x, lines)
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        if percent:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}%"))
        for line in lines:
            _draw(axes, line)
        axes.set_ylim(*_limits(lines, whole=x == SIZES, percent=percent))
        if kept is not None:
            _mark_kept(axes, kept, rises=lines[0].y[-1] >= lines[0].y[0])
        axes.margins(x=0.02)
        label_ends(
            axes, [(n, v.x[-1], v.y[-1], v.style) for n, v in zip(names, lines, strict=True)]
        )
    spell = "{:.1%}".format if percent else "{:.3g}".format
    ends = "; ".join(f"{n} ends at {spell(v.y[-1])}" for n, v in zip(names, lines, strict=True))
    tail = "" if kept is None else f" The weights of epoch {kept} were kept."
    return Figure(name, f"{title} by {x}: {ends}.{tail}", drawing)


def _scale(axes: Axes, x: str, lines: Sequence[Line]) -> None:
    if x == EPOCHS:
        axes.set_xticks(_epoch_ticks(max(line.x[-1] for line in lines)))
        return
    axes.xaxis.set_minor_locator(NullLocator())
    if x == SIZES:
        sizes = sorted({size for line in lines for size in line.x})
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    else:  # on a linear axis one slow method would squeeze the others against the left edge
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5), numticks=6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _epoch_ticks(last: float) -> list[float]:
    """Round numbers, with the last epoch in place of the tick next to it.

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


def _mark_kept(axes: Axes, epoch: int, rises: bool) -> None:
    axes.axvline(epoch, color=MUTED, lw=1, ls=(0, (1, 2)))
    axes.annotate(
        "kept",
        (epoch, 0 if rises else 1),  # rising curves leave room at the bottom
        (-3, 3 if rises else -3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="right",
        va="bottom" if rises else "top",
        fontsize=LABEL,
        color=MUTED,
    )


def _limits(lines: Sequence[Line], whole: bool, percent: bool) -> tuple[float, float]:
    """Vertical limits that fit the last half of the curves with their bands.

    A wild epoch may leave the frame, and so may a band in the first half: one unusual fold would
    flatten all curves. Likelihoods are wilder than percentages, so they get less extra room. With
    ``whole`` nothing leaves the frame. Percentages end at 0 and 100, whatever a band says.
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
    low = min(low, max(min(every), low - around * room))
    high = max(high, min(max(every), high + around * room))
    return low - 0.08 * room, high + 0.08 * room
