"""Do 95 % intervals hold the truth in 95 % of replicates?

    python benchmarks/interval_coverage.py [DESIGN ...] [--replicates 1000] [--out results/coverage]

Every replicate draws features, labels and counts from a known model, fits it to the counts, and
notes which intervals hold the truth: of coefficients, of shares of groups (the true share among the
very instances that were drawn), and of probabilities at five points. The designs ``calibration-*``
draw the parameters too, and note the rank of the truth in its posterior distribution.

Chunks of replicates are added to chunks.parquet; a chunk that is there is not run again, so a
stopped run continues. `make tables` then writes the table of docs/how-to/statistics.md.
"""

import argparse
import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import records
import torch
from scipy import stats
from scipy.special import expit, logit, softmax

from llpkit.errors import IdentifiabilityWarning
from llpkit.estimators import LLPLogisticRegression, LLPMixedLogisticRegression
from llpkit.likelihood import sample
from llpkit.statistics import shares, summary

CHUNK = 50
LEVEL = 0.95
TARGET = (0.93, 0.97)
BETA = np.array([-0.3, 0.8, -0.6, 1.0])  # intercept, two numbers, membership of a group
BETAS = np.array([[0.2, -0.4, 0.0, 0.9], [-0.4, 0.7, 0.6, -0.5]])  # classes 1 and 2 against 0
POINTS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 1], [-1, -1, 1], [2, 1, 0]], float)
Hits = dict[str, list[float]]


@dataclass(frozen=True)
class Design:
    """How a replicate is drawn, and what is done with it."""

    about: str
    bags: int
    sizes: tuple[int, int]
    classes: int = 2
    effect: float = 0.0
    judged: bool = True
    """Whether coverage has to be within the target."""


DESIGNS = {
    "bags-of-8": Design("200 bags of 8", 200, (8, 8)),
    "bags-of-50": Design("100 bags of 50", 100, (50, 50)),
    "unequal": Design("150 bags of 1 to 30", 150, (1, 30)),
    "three-classes": Design("200 bags of 8, three classes", 200, (8, 8), classes=3),
    "few-25": Design("25 bags of 8", 25, (8, 8), judged=False),
    "few-50": Design("50 bags of 8", 50, (8, 8), judged=False),
    "few-100": Design("100 bags of 8", 100, (8, 8), judged=False),
    "effect": Design("200 bags of 20 with an effect of sd 0.7", 200, (20, 20), effect=0.7),
    "calibration-posterior": Design("labels given counts, 30 bags of 12", 30, (12, 12)),
    "calibration-shares": Design("200 bags of 8, parameters drawn", 200, (8, 8)),
}


def features(random: np.random.Generator, design: Design) -> tuple[np.ndarray, np.ndarray]:
    """Features ``(N, 3)`` and bags ``(N,)``; bags differ in a mean and in the share of a group."""
    low, high = design.sizes
    bag = np.repeat(np.arange(design.bags), random.integers(low, high + 1, design.bags))
    first = random.normal(size=len(bag)) + 0.7 * random.normal(size=design.bags)[bag]
    member = random.random(len(bag)) < random.beta(1.5, 1.5, design.bags)[bag]
    return np.column_stack([first, random.normal(size=len(bag)), member]), bag


def drawn(random: np.random.Generator, p: np.ndarray) -> np.ndarray:
    """Labels from probabilities ``(N, K)``."""
    return (random.random(len(p))[:, None] > p.cumsum(1)).sum(1).clip(max=p.shape[1] - 1)


def truth_at(X: np.ndarray, classes: int, shift: Any = 0.0) -> np.ndarray:
    """True class probabilities ``(N, K)``."""
    design = np.column_stack([np.ones(len(X)), X])
    if classes == 2:
        p = expit(design @ BETA + shift)
        return np.stack([1 - p, p], 1)
    return softmax(np.column_stack([np.zeros(len(X)), design @ BETAS.T]), 1)


def counts_of(labels: np.ndarray, bag: np.ndarray, classes: int) -> np.ndarray:
    """``y`` of every row."""
    y = np.stack([np.bincount(bag, labels == k) for k in range(classes)], 1).astype(int)
    return (y[:, 1] if classes == 2 else y)[bag]


def cover(random: np.random.Generator, design: Design) -> Hits:
    X, bag = features(random, design)
    shift = design.effect * random.normal(size=design.bags)[bag]
    labels = drawn(random, truth_at(X, design.classes, shift))
    y = counts_of(labels, bag, design.classes)
    true = BETA if design.classes == 2 else BETAS.ravel()
    group = X[:, 2].astype(int)
    share = np.array(
        [[(labels[group == g] == k).mean() for k in range(design.classes)] for g in (0, 1)]
    )
    at = truth_at(POINTS, design.classes)
    if design.effect:
        x, w = np.polynomial.hermite_e.hermegauss(41)
        shifted = [truth_at(POINTS, 2, design.effect * u) for u in x]
        at = sum(wi * p for wi, p in zip(w / w.sum(), shifted, strict=True))
    hits: Hits = {}
    models = {"": LLPLogisticRegression(C=np.inf)}
    if design.effect:
        models["mixed, "] = LLPMixedLogisticRegression(C=np.inf)
    for name, model in models.items():
        model.fit(X, y, bag)
        first = summary(model, X, y, bag)
        for found in (first, first.sandwich()):
            ends, guess = found.conf_int()[: len(true)], found.predict(POINTS)
            one = slice(1, None) if design.classes == 2 else slice(None)
            inside = {
                "coefficients": (ends[:, 0] <= true) & (true <= ends[:, 1]),
                "probabilities": ((guess.low <= at) & (at <= guess.high))[:, one],
            }
            if found is first or (design.effect and not name):
                parts = shares(model, X, y, bag, by=group, covariance=found.covariance)
                inside["shares"] = ((parts.low <= share) & (share <= parts.high))[:, one]
            for what, within in inside.items():
                hits[f"{name}{found.kind}: {what}"] = within.ravel().astype(int).tolist()
    return hits


