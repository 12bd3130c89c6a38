"""What the page shows of the other experiments: epoch times, sizes of bags, the grid."""

from dataclasses import replace

from llpkit.experiments import _summary as summary
from llpkit.experiments._groups import Group
from llpkit.experiments._plan import WARM_UP
from llpkit.experiments._run import Record
from llpkit.experiments._sections import present, renamed, slug
from llpkit.experiments._summary import BOUND, LEVEL, PAPERS, REFERENCE
from llpkit.experiments._tables import Tables, between, cell, or_dash, two
from llpkit.report import Column, Plot, Section, SizePoint, Table, epoch_times, size_curves
from llpkit.report._data import decimals

_PAPERS_TIME = (
    f" The paper's {REFERENCE} makes a pass over the training data after every epoch, which is "
    f"{PAPERS} here; its time stands beside both."
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
        f"of each turn left out. {group.setting['hardware']}." + (_PAPERS_TIME if paper else ""),
        present([renamed(plot, slug(f"{group.dataset} epoch time {apart}"))]),
        [Table(columns, rows)] if rows else [],
    )
    return _titled(section, apart)


def sizes(group: Group, apart: str, tables: Tables) -> Section:
    """Accuracy against the size of bags, at the last epoch and where bags chose one, at that.

    The methods of the group have the same sizes and folds.
    """
    folds: dict[int, set[int]] = {}
    for record in group.records:
        folds.setdefault(record["run"]["bag_size"], set()).add(record["run"]["fold"])
    every = sorted(folds)
    numbers = {number: [n for n in every if len(folds[n]) == number] for number in _counts(folds)}
    told = "; ".join(f"{k} at {', '.join(map(str, its))}" for k, its in numbers.items())
    prefix = slug(f"{group.dataset} bag size {apart}")
    plots: list[Plot | None] = []
    shown = []
    for kind, key in (("last epoch", "final"), ("selected epoch", "selected")):
        if any(record[key] is None for record in group.records):
            continue
        points, rows = [], []
        for name, runs in group.runs.items():
            cells = []
            for size in every:
                its = [r[key]["accuracy"] for r in runs if r["run"]["bag_size"] == size]
                found = summary.spread(its)
                percent = summary.spread(its, 100)
                cells.append(cell(percent, ".1f"))
                if found is not None:
                    points.append(SizePoint(name, size, found.mean, found.sd))
                    values = two("accuracy_percent", percent)
                    keys = {"method": name, "size": size, "epoch": kind, "folds": len(its)}
                    tables.add("bag-size", group, **keys, **values)
            slope = summary.slope(runs, key)
            if slope is not None:
                tables.add("bag-size-slope", group, method=name, epoch=kind, **vars(slope))
            cells.append("–" if slope is None else between(slope.mean, slope.low, slope.high))
            rows.append((name, cells))
        title = f"Accuracy on test instances, {kind}"
        plots.append(size_curves(points, tables.look, f"{prefix}-{slug(kind)}", title))
        columns = [Column(str(size)) for size in every]
        slope = summary.slope(next(iter(group.runs.values())), key)
        over = "" if slope is None else f", {slope.sizes[0]} to {slope.sizes[-1]}"
        columns.append(Column("Slope", f"points a doubling{over}, {LEVEL:.0%} interval"))
        about = f"Accuracy in per cent by size of bags, {kind}. Folds: {told}."
        shown += [Table(columns, rows, about), *_by_size(group, every, kind, key, tables)]
    batch = group.setting["batch_size"]
    sources = ", ".join(sorted({record["chosen_by"] for record in group.records}))
    section = Section(
        "Accuracy against bag size",
        "Bags of a fixed size; mean and standard deviation over folds, the same for all methods. "
        f"Hyper-parameters are the same at all sizes ({sources}): a grid chooses them on bags of 1 "
        f"to 12. A step has {batch} instances for every method. One that learns from whole bags "
        f"sees {batch} / n of them in it: a single one at n = {batch}.",
        present(plots),
        shown,
    )
    return _titled(section, apart)


def _counts(folds: dict[int, set[int]]) -> list[int]:
    return sorted({len(its) for its in folds.values()}, reverse=True)


def _by_size(group: Group, sizes: list[int], kind: str, key: str, tables: Tables) -> list[Table]:
    """The reference minus each other method at every size, fold by fold."""
    rows = []
    for name, runs in group.runs.items():
        if name == REFERENCE or REFERENCE not in group.runs:
            continue
        cells = []
        for size in sizes:
            found = _pairs(group.runs[REFERENCE], runs, size, key)
            mean, low, high = summary.interval(found, runs)
            cells.append(between(mean, low, high))
            keys = {"reference": REFERENCE, "rival": name, "size": size, "epoch": kind}
            values = {"folds": len(found), "mean": mean, "low": low, "high": high}
            tables.add("bag-size-differences", group, **keys, **values)
        rows.append((name, cells))
    columns = [Column(str(size)) for size in sizes]
    about = f"{REFERENCE} minus the other in points, {kind}, with {LEVEL:.0%} intervals over folds."
    return [Table(columns, rows, about)] if rows else []


def _pairs(ours: list[Record], theirs: list[Record], size: int, key: str) -> list[float]:
    found = {}
    for which, records in enumerate((ours, theirs)):
        for record in records:
            if record["run"]["bag_size"] == size:
                found[which, record["run"]["fold"]] = 100 * record[key]["accuracy"]
    return [value - found[1, fold] for (which, fold), value in found.items() if which == 0]


def grid(grid: Record, tables: Tables) -> Section:
    """What was tried, what was chosen, what it cost."""
    rows = []
    about = grid["settings"]
    for method, entry in grid["methods"].items():
        for row in entry["candidates"]:
            tables.add_row(
                "grid-candidates",
                dataset=grid["dataset"],
                **about,
                method=method,
                folds=len(entry["folds"]),
                **row,
                chosen=entry["chosen"] is not None and entry["chosen"].items() <= row.items(),
            )
        chosen = "not finished"
        if entry["chosen"] is not None:
            ends = dict.fromkeys(entry["edges"], " (an end)")
            chosen = ", ".join(
                f"{k.replace('_', ' ')} {v:g}{ends.get(k, '')}" for k, v in entry["chosen"].items()
            )
        tried = [row for row in entry["candidates"] if row["score"] is not None]
        scores = [row["score"] for row in tried]
        span = " to ".join(or_dash(end(scores), ".3f") for end in (min, max)) if scores else "–"
        failed = sum(bool(row["failed"]) for row in entry["candidates"])
        cells = [chosen, str(len(entry["candidates"])), span, str(failed)]
        cells += [", ".join(map(str, entry["folds"]))]
        cells += [str(entry["cost"]["runs"]), f"{entry['cost']['seconds']:.0f}"]
        rows.append((method, cells))
    columns = [
        Column("Chosen"),
        Column("Candidates"),
        Column("Scores", "held-out log-likelihood"),
        Column("Diverged"),
        Column("Folds", "which"),
        Column("Runs"),
        Column("Seconds", "of these runs"),
    ]
    size = about["data_options"].get("size")
    return Section(
        "Choice of hyper-parameters",
        f"Chosen by {grid['rule']}. {about['network']}, {about['epochs']} epochs, batches of "
        f"{about['batch_size']}, augmentation {about['augment']}, {about['precision']}"
        f"{f', {size} size' if size else ''}, seed {about['seed']}. An end: nothing was tried "
        "beyond it.",
        tables=[Table(columns, rows)],
    )


def _titled(section: Section, apart: str) -> Section:
    return replace(section, title=f"{section.title}, {apart}") if apart else section
