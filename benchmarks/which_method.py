"""Which method for which problem: every method and estimator on small problems of many kinds.

    python benchmarks/which_method.py [--problem NAME] [--method NAME] [--out DIR]

Each problem is a fixed set of training bags and test rows, redrawn with every seed. Networks train
with the defaults of ``llpkit.fit`` (``small-cnn`` for images, ``mlp`` for rows) for the problem's
number of epochs; estimators have the defaults of the command line. Scores are the AUC of test rows
for two classes and the accuracy for more; labels are used for nothing else. `auto` is not trained
separately: it is one of the methods, and the records mark which.

Methods far below the best with the first seed get no other. A run that is in `runs.parquet` of
the output folder is not repeated, so a stopped benchmark continues. `make tables` then writes the
tables of docs/measurements/which-method.md.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import records
import torch
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.metrics import roc_auc_score
from torch import Tensor

import llpkit
from llpkit import datasets
from llpkit.auto import Pick, pick_estimator, pick_method
from llpkit.datasets import fashion_mnist
from llpkit.datasets.adult import FEATURES, NUMBERS, adult_table, groups
from llpkit.errors import Diverged, LLPError
from llpkit.estimators.registry import ESTIMATORS, make
from llpkit.methods import METHODS
from llpkit.recipe import Recipe
from llpkit.tables.features import FeatureEncoder

LEFT_OUT = {
    "supervised": "sees labels",
    "llp-gan": "has a network of its own",
    "amle-paper": "is amle with a variance that fails",
    "lightgbm": "needs another package",
}
LIMIT = 0.01
"""How far `auto` may be below the best: AUC, or share of correct labels."""
RACE = 0.03
"""Methods further below the best with the first seed get no other."""
MOST_ROWS = {"svc": 4000, "alter-svm": 4000, "random-forest": 8000}
"""Estimators whose time grows with the square of the rows."""


@dataclass(frozen=True)
class Data:
    """Training rows in bags, and test rows with their labels."""

    bags: llpkit.Bags
    inputs: Tensor
    fresh: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Problem:
    """A problem: how to draw it, and how long networks train.

    The rules of `auto` were not chosen by the scores of ``fresh`` problems.
    """

    title: str
    draw: Callable[[int], Data]
    epochs: int = 30
    fresh: bool = False


def in_bags(
    inputs: Tensor, labels: Tensor, rows: int, size: int, seed: int, test: int = 20000
) -> Data:
    """Random rows in random bags; the others, or some of them, are for testing."""
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    chosen, rest = order[:rows], order[rows : rows + test]
    classes = int(labels.max()) + 1
    bags = llpkit.random_bags(
        labels[chosen], size, generator=seed, num_classes=classes if classes > 2 else None
    )
    return Data(bags, inputs[chosen], inputs[rest], labels[rest])


@cache
def loaded(name: str, options: tuple[tuple[str, object], ...] = ()) -> datasets.DataSet:
    return datasets.load(name, **dict(options))


@cache
def census(
    target: str, positive: str, key: str
) -> tuple[Tensor, Tensor, list[str], Tensor, Tensor]:
    """Adult with any column as target: features, labels and groups for training, and for testing.

    Another target than the income comes without ``relationship``, which would give it away.
    """
    train, test = adult_table("train"), adult_table("test")
    left_out = {target} if target == "income" else {target, "relationship"}
    names = [name for name in (*FEATURES, "income") if name not in left_out]
    encoder = FeatureEncoder.fit(train, names, numeric=[n for n in NUMBERS if n in names])
    labels = [
        torch.from_numpy(np.array(t.words(target).to_pylist()) == positive).long()
        for t in (train, test)
    ]
    return encoder.apply(train), labels[0], groups(train, key), encoder.apply(test), labels[1]


def adult(
    seed: int,
    size: int | None,
    rows: int,
    target: str = "income",
    positive: str = ">50K",
    key: str = "occupation,education",
) -> Data:
    """Some rows of the training part, in random bags or by the values of some columns."""
    inputs, labels, keys, fresh, truth = census(target, positive, key)
    if size is not None:
        some = in_bags(inputs, labels, rows, size, seed)
        return Data(some.bags, some.inputs, fresh, truth)
    chosen = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))[:rows]
    bags = llpkit.Bags.from_labels(labels[chosen], [keys[i] for i in chosen.tolist()])
    return Data(bags, inputs[chosen], fresh, truth)


def images(seed: int, name: str, rows: int, size: int, shrink: int = 1, **options: object) -> Data:
    """Images in random bags; with ``shrink``, the mean of so many pixels in each direction."""
    data = loaded(name, tuple(options.items()))
    return in_bags(smaller(data.inputs, shrink), data.truth, rows, size, seed, test=3000)


def smaller(pixels: Tensor, by: int) -> Tensor:
    return pixels if by == 1 else F.avg_pool2d(pixels.float(), by).round().byte()


def photos(seed: int, bags: int) -> Data:
    """Faces at a quarter of their size, in the bags of some photos; the other photos test."""
    data = loaded("group-photos", (("size", "half"),))
    order = torch.randperm(len(data.bags), generator=torch.Generator().manual_seed(seed))
    some, rest = data.bags[order[:bags]], data.bags[order[bags:]]
    pixels = smaller(data.inputs, 2)
    rows = some.rows
    own = llpkit.Bags(some.offsets, some.evidence)
    return Data(own, pixels[rows], pixels[rest.rows], data.truth[rest.rows])


def cancer(seed: int, size: int, rows: int) -> Data:
    """Scikit-learn's breast cancer table, standardised."""
    x, labels = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    return in_bags(torch.from_numpy(x).float(), torch.from_numpy(labels), rows, size, seed)


