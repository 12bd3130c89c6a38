"""What the page shows of methods that learn the same folds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from llpkit.experiments import _summary as summary
from llpkit.experiments._example import example_bag
from llpkit.experiments._groups import Group, by_size
from llpkit.experiments._names import present, renamed, slug
from llpkit.experiments._plan import in_order
from llpkit.experiments._run import Record
from llpkit.experiments._sources import DEFAULTS, GRID
from llpkit.experiments._summary import BOUND, LEVEL, PAPERS, REFERENCE
from llpkit.experiments._tables import Tables, between, cell, counted, or_dash, signed, two
from llpkit.experiments._time_sections import time_to_accuracy
from llpkit.report._comparisons import Interval, fold_curves, intervals
from llpkit.report._data import Calibration
from llpkit.report._figures import reliability
from llpkit.report._results import Column, Section, Table


def convergence(
    group: Group,
    prefix: str,
    timed: Sequence[Group],
    tables: Tables,
    data_dir: str | None,
    new: Sequence[str],
) -> list[Section]:
    """How the methods learn, and what they have learnt.

    Args:
        group: Methods that have the same folds.
        prefix: Of the names of figures.
        timed: The groups of timed runs.
        tables: Where the numbers go.
        data_dir: Where data sets are.
        new: Methods whose runs were not shown yet; accuracies alone if there are none.
    """
    lines = [s for name, records in group.runs.items() for s in summary.series(name, records)]
    calibrations = {name: summary.calibration(name, r) for name, r in group.runs.items()}
    curve_rows(group, tables)
    curves = fold_curves(lines, tables.look, prefix)
    sections = [
        Section(
            "Learning curves",
            f"{_lines_of(group)} "
            "The vertical axis is fitted to where the curves settle. The likelihood of the "
            "training bags is that of the training pass itself, with dropout and augmentation on.",
            curves if new else curves[:1],
        ),
        Section(
            "The methods side by side",
            tables=[_accuracies(group, calibrations, tables), trained_with(group)],
        ),
        _paired(group, prefix, tables),
        time_to_accuracy(group, prefix, timed, _references(group), tables),
    ]
    if new:
        fresh = {name: calibrations[name] for name in new}
        shown = replace(group, runs={name: group.runs[name] for name in new})
        rest = "" if len(new) == len(group.runs) else " The other methods are in a chapter above."
        sections += [_calibration(fresh, prefix, rest, tables), _example(shown, rest, data_dir)]
    return [section for section in sections if section.plots or section.tables or section.bag]


def overview(settings: Sequence[Group], apart: Sequence[str], tables: Tables) -> Section:
    """The last accuracies of all methods in all settings of a data set."""
    rows: dict[str, list[str]] = {}
    for at, group in enumerate(settings):
        for name, records in group.runs.items():
            found = summary.final(records, "accuracy", 100)
            folds = counted(len(records), "fold")
            row = rows.setdefault(name, [""] * len(settings))
            row[at] = f"{cell(found, '.1f')} ({folds})"
            values = two("accuracy_percent", found)
            tables.add("settings", group, method=name, folds=len(records), **values)
    names = [*in_order(n for n in rows if "," not in n), *(n for n in rows if "," in n)]
    return Section(
        "Accuracy by setting",
        "Accuracy of the last epoch in per cent, mean ± one standard deviation over all folds that "
        "a method has in a setting. Comparisons over the same folds follow, setting by setting.",
        tables=[Table([Column(told) for told in apart], [(n, rows[n]) for n in names])],
    )


def _lines_of(group: Group) -> str:
    folds = counted(group.folds, "fold")
    if group.folds == "1":
        return f"Lines are those of {folds}, the same for all."
    return (
        f"Lines are means over {folds}, the same for all, bands one standard deviation either side."
    )


def _calibration(
    calibrations: Mapping[str, Calibration], prefix: str, rest: str, tables: Tables
) -> Section:
    return Section(
        "Calibration",
        "Of the instances given a probability near 0.8, about 80 % should be positive: on the "
        "dashed line. The instances of all folds are pooled, and the error is that of the pool. "
        f"Below, how many got each probability.{rest}",
        present(
            renamed(
                reliability(curve, tables.look[name], summary.BINS),
                f"{prefix}-calibration-{slug(name)}",
            )
            for name, curve in calibrations.items()
        ),
        narrow=True,
    )


def _example(group: Group, rest: str, data_dir: str | None) -> Section:
    return Section(
        "An example bag",
        "The first bag of the first test fold that has mixed labels and an easy size. "
        f"Dashed: wrong.{rest}",
        bag=example_bag(group, data_dir),
    )


def _accuracies(group: Group, calibrations: Mapping[str, Calibration], tables: Tables) -> Table:
    bound = group.named(BOUND)
    gaps = {row.rival: row.mean for row in summary.differences(group, bound or "")}
    some_selected = any(summary.selected(r, "accuracy") for r in group.runs.values())
    rows = []
    for name, records in group.runs.items():
        run, error = records[0]["run"], calibrations[name].error
        last = summary.final(records, "accuracy", 100)
        chosen = summary.selected(records, "accuracy", 100)
        keys = ("proportion_error", "log_likelihood", "log_loss", "brier")
        values = {key: summary.final(records, key) for key in keys}
        sampling, band = summary.sampling_sd(records), summary.band(records)
        cells = [str(len(records)), f"{cell(last, '.1f')} (sampling {sampling:.1f})"]
        cells += [cell(chosen, ".1f")] if some_selected else []
        cells += [or_dash(band, ".1f")]
        cells += [signed(-gaps[name]) if name in gaps else "–"]
        means = [None if value is None else value.mean for value in values.values()]
        cells += [or_dash(mean, ".3f") for mean in (*means, error)]
        rows.append((name, cells))
        tables.add(
            "accuracy",
            group,
            method=name,
            folds=len(records),
            epochs=run["epochs"],
            **two("accuracy_percent", last),
            accuracy_percent_sampling_sd=sampling,
            accuracy_percent_band=band,
            **two("selected_accuracy_percent", chosen),
            gap=-gaps[name] if name in gaps else None,
            **{k: v for key, value in values.items() for k, v in two(key, value).items()},
            calibration_error=error,
            lr=run["lr"],
            weight_decay=run["weight_decay"],
            method_options=json.dumps(run["method_options"]) if run["method_options"] else "",
            chosen_by=records[0]["chosen_by"],
        )
    columns = [
        Column("Folds"),
        Column("Accuracy,\N{NO-BREAK SPACE}%", "last epoch"),
        *([Column("Selected, %", "epoch that held-out bags chose")] * some_selected),
        Column("Band", "deviation over folds, mean of all epochs"),
        Column("Gap", f"points from {bound or BOUND}, same folds"),
        Column("Proportion error", "test bags"),
        Column("Log-likelihood", "exact, of test bags"),
        Column("Log loss"),
        Column("Brier"),
        Column("Calibration error", "all folds pooled, ten bins"),
    ]
    return Table(
        columns,
        rows,
        "Means over folds, of accuracy ± one standard deviation. Sampling: the deviation that as "
        "many test instances would give by chance if every fold's network were as good as the "
        "next, by the binomial distribution; a deviation near it tells nothing of the method. "
        "Band: the deviation over folds after every epoch, its mean over all of them. The "
        "calibration error is not a mean: it is that of the instances of all folds together.",
    )


def trained_with(group: Group) -> Table:
    """The hyper-parameters of each method, and who chose them."""
    rows = []
    for name, records in group.runs.items():
        run = records[0]["run"]
        options = ", ".join(f"{key} {value}" for key, value in run["method_options"].items())
        source = "; ".join(sorted({_chosen_by(group, name, record) for record in records}))
        cells = [str(run["epochs"]), f"{run['lr']:g}", f"{run['weight_decay']:g}", options or "–"]
        rows.append((name, [*cells, run["network"], source]))
    numbers, texts = (
        ("Epochs", "Learning rate", "Weight decay"),
        ("Options", "Network", "Chosen by"),
    )
    columns = [*map(Column, numbers), *(Column(head, text=True) for head in texts)]
    return Table(columns, rows)


def _chosen_by(group: Group, name: str, record: Record) -> str:
    """The source of a record's hyper-parameters, seen from its group's."""
    told, words = str(record["chosen_by"]), {GRID: "the grid's choice", DEFAULTS: "the defaults"}
    if not group.of_source(name, record) or told.startswith(group.source):
        return told
    return f"{told}, which are {words[group.source]}"


def _paired(group: Group, prefix: str, tables: Tables) -> Section:
    plots, shown = [], []
    for reference in _references(group):
        found = summary.differences(group, reference)
        for row in found:
            tables.add("paired-differences", group, reference=reference, **vars(row))
        named = "" if reference == group.named(REFERENCE) else f"-{slug(reference)}"
        plots.append(
            intervals(
                [Interval(row.rival, row.mean, row.low, row.high) for row in found],
                tables.look,
                f"{prefix}-differences{named}",
                f"{reference} minus the other, points",
            )
        )
        rows = [
            (
                row.rival,
                [
                    str(row.folds),
                    between(row.mean, row.low, row.high),
                    _along(row),
                    "–" if row.ahead is None else f"{row.ahead} of {row.epochs}",
                    or_dash(row.sd_reference, ".2f"),
                    or_dash(row.sd_rival, ".2f"),
                    _p_value(row.equal_spread),
                ],
            )
            for row in found
        ]
        columns = [
            Column("Folds"),
            Column("Difference", f"last epoch, points, {LEVEL:.0%} interval"),
            Column("Along the way", f"mean of all epochs, {LEVEL:.0%} interval"),
            Column("Ahead", "epochs, by the mean over folds"),
            Column(f"SD of {reference}", "over folds"),
            Column("SD of the other", "over folds"),
            Column("p", "of equal SD"),
        ]
        if rows:
            shown.append(Table(columns, rows, f"{reference} minus the other."))
    return Section(
        f"{REFERENCE} against each, fold by fold",
        "Differences of accuracy in the same fold: of the last epoch, and the mean over epochs, "
        "which tells who is ahead on the way there. Training sets of different folds "
        "overlap; the intervals have the variance of Nadeau and Bengio, which allows for that. "
        "p is that of Pitman and Morgan's paired test of equal variances. Ten folds decide little "
        "about variances: the deviations of two methods that vary alike may well differ by a "
        "factor of two, and where both are near what sampling the test instances alone would give "
        "(the methods side by side), they tell nothing of the methods. Neither p nor the intervals "
        "are corrected for the number of comparisons: one p in twenty is below 0.05 by "
        "chance alone.",
        present(plots),
        shown,
    )


def _along(row: summary.Difference) -> str:
    return "–" if row.along is None else between(row.along, row.along_low, row.along_high)


def _p_value(p: float | None) -> str:
    return "< 0.01" if p is not None and p < 0.01 else or_dash(p, ".2f")


def _references(group: Group) -> list[str]:
    return [name for name in map(group.named, (REFERENCE, PAPERS)) if name is not None]


def curve_rows(group: Group, tables: Tables) -> None:
    """The curves that are drawn, as numbers."""
    keys = ["test_accuracy", "test_log_likelihood", "test_proportion_error", "log_likelihood"]
    if all(summary.SELECTS in record["history"] for record in group.records):
        keys.append(summary.SELECTS)
    for name, every in group.runs.items():
        for size, records in by_size(every).items():
            for at, epoch in enumerate(records[0]["history"]["epoch"]):
                row: dict[str, Any] = {"experiment": group.experiment, "method": name}
                row |= {"bag_size": size, "epoch": epoch, "folds": len(records)}
                for key in keys:
                    row |= two(key, summary.spread(r["history"][key][at] for r in records))
                tables.add("learning-curves", group, **row)
