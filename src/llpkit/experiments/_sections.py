"""The sections of the page: what each experiment shows of its groups of records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llpkit.experiments import _summary as summary
from llpkit.experiments._example import example_bag
from llpkit.experiments._groups import Group
from llpkit.experiments._plan import WARM_UP
from llpkit.experiments._run import Record
from llpkit.experiments._summary import BELOW, BOUND, LEVEL, REFERENCE
from llpkit.experiments._tables import Tables, cell, or_dash, ratio, signed, two
from llpkit.report import (
    Calibration,
    Column,
    Interval,
    Plot,
    Section,
    Series,
    SizePoint,
    Table,
    epoch_times,
    fold_curves,
    intervals,
    reliability,
    size_curves,
    time_curves,
)
from llpkit.report._data import decimals


def convergence(
    group: Group, apart: str, timed: Sequence[Group], tables: Tables, data_dir: str | None
) -> list[Section]:
    """How the methods learn, and what they have learnt; ``apart`` tells the group from others."""
    prefix = _slug(f"{group.dataset} {apart}")
    lines = [s for name, records in group.runs.items() for s in summary.series(name, records)]
    calibrations = {name: summary.calibration(name, r) for name, r in group.runs.items()}
    _curve_rows(group, tables)
    sections = [
        Section(
            "Learning curves",
            f"Lines are means over {group.folds} folds, bands one standard deviation either side. "
            "The vertical axis is fitted to where the curves settle.",
            fold_curves(lines, tables.look, prefix),
        ),
        Section(
            "The methods side by side",
            tables=[_accuracies(group, calibrations, tables), _trained_with(group)],
        ),
        _paired(group, prefix, tables),
        _reach(group, prefix, summary.alone(group, timed), tables),
        Section(
            "Calibration",
            "Of the instances given a probability near 0.8, about 80 % should be positive: on the "
            "dashed line. Below, how many instances of all folds got each probability.",
            _present(
                _renamed(reliability(curve, tables.look[name]), f"{prefix}-calibration-{name}")
                for name, curve in calibrations.items()
            ),
            narrow=True,
        ),
        Section(
            "An example bag",
            "The first bag of the first test fold that has mixed labels and an easy size. "
            "Dashed: wrong.",
            bag=example_bag(group, data_dir),
        ),
    ]
    return [section for section in sections if section.plots or section.tables or section.bag]


def _accuracies(group: Group, calibrations: Mapping[str, Calibration], tables: Tables) -> Table:
    gaps = {row.rival: row.mean for row in summary.differences(group, BOUND)}
    some_selected = any(summary.selected(r, "accuracy") for r in group.runs.values())
    rows = []
    for name, records in group.runs.items():
        run, error = records[0]["run"], calibrations[name].error
        last = summary.final(records, "accuracy", 100)
        chosen = summary.selected(records, "accuracy", 100)
        keys = ("proportion_error", "log_likelihood", "log_loss", "brier")
        values = {key: summary.final(records, key) for key in keys}
        cells = [str(len(records)), cell(last, ".1f")]
        cells += [cell(chosen, ".1f")] if some_selected else []
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
            **two("selected_accuracy_percent", chosen),
            gap=-gaps[name] if name in gaps else None,
            **{k: v for key, value in values.items() for k, v in two(key, value).items()},
            calibration_error=error,
            lr=run["lr"],
            weight_decay=run["weight_decay"],
            method_options=str(run["method_options"] or ""),
            chosen_by=records[0]["chosen_by"],
        )
    columns = [
        Column("Folds"),
        Column("Accuracy, %", "last epoch"),
        *([Column("Selected, %", "epoch that held-out bags chose")] * some_selected),
        Column("Gap", f"points from {BOUND}, same folds"),
        Column("Proportion error", "test bags"),
        Column("Log-likelihood", "exact, of test bags"),
        Column("Log loss"),
        Column("Brier"),
        Column("Calibration error"),
    ]
    return Table(columns, rows, "Means over folds, of accuracy ± one standard deviation.")


def _trained_with(group: Group) -> Table:
    rows = []
    for name, records in group.runs.items():
        run = records[0]["run"]
        options = ", ".join(f"{key} {value}" for key, value in run["method_options"].items())
        chosen_by = ", ".join(sorted({record["chosen_by"] for record in records}))
        cells = [str(run["epochs"]), f"{run['lr']:g}", f"{run['weight_decay']:g}", options or "–"]
        rows.append((name, [*cells, run["network"], chosen_by]))
    heads = ("Epochs", "Learning rate", "Weight decay", "Options", "Network", "Chosen by")
    return Table([Column(head) for head in heads], rows)


def _paired(group: Group, prefix: str, tables: Tables) -> Section:
    found = summary.differences(group)
    for row in found:
        tables.add("paired-differences", group, reference=REFERENCE, **vars(row))
    title = f"{REFERENCE} minus the other, points"
    plot = intervals(
        [Interval(row.rival, row.mean, row.low, row.high) for row in found],
        tables.look,
        f"{prefix}-differences",
        title,
    )
    cells = [
        (
            row.rival,
            [
                str(row.folds),
                signed(row.mean),
                "–" if row.low is None else f"{signed(row.low)} to {signed(row.high or 0.0)}",
            ],
        )
        for row in found
    ]
    columns = [Column("Folds"), Column("Difference", "points"), Column("Interval", f"{LEVEL:.0%}")]
    return Section(
        f"{REFERENCE} against each, fold by fold",
        f"Differences of last-epoch accuracy in the same fold, {REFERENCE} minus the other: mean, "
        f"and t interval ({LEVEL:.0%}) over folds. Right of zero {REFERENCE} is better.",
        _present([plot]),
        [Table(columns, cells)] if cells else [],
    )


def _reach(group: Group, prefix: str, seconds: Mapping[str, float], tables: Tables) -> Section:
    found = summary.reaches(group, dict(seconds))
    rows = []
    for row in found:
        tables.add("time-to-accuracy", group, reference=REFERENCE, **vars(row))
        cells = [f"{100 * row.target:.1f} %", or_dash(row.rival_epochs)]
        cells += [or_dash(row.reference_epochs), ratio(row.rival_epochs, row.reference_epochs)]
        if seconds:
            cells += [or_dash(row.rival_seconds, ".1f"), or_dash(row.reference_seconds, ".1f")]
            cells += [ratio(row.rival_seconds, row.reference_seconds)]
        rows.append((row.rival, cells))
    columns = [
        Column("Target", "one point below its own last accuracy"),
        Column("Epochs", "it takes"),
        Column(f"{REFERENCE}", "epochs to the same"),
        Column("Ratio", "of epochs"),
    ]
    if seconds:
        columns += [
            Column("Seconds", "it takes"),
            Column(f"{REFERENCE}", "seconds to the same"),
            Column("Ratio", "of seconds"),
        ]
    clocked = [
        Series(name, s.seed_or_fold, [{**row, "seconds": seconds[name]} for row in s.history])
        for name, records in group.runs.items()
        for s in summary.series(name, records)
        if name in seconds
    ]
    plot = time_curves(clocked, tables.look)
    return Section(
        "Time to accuracy",
        f"By the mean curves: how long each method takes to {100 * BELOW:.0f} point below its own "
        f"last accuracy, and how long {REFERENCE} takes to the same. Seconds are epochs times the "
        "epoch's time measured alone. Learning rates fall towards the end of every run, so that "
        "epochs depend on the length of the schedule too.",
        _present([_renamed(plot, f"{prefix}-accuracy-time")]),
        [Table(columns, rows)] if rows else [],
    )


def times(group: Group, apart: str, tables: Tables) -> Section:
    """The time of an epoch, ours beside the paper's."""
    found = summary.epoch_times(group)
    rows = []
    digits = 1 + decimals([row.epoch_seconds for row in found])
    paper = any(row.paper is not None for row in found)
    for row in found:
        tables.add("epoch-time", group, **vars(row))
        sd = "" if row.epoch_seconds_sd is None else f" ± {row.epoch_seconds_sd:.{digits}f}"
        cells = [f"{row.epoch_seconds:.{digits}f}{sd}", or_dash(row.epoch_ratio, ".2f")]
        if paper:
            cells += [or_dash(row.paper, ".2f"), or_dash(row.paper_ratio, ".2f")]
        rows.append((row.method, [*cells, str(row.epochs)]))
    columns = [Column("Seconds an epoch", "± 1σ"), Column("Ratio", f"to {BOUND}")]
    if paper:
        columns += [Column("Paper", "seconds, its own card"), Column("Paper's ratio")]
    columns += [Column("Epochs", "timed")]
    plot = epoch_times(found, tables.look)
    section = Section(
        "Epoch time",
        f"Each method alone on the machine, the methods taking turns, the first {WARM_UP} epochs "
        f"of each turn left out. {group.setting['hardware']}.",
        _present([_renamed(plot, _slug(f"{group.dataset} epoch time {apart}"))]),
        [Table(columns, rows)] if rows else [],
    )
    return _titled(section, apart)


