"""The figures: learning curves, epoch times, calibration. Each returns what a page needs of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Protocol

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from llpkit.report._data import BOUND, Calibration, Series, decimals
from llpkit.report._style import DARK, HEIGHT, INK, MUTED, RC, WIDTH, Style

LEFT, TOP, BOTTOM = 46.0, 28.0, 33.0  # margins in points
SIZES = "instances in a bag"
LABEL = 10.5  # size of the labels at the lines' ends
TRAINING = Style("muted", MUTED, DARK["muted"], 1.5, (3.2, 1.5))


@dataclass(frozen=True)
class Plot:
    """A figure, the name of its file, and what it shows in words."""

    name: str
    alt: str
    figure: Figure


@dataclass(frozen=True)
class Line:
    """One curve: points, their spread over runs (empty for one run), how it is drawn.

    A single point without a spread, beside others that have one, has not-a-number.
    """

    label: str
    style: Style
    x: Sequence[float]
    y: Sequence[float]
    sd: Sequence[float]


def mean_line(label: str, style: Style, runs: Sequence[Series], key: str, x: str) -> Line | None:
    """Mean and standard deviation of ``key`` over runs, at the epochs that all of them have.

    ``x`` is ``"epoch"`` or ``"seconds"``, the training time up to that epoch.
    """
    values = [run.points(key) for run in runs]
    epochs = sorted(set.intersection(*map(set, values))) if values else []
    if not epochs:
        return None
    where = [float(epoch) for epoch in epochs]
    if x == "seconds":
        clocks = [_clock(run) for run in runs]
        if not all(epoch in clock for clock in clocks for epoch in epochs):
            return None
        where = [fmean(clock[epoch] for clock in clocks) for epoch in epochs]
        if where[0] <= 0:  # drawn on a logarithmic axis
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


def learning_curves(series: Sequence[Series], styles: Mapping[str, Style]) -> list[Plot]:
    """Accuracy, likelihood and proportion error by epoch, as far as the histories have them.

    Several methods: each panel compares them. One method: training bags beside held-out bags.
    """
    runs = by_method(series)
    kept = series[0].selected_epoch if len(series) == 1 else None

    def panel(name: str, title: str, key: str, *, percent: bool = False) -> Plot | None:
        lines = [mean_line(m, styles[m], runs[m], key, "epoch") for m in runs]
        return curves(name, title, lines, "epoch", percent=percent, kept=kept)

    def beside(name: str, title: str, key: str) -> Plot | None:
        [(method, its_runs)] = runs.items()
        lines = [
            mean_line("training", TRAINING, its_runs, key, "epoch"),
            mean_line("held out", styles[method], its_runs, f"held_out_{key}", "epoch"),
        ]
        return curves(name, title, lines, "epoch", kept=kept)

    plots = [panel("accuracy", "Accuracy on test instances", "test_accuracy", percent=True)]
    likelihood, error = "Log-likelihood, mean of", "Proportion error"
    if len(runs) == 1:
        plots += [
            beside("log-likelihood", f"{likelihood} bags", "log_likelihood"),
            beside("proportion-error", error, "proportion_error"),
            panel("loss", "Training loss", "loss"),  # methods' losses share no scale
        ]
    else:
        held_out = panel(
            "proportion-error-held-out", f"{error}, held-out bags", "held_out_proportion_error"
        )
        plots += [
            panel(
                "log-likelihood-held-out", f"{likelihood} held-out bags", "held_out_log_likelihood"
            ),
            panel("log-likelihood-training", f"{likelihood} training bags", "log_likelihood"),
            held_out
            or panel("proportion-error-training", f"{error}, training bags", "proportion_error"),
        ]
    return [plot for plot in plots if plot is not None]


def time_curves(series: Sequence[Series], styles: Mapping[str, Style]) -> Plot | None:
    """Accuracy against training time, each method at its own speed."""
    runs = by_method(series)
    lines = [mean_line(m, styles[m], runs[m], "test_accuracy", "seconds") for m in runs]
    title = "Accuracy on test instances"
    return curves("accuracy-time", title, lines, "seconds of training", percent=True)


def by_method(series: Sequence[Series]) -> dict[str, list[Series]]:
    """Runs by method, in order of first appearance."""
    methods = dict.fromkeys(run.method for run in series)
    return {method: [run for run in series if run.method == method] for method in methods}


def curves(
    name: str,
    title: str,
    drawn: Sequence[Line | None],
    x: str,
    *,
    percent: bool = False,
    kept: int | None = None,
) -> Plot | None:
    """Lines with their bands, each named at its end; ``x`` names the axis and chooses its scale.

    Over epochs the axis is linear, over the sizes of bags it goes by doublings, over time it is
    logarithmic.
    """
    lines = [line for line in drawn if line is not None]
    if not lines:
        return None
    names = [shortened(line.label) for line in lines]
    room = room_for(names)
    with mpl.rc_context(RC):
        figure, axes = frame(LEFT, room, BOTTOM, HEIGHT)
        heading(axes, title, LEFT)
        axes.set_xlabel(x, loc="right", labelpad=1)
        if x == "epoch":
            axes.set_xticks(_epoch_ticks(max(line.x[-1] for line in lines)))
        elif x == SIZES:
            sizes = sorted({size for line in lines for size in line.x})
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
            axes.xaxis.set_minor_locator(NullLocator())
        else:  # a slow method would press the others to the left edge
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5), numticks=6))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        if percent:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
        for line in lines:
            order = 3 + line.style.width
            colour, stroke = line.style.light, line.style.stroke
            if line.sd:
                low = [y - s for y, s in zip(line.y, line.sd, strict=True)]
                high = [y + s for y, s in zip(line.y, line.sd, strict=True)]
                axes.fill_between(line.x, low, high, color=colour, alpha=0.14, linewidth=0)
                if len(line.x) == 1:  # a band of one point has no width
                    axes.errorbar(line.x, line.y, line.sd, ecolor=colour, capsize=3, elinewidth=1.2)
            axes.plot(line.x, line.y, color=colour, lw=line.style.width, ls=stroke, zorder=order)
            axes.plot(
                line.x[-1],
                line.y[-1],
                line.style.marker,
                color=colour,
                ms=5,
                zorder=order,
                clip_on=False,
            )
        axes.set_ylim(*_limits(lines, whole=x == SIZES, percent=percent))
        if kept is not None:
            axes.axvline(kept, color=MUTED, lw=1, ls=(0, (1, 2)))
            rises = lines[0].y[-1] >= lines[0].y[0]  # then there is room below the curves
            axes.annotate(
                "kept",
                (kept, 0 if rises else 1),
                (-3, 3 if rises else -3),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="right",
                va="bottom" if rises else "top",
                fontsize=LABEL,
                color=MUTED,
            )
        axes.margins(x=0.02)
        _label_ends(axes, lines, names)
    named = zip(names, lines, strict=True)
    ends = "; ".join(f"{n} ends at {shown(v.y[-1], percent)}" for n, v in named)
    tail = "" if kept is None else f" The weights of epoch {kept} were kept."
    return Plot(name, f"{title} by {x}: {ends}.{tail}", figure)


def _epoch_ticks(last: float) -> list[float]:
    """Round numbers, and the last epoch in place of the one beside it.

    >>> _epoch_ticks(120)
    [0.0, 25.0, 50.0, 75.0, 100.0, 120.0]
    """
    found = MaxNLocator(5, integer=True).tick_values(0, last)
    return [*(float(tick) for tick in found if tick <= 0.85 * last), float(last)]


def frame(left: float, right: float, bottom: float, height: float) -> tuple[Figure, Axes]:
    """A figure of the usual width, and axes within these margins in points."""
    figure = Figure(figsize=(WIDTH / 72, height / 72))
    wide, tall = WIDTH - left - right, height - TOP - bottom
    box = (left / WIDTH, bottom / height, wide / WIDTH, tall / height)
    return figure, figure.add_axes(box)


def heading(axes: Axes, title: str, left: float) -> None:
    """A title that starts at the figure's edge, ``left`` points from the axes."""
    axes.annotate(
        title,
        (0, 1),
        (4 - left, 10),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=12,
        color=INK,
    )


