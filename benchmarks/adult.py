"""Every estimator on the Adult census table, in bags of 2 to 128 people and in bags by a key.

    python benchmarks/adult.py [--quick] [--out results/adult] [--data-dir DIR]

The official split: bags are made from the training part, and measures are of the test part, whose
labels are never used for a choice. Linear estimators choose C by the likelihood of held-out bags,
in a search with three folds. Fit time is that of the last fit without the search, in CPU seconds
(of all threads together: set OMP_NUM_THREADS=1 to compare). A run that is in `runs.parquet` of
the output folder with the same parameters is not repeated, so a stopped benchmark continues; remove
the file to repeat all runs. `make tables` then writes the tables of
docs/measurements/table-results.md.
"""

import argparse
import hashlib
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import records
import sklearn
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold

from llpkit.datasets.adult import FEATURES, NUMBERS, adult_table, groups, labels
from llpkit.estimators import (
    AlterSVMClassifier,
    DLLPClassifier,
    InvCalClassifier,
    LLPClassifier,
    LLPLogisticRegression,
    MeanMapClassifier,
)
from llpkit.tables import FeatureEncoder

SIZES = (2, 4, 8, 16, 32, 64, 128)
KEY = "occupation, education"
GRID = {"C": [0.01, 0.1, 1.0]}
CATEGORIES = [name not in NUMBERS for name in FEATURES]

BOOSTING = HistGradientBoostingClassifier(categorical_features=CATEGORIES, early_stopping=False)
FOREST = RandomForestClassifier(50, min_samples_leaf=5)


@dataclass(frozen=True)
class Entry:
    """An estimator, its features, whether to search for C, and on how many rows."""

    model: Any
    codes: bool = False
    search: bool = False
    supervised: bool = False
    rows: int | None = None


ESTIMATORS = {
    "supervised boosting": Entry(BOOSTING, codes=True, supervised=True),
    "supervised logistic": Entry(LogisticRegression(max_iter=1000), supervised=True),
    "EM, boosting": Entry(LLPClassifier(BOOSTING), codes=True),
    "EM, forest": Entry(LLPClassifier(FOREST), codes=True),
    "EM, logistic": Entry(LLPClassifier(LogisticRegression(C=0.1, max_iter=1000))),
    "exact logistic": Entry(LLPLogisticRegression(), search=True),
    "DLLP": Entry(DLLPClassifier(), search=True),
    "mean map": Entry(MeanMapClassifier(), search=True),
    "InvCal": Entry(InvCalClassifier(), search=True),
    "alter-∝SVM": Entry(AlterSVMClassifier(n_init=1)),
}
# What predictions from out of the fold are good for.
WHOLE = RandomForestClassifier(50)
ABLATION = {
    "EM, boosting, in-sample": Entry(LLPClassifier(BOOSTING, out_of_fold=False), codes=True),
    "EM, forest, in-sample": Entry(LLPClassifier(FOREST, out_of_fold=False), codes=True),
    "EM, boosting, 2,000 rows": Entry(LLPClassifier(BOOSTING), codes=True, rows=2000),
    "EM, boosting, 2,000 rows, in-sample": Entry(
        LLPClassifier(BOOSTING, out_of_fold=False), codes=True, rows=2000
    ),
    "EM, whole trees": Entry(LLPClassifier(WHOLE, max_iter=20), codes=True),
    "EM, whole trees, in-sample": Entry(
        LLPClassifier(WHOLE, max_iter=20, out_of_fold=False), codes=True
    ),
    "EM, whole trees, from proportions": Entry(
        LLPClassifier(WHOLE, max_iter=20, start="proportion"), codes=True
    ),
    "EM, whole trees, from proportions, in-sample": Entry(
        LLPClassifier(WHOLE, max_iter=20, start="proportion", out_of_fold=False), codes=True
    ),
}
ABLATION_SIZES = ("8",)
OUTSIDE = "alter-∝SVM"  # its curve would squeeze the others
MEASURES = {
    "auc": "AUC",
    "accuracy": "accuracy",
    "brier": "Brier score",
    "seconds": "fit time, seconds of the processor",
}


@dataclass(frozen=True)
class Run:
    """One fit and its measures on the test part."""

    estimator: str
    bags: str
    seed: int
    rows: int
    auc: float
    accuracy: float
    brier: float
    seconds: float
    C: float | None = None
    setting: str = ""
    machine: str = ""


