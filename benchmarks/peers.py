"""Implementations of the E-step: three peers, written here, and the two paths of the engine.

Each takes the bags, prepares what may be prepared beforehand, and returns a function to be timed.
"""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from llpkit.likelihood import posterior

Array = np.ndarray[Any, Any]
Run = Callable[[], Array]


class Sample(NamedTuple):
    """Bags with counts."""

    z: Tensor  # (N,)
    y: Tensor  # (B,)
    offsets: Tensor  # (B + 1,)

    def first(self, bags: int) -> "Sample":
        offsets = self.offsets[: bags + 1]
        return Sample(self.z[: int(offsets[-1])], self.y[:bags], offsets)


def draw(rng: np.random.Generator, sizes: Array) -> Sample:
    """Logits of standard deviation 1.5, and the counts of labels drawn from them."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    z = rng.normal(0, 1.5, offsets[-1])
    labels = rng.random(len(z)) < 1 / (1 + np.exp(-z))
    counts = np.add.reduceat(labels.astype(np.int64), offsets[:-1])
    return Sample(torch.from_numpy(z), torch.from_numpy(counts), torch.from_numpy(offsets))


def label_space(n: int, y: int) -> Array:
    """All label combinations of ``n`` instances with ``y`` positives, ``(C(n, y), n)``."""
    space = np.zeros((math.comb(n, y), n))
    np.put_along_axis(space, np.array(list(combinations(range(n), y)), dtype=np.int64), 1.0, 1)
    return space


def published(sample: Sample) -> Run:
    sizes, counts = sample.offsets.diff().tolist(), sample.y.tolist()
    spaces = [label_space(n, y) for n, y in zip(sizes, counts, strict=True)]
    z, ends = sample.z.numpy(), sample.offsets[1:-1].numpy()

    def of_bag(p: Array, space: Array) -> Array:
        weight = np.apply_along_axis(lambda h: np.prod(h * p + (1 - h) * (1 - p)), 1, space)
        return np.asarray(space.T @ (weight / weight.sum()))

    def run() -> Array:
        p = np.split(1 / (1 + np.exp(-z)), ends)
        return np.concatenate([of_bag(*bag) for bag in zip(p, spaces, strict=True)])

    return run


def vectorised(sample: Sample) -> Run:
    sizes, counts, z = sample.offsets.diff().numpy(), sample.y.numpy(), sample.z.numpy()
    groups = []
    for n, y in sorted(set(zip(sizes.tolist(), counts.tolist(), strict=True))):
        starts = sample.offsets[:-1].numpy()[(sizes == n) & (counts == y)]
        groups.append((starts[:, None] + np.arange(n), label_space(n, y)))

    def run() -> Array:
        phi = np.empty_like(z)
        for rows, space in groups:
            log_weight = z[rows] @ space.T  # (bags, combinations)
            log_weight -= log_weight.max(1, keepdims=True)
            weight = np.exp(log_weight, out=log_weight)
            phi[rows] = weight @ space / weight.sum(1, keepdims=True)
        return phi

    return run


def recursion(sample: Sample) -> Run:
    run = padded_recursion(*sample)
    return lambda: run().numpy()


def padded_recursion(z: Tensor, y: Tensor, offsets: Tensor) -> Callable[[], Tensor]:
    """On any device and in the dtype of the logits."""
    n, bags, most = offsets.diff(), torch.arange(len(y), device=z.device), int(y.max())
    real = torch.arange(int(n.max()), device=z.device) < n[:, None]  # (B, n_max)

    def run() -> Tensor:
        padded = z.new_full(real.shape, -torch.inf)
        padded[real] = z
        log_p, log_q = logsigmoid(padded).T[..., None], logsigmoid(-padded).T[..., None]
        after = z.new_full((len(log_p) + 1, len(y), most + 2), -torch.inf)
        after[-1, bags, y] = 0
        for i in range(len(log_p) - 1, -1, -1):
            stay, rise = after[i + 1, :, :-1] + log_q[i], after[i + 1, :, 1:] + log_p[i]
            after[i, :, :-1] = torch.logaddexp(stay, rise)
        before = z.new_full((len(y), most + 1), -torch.inf)
        before[:, 0] = 0
        phi = z.new_empty(log_p.shape[:2])
        for i in range(len(log_p)):
            joint = torch.logsumexp(before + after[i + 1, :, 1:], 1) + log_p[i, :, 0]
            phi[i] = (joint - after[0, :, 0]).exp()
            stay, rise = before + log_q[i], before[:, :-1] + log_p[i]
            before = torch.cat([stay[:, :1], torch.logaddexp(stay[:, 1:], rise)], 1)
        return phi.T[real]

    return run


def engine(backend: Literal["torch", "numba"]) -> Callable[[Sample], Run]:
    return lambda sample: lambda: posterior(*sample, backend=backend).numpy()


PUBLISHED, VECTORISED = "enumeration, as published", "enumeration, vectorised"
RECURSION, TORCH, NUMBA = "log-space recursion, torch", "engine, torch path", "engine, numba path"
METHODS: dict[str, Callable[[Sample], Run]] = {
    PUBLISHED: published,
    VECTORISED: vectorised,
    RECURSION: recursion,
    TORCH: engine("torch"),
    NUMBA: engine("numba"),
}
