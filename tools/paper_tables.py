"""The tables of README.md, reproduce.md and protocol.md, from results/*/*.parquet."""

import functools
from collections.abc import Sequence
from statistics import fmean

from comparison import along, band, pitman_morgan, sampling_sd, times_to_accuracy
from table_kit import ROOT, Rows, code, signed, table

from llpkit.experiments import Record, Results
from llpkit.experiments.search import searches
from llpkit.experiments.summary import (
    Runs,
    accuracies,
    by_fold,
    difference,
    epoch_times,
    interval,
    paired,
    size_accuracies,
    slopes,
)
from llpkit.report.spread import Spread, true_minus

PHOTOS, BIRDS = "group-photos", "bird-cat"
METHODS = ("supervised", "mle", "mle-pass", "direct", "amle", "amle-paper", "dllp", "llp-gan")
RIVALS = ("amle", "amle-paper", "dllp", "llp-gan", "supervised")
SECOND = "bird-cat-second-partition"
PAPER_SECONDS = {
    PHOTOS: {
        "mle-pass": 16.66,
        "amle": 29.33,
        "dllp": 30.38,
        "llp-gan": 77.01,
        "supervised": 12.81,
    },
    BIRDS: {"mle-pass": 7.78, "amle": 20.23, "dllp": 18.66, "llp-gan": 51.20, "supervised": 3.65},
}
"""Seconds per epoch in the paper, on its authors' card."""


@functools.cache
def results(folder: str) -> Results:
    """The records of a folder."""
    return Results.read(ROOT / "results" / folder)


def runs(folder: str, experiment: str = "convergence") -> Runs:
    """The runs of a folder by method."""
    return results(folder).by_method(experiment)


# Cells


def with_folds(folder: str) -> dict[str, str]:
    """Accuracy of each method, and how many folds it has."""
    return {name: f"{a:.1f} ({a.number})" for name, a in accuracies(runs(folder)).items()}


# Tables


@table
def methods() -> Rows:
    """The table of the README."""
    photos, birds = with_folds(PHOTOS), with_folds(BIRDS)
    large = {
        name: f"{own[16]:.1f} ({own[16].number})"
        for name, own in size_accuracies(runs(BIRDS, "bag-size")).items()
        if 16 in own
    }
    times = {name: t.ratio for name, t in epoch_times(runs(BIRDS, "epoch-time")).items()}
    notes = {
        "supervised": ", every label known",
        "mle": ", EM",
        "mle-pass": ", EM as published, with an extra forward pass per epoch",
        "direct": ", gradient of the same likelihood",
        "amle": ", normal approximation of the count",
        "amle-paper": ", AMLE as published",
        "dllp": ", published baseline",
        "llp-gan": ", published baseline",
    }
    head = ["method", "group photos, 100 epochs", "CIFAR-10, bird and cat, 120 epochs"]
    head += ["bird and cat, bags of 16, 60 epochs", "time per epoch, CIFAR-10"]
    return [
        head,
        *(
            [
                code(name) + notes.get(name, ""),
                photos.get(name, ""),
                birds[name],
                large.get(name, ""),
                f"{mean(times[name]):.2f}" if name in times else "",
            ]
            for name in METHODS
        ),
    ]


@table
def demo() -> Rows:
    """What ``llpkit demo`` prints."""
    rows = [["method", "accuracy, %"]]
    found = accuracies(runs("digits"))
    return [*rows, *([code(name), f"{accuracy:.1f}"] for name, accuracy in found.items())]


def mean(found: Spread | None) -> float:
    """Of something that is known."""
    assert found is not None
    return found.mean


