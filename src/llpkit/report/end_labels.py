"""Labels at the ends of lines, placed so that no two of them overlap."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from llpkit.report.figure import BOTTOM, HEIGHT, LABEL, TOP
from llpkit.report.style import Style


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
