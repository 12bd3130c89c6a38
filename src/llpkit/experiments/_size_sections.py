"""What the page shows of bags of different sizes."""

import itertools
from collections.abc import Mapping, Sequence
from statistics import median

from llpkit.experiments import _summary as summary
from llpkit.experiments._groups import Group, by_number
from llpkit.experiments._names import present, slug
from llpkit.experiments._run import Record
from llpkit.experiments._sections import curve_rows, trained_with
from llpkit.experiments._summary import FEWEST, LEVEL, REFERENCE, SELECTS
from llpkit.experiments._tables import Tables, between, cell, commands_of, counted, two
from llpkit.report._comparisons import SizePoint, epoch_curves, size_curves
from llpkit.report._figures import Plot
from llpkit.report._results import Column, Section, Table

_KINDS = (("last epoch", "final"), ("selected epoch", "selected"))


def sizes(group: Group, apart: str, prefix: str, tables: Tables) -> list[Section]:
    """Accuracy against the size of bags, and how it came about.

    The methods of the group have the same sizes and folds.
    """
    runs = {name: by_number(records) for name, records in group.runs.items()}
    every = sorted({size for its in runs.values() for size in its})
    plots: list[Plot | None] = []
    shown: dict[Column, Table] = {}  # and what heads its column where there is one size
    for kind, key in _KINDS:
        if any(record[key] is None for record in group.records):
            continue
        table, points = _accuracies(group, runs, every, kind, key, tables)
        if len(every) > 1:
            title = f"Accuracy on test instances, {kind}"
            plots.append(size_curves(points, tables.look, f"{prefix}-{slug(kind)}", title))
        shown[Column(kind.capitalize(), "accuracy, %")] = table
        shown |= _doublings(group, every, kind, key, tables)
        shown |= _differences(group, runs, every, kind, key, tables)
    shown |= _selected(group, runs, every, tables)
    title, curves, its = "Accuracy against bag size", "by bag size", list(shown.values())
    if len(every) == 1:
        title, curves = f"Accuracy in bags of {every[0]}", f"in bags of {every[0]}"
        its = [_side_by_side(shown, runs)]
    end = f", {apart}" if apart else ""
    return [
        Section(
            f"{title}{end}",
            _about(group, every),
            present(plots),
            [*its, trained_with(group)],
            commands=commands_of(group.records),
        ),
        _curves(group, runs, every, f"Learning curves {curves}{end}", prefix, tables),
    ]


def _about(group: Group, every: Sequence[int]) -> str:
    batch = group.setting["batch_size"]
    told = (
        "Mean and standard deviation over folds, the same for all methods. "
        f"Setting: {group.told}. A grid chooses hyper-parameters on bags of 1 to 12. A step has "
        f"{batch} instances for every method. One that learns from whole bags sees {batch} / n of "
        f"them in it{f': a single one at n = {batch}' if batch in every else ''}. Intervals are "
        f"{LEVEL:.0%} over folds, from {FEWEST} folds on, and allow for training sets that "
        "overlap. At one size methods are paired fold by fold."
    )
    if len(every) == 1:
        return told
    return (
        f"{told} Bags of another size are other bags and a fold of them tests other instances, so "
        "that nothing is paired over sizes: steps from size to size have Welch's interval, the "
        "slope that of the regression of accuracy on log2 n over all runs."
    )


def _side_by_side(
    shown: Mapping[Column, Table], runs: Mapping[str, Mapping[int, Sequence[Record]]]
) -> Table:
    """Tables of a single size as one, with a column for each."""
    cells = [{name: own for name, [own] in table.rows} for table in shown.values()]
    rows = [(name, [column.get(name, "") for column in cells]) for name in runs]
    about = f"{_folds(runs)}."
    if len(shown) > 2:
        about += " The selected epoch has the best likelihood of held-out bags."
    return Table(list(shown), rows, about)


def _folds(runs: Mapping[str, Mapping[int, Sequence[Record]]]) -> str:
    """How many folds there are at each size, which all methods share."""
    at: dict[int, list[int]] = {}
    for size, records in sorted(next(iter(runs.values())).items()):
        at.setdefault(len(records), []).append(size)
    if len(at) == 1:
        [(number, its)] = at.items()
        return f"{counted(number, 'fold')}{' at every size' * (len(its) > 1)}"
    return "; ".join(
        f"{counted(number, 'fold')} at n = {', '.join(map(str, its))}" for number, its in at.items()
    )


def _accuracies(
    group: Group,
    runs: Mapping[str, Mapping[int, Sequence[Record]]],
    every: Sequence[int],
    kind: str,
    key: str,
    tables: Tables,
) -> tuple[Table, list[SizePoint]]:
    points, rows, over = [], [], ""
    for name, its in runs.items():
        cells = []
        for size in every:
            values = [record[key]["accuracy"] for record in its.get(size, [])]
            found, percent = summary.spread(values), summary.spread(values, 100)
            cells.append(cell(percent, ".1f"))
            if found is not None:
                points.append(SizePoint(name, size, found.mean, found.sd))
                keys = {"method": name, "size": size, "epoch": kind, "folds": len(values)}
                tables.add("bag-size", group, **keys, **two("accuracy_percent", percent))
        slope = summary.slope(group.runs[name], key)
        if slope is not None:
            over = f", {slope.sizes[0]} to {slope.sizes[-1]}"
            tables.add("bag-size-slope", group, method=name, epoch=kind, **vars(slope))
            cells.append(between(slope.mean, slope.low, slope.high))
        rows.append((name, cells))
    columns = [Column(f"n = {size}") for size in every]
    columns += [Column("Slope", f"points a doubling{over}")] if over else []
    about = f"Accuracy in per cent by size of bags, {kind}. {_folds(runs)}."
    return Table(columns, rows, about), points