def differences_from(reference: str, names: Sequence[str]) -> Rows:
    """A reference minus others, on both data sets."""
    head = ["photos, last epoch", "all epochs", "ahead", "CIFAR-10, last epoch", "all epochs"]
    rows = [[f"{code(reference)} minus", *head, "ahead"]]
    for name in names:
        row = [code(name)]
        for folder in (PHOTOS, BIRDS):
            ours, theirs = (runs(folder).get(each, []) for each in (reference, name))
            last = difference(ours, theirs)
            if last is None:
                row += [""] * 3
                continue
            mean, ahead, epochs = along(ours, theirs)
            row += [f"{last:+.1f}", f"{mean:+.1f}", f"{ahead} of {epochs}"]
        rows.append(row)
    return rows


@table
def differences_mle_pass() -> Rows:
    """The paper's algorithm minus each other method."""
    return differences_from("mle-pass", ("mle", *RIVALS))


@table
def differences_mle() -> Rows:
    """The default minus each other method."""
    return differences_from("mle", ("mle-pass", *RIVALS))


@table
def spread_over_folds() -> Rows:
    """Standard deviations over folds, and p of being equal to that of the paper's algorithm."""
    rows = [["standard deviation", "photos, last epoch", "all epochs", "p"]]
    rows[0] += ["CIFAR-10, last epoch", "all epochs", "p"]
    for name in ("supervised", "mle", "mle-pass", "amle", "amle-paper", "dllp", "llp-gan"):
        row = [code(name)]
        for folder in (PHOTOS, BIRDS):
            its = runs(folder).get(name)
            if its is None:
                row += [""] * 3
                continue
            pair = paired(runs(folder)["mle-pass"], its)
            p = pitman_morgan(*(list(by_fold(each).values()) for each in pair))
            sd = Spread.of(by_fold(its).values()).sd
            row += [f"{sd:.1f} ({sampling_sd(its):.1f})", f"{band(its):.1f}"]
            row.append("" if p is None else f"{p:.2f}")
        rows.append(row)
    return rows


@table
def epochs() -> Rows:
    """Epochs to one point below the last accuracy, and ratios to the paper's algorithm."""
    head = ["photos", "to the same accuracy", "each to its own"]
    rows = [["epochs", *head, "CIFAR-10", *head[1:]]]
    for name in ("mle", "mle-pass", "amle", "dllp", "llp-gan"):
        row = [code(name)]
        for folder in (PHOTOS, BIRDS):
            every = times_to_accuracy(runs(folder), reference="mle-pass")
            [t] = [t for t in every if t.method == name]
            row.append(f"{t.epochs:d}")
            if t.ratio is None:
                row += ["", ""]
                continue
            row.append(f"{t.ratio:.2f}")
            row.append(f"{t.own_ratio:.2f}")
        rows.append(row)
    return rows


@table
def accuracy_by_epoch() -> Rows:
    """Mean accuracy on the way."""
    after = {PHOTOS: (10, 40, 100), BIRDS: (10, 40, 120)}
    rows = [["accuracy after", "photos, 10 epochs", "40", "100", "CIFAR-10, 10 epochs", "40"]]
    rows[0].append("120")
    for name in METHODS:
        cells = [
            mean_accuracy(runs(folder).get(name, ()), epoch)
            for folder, epochs in after.items()
            for epoch in epochs
        ]
        rows.append([code(name), *cells])
    return rows


def mean_accuracy(records: Sequence[Record], epoch: int) -> str:
    """Mean accuracy in per cent after an epoch; empty without records."""
    values = [100 * record.history["test_accuracy"][epoch - 1] for record in records]
    return f"{fmean(values):.1f}" if values else ""


@table
def networks() -> Rows:
    """Two folds by two networks."""
    folders = (PHOTOS, f"{PHOTOS}-llp-gan-network", BIRDS, f"{BIRDS}-llp-gan-network")
    rows = [["accuracy on folds 0 and 1"]]
    rows[0] += ["photos, `conv-large`", "photos, network of `llp-gan`"]
    rows[0] += ["CIFAR-10, `conv-large`", "CIFAR-10, network of `llp-gan`"]
    for name in ("supervised", "dllp", "llp-gan"):
        row = [code(name)]
        for folder in folders:
            own = name == "llp-gan"
            source = folder.removesuffix("-llp-gan-network") if own else folder
            shown = not own or folder != source
            row.append(f"{two_folds(runs(source)[name]):.1f}" if shown else "")
        rows.append(row)
    return rows


