"""Reliability curves: predicted against observed frequencies."""

import matplotlib as mpl
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from llpkit.evaluation import Calibration
from llpkit.report.figure import TOP, Figure, heading, shortened
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