@dataclass(frozen=True)
class Part:
    """One part of the table: one-hot features, category codes, labels, and bags by the key."""

    features: np.ndarray
    codes: np.ndarray
    labels: np.ndarray
    key: np.ndarray


def read(data_dir: str | None) -> tuple[Part, Part]:
    """Training and test part; encoders are fitted to the training part only."""
    tables = [adult_table(split, data_dir) for split in ("train", "test")]
    encoder = FeatureEncoder.fit(tables[0], FEATURES, numeric=NUMBERS)
    levels = {
        name: sorted(set(tables[0].words(name).to_pylist()) - {None})
        for name in FEATURES
        if name not in NUMBERS
    }
    parts = []
    for table in tables:
        columns = []
        for name in FEATURES:
            if name in NUMBERS:
                columns.append(table.numbers(name))
            else:
                code = {level: i for i, level in enumerate(levels[name])}
                columns.append([code.get(v, np.nan) for v in table.words(name).to_pylist()])
        X = encoder.apply(table).numpy().astype(np.float64)
        codes = np.array(columns, np.float64).T
        parts.append(Part(X, codes, labels(table), np.array(groups(table, KEY))))
    return parts[0], parts[1]


def random_groups(rows: int, size: int, seed: int) -> np.ndarray:
    found = np.empty(rows, np.int64)
    found[np.random.default_rng(seed).permutation(rows)] = np.arange(rows) // size
    return found


def setting(name: str) -> str:
    """A short hash of all parameters of an estimator and of its search."""
    entry = (ESTIMATORS | ABLATION)[name]
    with sklearn.config_context(print_changed_only=False):
        text = f"{entry.model!r} {GRID if entry.search else ''} {entry.rows}"
    return hashlib.sha256("".join(text.split()).encode()).hexdigest()[:12]


def some_rows(part: Part, rows: int, seed: int) -> Part:
    chosen = np.random.default_rng(seed).permutation(len(part.labels))[:rows]
    return Part(part.features[chosen], part.codes[chosen], part.labels[chosen], part.key[chosen])


def run(name: str, bags: str, seed: int, train: Part, test: Part) -> Run:
    entry = (ESTIMATORS | ABLATION)[name]
    if entry.rows is not None:
        train = some_rows(train, entry.rows, seed)
    which = "codes" if entry.codes else "features"
    X, fresh = getattr(train, which), getattr(test, which)
    model = clone(entry.model)
    if "random_state" in model.get_params():
        model.set_params(random_state=seed)
    y, group = train.labels, None
    if not entry.supervised:
        group = train.key if bags == KEY else random_groups(len(y), int(bags), seed)
        names, place = np.unique(group, return_inverse=True)
        y = np.bincount(place, y, len(names)).astype(np.int64)[place]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence: a comparison takes what there is
        if entry.search:
            with sklearn.config_context(enable_metadata_routing=True):
                search = GridSearchCV(model, GRID, cv=GroupKFold(3), refit=False)
                model.set_params(**search.fit(X, y, groups=group).best_params_)
        start = time.process_time()  # CPU time, as other processes may be running
        model.fit(X, y) if entry.supervised else model.fit(X, y, group)
        seconds = time.process_time() - start
    p = model.predict_proba(fresh)[:, 1]
    return Run(
        name,
        bags,
        seed,
        len(y),
        float(roc_auc_score(test.labels, p)),
        float((model.predict(fresh) == test.labels).mean()),
        float(brier_score_loss(test.labels, p)),
        seconds,
        getattr(model, "C", None),
        setting(name),
        records.machine(),
    )


def planned(quick: bool, seeds: int) -> Iterator[tuple[str, str, int]]:
    """The runs to do, quick and informative ones first."""
    bags = ["8", "32"] if quick else [*map(str, SIZES), KEY]
    for seed in range(1 if quick else seeds):
        for size in bags:
            for name, entry in (ESTIMATORS | ABLATION).items():
                if entry.supervised and size != bags[0]:
                    continue
                if name in ABLATION and size not in ABLATION_SIZES:
                    continue
                yield name, "" if entry.supervised else size, seed


def measured(out: Path, plan: list[tuple[str, str, int]], train: Part, test: Part) -> list[Run]:
    """All runs of the plan: those on file, and the others performed now."""
    file = out / "runs.parquet"
    known = {}
    for row in records.read(file):
        old = Run(**row)
        known[old.estimator, old.bags, old.seed, old.rows, old.setting] = old
    found = []
    for name, bags, seed in plan:
        rows = (ESTIMATORS | ABLATION)[name].rows or len(train.labels)
        key = (name, bags, seed, rows, setting(name))
        if key not in known:
            known[key] = run(name, bags, seed, train, test)
            records.add(file, [asdict(known[key])])
            auc, seconds = known[key].auc, known[key].seconds
            print(f"{name:24} {bags:>22} seed {seed}: {auc:.4f}, {seconds:.1f} s", flush=True)
        found.append(known[key])
    return found