def two_folds(records: Sequence[Record]) -> float:
    """Mean accuracy of the first two folds."""
    return fmean(100 * r.final["accuracy"] for r in records if r.fold < 2)


def by_size(folder: str) -> dict[tuple[str, int], str]:
    """Accuracy by method and bag size."""
    found = size_accuracies(runs(folder, "bag-size"))
    return {(name, n): f"{own[n]:.1f}" for name, own in found.items() for n in own}


@table
def bag_sizes() -> Rows:
    """Accuracy against bag size."""
    found = by_size(BIRDS)
    change = {name: f"{slope:+.1f}" for name, slope in slopes(runs(BIRDS, "bag-size")).items()}
    sizes = sorted({size for _, size in found})
    rows = [["instances per bag", *(f"n = {size}" for size in sizes), "points per doubling"]]
    for name in ("mle", "direct", "amle", "dllp"):
        rows.append([code(name), *(found[name, size] for size in sizes), change[name]])
    return rows


@table
def large_batches() -> Rows:
    """Accuracy in large bags and large batches."""
    found = by_size(f"{BIRDS}-large-batches")
    rows = [["accuracy, 1024 instances per step", "n = 64", "n = 128"]]
    names = ("mle", "direct", "amle", "dllp")
    return [*rows, *([code(n), found[n, 64], found[n, 128]] for n in names)]


@table
def augmentation() -> Rows:
    """The paper's augmentation beside a geometric one, on the folds that have both."""
    rows = [["bird and cat, folds 0 to 2", "the paper's augmentation", "geometric", "difference"]]
    usual, other = runs(BIRDS), runs(f"{BIRDS}-geometric")
    for name in METHODS:
        if name in other:
            ours, theirs = paired(other[name], usual[name])
            means = [Spread.of(by_fold(each).values()) for each in (theirs, ours)]
            rows.append([code(name), *(f"{each:.1f}" for each in means), minus([ours], [theirs])])
    return rows


def minus(ours: Sequence[Sequence[Record]], theirs: Sequence[Sequence[Record]]) -> str:
    """One minus the other at the last epoch, paired by fold, over one or more partitions."""
    pairs = [paired(one, other) for one, other in zip(ours, theirs, strict=True)]
    apart, records = [], []
    for one, other in pairs:
        first, second = by_fold(one), by_fold(other)
        apart += [first[fold] - second[fold] for fold in first]
        records += other
    return f"{interval(apart, records):+.1f}" if apart else ""


@table
def bags_of_16() -> Rows:
    """EM and its rivals in bags of 16."""
    rows = [["bags of 16", "augmentation", "learning rate, weight decay", "last epoch"]]
    rows[0] += ["selected epoch", "held-out, selected", "held-out, last", "training, last"]
    folder = f"{BIRDS}-bags-of-16"
    for name, part in (
        ("mle-pass", "-geometric"),
        ("mle", "-geometric"),
        ("direct", "-geometric"),
        ("mle-pass", ""),
        ("mle-pass", "-small-step"),
        ("mle", ""),
        ("mle", "-tuned"),
        ("direct", ""),
        ("direct", "-tuned"),
    ):
        records = runs(folder + part)[name]
        recipe = records[0].recipe
        step = ", step 0.3" if part == "-small-step" else ""
        last, selected = [r.final for r in records], [r.selected or {} for r in records]
        ends = [Spread.of(100 * row["accuracy"] for row in its) for its in (last, selected)]
        bags = [[row["held_out_log_likelihood"] for row in its] for its in (selected, last)]
        bags.append([r.history["log_likelihood"][-1] for r in records])
        rows.append(
            [
                code(name) + step,
                recipe["augment"],
                f"{recipe['lr']:g}, {recipe['weight_decay']:g}",
                *(f"{each:.1f}" for each in ends),
                *(true_minus(f"{fmean(each):.2f}") for each in bags),
            ]
        )
    return rows