def clusters(seed: int, size: int, rows: int) -> Data:
    """Three classes of two clusters each in twelve columns, half of which are noise."""
    x, labels = make_classification(
        rows + 10000,
        n_features=12,
        n_informative=6,
        n_classes=3,
        n_clusters_per_class=2,
        class_sep=1.5,
        random_state=seed,
    )
    return in_bags(torch.from_numpy(x).float(), torch.from_numpy(labels), rows, size, seed)


def cover(seed: int, size: int, rows: int) -> Data:
    """Like covertype: numbers, and a soil of eight whose height limit decides most of the label."""
    draw = np.random.default_rng(seed)
    x, soil = draw.normal(size=(rows + 10000, 6)), draw.integers(8, size=rows + 10000)
    limit = np.linspace(-1, 1, 8)
    z = 4 * np.tanh(3 * (x[:, 0] - limit[soil])) - np.abs(x[:, 1]) + x[:, 2]
    labels = (draw.random(len(x)) < 1 / (1 + np.exp(-z))).astype(np.int64)
    x = np.hstack([x, np.eye(8)[soil]])
    return in_bags(torch.from_numpy(x).float(), torch.from_numpy(labels), rows, size, seed)


def linear(seed: int, size: int, rows: int) -> Data:
    """Twenty features, of which the labels' log-odds are a weighted sum."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows + 10000, 20))
    p = 1 / (1 + np.exp(-x @ np.linspace(1.5, 0, 20)))
    labels = (draw.random(len(x)) < p).astype(np.int64)
    return in_bags(torch.from_numpy(x).float(), torch.from_numpy(labels), rows, size, seed)


def steps(seed: int, size: int, rows: int) -> Data:
    """Ten features; the log-odds jump where two of them interact, a third is a wave."""
    draw = np.random.default_rng(seed)
    x = draw.uniform(-1, 1, size=(rows + 10000, 10))
    z = 3 * np.sign(x[:, 0] * x[:, 1]) + 2 * np.sin(4 * x[:, 2]) + 2 * (x[:, 3] > 0.3) - 1
    labels = (draw.random(len(x)) < 1 / (1 + np.exp(-z))).astype(np.int64)
    return in_bags(torch.from_numpy(x).float(), torch.from_numpy(labels), rows, size, seed)


PROBLEMS = {
    "linear-2": Problem("linear log-odds, 2,000 rows, n = 2", partial(linear, size=2, rows=2000)),
    "adult-8": Problem("Adult, 4,000 rows, n = 8", partial(adult, size=8, rows=4000)),
    "steps-16": Problem("steps and waves, 4,800 rows, n = 16", partial(steps, size=16, rows=4800)),
    "adult-64": Problem("Adult, 4,000 rows, n = 64", partial(adult, size=64, rows=4000)),
    "adult-key": Problem(
        "Adult, 4,000 rows, by occupation and education", partial(adult, size=None, rows=4000)
    ),
    "linear-512": Problem(
        "linear log-odds, 10,240 rows, n = 512", partial(linear, size=512, rows=10240)
    ),
}
for _size in (4, 16, 64, 128):
    PROBLEMS[f"digits-{_size}"] = Problem(
        f"digits, odd or even, 1,408 images, n = {_size}",
        partial(images, name="digits", rows=1408, size=_size),
        epochs=40,
    )
for _size in (16, 64):
    PROBLEMS[f"ten-digits-{_size}"] = Problem(
        f"digits, ten classes, 1,408 images, n = {_size}",
        partial(images, name="digits", rows=1408, size=_size, classes=10),
        epochs=40,
    )

CLOTHES = ", ".join(fashion_mnist.CLASSES)
SHOES = "sandal, sneaker, ankle boot"
married = partial(adult, target="marital-status", positive="Married-civ-spouse")
small_digits = partial(images, name="digits", rows=1408, positive=(0, 1, 2, 3, 4))
fashion = partial(images, name="fashion-mnist", shrink=2)
bird_cat = partial(images, name="cifar10", shrink=2)
MORE = {
    "adult-2": ("Adult, 2,400 rows, n = 2", partial(adult, size=2, rows=2400), 30),
    "sex-32": (
        "Adult, sex, 2,400 rows, n = 32",
        partial(adult, size=32, rows=2400, target="sex", positive="Male"),
        30,
    ),
    "married-key": (
        "Adult, married, 2,400 rows, by education and race",
        partial(married, size=None, rows=2400, key="education,race"),
        30,
    ),
    "adult-512": ("Adult, 5,120 rows, n = 512", partial(adult, size=512, rows=5120), 30),
    "cancer-8": ("breast cancer, 400 rows, n = 8", partial(cancer, size=8, rows=400), 30),
    "clusters-64": (
        "clusters, three classes, 2,560 rows, n = 64",
        partial(clusters, size=64, rows=2560),
        30,
    ),
    "cover-256": ("like covertype, 5,120 rows, n = 256", partial(cover, size=256, rows=5120), 30),
    "small-digits-8": ("digits below five, 1,408 images, n = 8", partial(small_digits, size=8), 30),
    "small-digits-32": (
        "digits below five, 1,408 images, n = 32",
        partial(small_digits, size=32),
        30,
    ),
    "small-digits-64": (
        "digits below five, 1,408 images, n = 64",
        partial(small_digits, size=64),
        30,
    ),
    "long-digits-16": (
        "digits below five, 1,408 images, n = 16, 2,035 steps",
        partial(small_digits, size=16),
        185,
    ),
    "coats-2": (
        "Fashion, coat or pullover, 1,024 images, n = 2",
        partial(fashion, size=2, rows=1024),
        20,
    ),
    "coats-64": (
        "Fashion, coat or pullover, 2,048 images, n = 64",
        partial(fashion, size=64, rows=2048),
        20,
    ),
    "coats-128": (
        "Fashion, coat or pullover, 2,048 images, n = 128",
        partial(fashion, size=128, rows=2048),
        20,
    ),
    "coats-512": (
        "Fashion, coat or pullover, 6,144 images, n = 512",
        partial(fashion, size=512, rows=6144),
        10,
    ),
    "shirts-32": (
        "Fashion, T-shirt or shirt, 2,048 images, n = 32",
        partial(fashion, size=32, rows=2048, classes="T-shirt/top, shirt"),
        20,
    ),
    "boots-64": (
        "Fashion, sneaker or boot, 1,280 images, n = 64",
        partial(fashion, size=64, rows=1280, classes="sneaker, ankle boot"),
        20,
    ),
    "shoes-16": (
        "Fashion, three kinds of shoes, 1,600 images, n = 16",
        partial(fashion, size=16, rows=1600, classes=SHOES),
        20,
    ),
    "clothes-32": (
        "Fashion, ten classes, 2,560 images, n = 32",
        partial(fashion, size=32, rows=2560, classes=CLOTHES),
        20,
    ),
    "photos": ("faces in 400 group photos", partial(photos, bags=400), 20),
    "bird-cat-64": (
        "CIFAR-10, bird or cat, 2,560 images, n = 64",
        partial(bird_cat, size=64, rows=2560),
        15,
    ),
}
USED = {
    "sex-32",
    "married-key",
    "clusters-64",
    "small-digits-32",
    "small-digits-64",
    "coats-64",
    "coats-128",
    "clothes-32",
    "bird-cat-64",
}
"""Problems whose scores, most of them with the first seed only, changed a rule or the ensemble."""
PROBLEMS |= {name: Problem(*about, fresh=name not in USED) for name, about in MORE.items()}


@dataclass(frozen=True)
class Run:
    """One fit and its score on the test rows."""

    problem: str
    method: str
    seed: int
    score: float
    seconds: float | None = None
    measure: str = "AUC"
    auto: bool = False
    """Whether `auto` picks the method for the problem."""
    note: str = ""


def applicable(data: Data) -> list[str]:
    """Methods of networks as ``mle``, estimators as ``logistic (estimator)``."""
    found = [key for key in METHODS if key not in LEFT_OUT]
    if data.inputs.dim() == 2:
        rows = data.bags.num_instances
        found += [
            f"{key} (estimator)"
            for key in ESTIMATORS
            if key not in LEFT_OUT and rows <= MOST_ROWS.get(key, rows)
        ]
    return found


def train(name: str, problem: Problem, data: Data, seed: int) -> Tensor:
    """Scores of the test rows: ``(n,)`` for two classes, else ``(n, K)``."""
    key, _, kind = name.partition(" ")
    sinkhorn = {"approximation": "sinkhorn"}
    if kind:
        model = make(key, {}, seed)
        rows = data.inputs[data.bags.rows].numpy()
        groups = data.bags.bag_index.numpy()
        try:
            model.fit(rows, data.bags.evidence, groups)
        except llpkit.errors.TooManyStates:
            model = make(key, sinkhorn, seed).fit(rows, data.bags.evidence, groups)
        return torch.from_numpy(np.asarray(model.decision_function(data.fresh.numpy())))
    how = {"epochs": problem.epochs, "seed": seed, "measure": "off", "progress": False}
    try:
        model = llpkit.fit(None, data.bags, data.inputs, key, **how)
    except llpkit.errors.TooManyStates:
        model = llpkit.fit(None, data.bags, data.inputs, key, method_options=sinkhorn, **how)
    return model.logits(data.fresh)


def score(logits: Tensor, labels: Tensor) -> float:
    if logits.dim() == 1:
        return float(roc_auc_score(labels.numpy(), logits.numpy()))
    return float((logits.argmax(1) == labels).double().mean())


def run(problem: str, name: str, seed: int, data: Data) -> Run:
    start, note = time.process_time(), ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence and baselines: the score tells
        try:
            found = score(train(name, PROBLEMS[problem], data, seed), data.labels)
        except Diverged:
            found, note = (
                0.5 if data.bags.num_classes is None else 1 / data.bags.num_classes,
                "diverged",
            )
        except LLPError as error:
            found, note = float("nan"), str(error)[:120]
    seconds = round(time.process_time() - start, 1)
    measure = "AUC" if data.bags.num_classes is None else "accuracy"
    return Run(problem, name, seed, found, seconds, measure, name == picked(problem), note)


def measured(out: Path, chosen: list[str], only: list[str], seeds: list[int]) -> list[Run]:
    """All runs on file, after those of the plan that were missing."""
    file = out / "runs.parquet"
    found = [Run(**row) for row in records.read(file)]
    known = {(r.problem, r.method, r.seed) for r in found}
    for seed in seeds:
        for problem in chosen:
            data = PROBLEMS[problem].draw(seed)
            for name in applicable(data):
                if (problem, name, seed) in known or (only and name not in only):
                    continue
                if seed and not in_the_race(scores(found, problem), name, picked(problem)):
                    continue
                one = run(problem, name, seed, data)
                found.append(one)
                records.add(file, [asdict(one)])
                text = f"{problem:16} {name:34} {seed}: {one.score:.4f}, {one.seconds} s {one.note}"
                print(text, flush=True)
    return found


def in_the_race(found: dict[str, dict[int, float]], name: str, own: str) -> bool:
    """Whether a method is close enough to the best with the first seed to be worth another."""
    first = {method: by_seed[0] for method, by_seed in found.items() if 0 in by_seed}
    return name == own or first.get(name, 0.0) >= max(first.values(), default=0.0) - RACE


@cache
def picked(problem: str) -> str:
    """What ``auto`` picks for a problem: by the command line, so an estimator for a table."""
    data = PROBLEMS[problem].draw(0)
    pick: Pick
    if data.inputs.dim() == 2:
        pick = pick_estimator(data.bags)
        return f"{pick.name} (estimator)"
    pick = pick_method(data.bags, Recipe(epochs=PROBLEMS[problem].epochs), of_images=True)
    return pick.name


def scores(runs: list[Run], problem: str) -> dict[str, dict[int, float]]:
    """The scores of every method of a problem by seed."""
    found: dict[str, dict[int, float]] = {}
    for one in runs:
        if one.problem == problem and not np.isnan(one.score):
            found.setdefault(one.method, {})[one.seed] = one.score
    return found


def best_beside(found: dict[str, dict[int, float]], own: str) -> tuple[str, float, float]:
    """The method that is furthest above ``own`` on the seeds they share, and both means."""
    pairs = {}
    for name, values in found.items():
        shared = sorted(values.keys() & found[own].keys())
        if shared:
            pairs[name] = tuple(np.mean([found[m][s] for s in shared]) for m in (name, own))
    best = max(pairs, key=lambda name: pairs[name][0] - pairs[name][1])
    return best, float(pairs[best][0]), float(pairs[best][1])


def figure(runs: list[Run], path: Path) -> None:
    """A row per problem: the scores of all methods, and that of auto."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    own_of = {run.problem: run.method for run in runs if run.auto}
    shown = [p for p in PROBLEMS if 0 in scores(runs, p).get(own_of.get(p, ""), {})][::-1]
    panel, axis = plt.subplots(figsize=(8, 0.3 * len(shown) + 1.2), layout="constrained")
    for y, problem in enumerate(shown):
        found, own = scores(runs, problem), own_of[problem]
        # The first seed, which all methods share.
        values = {name: by_seed[0] for name, by_seed in found.items() if 0 in by_seed}
        others = [value for name, value in values.items() if name != own]
        axis.plot(others, [y] * len(others), "o", ms=5, alpha=0.45, color="#616a75", mew=0)
        axis.plot(values[own], y, "D", ms=7, color="#0a5cad")
    titles = [PROBLEMS[p].title for p in shown]
    axis.set(yticks=range(len(shown)), yticklabels=titles, ylim=(-0.7, len(shown) - 0.3))
    axis.set_xlabel("AUC, or accuracy for more than two classes, of test rows")
    axis.plot([], [], "D", color="#0a5cad", label="auto")
    axis.plot([], [], "o", color="#616a75", alpha=0.45, mew=0, label="every other method")
    axis.grid(axis="x", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    panel.legend(loc="outside upper right", ncols=2, frameon=False)
    panel.savefig(path, dpi=140)
    plt.close(panel)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--problem", action="append", help="only this problem; repeatable")
    parser.add_argument("--method", action="append", default=[], help="only this; repeatable")
    parser.add_argument("--seed", type=int, action="append", help="only this; repeatable (0, 1, 2)")
    parser.add_argument("--report", action="store_true", help="only draw the figure")
    parser.add_argument("--out", type=Path, default=Path("results/which-method"))
    options = parser.parse_args(argv)
    chosen = [] if options.report else options.problem or list(PROBLEMS)
    runs = measured(options.out, chosen, options.method, options.seed or [0, 1, 2])
    figure(runs, options.out / "which-method.png")


if __name__ == "__main__":
    main()
