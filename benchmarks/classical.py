"""Accuracy of the classical estimators on the toys of their papers, against the exact likelihood.

    python benchmarks/classical.py [--quick] [--out results/classical]

Two Gaussian classes and two small UCI tables that come with scikit-learn, in random bags. Every
estimator chooses its C by the likelihood of held-out bags in a three-fold search, so no label of an
instance is used. The supervised bound chooses its C by accuracy in such a search. `make tables`
then writes the table of docs/explanation/classical.md.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import records
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, train_test_split
from sklearn.preprocessing import StandardScaler

from llpkit import random_bags
from llpkit.estimators import (
    AlterSVMClassifier,
    DLLPClassifier,
    InvCalClassifier,
    LLPLogisticRegression,
    MeanMapClassifier,
)

SIZES = (2, 8, 32, 64)
GRID = {"C": [0.01, 0.1, 1.0, 10.0]}
SUPERVISED = "supervised logistic regression"
ESTIMATORS = {
    "LLPLogisticRegression": LLPLogisticRegression(),
    "DLLPClassifier": DLLPClassifier(),
    "MeanMapClassifier": MeanMapClassifier(),
    "MeanMapClassifier(laplacian=1)": MeanMapClassifier(laplacian=1.0),
    "InvCalClassifier": InvCalClassifier(),
    'InvCalClassifier(kernel="rbf")': InvCalClassifier(kernel="rbf"),
    "AlterSVMClassifier": AlterSVMClassifier(n_init=4, random_state=0),
    'AlterSVMClassifier(kernel="rbf")': AlterSVMClassifier(kernel="rbf", n_init=4, random_state=0),
}

Table = tuple[np.ndarray, np.ndarray]


def two_gaussians() -> Table:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1000)
    X = rng.normal(size=(1000, 2))
    X[:, 0] += np.where(y, 1.2, -1.2)  # no classifier exceeds 0.885
    return X, y


def breast_cancer() -> Table:
    X, y = load_breast_cancer(return_X_y=True)
    return X, y


def threes_and_eights() -> Table:
    X, y = load_digits(return_X_y=True)
    chosen = (y == 3) | (y == 8)
    return X[chosen], (y[chosen] == 8).astype(int)


DATA: dict[str, Callable[[], Table]] = {
    "two Gaussians": two_gaussians,
    "breast cancer": breast_cancer,
    "digits, 3 or 8": threes_and_eights,
}


def splits(table: Table, seeds: int) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Seventy per cent for training, thirty for testing, standardised."""
    for seed in range(seeds):
        X, X_test, y, y_test = train_test_split(*table, test_size=0.3, random_state=seed)
        scaler = StandardScaler().fit(X)
        yield seed, (scaler.transform(X), scaler.transform(X_test), y, y_test)


def accuracy(estimator: object, table: Table, n: int, seeds: int) -> tuple[float, float]:
    """Mean accuracy on the test rows, and median seconds of a fit with the chosen C."""
    found, seconds = [], []
    for seed, (X, X_test, y, y_test) in splits(table, seeds):
        bags = random_bags(y, n, generator=seed)
        groups = np.empty(len(y), dtype=int)
        groups[bags.rows.numpy()] = bags.bag_index.numpy()
        counts = bags.counts.numpy()[groups]
        search = GridSearchCV(estimator, GRID, cv=GroupKFold(3), refit=False)
        search.fit(X, counts, groups=groups)
        best = clone(estimator).set_params(**search.best_params_)
        start = time.perf_counter()
        best.fit(X, counts, groups)
        seconds.append(time.perf_counter() - start)
        found.append((best.predict(X_test) == y_test).mean())
    return float(np.mean(found)), float(np.median(seconds))


def supervised(table: Table, seeds: int) -> float:
    found = []
    for _, (X, X_test, y, y_test) in splits(table, seeds):
        search = GridSearchCV(LogisticRegression(max_iter=1000), GRID, cv=3).fit(X, y)
        found.append((search.predict(X_test) == y_test).mean())
    return float(np.mean(found))


def measure(sizes: tuple[int, ...], seeds: int) -> Iterator[records.Row]:
    """One row per data set, estimator and bag size; fit seconds are the median over the sizes."""
    for name, load in DATA.items():
        table = load()
        for key, estimator in ESTIMATORS.items():
            cells = [accuracy(estimator, table, n, seeds) for n in sizes]
            seconds = float(np.median([t for _, t in cells]))
            for n, (value, _) in zip(sizes, cells, strict=True):
                row = {"data": name, "estimator": key, "n": n, "accuracy": value}
                yield row | {"fit_seconds": seconds}
        yield {"data": name, "estimator": SUPERVISED, "accuracy": supervised(table, seeds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two bag sizes, one split")
    parser.add_argument("--out", type=Path, help="folder for classical.parquet")
    options = parser.parse_args()
    sizes, seeds = ((2, 32), 1) if options.quick else (SIZES, 3)
    rows = []
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of a C that is not chosen
        for row in measure(sizes, seeds):
            print(row, flush=True)
            rows.append(row | {"machine": records.machine()})
    if options.out is not None:
        records.write(options.out / "classical.parquet", rows)


if __name__ == "__main__":
    main()
