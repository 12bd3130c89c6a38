"""Tables on what differs from the paper: partitions, the grid's noise, digits, runs to come."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev

from comparison import unpaired
from paper_tables import BIRDS, METHODS, PHOTOS, SECOND, minus, results, runs
from table_kit import ROOT, Rows, code, recorded, table

from llpkit._text import several
from llpkit.experiments import Record, Results, load
from llpkit.experiments.plan import START, epoch_seconds, estimate, plan
from llpkit.experiments.protocol_file import read
from llpkit.experiments.search import Search, searches
from llpkit.experiments.summary import by_fold
from llpkit.methods import METHODS as NAMES
from llpkit.report import Spread


@table
def partitions() -> Rows:
    """Spread over folds and over two partitions into bags."""
    first, second = runs(BIRDS), runs(SECOND)
    rows = [["bird and cat", "partition 1", "partition 2", "partition 2 minus 1"]]
    for name in METHODS:
        if name in second:
            cells = [Spread.of(by_fold(its[name]).values()) for its in (first, second)]
            shown = [f"{each:.1f} ({each.number})" for each in cells]
            rows.append([code(name), *shown, f"{unpaired(second[name], first[name]):+.1f}"])
    return rows


def collapsed(record: Record) -> bool:
    """Whether a run ends 15 points or more below its best epoch."""
    return bool(max(record.history["test_accuracy"]) - record.final["accuracy"] >= 0.15)


@table
def partition_differences() -> Rows:
    """EM minus its rivals in each partition, and in both."""
    first, second = runs(BIRDS), runs(SECOND)
    rows = [["bird and cat", "partition 1", "partition 2", "both"]]
    for ours, theirs in (
        ("mle", "amle"),
        ("mle", "amle-paper"),
        ("mle-pass", "amle"),
        ("mle-pass", "amle-paper"),
        ("mle", "mle-pass"),
        ("mle", "dllp"),
        ("mle", "supervised"),
    ):
        parts = [(each[ours], each[theirs]) for each in (first, second)]
        cells = [minus([one], [other]) for one, other in parts]
        both = minus([one for one, _ in parts], [other for _, other in parts])
        rows.append([f"{code(ours)} minus {code(theirs)}", *cells, both])
    theirs = [r for r in first["amle-paper"] if not collapsed(r)]
    kept = minus([first["mle"]], [theirs])
    return [*rows, ["`mle` minus `amle-paper`, without its two collapses", kept, "", ""]]


@table
def grid_noise() -> Rows:
    """What the grid gained over the defaults, and whether that exceeds its noise."""
    rows = [["method", "CIFAR-10: gain of the grid", "photos: gain of the grid"]]
    rows[0] += ["CIFAR-10: accuracy, tuned", "with the defaults", "difference"]
    equal, tuned = runs(f"{BIRDS}-equal-rates"), runs(BIRDS)
    found = {f: {s.method: s for s in searches(results(f))} for f in (BIRDS, PHOTOS)}
    for name in METHODS:
        cells = [gain(found[folder][name]) for folder in (BIRDS, PHOTOS)]
        if name in equal:
            means = [Spread.of(by_fold(its[name]).values()) for its in (tuned, equal)]
            same = by_fold(tuned[name]) == by_fold(equal[name])
            apart = "the same runs" if same else minus([tuned[name]], [equal[name]])
            cells += [*(f"{each:.1f}" for each in means), apart]
        else:
            cells += ["", "", ""]
        rows.append([code(name), *cells])
    return rows


def gain(search: Search) -> str:
    """Held-out log-likelihood per bag of the choice minus that of the defaults, ± standard error.

    Bold where it exceeds one standard error of the paired folds.
    """
    usual = {"lr": NAMES[search.method].lr, "weight_decay": 0.0}
    [default] = [
        c for c in search.candidates if dict(c.values) == usual | _weight(c.values, search.method)
    ]
    [best] = [c for c in search.candidates if c.values == search.choice]
    apart = [b - d for b, d in zip(best.scores, default.scores, strict=True)]
    if not any(apart):
        return "0 (the defaults)"
    error = stdev(apart) / len(apart) ** 0.5
    text = f"{fmean(apart):.3f} ± {error:.3f}"
    return f"**{text}**" if fmean(apart) > error else text


def _weight(values: Mapping[str, object], method: str) -> dict[str, object]:
    return {"weight": 1.0} if method == "llp-gan" and "weight" in values else {}


# Digits on a CPU


@table
def digits_variants() -> Rows:
    """First targets of EM and floors of AMLE, on digits."""
    its = runs("digits-variants")
    lost = [r.fold for r in results("digits-variants").failures if r.method == "amle-0"]
    rows = [["digits, dense network, a CPU", "accuracy", "`mle` minus it", "minus its counterpart"]]
    for name, title, other in (
        ("mle", "`mle`", ""),
        ("mle-network", "`mle`, `first=network`", "mle"),
        ("mle-pass", "`mle-pass`", ""),
        ("mle-pass-network", "`mle-pass`, `first=network`", "mle-pass"),
        ("amle", "`amle`, floor 1/12", ""),
        ("amle-1e-6", "`amle`, floor 1e-6", "amle"),
        ("amle-paper", "`amle-paper`, floor 1e-12", "amle"),
    ):
        found = Spread.of(by_fold(its[name]).values())
        ahead = minus([its["mle"]], [its[name]]) if name != "mle" else ""
        apart = minus([its[name]], [its[other]]) if other else ""
        rows.append([title, f"{found:.1f} ({found.number})", ahead, apart])
    return [*rows, ["`amle`, floor 0", f"diverged ({len(lost)} of {len(lost)})", "", ""]]


@table
def digits_batches() -> Rows:
    """Accuracy by batch size, on digits."""
    its, sizes = runs("digits-batches"), ("32", "128", "512", "one-bag")
    folds = min(map(len, its.values()))  # the first ones, which all have
    rows = [[f"accuracy on digits, {several(folds, 'fold')}", *sizes[:3], "one bag"]]
    for name in ("mle", "mle-pass", "direct", "amle", "dllp"):
        found = [its.get(f"{name}-{size}", [])[:folds] for size in sizes]
        cells = [f"{Spread.of(by_fold(each).values()):.1f}" if each else "" for each in found]
        rows.append([code(name), *cells])
    return rows


@table
def digits_steps() -> Rows:
    """Epoch time by batch size, on digits."""
    found = recorded("digits-batches/steps.parquet")
    ratios = {(r["method"], r["batch"]): f"{r['ratio']:.2f} ± {r['sd']:.2f}" for r in found}
    sizes = ("32", "128", "512", "one bag")
    rows = [["epoch on digits, relative to `supervised` in batches of 32", *sizes]]
    for name in dict.fromkeys(row["method"] for row in found):
        rows.append([code(name), *(ratios.get((name, size), "") for size in sizes)])
    return rows


# Runs to come


FULL_SIZE = 0.684 / 0.1998
"""Epochs of photos at full over half size: results/speed-gpu, and epoch times of group-photos."""
ONE_BAG = 8.0
"""Guessed: twenty times the steps, each with a tenth of the images."""

RUNS = (
    ("AMLE as published, photos", PHOTOS, "convergence", ("amle-paper",), PHOTOS),
    ("AMLE as published, epoch times", PHOTOS, "epoch-time", ("amle-paper",), PHOTOS),
    ("", BIRDS, "epoch-time", ("amle-paper",), BIRDS),
    ("photos at full size", "group-photos-full", "convergence", (), PHOTOS),
    ("", "group-photos-full", "epoch-time", (), PHOTOS),
    ("second partition", SECOND, "convergence", (), BIRDS),
    ("batch sizes", "bird-cat-batches", "epoch-time", (), BIRDS),
    ("", "bird-cat-batches", "convergence", (), BIRDS),
    ("bag sizes", "bird-cat-sizes", "bag-size", (), BIRDS),
    ("LLP-GAN as its authors run it", "bird-cat-llp-gan", "convergence", (), BIRDS),
    ("", "group-photos-llp-gan", "convergence", (), PHOTOS),
    ("first targets, vertical flips", "bird-cat-authors", "convergence", (), BIRDS),
)
"""What the runs are for, the protocol, the experiment, its methods, and where times come from."""


def minutes(name: str, experiment: str, methods: tuple[str, ...], like: str) -> tuple[int, float]:
    """How many runs of a protocol have no record yet, and their predicted minutes."""
    folder = ROOT / "results" / name
    there = (folder / "protocol.yaml").exists()
    protocol = read(folder / "protocol.yaml") if there else load(name)
    have = results(name) if there else Results.of(folder, protocol)
    folds = range(5) if name == SECOND else None
    left = [r for r in plan(have, experiment, methods, folds) if r.id not in have.ids]
    seconds = epoch_seconds(results(like))
    single = [r for r in left if r.recipe["max_bags"] == 1]
    total = estimate((r for r in left if r not in single), seconds) or 0.0
    if name == "group-photos-full":
        total = START * len(left) + FULL_SIZE * (total - START * len(left))
    total += ONE_BAG * (estimate(single, seconds) or 0.0)
    return len(left), total / 60


def command(name: str, experiment: str, methods: tuple[str, ...]) -> str:
    """The command that performs the runs."""
    there = (ROOT / "results" / name / "protocol.yaml").exists()
    shipped = (Path(load.__code__.co_filename).parent / "presets" / f"{name}.yaml").exists()
    protocol = name if shipped else f"results/{name}/protocol.yaml --folds 5"
    some = f" --methods {','.join(methods)}" if methods else ""
    compiled = " --jobs 4 --compile" if experiment != "epoch-time" else ""
    out = f" --out results/{name}" if there or shipped else ""
    return f"llpkit reproduce {protocol} {experiment}{some} --device cuda{compiled}{out}"


@table
def card_plan() -> Rows:
    """Runs that need a card, in the order of their value."""
    rows = [["runs", "number", "minutes", "command"]]
    total = 0.0
    for title, name, experiment, methods, like in RUNS:
        number, time = minutes(name, experiment, methods, like)
        total += time
        text = f"`{command(name, experiment, methods)}`"
        rows.append([title, str(number), f"{time:.0f}", text])
    return [*rows, ["all", "", f"{total:.0f}", ""]]


@table
def paper_deviations() -> Rows:
    """Everything that differs from the paper, with its measured effect or its price."""
    usual = runs(BIRDS)
    first, second = usual, runs(SECOND)
    amles = [
        minus([first["mle"], second["mle"]], [first[name], second[name]])
        for name in ("amle", "amle-paper")
    ]
    geometric = runs(f"{BIRDS}-geometric")
    changed = [minus([geometric[name]], [usual[name]]) for name in ("mle", "mle-pass")]
    digits = runs("digits-variants")
    targets = [minus([digits[f"{name}-network"]], [digits[name]]) for name in ("mle", "mle-pass")]
    lighter = [
        minus([runs(f"{folder}-weight-10")["llp-gan"]], [runs(folder)["llp-gan"]])
        for folder in (BIRDS, PHOTOS)
    ]
    price = {title or name: 0.0 for title, name, *_ in RUNS}
    last = ""
    for title, name, *rest in RUNS:
        last = title or last
        price[last] += minutes(name, *rest)[1]
    cost = {title: f"not yet run, {value:.0f} min" for title, value in price.items()}
    steps = {
        r["method"]: r["ratio"] for r in recorded("digits-batches/steps.parquet", batch="one bag")
    }
    bags = [f"{steps[name]:.2f}" for name in ("amle", "dllp")]
    rows = [["what", "the paper or its authors' code", "here", "effect, in points of accuracy"]]
    rows += [
        [
            "image size",
            "photos of 72 × 90",
            "half of that (45 × 36, height × width)",
            cost["photos at full size"],
        ],
        [
            "AMLE",
            "variance Σ p (1 − p)",
            "`amle-paper` adds 1e-12, `amle` 1/12",
            f"CIFAR-10, `mle` minus `amle` {amles[0]}, minus `amle-paper` {amles[1]}; photos "
            + cost["AMLE as published, photos"],
        ],
        [
            "first targets",
            "posterior of the untrained network",
            "y / n",
            f"digits: `mle` {targets[0]}, `mle-pass` {targets[1]}; CIFAR-10 "
            + cost["first targets, vertical flips"],
        ],
        [
            "network",
            "that of a table of Liu et al., which we could not check",
            "`conv-large`",
            "unknown; no run can tell",
        ],
        [
            "augmentation",
            "flips, blur and colour of unknown strength",
            "the same kinds at strengths of our own",
            f"geometric instead: `mle` {changed[0]}, `mle-pass` {changed[1]}",
        ],
        [
            "vertical flips",
            "in the authors' code",
            "left out; `augment: authors` has them",
            cost["first targets, vertical flips"] + ", in the same call as the first targets",
        ],
        [
            "LLP-GAN",
            "λ = 1, 3,000 epochs",
            "λ = 100, which the grid chose; 120 and 100 epochs",
            f"λ = 10: CIFAR-10 {lighter[0]}, photos {lighter[1]}; λ = 1 "
            + cost["LLP-GAN as its authors run it"],
        ],
        [
            "steps of whole-bag methods",
            "one bag per step",
            "as many bags as fit into 128 instances",
            f"digits: epochs of {bags[0]} (`amle`) and {bags[1]} (`dllp`) supervised ones; "
            f"CIFAR-10 {cost['batch sizes']}",
        ],
        [
            "folds",
            "ten",
            "ten; `direct` and `llp-gan` five, bag sizes three",
            f"bag sizes with five: {cost['bag sizes']}",
        ],
        [
            "partition into bags",
            "one",
            "two on CIFAR-10",
            "see the table of partitions; five folds of all methods: " + cost["second partition"],
        ],
        [
            "epochs",
            "not compared: only the text of the paper was used",
            "120 and 100; bag sizes 60",
            f"bag sizes with 120: {cost['bag sizes']}",
        ],
    ]
    return rows


@table
def card_time() -> Rows:
    """Runs on a card, and their time."""
    rows = [["folder in `results/`", "runs", "minutes"]]
    total = 0.0
    for path in sorted((ROOT / "results").glob("*/protocol.yaml")):
        every = [r for rs in results(path.parent.name).records.values() for r in rs]
        card = [r for r in every if r.environment.get("device") == "cuda"]
        time = sum(r.seconds / max(1, r.environment.get("jobs", 1)) for r in card) / 60
        total += time
        if card:
            rows.append([code(path.parent.name), str(len(card)), f"{time:.0f}"])
    return [*rows, ["all", "", f"{total:.0f}"]]
