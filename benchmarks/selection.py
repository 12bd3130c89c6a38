"""Choosing a model by the likelihood of held-out bags, against choosing it by instance labels.

    python benchmarks/selection.py [--quick] [--out results/selection] [--data-dir DIR]

Nine candidates (logistic regressions of five strengths, two boostings, two forests) are fitted to
the counts of random bags. In three folds of whole bags each candidate gets three scores: the mean
log-likelihood of the held-out bags, their proportion error, and, with labels that are not available
in practice, the mean log-likelihood of the held-out labels. The choice of each score is fitted to
all training bags and measured on test labels. `make tables` then writes the table of
docs/measurements/table-results.md.
"""

import argparse
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import records
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GroupKFold, train_test_split
from sklearn.preprocessing import StandardScaler

from llpkit.datasets import load
from llpkit.errors import LLPError
from llpkit.estimators import LLPClassifier, LLPLogisticRegression, neg_proportion_error

SIZES = (2, 8, 32)
CANDIDATES: dict[str, Any] = {}
for _C in (1e-3, 1e-2, 0.1, 1.0, 10.0):
    CANDIDATES[f"logistic, C = {_C:g}"] = LLPLogisticRegression(_C)
for _leaves in (4, 16):
    CANDIDATES[f"boosting, {_leaves} leaves"] = LLPClassifier(
        HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=_leaves, early_stopping=False),
        max_iter=6,
        random_state=0,
    )
for _rows in (2, 10):
    CANDIDATES[f"forest, {_rows} rows a leaf"] = LLPClassifier(
        RandomForestClassifier(30, min_samples_leaf=_rows), max_iter=6, random_state=0
    )
MARKS = ("bags", "proportion", "labels")
MEASURES = (*MARKS, "test_auc", "test_log_loss")


@dataclass(frozen=True)
class Cell:
    """All candidates on one data set, one bag size and one seed."""

    data: str
    size: int
    seed: int
    bags: list[float]
    proportion: list[float]
    labels: list[float]
    test_auc: list[float]
    test_log_loss: list[float]
    machine: str = ""


def tables(data_dir: str | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    digits, target = load_digits(return_X_y=True)
    found = {
        "digits, odd or even": (digits / 16, target % 2),
        "breast cancer": load_breast_cancer(return_X_y=True),
    }
    try:
        adult = load("adult", data_dir=data_dir)
    except LLPError as error:
        print(f"without Adult: {error}", file=sys.stderr)
    else:
        found["Adult, 4,000 rows"] = (adult.inputs.numpy().astype(np.float64), adult.truth.numpy())
    return found


def cell(data: str, X: np.ndarray, y: np.ndarray, size: int, seed: int) -> Cell:
    rows = min(4000, 2 * len(y) // 3)
    X, fresh, y, truth = train_test_split(X, y, train_size=rows, random_state=seed)
    scaler = StandardScaler().fit(X)
    X, fresh = scaler.transform(X), scaler.transform(fresh)
    groups = np.arange(len(y)) // size  # the split has shuffled the rows
    counts = np.bincount(groups, y).astype(np.int64)[groups]
    marks: dict[str, list[float]] = {key: [] for key in MEASURES}
    for candidate in CANDIDATES.values():
        folds = [
            _marks(clone(candidate), X, y, counts, groups, train, test)
            for train, test in GroupKFold(3, shuffle=True, random_state=0).split(X, y, groups)
        ]
        for key, value in zip(MARKS, np.mean(folds, 0), strict=True):
            marks[key].append(float(value))
        p = clone(candidate).fit(X, counts, groups).predict_proba(fresh)[:, 1]
        marks["test_auc"].append(float(roc_auc_score(truth, p)))
        marks["test_log_loss"].append(float(log_loss(truth, p)))
    return Cell(data, size, seed, **marks, machine=records.machine())


def _marks(
    model: Any,
    X: np.ndarray,
    y: np.ndarray,
    counts: np.ndarray,
    groups: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
) -> tuple[float, float, float]:
    model.fit(X[train], counts[train], groups[train])
    held_out = X[test], counts[test], groups[test]
    p = model.predict_proba(X[test])
    return (
        model.score(*held_out),
        neg_proportion_error(model, *held_out),
        -float(log_loss(y[test], p, labels=[0, 1])),
    )


def measured(out: Path | None, quick: bool, data_dir: str | None) -> Iterator[Cell]:
    """All cells; those on file are read instead of computed."""
    file = out / "cells.parquet" if out else None
    old = [Cell(**row) for row in records.read(file)] if file else []
    known = {(c.data, c.size, c.seed): c for c in old}
    for seed in range(1 if quick else 5):
        for name, (X, y) in tables(data_dir).items():
            if quick and not name.startswith("breast"):
                continue
            for size in SIZES:
                if (name, size, seed) not in known:
                    found = cell(name, X, y, size, seed)
                    known[name, size, seed] = found
                    if file:
                        records.add(file, [asdict(found)])
                    print(f"{name}, n = {size}, seed {seed}", file=sys.stderr, flush=True)
                yield known[name, size, seed]


def summary(cells: list[Cell]) -> list[str]:
    lost = {}
    for key in MARKS:
        pairs = [(c.test_auc, int(np.argmax(getattr(c, key)))) for c in cells]
        lost[key] = np.mean([max(auc) - auc[place] for auc, place in pairs])
    same = np.mean([np.argmax(c.bags) == np.argmax(c.labels) for c in cells])
    return [
        "Mean AUC lost against the best candidate in hindsight: "
        + "; ".join(f"by {key} {value:.4f}" for key, value in lost.items())
        + ".",
        f"Bags and labels chose the same candidate in {same:.0%} of {len(cells)} cells.",
    ]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one seed of the smallest table")
    parser.add_argument("--data-dir", help="folder with adult.data (LLPKIT_DATA)")
    parser.add_argument("--out", type=Path, help="folder for the cells; those in it are not remade")
    options = parser.parse_args(argv)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence: a comparison takes what there is
        cells = list(measured(options.out, options.quick, options.data_dir))
    print("\n".join(summary(cells)))


if __name__ == "__main__":
    main()
