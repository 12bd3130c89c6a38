"""Bags for the tests: what the engine is fed and, beside it, what the oracle is told.

The first half builds bags from a NumPy generator, the second half holds hypothesis strategies.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st

from llpkit.likelihood import Evidence

# For the slow tests; the profile in conftest.py serves the others.
thorough = settings(max_examples=500)

Counts = int | tuple[int, ...]


class Known(NamedTuple):
    """Evidence on one bag, in the engine's terms and in the oracle's."""

    evidence: Evidence
    log_weight: Callable[[object], float]


class Batch(NamedTuple):
    logits: torch.Tensor  # (N,) or (N, K)
    evidence: Evidence
    offsets: torch.Tensor  # (B + 1,)


def within(low: Counts, high: Counts | float) -> Callable[[object], float]:
    def log_weight(counts: object) -> float:
        return (
            0.0
            if np.all(np.less_equal(low, counts)) and np.all(np.less_equal(counts, high))
            else -math.inf
        )

    return log_weight


def exact(counts: Counts) -> Known:
    return Known(Evidence.exact([counts]), within(counts, counts))


def interval(low: Counts, high: Counts) -> Known:
    return Known(Evidence.interval([low], [high]), within(low, high))


def at_least(low: Counts) -> Known:
    return Known(Evidence.at_least([low]), within(low, math.inf))


def unknown(num_classes: int | None = None) -> Known:
    return Known(Evidence.unknown(1, num_classes), within(0, math.inf))


def noisy(observed: float | Sequence[float], log_density: Callable, size: int) -> Known:
    def log_weight(counts: object) -> float:
        terms = log_density(
            torch.tensor(observed, dtype=torch.float64), torch.tensor(counts, dtype=torch.float64)
        )
        return float(terms.sum())

    observed_rows = torch.tensor([observed], dtype=torch.float64)
    return Known(Evidence.noisy(observed_rows, log_density, [size]), log_weight)


def weights(table: Sequence[float]) -> Known:
    values = [float(w) for w in table]
    return Known(
        Evidence.weights(torch.tensor(values, dtype=torch.float64), [0, len(values)]),
        values.__getitem__,
    )


def gaussian(observed: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return -0.5 * ((count - observed) / 1.5) ** 2 - 0.9


def cauchy(observed: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return -torch.log1p((count - observed) ** 2)


def two_peaks(observed: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return torch.logaddexp(-2 * (count - observed) ** 2, 0.5 - 2 * (count - observed - 3) ** 2)


DENSITIES = (gaussian, cauchy, two_peaks)


def evidence_kinds(n: int, rng: np.random.Generator) -> dict[str, Known]:
    """Every kind of evidence on the count of one binary bag."""
    low, high = np.sort(rng.integers(0, n + 1, size=2))
    table = rng.normal(size=n + 1) * 3
    holes = np.where(rng.random(n + 1) < 0.5, -np.inf, table)
    holes[rng.integers(n + 1)] = 0.0
    return {
        "exact": exact(int(low)),
        "interval": interval(int(low), int(high)),
        "interval past the size": interval(int(low), n + 5),
        "at_least": at_least(int(high)),
        "at_least one": at_least(min(1, n)),
        **{f"noisy {f.__name__}": noisy(rng.uniform(-1, n + 1), f, n) for f in DENSITIES},
        "unknown": unknown(),
        "weights": weights(table),
        "weights with holes": weights(holes),
    }


def random_counts(n: int, num_classes: int, rng: np.random.Generator) -> np.ndarray:
    return np.bincount(rng.integers(num_classes, size=n), minlength=num_classes)


def class_evidence_kinds(n: int, num_classes: int, rng: np.random.Generator) -> dict[str, Known]:
    """Every kind of evidence on the class counts of one bag; some count vector is possible."""
    y = random_counts(n, num_classes, rng)
    low = np.maximum(0, y - rng.integers(0, 3, size=num_classes))
    high = y + rng.integers(0, 3, size=num_classes)

    def row(values: np.ndarray) -> tuple[int, ...]:
        return tuple(int(v) for v in values)

    return {
        "exact": exact(row(y)),
        "interval": interval(row(low), row(high)),
        "at_least": at_least(row(low)),
        **{
            f"noisy {f.__name__}": noisy(tuple(rng.uniform(-1, n + 1, size=num_classes)), f, n)
            for f in DENSITIES
        },
        "unknown": unknown(num_classes),
    }


def batch(
    bags: Sequence[np.ndarray],
    evidence: Sequence[Evidence] | Evidence,
    dtype: torch.dtype = torch.float64,
) -> Batch:
    """Bags of logits, ``(n,)`` or ``(n, K)`` each, on one flat axis."""
    logits = torch.tensor(np.concatenate(bags), dtype=dtype)
    offsets = torch.tensor(np.cumsum([0, *map(len, bags)]))
    return Batch(
        logits,
        evidence if isinstance(evidence, Evidence) else Evidence.concat(list(evidence)),
        offsets,
    )


def pieces(values: torch.Tensor, offsets: torch.Tensor) -> list[np.ndarray]:
    """The rows of each bag."""
    return np.split(values.detach().double().numpy(), offsets[1:-1].numpy())


def rounded(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """The float64 values that survive a trip through ``dtype``."""
    return torch.tensor(values).to(dtype).double().numpy()


# --- hypothesis ---

finite_logits = st.one_of(
    st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-3, 3), st.floats(-60, 60), st.floats(-1e4, 1e4)
)
bag_sizes = st.one_of(st.integers(0, 4), st.integers(0, 12), st.sampled_from([15, 33, 65, 90]))


@st.composite
def bag_logits(draw: st.DrawFn, n: int) -> np.ndarray:
    """Logits of one bag: drawn one by one while it is small, else by a seed and a scale."""
    if n <= 12:
        return np.array(draw(st.lists(finite_logits, min_size=n, max_size=n)), dtype=np.float64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.normal(size=n) * draw(st.sampled_from([0.0, 0.1, 1.0, 10.0, 300.0])) + draw(
        st.floats(-20, 20)
    )


@st.composite
def bags_with_evidence(
    draw: st.DrawFn, sizes: st.SearchStrategy[int] = bag_sizes
) -> tuple[np.ndarray, Known]:
    """One binary bag, some of its labels known at times, and evidence that leaves it possible."""
    n = draw(sizes)
    z = draw(bag_logits(n))
    known = np.array(
        draw(st.lists(st.sampled_from([0, 0, 0, 1, -1]), min_size=n, max_size=n)), dtype=int
    )
    if draw(st.booleans()):
        z = np.where(known == 0, z, np.where(known > 0, np.inf, -np.inf))
    else:
        known = np.zeros(n, dtype=int)
    y = draw(st.integers(int((known == 1).sum()), n - int((known == -1).sum())))
    kind = draw(st.sampled_from(["exact", "interval", "at_least", "noisy", "unknown", "weights"]))
    if kind == "exact":
        return z, exact(y)
    if kind == "interval":
        return z, interval(draw(st.integers(0, y)), draw(st.integers(y, n + 2)))
    if kind == "at_least":
        return z, at_least(draw(st.integers(0, y)))
    if kind == "noisy":
        return z, noisy(draw(st.floats(-2, n + 2)), draw(st.sampled_from(DENSITIES)), n)
    if kind == "unknown":
        return z, unknown()
    table = draw(
        st.lists(st.one_of(st.just(-math.inf), st.floats(-30, 30)), min_size=n + 1, max_size=n + 1)
    )
    table[y] = draw(st.floats(-5, 5))
    return z, weights(table)


@st.composite
def class_bags_with_evidence(
    draw: st.DrawFn, num_classes: int, sizes: st.SearchStrategy[int]
) -> tuple[np.ndarray, Known]:
    """One bag of K classes, at times with forbidden ones, and evidence that leaves it possible."""
    n = draw(sizes)
    labels = draw(st.lists(st.integers(0, num_classes - 1), min_size=n, max_size=n))
    flat = draw(bag_logits(n * num_classes)).reshape(n, num_classes)
    if draw(st.booleans()):
        forbidden = draw(st.lists(st.booleans(), min_size=flat.size, max_size=flat.size))
        allowed = np.eye(num_classes, dtype=bool)[labels] if n else np.zeros_like(flat, dtype=bool)
        flat = np.where(
            np.reshape(np.array(forbidden, dtype=bool), flat.shape) & ~allowed, -np.inf, flat
        )
    y = tuple(labels.count(k) for k in range(num_classes))
    kind = draw(st.sampled_from(["exact", "interval", "at_least", "noisy", "unknown"]))
    if kind == "exact":
        return flat, exact(y)
    if kind == "interval":
        return flat, interval(
            tuple(max(0, v - 1) for v in y), tuple(v + draw(st.integers(0, 2)) for v in y)
        )
    if kind == "at_least":
        return flat, at_least(tuple(draw(st.integers(0, v)) for v in y))
    if kind == "noisy":
        return flat, noisy(tuple(float(v) for v in y), draw(st.sampled_from(DENSITIES)), n)
    return flat, unknown(num_classes)


def ragged_batches(
    sizes: st.SearchStrategy[int] = bag_sizes, max_bags: int = 6
) -> st.SearchStrategy[list[tuple[np.ndarray, Known]]]:
    """Several binary bags; empty bags and bags of one are ordinary."""
    return st.lists(bags_with_evidence(sizes), min_size=1, max_size=max_bags)
