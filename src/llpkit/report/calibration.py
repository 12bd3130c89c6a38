"""Reliability curves: predicted against observed frequencies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from llpkit.errors import LLPError
from llpkit.report.figure import TOP, Figure, heading, shortened
from llpkit.report.style import MUTED, RC, Style

Numbers = Sequence[float] | NDArray[Any] | Tensor


@dataclass(frozen=True)
class Calibration:
    """A reliability curve: mean prediction, fraction of positives and size of each bin.

    ``Calibration(method, *llpkit.evaluation.calibration(probability, truth))`` makes one. Empty
    bins are left out.

    >>> Calibration("mle", [0.1, 0.9], [0.2, 0.9], [30, 10]).error
    0.075
    """

    method: str
    mean_predicted: Numbers
    fraction_positive: Numbers
    count: Numbers

    def __post_init__(self) -> None:
        sizes = {len(self.mean_predicted), len(self.fraction_positive), len(self.count)}
        if len(sizes) != 1:
            raise LLPError(
                f"the calibration of {self.method} has {len(self.mean_predicted)} mean "
                f"predictions, {len(self.fraction_positive)} fractions and {len(self.count)} "
                "counts; pass one of each per bin"
            )

    @property
    def bins(self) -> list[tuple[float, float, int]]:
        """``(mean predicted, fraction positive, count)`` of the bins that are not empty."""
        rows = zip(self.mean_predicted, self.fraction_positive, self.count, strict=True)
        return [(float(p), float(f), int(n)) for p, f, n in rows if n]

    @property
    def error(self) -> float | None:
        """Expected calibration error, ``Σ n |p - f| / Σ n``."""
        total = sum(n for *_, n in self.bins)
        return math.fsum(n * abs(p - f) for p, f, n in self.bins) / total if total else None


def reliability(
    curve: Calibration, style: Style, name: str, equal: int | None = None
) -> Figure | None:
    """Predicted against observed frequencies, above the number of predictions.

    With ``equal`` bins of one width, bars are in the middle of their bins, not at the bin means.
    """
    bins = curve.bins
    if not bins:
        return None
    predicted, observed, count = zip(*bins, strict=True)
    width, height = 264.0, 250.0
    left = 44.0 + 7 * max(0, len(str(max(count))) - 3)  # room for long numbers
    # Bins of unknown width have bars of one width at their means.
    places, bar = list(predicted), 0.06
    if equal is not None:
        places = [(min(int(equal * p), equal - 1) + 0.5) / equal for p in predicted]
        bar = 0.8 / equal
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
        heading(top, f"{shortened(curve.method)} · error {curve.error:.3f}", left)
        top.plot([0, 1], [0, 1], color=MUTED, lw=1, ls=(0, (2, 2)))
        marker, stroke = style.marker, style.stroke
        top.plot(predicted, observed, color=style.light, lw=2, ls=stroke, marker=marker, ms=5)
        top.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), ylabel="observed")
        top.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        below.bar(places, count, width=bar, color=style.light)
        below.set_ylabel("count")
        below.set_xlabel("predicted", labelpad=1)
        below.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        drawing.align_ylabels()
    points = ", ".join(f"{p:.2f} observed {f:.2f}" for p, f, _ in bins)
    alt = f"Reliability of {curve.method}, calibration error {curve.error:.3f}: predicted {points}."
    return Figure(name, alt, drawing)
