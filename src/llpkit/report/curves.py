"""Curves of runs: measures by epoch, by training time, by bag size."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from llpkit.report.figure import Figure
from llpkit.report.lines import EPOCHS, SECONDS, SIZES, Line, draw_lines
from llpkit.report.series import Series, by_method
from llpkit.report.spread import Spread
from llpkit.report.style import CONSTANT, TRAINING, Style


@dataclass(frozen=True)
class Panel:
    """What one drawing of a run shows."""

    name: str
    title: str
    lines: Sequence[Line]
    percent: bool = False
    kept: int | None = None
    x: str = EPOCHS


def run_panels(run: Series, style: Style, x: str = EPOCHS) -> list[Panel]:
    """The learning curves of one run: test accuracy, and training against held-out bags."""

    def panel(name: str, title: str, *keys: tuple[str, str, Style], percent: bool = False) -> Panel:
        lines = [mean_line(label, style, [run], key) for label, key, style in keys]
        return Panel(name, title, [one for one in lines if one], percent, run.selected_epoch, x)

    def beside(name: str, title: str, key: str, baseline: bool = False) -> Panel:
        training, held_out = ("training", key, TRAINING), ("held out", f"held_out_{key}", style)
        by_fold = ("out of fold", f"out_of_fold_{key}", style)  # what EM measures on its way
        # The baseline of the bags that decide: the held-out ones, if there are any.
        unseen = any(f"held_out_{key}" in row for row in run.history)
        prefix = "held_out_baseline_" if unseen else "baseline_"
        more = [("constant rate", prefix + key, CONSTANT)] if baseline else []
        return panel(name, title, training, held_out, by_fold, *more)

    tested, lost = (run.method, "test_accuracy", style), (run.method, "loss", style)
    return [
        panel("accuracy", "Accuracy on test instances", tested, percent=True),
        beside("log-likelihood", "Log-likelihood, mean of bags", "log_likelihood", baseline=True),
        beside("proportion-error", "Proportion error", "proportion_error"),
        panel("loss", "Training loss", lost),
    ]


def run_curves(run: Series, style: Style) -> list[Figure | None]:
    """The panels of a run as figures of their own."""
    return [
        draw_lines(p.name, p.title, p.lines, p.x, percent=p.percent, kept=p.kept)
        for p in run_panels(run, style)
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
    return draw_lines(name, title, lines, EPOCHS, percent=percent)


def time_curves(series: Sequence[Series], look: Mapping[str, Style], name: str) -> Figure | None:
    """Test accuracy against training time."""
    lines = [
        mean_line(m, look[m], runs, "test_accuracy", timed=True)
        for m, runs in by_method(series).items()
    ]
    return draw_lines(name, "Accuracy on test instances", lines, SECONDS, percent=True)


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