@table
def bags_of_16_differences() -> Rows:
    """The default minus its rivals in bags of 16, at equal hyper-parameters."""
    folder = f"{BIRDS}-bags-of-16"
    rows = [["bags of 16, `mle` minus", "geometric", "paper"]]
    parts = [runs(folder + part) for part in ("-geometric", "")]
    for name in ("mle-pass", "direct"):
        apart = [difference(its["mle"], its[name]) for its in parts]
        rows.append([code(name), *(f"{each:+.1f}" for each in apart)])
    return rows


@table
def equal_rates() -> Rows:
    """Likelihoods of EM and the paper's algorithm at equal hyper-parameters."""
    rows = [["default hyper-parameters, bags of 1 to 12", "training bags, last epoch"]]
    rows[0] += ["test bags, epoch 60", "test bags, last epoch", "accuracy, last epoch"]
    its = runs(f"{BIRDS}-equal-rates")
    for name in ("mle", "mle-pass"):
        bags = [[r.history["log_likelihood"][-1] for r in its[name]]]
        bags.append([r.history["test_log_likelihood"][59] for r in its[name]])
        bags.append([r.final["log_likelihood"] for r in its[name]])
        accuracy = Spread.of(by_fold(its[name]).values())
        cells = [true_minus(f"{fmean(each):.2f}") for each in bags]
        rows.append([code(name), *cells, f"{accuracy:.1f}"])
    return rows


@table
def epoch_ratios() -> Rows:
    """Epoch times over that of supervised training, here and in the paper."""
    rows = [["", "CIFAR-10", "group photos", "the paper, CIFAR-10", "the paper, photos"]]
    found = {
        f: {name: t.ratio for name, t in epoch_times(runs(f, "epoch-time")).items()}
        for f in (BIRDS, PHOTOS)
    }
    for name in METHODS[1:]:
        if name not in found[BIRDS]:
            continue
        row = [code(name), *(f"{found[folder][name]:.2f}" for folder in (BIRDS, PHOTOS))]
        for folder in (BIRDS, PHOTOS):
            paper = PAPER_SECONDS[folder]
            row.append(f"{paper[name] / paper['supervised']:.2f}" if name in paper else "")
        rows.append(row)
    return rows


@table
def hyper_parameters() -> Rows:
    """What the grid chose, and what it cost."""
    rows = [["method", "bird and cat", "group photos", "runs", "seconds"]]
    found = {f: {s.method: s for s in searches(results(f))} for f in (BIRDS, PHOTOS)}
    for name in METHODS:
        its = [found[folder][name] for folder in (BIRDS, PHOTOS)]
        chosen = [
            ", ".join(f"{k.replace('_', ' ')} {v:g}" for k, v in (s.choice or {}).items())
            for s in its
        ]
        costs = " + ".join(str(s.number) for s in its)
        rows.append([code(name), *chosen, costs, f"{sum(s.seconds for s in its):.0f}"])
    return rows


@table
def run_again() -> Rows:
    """Runs that were carried out twice."""
    rows = [["data set", "method", "fold", "first run", "second run", "difference"]]
    for folder, title in (
        (PHOTOS, "group photos"),
        (f"{BIRDS}-weight-10", "bird and cat"),
        (f"{BIRDS}-bags-of-16-tuned", "bird and cat, bags of 16"),
    ):
        second = [r for rs in runs(f"{folder}-again").values() for r in rs]
        for r in sorted(second, key=lambda r: (r.method, r.fold)):
            [first] = [one for one in runs(folder)[r.method] if one.id == r.id]
            pair = [100 * one.final["accuracy"] for one in (first, r)]
            cells = [f"{value:.1f}" for value in pair]
            rows.append([title, code(r.method), str(r.fold), *cells, signed(pair[1] - pair[0])])
    return rows