def rank_labels(random: np.random.Generator, design: Design) -> Hits:
    """Rank of the true number of positives of the group among 99 exact posterior draws."""
    X, bag = features(random, design)
    design_matrix = np.column_stack([np.ones(len(X)), X])
    z = design_matrix @ (BETA + random.normal(size=4))
    labels = random.random(len(z)) < expit(z)
    counts = np.bincount(bag, labels).astype(int)
    offsets = np.append(0, np.bincount(bag).cumsum())
    draws = sample(
        torch.from_numpy(z), counts, offsets, int(random.integers(2**31)), num_samples=99
    ).numpy()
    member = X[:, 2] > 0
    mine, theirs = labels[member].sum(), draws[:, member].sum(1)
    # Equal numbers are ordered at random, or ranks of whole numbers would not be uniform.
    rank = (theirs < mine).sum() + random.integers((theirs == mine).sum() + 1)
    return {"rank of the group's total": [float(rank + random.random()) / 100]}


def rank_shares(random: np.random.Generator, design: Design) -> Hits:
    """Place of the truth in its posterior, with parameters drawn from the penalty's prior."""
    X, bag = features(random, design)
    full = np.column_stack([np.ones(len(X)), X])
    beta = random.normal(size=4)  # C = 1
    labels = (random.random(len(X)) < expit(full @ beta)).astype(int)
    y = counts_of(labels, bag, 2)
    model = LLPLogisticRegression(C=1.0, fit_intercept=False, tol=1e-7).fit(full, y, bag)
    group = X[:, 2].astype(int)
    parts, found = shares(model, full, y, bag, by=group), summary(model, full, y, bag)
    hits = {}
    for g in (0, 1):
        mean = parts.share[g, 1]
        sd = math.hypot(parts.model_sd[g, 1], parts.label_sd[g, 1]) / (mean * (1 - mean))
        true = np.clip(labels[group == g].mean(), 1e-9, 1 - 1e-9)
        hits[f"share of group {g}"] = [float(stats.norm.cdf((logit(true) - logit(mean)) / sd))]
    for j, name in enumerate(("constant", "x0", "x1", "member")):
        gap = (beta[j] - found.estimate[j]) / found.standard_error[j]
        hits[f"coefficient {name}"] = [float(stats.norm.cdf(gap))]
    return hits


KINDS: dict[str, Callable[[np.random.Generator, Design], Hits]] = {
    "calibration-posterior": rank_labels,
    "calibration-shares": rank_shares,
}


def run_chunk(name: str, chunk: int, size: int) -> dict[str, Any]:
    """Hits of some replicates, summed over them; ranks are listed."""
    start, total, failed = time.perf_counter(), defaultdict(list), 0
    work = KINDS.get(name, cover)
    for i in range(chunk * CHUNK, chunk * CHUNK + size):
        random = np.random.default_rng([i, *name.encode()])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", IdentifiabilityWarning)
            try:
                found = work(random, DESIGNS[name])
            except (RuntimeWarning, np.linalg.LinAlgError):
                failed += 1  # coefficients that run away: a few bags may separate the labels
                continue
        for what, values in found.items():
            total[what].append(values)
    ranked = name in KINDS
    return {
        "design": name,
        "chunk": chunk,
        "replicates": size,
        "failed": failed,
        "seconds": round(time.perf_counter() - start, 2),
        "ranks" if ranked else "hits": {
            what: np.round(np.concatenate(values), 4).tolist()
            if ranked
            else np.sum(values, 0).tolist()
            for what, values in total.items()
        },
    }


def run(names: list[str], replicates: int, out: Path) -> None:
    """Run the chunks that are not there yet."""
    file = out / "chunks.parquet"
    done = {(row["design"], row["chunk"]) for row in records.read(file)}
    for name in names:
        for chunk in range(-(-replicates // CHUNK)):
            if (name, chunk) in done:
                continue
            size = min(CHUNK, replicates - chunk * CHUNK)
            row = run_chunk(name, chunk, size)
            records.add(file, [row])
            print(f"{name}: {chunk * CHUNK + size} of {replicates}, {row['seconds']} s", flush=True)


ALARM = 0.01
BINS = 20


def ranks_table(rows: list[dict[str, Any]]) -> list[str]:
    """Chi-square tests that ranks are uniform; together they raise a false alarm once in 100."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        for what, ranks in row.get("ranks", {}).items():
            values[row["design"], what] += ranks
    text = ["| design | quantity | replicates | p | uniform |", "|---|---|---:|---:|---|"]
    for (name, what), ranks in values.items():
        filled = np.histogram(ranks, BINS, (0, 1))[0]
        p = float(stats.chisquare(filled).pvalue)
        verdict = "yes" if p >= ALARM / len(values) else "no"
        text.append(f"| {DESIGNS[name].about} | {what} | {len(ranks)} | {p:.3f} | {verdict} |")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("designs", nargs="*", metavar="DESIGN", help=", ".join(DESIGNS))
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("results/coverage"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    run(given.designs or list(DESIGNS), given.replicates, given.out)
    print("\n".join(ranks_table(records.read(given.out / "chunks.parquet"))))


if __name__ == "__main__":
    main()
