"""Tables on what differs from the paper: partitions, the grid's noise, digits."""

from collections.abc import Mapping
from statistics import fmean, stdev

from comparison import unpaired
from paper_tables import BIRDS, METHODS, PHOTOS, SECOND, minus, results, runs
from table_kit import ROOT, Rows, code, recorded, table

from llpkit._text import several
from llpkit.experiments import Record
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


@table
def paper_deviations() -> Rows:
    """Everything that differs from the paper, with its measured effect, if any."""
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
            "not yet run",
        ],
        [
            "AMLE",
            "variance Σ p (1 − p)",
            "`amle-paper` adds 1e-12, `amle` 1/12",
            f"CIFAR-10, `mle` minus `amle` {amles[0]}, minus `amle-paper` {amles[1]}; "
            "photos not yet run",
        ],
        [
            "first targets",
            "posterior of the untrained network",
            "y / n",
            f"digits: `mle` {targets[0]}, `mle-pass` {targets[1]}; CIFAR-10 not yet run",
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
            "not yet run",
        ],
        [
            "LLP-GAN",
            "λ = 1, 3,000 epochs",
            "λ = 100, which the grid chose; 120 and 100 epochs",
            f"λ = 10: CIFAR-10 {lighter[0]}, photos {lighter[1]}; λ = 1 not yet run",
        ],
        [
            "steps of whole-bag methods",
            "one bag per step",
            "as many bags as fit into 128 instances",
            f"digits: epochs of {bags[0]} (`amle`) and {bags[1]} (`dllp`) supervised ones; "
            "CIFAR-10 not yet run",
        ],
        [
            "folds",
            "ten",
            "ten; `direct` and `llp-gan` five, bag sizes three",
            "bag sizes with five: not yet run",
        ],
        [
            "partition into bags",
            "one",
            "two on CIFAR-10",
            "see the table of partitions; five folds of all methods: not yet run",
        ],
        [
            "epochs",
            "not compared: only the text of the paper was used",
            "120 and 100; bag sizes 60",
            "bag sizes with 120: not yet run",
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