def sizes(group: Group, apart: str, tables: Tables) -> Section:
    """Accuracy against the size of bags, at the last epoch and where bags chose one, at that."""
    every = sorted({r["run"]["bag_size"] for runs in group.runs.values() for r in runs})
    prefix = _slug(f"{group.dataset} bag size {apart}")
    plots, shown = [], []
    kinds = {"last epoch": summary.final, "selected epoch": summary.selected}
    for kind, value in kinds.items():
        points, rows = [], []
        for name, runs in group.runs.items():
            cells = []
            for size in every:
                its = [r for r in runs if r["run"]["bag_size"] == size]
                found = value(its, "accuracy")
                cells.append(cell(value(its, "accuracy", 100), ".1f"))
                if found is not None:
                    points.append(SizePoint(name, size, found.mean, found.sd))
                    tables.add(
                        "bag-size",
                        group,
                        method=name,
                        size=size,
                        epoch=kind,
                        folds=found.number,
                        **two("accuracy_percent", value(its, "accuracy", 100)),
                    )
            own = {p.size: 100 * p.mean for p in points if p.method == name}
            slope = summary.per_doubling(own)
            rows.append((name, [*cells, "–" if slope is None else signed(slope)]))
        if points:
            title = f"Accuracy on test instances, {kind}"
            plots.append(size_curves(points, tables.look, f"{prefix}-{_slug(kind)}", title))
            columns = [Column(str(size)) for size in every]
            columns.append(Column("Slope", "points a doubling"))
            shown.append(Table(columns, rows, f"Accuracy in per cent by size of bags, {kind}."))
    section = Section(
        "Accuracy against bag size",
        f"Bags of a fixed size, mean and standard deviation over {group.folds} folds.",
        _present(plots),
        shown,
    )
    return _titled(section, apart)


