"""Figures of calibration: reliability curves, and the histogram of transformed counts."""

import math
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from llpkit.evaluation import Calibration
from llpkit.report.figure import BOTTOM, LEFT, TOP, Figure, heading, shortened
from llpkit.report.style import MUTED, RC, Style

_BINS = 10  # of equal width, as in llpkit.evaluation.calibration


def reliability(title: str, curve: Calibration, style: Style, name: str) -> Figure | None:
    """Predicted against observed frequencies, above the number of predictions."""
    predicted, observed, count = (column.tolist() for column in curve)
    if not count:
        return None
    width, height = 264.0, 250.0
    left = 44.0 + 7 * max(0, len(str(max(count))) - 3)  # room for long numbers
    centres = [(min(int(_BINS * p), _BINS - 1) + 0.5) / _BINS for p in predicted]
    with mpl.rc_context(RC):
        drawing = Drawing(figsize=(width / 72, height / 72))
        top, below = drawing.subplots(2, 1, sharex=True, height_ratios=(3.4, 1))
        drawing.subplots_adjust(
            left=left / width,
            right=1 - 12 / width,
            top=1 - TOP / height,
            bottom=34 / height,
            hspace=0.12,
        )
        heading(top, f"{shortened(title)} · error {curve.error:.3f}", left)
        top.plot([0, 1], [0, 1], color=MUTED, lw=1, ls=(0, (2, 2)))
        marker, stroke = style.marker, style.stroke
        top.plot(predicted, observed, color=style.light, lw=2, ls=stroke, marker=marker, ms=5)
        top.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), ylabel="observed")
        top.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        below.bar(centres, count, width=0.8 / _BINS, color=style.light)
        below.set_ylabel("count")
        below.set_xlabel("predicted", labelpad=1)
        below.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        drawing.align_ylabels()
    points = ", ".join(
        f"{p:.2f} observed {f:.2f}" for p, f in zip(predicted, observed, strict=True)
    )
    alt = f"Reliability of {title}, calibration error {curve.error:.3f}: predicted {points}."
    return Figure(name, alt, drawing)


def transform_histogram(values: Sequence[float], style: Style, name: str) -> Figure | None:
    """Shares of values in ten bins of [0, 1], and the band of 95 % around a tenth."""
    number = len(values)
    if not number:
        return None
    counts = [0] * _BINS
    for value in values:
        counts[min(int(value * _BINS), _BINS - 1)] += 1
    shares = [count / number for count in counts]
    flat = 1 / _BINS
    reach = 1.96 * math.sqrt(flat * (1 - flat) / number)
    title = "Counts, low to high for their bag"
    width, height = 264.0, 250.0  # as a reliability curve, which is next to it
    with mpl.rc_context(RC | {"axes.grid.axis": "y"}):
        drawing = Drawing(figsize=(width / 72, height / 72))
        box = (LEFT / width, BOTTOM / height, 1 - (LEFT + 12) / width, 1 - (TOP + BOTTOM) / height)
        axes = drawing.add_axes(box)
        heading(axes, title, LEFT)
        centres = [(i + 0.5) / _BINS for i in range(_BINS)]
        axes.axhspan(max(0.0, flat - reach), flat + reach, color=MUTED, alpha=0.2, lw=0, zorder=1)
        axes.bar(centres, shares, width=0.8 / _BINS, color=style.light, zorder=2)
        axes.axhline(flat, color=MUTED, lw=1, ls=(0, (2, 2)), zorder=3)
        axes.set_xlim(0, 1)
        axes.set_xticks([0.05, 0.5, 0.95], ["low", "middle", "high"])
        axes.set_ylim(0, 1.15 * max(*shares, flat + reach))
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    spelled = ", ".join(f"{share:.1%}" for share in shares)
    return Figure(name, f"{title}, in ten bins: {spelled}; 10% each is expected.", drawing)
