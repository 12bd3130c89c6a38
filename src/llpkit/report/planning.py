"""Curves of a plan: what a count is worth, and what accuracy to expect, by bag size."""

from collections.abc import Mapping

from llpkit.report.figure import Figure
from llpkit.report.lines import SIZES, Line, draw_lines
from llpkit.report.style import CONSTANT, styles


def plan_curves(
    worth: Mapping[int, float], expected: Mapping[str, Mapping[int, float]], best: float
) -> list[Figure | None]:
    """The figures of a plan.

    Args:
        worth: For each bag size, how many labels one count is worth.
        expected: For each number of bags, the expected accuracy by bag size.
        best: The accuracy of a classifier that knows the model.
    """
    look = styles(["mle", *expected])
    sizes = sorted(worth)
    count = Line("one count", look["mle"], sizes, [worth[size] for size in sizes])
    label = Line("one label", CONSTANT, sizes, [1.0] * len(sizes))
    lines = [
        Line(name, look[name], sizes, [values[size] for size in sizes])
        for name, values in expected.items()
    ]
    top = Line("best", CONSTANT, sizes, [best] * len(sizes))
    return [
        draw_lines("plan-worth", "Labels that one count is worth", [count, label], SIZES),
        draw_lines("plan-accuracy", "Expected accuracy", [top, *lines], SIZES, percent=True),
    ]