def _doublings(
    group: Group, every: Sequence[int], kind: str, key: str, tables: Tables
) -> dict[Column, Table]:
    """What each step from one size to the next costs."""
    steps = list(itertools.pairwise(every))
    rows = []
    for name, records in group.runs.items():
        cells = []
        for step in steps:
            found = summary.doubling(records, step, key)
            cells.append("" if found is None else between(found.mean, found.low, found.high))
            if found is not None:
                ends = {"smaller": step[0], "larger": step[1]}
                values = {k: v for k, v in vars(found).items() if k != "sizes"}
                tables.add("bag-size-steps", group, method=name, epoch=kind, **ends, **values)
        rows.append((name, cells))
    columns = [Column(f"{small} to {large}") for small, large in steps]
    about = (
        f"From one size to the next, {kind}: points a doubling. The slope above is that of a "
        "straight line through all runs; these tell whether a line fits."
    )
    # Of two sizes the only step is the slope.
    return {Column("A doubling", kind): Table(columns, rows, about)} if len(steps) > 1 else {}


def _differences(
    group: Group,
    runs: Mapping[str, Mapping[int, Sequence[Record]]],
    every: Sequence[int],
    kind: str,
    key: str,
    tables: Tables,
) -> dict[Column, Table]:
    """The reference minus each other method at every size, fold by fold."""
    reference, rows = group.named(REFERENCE), []
    for name, its in runs.items():
        if reference is None or name == reference:
            continue
        cells = []
        for size in every:
            ours, theirs = (summary.by_fold(r[size], key) for r in (runs[reference], its))
            found = [ours[fold] - theirs[fold] for fold in ours]
            mean, low, high = summary.interval(found, its[size])
            cells.append(between(mean, low, high))
            keys = {"reference": reference, "rival": name, "size": size, "epoch": kind}
            values = {"folds": len(found), "mean": mean, "low": low, "high": high}
            tables.add("bag-size-differences", group, **keys, **values)
        rows.append((name, cells))
    columns = [Column(f"n = {size}") for size in every]
    about = f"{reference} minus the other in points, {kind}, fold by fold."
    head = Column(f"{reference} minus it", f"{kind}, points")
    return {head: Table(columns, rows, about)} if rows else {}


def _selected(
    group: Group,
    runs: Mapping[str, Mapping[int, Sequence[Record]]],
    every: Sequence[int],
    tables: Tables,
) -> dict[Column, Table]:
    """What stopping by the likelihood of held-out bags gains, and where it stops."""
    if any(record["selected"] is None for record in group.records):
        return {}
    gains, epochs = [], []
    for name, its in runs.items():
        gained, stopped = [], []
        for size in every:
            last, chosen = (summary.by_fold(its[size], key) for _, key in _KINDS)
            mean, low, high = summary.interval([chosen[f] - last[f] for f in last], its[size])
            gained.append(between(mean, low, high))
            at = sorted(record["selected"]["epoch"] for record in its[size])
            stopped.append(f"{median(at):g}" + f" ({at[0]} to {at[-1]})" * (at[0] < at[-1]))
            keys = {"method": name, "size": size, "folds": len(at)}
            values = {"mean": mean, "low": low, "high": high}
            ends = {"epoch_median": median(at), "epoch_first": at[0], "epoch_last": at[-1]}
            tables.add("bag-size-selected", group, **keys, **values, **ends)
        gains.append((name, gained))
        epochs.append((name, stopped))
    columns = [Column(f"n = {size}") for size in every]
    total = group.setting["epochs"]
    return {
        Column("Gain", "selected minus last, points"): Table(
            columns,
            gains,
            "Selected minus last epoch, points, fold by fold. The selected epoch has the best "
            f"likelihood of held-out bags; no label is looked at. {_held_out(group)}",
        ),
        Column("Selected", f"of {total} epochs, median"): Table(
            columns,
            epochs,
            f"The selected epoch of {total}, median over folds (first to last).",
        ),
    }


def _held_out(group: Group) -> str:
    """How many bags an epoch is selected by, at every size."""
    numbers = {}
    for size, records in by_number(group.records).items():
        found = sorted({summary.held_out_bags(record) for record in records})
        numbers[size] = " to ".join(map(str, dict.fromkeys((found[0], found[-1]))))
    told = ", ".join(f"{number} at n = {size}" for size, number in numbers.items())
    return f"Held-out bags: {told}."


def _curves(
    group: Group,
    runs: Mapping[str, Mapping[int, Sequence[Record]]],
    every: Sequence[int],
    title: str,
    prefix: str,
    tables: Tables,
) -> Section:
    curve_rows(group, tables)
    plots: list[Plot | None] = []
    for size in every:
        lines = [s for name, its in runs.items() for s in summary.series(name, its.get(size, []))]
        for what, kind, key in (
            ("Accuracy on test instances", "accuracy", "test_accuracy"),
            ("Log-likelihood, held-out bags", "log-likelihood-held-out", SELECTS),
        ):
            name = f"{prefix}-{size}-{kind}"
            plots.append(
                epoch_curves(
                    lines,
                    tables.look,
                    name,
                    f"{what}, n = {size}",
                    key,
                    percent=kind == "accuracy",
                )
            )
    held = any(plot is not None and plot.name.endswith("held-out") for plot in plots)
    return Section(
        title,
        f"Lines are means over folds ({_folds(runs)}), bands one standard deviation either side."
        + (
            " Beside the accuracy, the likelihood of the held-out bags, by which an epoch can be "
            "selected."
            if held
            else ""
        ),
        present(plots),
        commands=commands_of(group.records),
    )