def mean_and_spread(runs: list[Run], name: str, bags: str, measure: str) -> tuple[float, float]:
    values = [getattr(r, measure) for r in runs if (r.estimator, r.bags) == (name, bags)]
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return (float(np.mean(values)), spread) if values else (np.nan, np.nan)


def demands(runs: list[Run]) -> list[str]:
    """The targets of boosting by the exact likelihood, and whether they are met."""
    bound = mean_and_spread(runs, "supervised boosting", "", "auc")[0]
    lines = ["| AUC of EM with boosting | measured | target | met |", "|---|---|---|---|"]
    for size, least in (("8", 0.010), ("32", 0.025)):
        gap = bound - mean_and_spread(runs, "EM, boosting", size, "auc")[0]
        met = "yes" if gap <= least else "NO"
        lines.append(f"| below supervised at n = {size} | {gap:.4f} | ≤ {least} | {met} |")
    for size in (s for s in map(str, SIZES) if int(s) <= 32 and any(r.bags == s for r in runs)):
        own, spread = mean_and_spread(runs, "EM, boosting", size, "auc")
        others = {
            name: mean_and_spread(runs, name, size, "auc")[0]
            for name, entry in ESTIMATORS.items()
            if not entry.supervised and name != "EM, boosting"
        }
        best = max((n for n in others if not np.isnan(others[n])), key=lambda n: others[n])
        met = "yes" if own + spread >= others[best] else "NO"
        lines.append(
            f"| above the best other at n = {size}, {best} | {own - others[best]:+.4f} | ≥ 0, or "
            f"within its spread of {spread:.4f} | {met} |"
        )
    return lines


def figure(runs: list[Run], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    sizes = [s for s in map(str, SIZES) if any(r.bags == s for r in runs)]
    x = [int(s) for s in sizes]
    panels, axes = plt.subplots(2, 2, figsize=(10, 7.5), layout="constrained")
    shown = [n for n in ESTIMATORS if any(r.estimator == n for r in runs)]
    colours = {name: f"C{i}" for i, name in enumerate(shown)}
    for axis, (measure, title) in zip(axes.flat, MEASURES.items(), strict=True):
        for name, colour in colours.items():
            if ESTIMATORS[name].supervised:
                value = mean_and_spread(runs, name, "", measure)[0]
                axis.axhline(value, color=colour, linestyle="--", linewidth=1, label=name)
                continue
            pairs = [mean_and_spread(runs, name, s, measure) for s in sizes]
            axis.errorbar(
                x,
                [m for m, _ in pairs],
                [s for _, s in pairs],
                marker="o",
                ms=3,
                lw=1.2,
                capsize=2,
                color=colour,
                label=name,
            )
        axis.set(xscale="log", xticks=x, xticklabels=sizes, xlabel="bag size n", title=title)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        if measure != "seconds" and OUTSIDE in shown:
            lines = [line for line in axis.get_lines() if line.get_color() != colours[OUTSIDE]]
            values = np.concatenate([np.asarray(line.get_ydata(), float) for line in lines])
            room = 0.1 * np.ptp(values)
            axis.set_ylim(values.min() - room, values.max() + room)
            axis.set_title(f"{title} ({OUTSIDE} leaves the frame)")
    axes[1, 1].set_yscale("log")
    handles, names = axes[0, 0].get_legend_handles_labels()
    panels.legend(handles, names, loc="outside lower center", ncols=5, fontsize=8)
    panels.savefig(path, dpi=140)
    plt.close(panels)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one seed, n = 8 and 32, 6,000 rows")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of every cell (5)")
    parser.add_argument("--data-dir", help="folder with adult.data and adult.test (LLPKIT_DATA)")
    parser.add_argument("--out", type=Path, default=Path("results/adult"), help="output folder")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    train, test = read(options.data_dir)
    if options.quick:
        train = some_rows(train, 6000, 0)
    plan = list(planned(options.quick, options.seeds))
    runs = measured(options.out, plan, train, test)
    figure(runs, options.out / "adult.png")
    if not options.quick:
        print("\n".join(demands(runs)))


if __name__ == "__main__":
    main()