def grid(grid: Record) -> Section:
    """What was tried, what was chosen, what it cost."""
    rows = []
    for method, entry in grid["methods"].items():
        chosen = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in entry["chosen"].items())
        tried = [row for row in entry["candidates"] if row["score"] is not None]
        scores = [row["score"] for row in tried]
        span = f"{min(scores):.3f} to {max(scores):.3f}" if scores else "–"
        failed = sum(bool(row["failed"]) for row in entry["candidates"])
        cells = [chosen, str(len(entry["candidates"])), span, str(failed)]
        cells += [str(entry["cost"]["runs"]), f"{entry['cost']['seconds']:.0f}"]
        rows.append((method, cells))
    columns = [
        Column("Chosen"),
        Column("Candidates"),
        Column("Scores", "held-out log-likelihood"),
        Column("Failed"),
        Column("Runs"),
        Column("Seconds", "of these runs"),
    ]
    about = grid["settings"]
    return Section(
        "Choice of hyper-parameters",
        f"Chosen by {grid['rule']}. {about['epochs']} epochs, folds "
        f"{', '.join(map(str, about['folds']))}, augmentation {about['augment']}.",
        tables=[Table(columns, rows)],
    )


def _curve_rows(group: Group, tables: Tables) -> None:
    keys = ("test_accuracy", "test_log_likelihood", "test_proportion_error", "log_likelihood")
    for name, records in group.runs.items():
        for at, epoch in enumerate(records[0]["history"]["epoch"]):
            row: dict[str, Any] = {"method": name, "epoch": epoch, "folds": len(records)}
            for key in keys:
                row |= two(key, summary.spread(r["history"][key][at] for r in records))
            tables.add("learning-curves", group, **row)


def _titled(section: Section, apart: str) -> Section:
    return replace(section, title=f"{section.title}, {apart}") if apart else section


def _renamed(plot: Plot | None, name: str) -> Plot | None:
    return None if plot is None else Plot(name, plot.alt, plot.figure)


def _present(plots: Iterable[Plot | None]) -> list[Plot]:
    return [plot for plot in plots if plot is not None]


def _slug(text: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    return "-".join(words)