def _limits(lines: Sequence[Line], whole: bool, percent: bool) -> tuple[float, float]:
    """Room for the last half of the curves with their bands, and for the rest of the lines.

    A wild epoch may leave the frame, and so may a band before the last half: one unlike fold would
    flatten all curves. Likelihoods are wilder than per cents and get less room for that. Unless the
    whole is wanted. Per cents end at 0 and 100, whatever a band says.
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
    few = 0 if whole or percent else len(settled) // 40
    low, high = sorted(settled)[few], sorted(settled)[-1 - few]
    room = (high - low) or 0.1 * abs(high) or 0.1
    low = min(low, max(min(every), low - around * room))
    high = max(high, min(max(every), high + around * room))
    return low - 0.08 * room, high + 0.08 * room


def _label_ends(axes: Axes, lines: Sequence[Line], names: Sequence[str]) -> None:
    """Name every line beside the frame, moved up or down so that no two names touch."""
    low, high = axes.get_ylim()
    tall = HEIGHT - TOP - BOTTOM
    wanted = [tall * (line.y[-1] - low) / (high - low) for line in lines]
    places = spread(wanted, gap=1.22 * LABEL, low=0.0, high=tall)
    for line, name, place in zip(lines, names, places, strict=True):
        axes.annotate(
            name,
            xy=(line.x[-1], line.y[-1]),
            xytext=(1.05, place / tall),
            textcoords="axes fraction",
            color=line.style.light,
            fontsize=LABEL,
            fontweight="bold" if line.style.width > 2 else "normal",
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": line.style.light,
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
    gap = min(gap, (high - low) / max(len(wanted) - 1, 1))
    # Labels that touch form a block, which stands where its members want it on average.
    blocks: list[tuple[list[float], float]] = []
    for i in order:
        members = [wanted[i]]
        while True:
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


class Timed(Protocol):
    """What the time of an epoch is drawn from; a :class:`SummaryRow` has it."""

    @property
    def method(self) -> str: ...
    @property
    def epoch_seconds(self) -> float | None: ...
    @property
    def epoch_seconds_sd(self) -> float | None: ...
    @property
    def epoch_ratio(self) -> float | None: ...


def epoch_times(rows: Sequence[Timed], styles: Mapping[str, Style]) -> Plot | None:
    """Bars of the time an epoch takes, with the ratio to supervised training."""
    rows = [row for row in rows if row.epoch_seconds is not None]
    if not rows:
        return None
    seconds = [row.epoch_seconds or 0.0 for row in rows]
    sds = [row.epoch_seconds_sd or 0.0 for row in rows]
    bottom = 20.0
    height = TOP + bottom + 27.0 * len(rows)
    title, left = "Seconds an epoch", room_for([row.method for row in rows])
    with mpl.rc_context(RC | {"axes.grid.axis": "x", "axes.spines.left": False}):
        figure, axes = frame(left, 90, bottom, height)
        heading(axes, title, left)
        places = range(len(rows), 0, -1)
        colours = [styles[row.method].light for row in rows]
        axes.barh(places, seconds, height=0.62, color=colours)
        axes.errorbar(seconds, places, xerr=sds, fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
        texts, digits = [], decimals(seconds)
        for place, row, value, sd in zip(places, rows, seconds, sds, strict=True):
            ratio = "" if row.epoch_ratio is None else f" · {row.epoch_ratio:.2f}×"
            texts.append(f"{value:.{digits}f} s{ratio}")
            axes.annotate(
                texts[-1],
                (value + sd, place),
                (6, 0),
                textcoords="offset points",
                va="center",
                fontsize=LABEL,
            )
        axes.set_yticks(list(places), [shortened(row.method) for row in rows], color=INK)
        axes.set_xlim(0, 1.02 * max(v + sd for v, sd in zip(seconds, sds, strict=True)) or 1)
        axes.xaxis.set_major_locator(MaxNLocator(4))
    said = "; ".join(f"{row.method} {text}" for row, text in zip(rows, texts, strict=True))
    compared = any(row.method == BOUND for row in rows)
    tail = f" The ratio is to {BOUND}." if compared else ""
    return Plot("epoch-time", f"{title}: {said}.{tail}", figure)


def reliability(curve: Calibration, style: Style, equal: int | None = None) -> Plot | None:
    """What was predicted against what was observed, above the number of predictions.

    With ``equal`` bins of one width a bar stands in the middle of its bin, not at its mean.
    """
    bins = curve.bins
    if not bins:
        return None
    predicted, observed, count = zip(*bins, strict=True)
    width, height = 264.0, 250.0
    left = 44.0 + 7 * max(0, len(str(max(count))) - 3)  # room for long numbers
    places, bar = list(predicted), 0.06
    if equal is not None:
        places = [(min(int(equal * p), equal - 1) + 0.5) / equal for p in predicted]
        bar = 0.8 / equal
    with mpl.rc_context(RC):
        figure = Figure(figsize=(width / 72, height / 72))
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=(3.4, 1))
        figure.subplots_adjust(
            left=left / width,
            right=1 - 12 / width,
            top=1 - TOP / height,
            bottom=34 / height,
            hspace=0.12,
        )
        heading(top, f"{shortened(curve.method)} · error {curve.error:.3f}", left)
        top.plot([0, 1], [0, 1], color=MUTED, lw=1, ls=(0, (2, 2)))
        top.plot(
            predicted,
            observed,
            color=style.light,
            lw=2,
            ls=style.stroke,
            marker=style.marker,
            ms=5,
        )
        top.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), ylabel="observed")
        top.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        below.bar(places, count, width=bar, color=style.light)
        below.set_ylabel("count")
        below.set_xlabel("predicted", labelpad=1)
        below.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        figure.align_ylabels()
    points = ", ".join(f"{p:.2f} observed {f:.2f}" for p, f, _ in bins)
    alt = f"Reliability of {curve.method}, calibration error {curve.error:.3f}: predicted {points}."
    return Plot(f"calibration-{curve.method}", alt, figure)


def room_for(names: Sequence[str]) -> float:
    """Points that a column of names takes beside the axes."""
    return 18 + 0.64 * LABEL * max(len(shortened(name)) for name in names)


def shortened(name: str) -> str:
    """A name that fits beside a figure."""
    return name if len(name) <= 18 else name[:17] + "…"


def shown(value: float, percent: bool) -> str:
    """A value in words."""
    return f"{100 * value:.1f} %" if percent else f"{value:.3g}"
