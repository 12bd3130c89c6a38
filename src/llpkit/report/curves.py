"""Curves: metrics by epoch and by bag size, and what a plan expects by bag size."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from llpkit.report.figure import Figure
from llpkit.report.lines import EPOCHS, SIZES, Line, draw_lines
from llpkit.report.spread import Spread
from llpkit.report.style import CONSTANT, TRAINING, Style, styles

History = Sequence[Mapping[str, Any]]
"""One mapping per epoch of a run: ``epoch`` and any metrics, which may be missing or ``None``."""


def points(history: History, key: str) -> dict[int, float]:
    """Finite values of a metric by epoch.

    >>> points([{"epoch": 1, "loss": 0.7}, {"epoch": 2, "loss": None}], "loss")
    {1: 0.7}
    """
    known = {row["epoch"]: row[key] for row in history if row.get(key) is not None}
    return {int(epoch): float(y) for epoch, y in known.items() if math.isfinite(y)}


@dataclass(frozen=True)
class Panel:
    """What one drawing of a run shows."""

    name: str
    title: str
    lines: Sequence[Line]
    percent: bool = False
    selected: int | None = None
    x: str = EPOCHS


def run_panels(
    method: str, history: History, style: Style, selected: int | None = None, x: str = EPOCHS
) -> list[Panel]:
    """The learning curves of one run: test accuracy, and training against held-out bags.

    ``selected`` is the epoch selected by held-out bags, if there were any.
    """

    def panel(name: str, title: str, *keys: tuple[str, str, Style], percent: bool = False) -> Panel:
        lines = [mean_line(label, style, [history], key) for label, key, style in keys]
        return Panel(name, title, [one for one in lines if one], percent, selected, x)

    def beside(name: str, title: str, key: str, baseline: bool = False) -> Panel:
        training, held_out = ("training", key, TRAINING), ("held out", f"held_out_{key}", style)
        by_fold = ("out of fold", f"out_of_fold_{key}", style)  # what EM measures on its way
        # The baseline of the bags that decide: the held-out ones, if there are any.
        unseen = any(f"held_out_{key}" in row for row in history)
        prefix = "held_out_baseline_" if unseen else "baseline_"
        more = [("constant rate", prefix + key, CONSTANT)] if baseline else []
        return panel(name, title, training, held_out, by_fold, *more)

    tested, lost = (method, "test_accuracy", style), (method, "loss", style)
    return [
        panel("accuracy", "Accuracy on test instances", tested, percent=True),
        beside("log-likelihood", "Log-likelihood, mean of bags", "log_likelihood", baseline=True),
        beside("proportion-error", "Proportion error", "proportion_error"),
        panel("loss", "Training loss", lost),
    ]


def run_curves(
    method: str, history: History, style: Style, selected: int | None = None
) -> list[Figure | None]:
    """The panels of a run as figures of their own."""
    return [
        draw_lines(p.name, p.title, p.lines, p.x, percent=p.percent, selected=p.selected)
        for p in run_panels(method, history, style, selected)
    ]


def epoch_curves(
    runs: Mapping[str, Sequence[History]],
    look: Mapping[str, Style],
    name: str,
    title: str,
    key: str,
    *,
    percent: bool = False,
) -> Figure | None:
    """One metric by epoch: mean and deviation over each method's runs."""
    lines = [mean_line(method, look[method], its, key) for method, its in runs.items()]
    return draw_lines(name, title, lines, EPOCHS, percent=percent)


def size_curves(
    accuracies: Mapping[str, Mapping[int, Spread]], look: Mapping[str, Style], name: str, title: str
) -> Figure | None:
    """Accuracies in percent by method and bag size, on a logarithmic axis."""
    lines = []
    for method, own in accuracies.items():
        sizes = sorted(own)
        means = [own[size].mean / 100 for size in sizes]
        sds = [math.nan if (sd := own[size].sd) is None else sd / 100 for size in sizes]
        known = not all(map(math.isnan, sds))
        lines.append(Line(method, look[method], sizes, means, sds if known else []))
    return draw_lines(name, title, lines, SIZES, percent=True)


def mean_line(label: str, style: Style, runs: Sequence[History], key: str) -> Line | None:
    """Mean and standard deviation of a metric over runs, at the epochs that all of them have."""
    values = [points(history, key) for history in runs]
    epochs = sorted(set.intersection(*map(set, values))) if values else []
    if not epochs:
        return None
    columns = [[value[epoch] for value in values] for epoch in epochs]
    sd = [stdev(column) for column in columns] if len(runs) > 1 else []
    return Line(label, style, epochs, [fmean(column) for column in columns], sd)


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
