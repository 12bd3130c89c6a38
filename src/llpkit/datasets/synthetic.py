"""Gaussian classes at a given distance from each other."""

import math

import numpy as np
import torch

from llpkit._validation import number, whole
from llpkit.datasets.base import BagSize, DataSet, in_random_bags
from llpkit.datasets.registry import register


@register("synthetic", summary="Gaussian classes at a given distance, in any dimension; built in")
def synthetic(
    *,
    bag_size: BagSize | None = None,
    seed: int = 0,
    rows: int = 2000,
    features: int = 2,
    classes: int = 2,
    separation: float = 3.0,
) -> DataSet:
    r"""Unit Gaussians whose means are all ``separation`` standard deviations apart.

    The means are the corners of a regular simplex around the origin, so ``K`` classes need at least
    ``K - 1`` features. With two classes the best classifier has accuracy
    :math:`\Phi(\text{separation} / 2)`.

    Args:
        bag_size: Instances per bag: a number, or the ends of a range; 1 to 12 by default.
        seed: Seed for the instances and the bags.
        rows: Number of instances.
        features: Dimensions.
        classes: Number of classes, all equally likely.
        separation: Distance between any two means.
    """
    rows = whole("rows", rows, 1, 10**8)
    classes = whole("classes", classes, 2, 100)
    features = whole("features", features, classes - 1, 10**5)
    distance = number("separation", separation, 0, 1e6)
    generator = torch.Generator().manual_seed(whole("seed", seed, 0, 2**63 - 1))
    labels = torch.randint(classes, (rows,), generator=generator)
    inputs = torch.randn(rows, features, generator=generator)
    inputs[:, : classes - 1] += torch.from_numpy(_simplex(classes, distance)).float()[labels]
    names = [str(k) for k in range(classes)] if classes > 2 else ["negative", "positive"]
    notes = []
    if classes == 2:
        best = 0.5 * (1 + math.erf(distance / math.sqrt(8)))
        notes.append(f"the best classifier gets {100 * best:.1f} % right")
    return in_random_bags("synthetic", inputs, labels, names, bag_size, generator, notes)


def _simplex(corners: int, side: float) -> np.ndarray:
    """Corners ``(K, K - 1)`` of a regular simplex around the origin."""
    # Inner products of corners around the origin, sqrt(2) apart: rows of the Cholesky factor have
    # them. The last corner makes the sum zero.
    gram = np.eye(corners - 1) - 1 / corners
    most = -side / math.sqrt(2) * np.linalg.cholesky(gram)
    return np.vstack([most, -most.sum(0)])
