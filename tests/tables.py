"""Small tables in bags, for the tests of the estimators."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

from llpkit import random_bags


class Bagged(NamedTuple):
    X: np.ndarray
    y: np.ndarray  # the count of each row's bag, (N,) or (N, K)
    groups: np.ndarray
    labels: np.ndarray  # for checking alone


def in_bags(
    X: Any, labels: Any, size: int, seed: int = 0, num_classes: int | None = None
) -> Bagged:
    """Rows in random bags of one size (the last may be smaller), rows in any order."""
    labels = np.asarray(labels)
    groups = np.empty(len(labels), np.int64)
    groups[np.random.default_rng(seed).permutation(len(labels))] = np.arange(len(labels)) // size
    hot = (
        labels[:, None] == np.arange(1, 2)
        if num_classes is None
        else labels[:, None] == np.arange(num_classes)
    )
    counts = np.stack([np.bincount(groups, column) for column in hot.T], 1).astype(np.int64)[groups]
    return Bagged(np.asarray(X), counts[:, 0] if num_classes is None else counts, groups, labels)


def gaussians(rows: int = 240, size: int = 4, seed: int = 0, distance: float = 2.0) -> Bagged:
    """Two Gaussian classes in the plane, apart along its diagonal."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < 0.4).astype(np.int64)
    X = rng.normal(size=(rows, 2)) + distance / np.sqrt(2) * (labels[:, None] - 0.5)
    return in_bags(X, labels, size, seed)


def counts_and_groups(
    y: Any, n: int, seed: int, classes: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Counts and groups of random bags, row by row: the arguments of fit after X."""
    bags = random_bags(y, n, generator=seed, num_classes=classes)
    groups = np.empty(len(y), dtype=int)
    groups[bags.rows.numpy()] = bags.bag_index.numpy()
    return bags.counts.numpy()[groups], groups


def two_gaussians(rows: int = 2000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Means 2.4 apart: the best accuracy is Φ(1.2) = 0.885."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    X = rng.normal(size=(rows, 2))
    X[:, 0] += np.where(y, 1.2, -1.2)
    return X, y


def breast_cancer() -> tuple[np.ndarray, np.ndarray]:
    """Standardised columns and labels."""
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y
