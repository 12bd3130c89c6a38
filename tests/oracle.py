"""What the engine must equal, worked out in ways that share nothing with it.

``Enumeration`` is the definition: the sum over all ``K^n`` label combinations of one bag.
``forward_backward`` is a two-sided recursion for large binary bags, ``count_distribution`` a
convolution, ``multiclass_recursion`` a table of counts.

How far they can be trusted:

- ``Enumeration`` keeps log-probabilities in ``np.longdouble`` and adds positive numbers only, so
  with n <= 10 it is right to a few units of float64 rounding.
- ``forward_backward`` carries a float64 mantissa and an integer exponent of two for every number.
  Nothing under- or overflows, nothing is subtracted, and every stored probability has seen at most
  2n roundings, so the relative error is below ``4 n eps``, 5e-12 at n = 5,000. ``test_oracle.py``
  compares it with 50-digit mpmath (n = 300, standard deviations up to 300), with enumeration and,
  at n = 5,000, with the binomial distribution.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import mpmath
import numpy as np

LogWeight = Callable[[object], float]


class Answer(NamedTuple):
    log_prob: float
    posterior: np.ndarray  # (n,) binary, (n, K) otherwise


def no_evidence(_: object) -> float:
    """The weight of a bag whose count is unknown: log 1."""
    return 0.0


def log_sigmoid(z: np.ndarray) -> np.ndarray:
    z = np.asarray(z, dtype=np.longdouble)
    return np.minimum(z, 0) - np.log1p(np.exp(-np.abs(z)))


def log_softmax(z: np.ndarray) -> np.ndarray:
    z = np.asarray(z, dtype=np.longdouble)
    shifted = z - z.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def log_sum_exp(x: np.ndarray) -> np.longdouble:
    top = x.max()
    return top if np.isneginf(top) else top + np.log(np.exp(x - top).sum())


def all_combinations(n: int, num_classes: int) -> np.ndarray:
    """Every label combination of n instances, ``(K^n, n)``."""
    return np.arange(num_classes**n)[:, None] // num_classes ** np.arange(n) % num_classes


def all_count_vectors(n: int, num_classes: int) -> np.ndarray:
    """Every vector of K counts that sums to n, ``(S, K)``, in lexicographic order."""
    axes = np.meshgrid(*[np.arange(n + 1)] * num_classes, indexing="ij")
    grid = np.stack(axes, axis=-1).reshape(-1, num_classes)
    return grid[grid.sum(axis=1) == n]


@dataclass(frozen=True)
class Enumeration:
    """All label combinations of one bag whose instance i has class k with ``log_p[i, k]``.

    A weight is a Python function of the count (binary) or of the tuple of class counts.
    """

    log_p: np.ndarray  # (n, K)
    is_binary: bool

    @classmethod
    def binary(cls, z: np.ndarray) -> "Enumeration":
        z = np.asarray(z, dtype=np.longdouble)
        return cls(np.stack([log_sigmoid(-z), log_sigmoid(z)], axis=1), is_binary=True)

    @classmethod
    def softmax(cls, z: np.ndarray) -> "Enumeration":
        return cls(log_softmax(z), is_binary=False)

    @cached_property
    def labels(self) -> np.ndarray:  # (K^n, n)
        return all_combinations(*self.log_p.shape)

    @cached_property
    def log_probs(self) -> np.ndarray:  # (K^n,)
        total = np.zeros(len(self.labels), dtype=np.longdouble)
        for log_p, label in zip(self.log_p, self.labels.T, strict=True):
            total += log_p[label]
        return total

    @cached_property
    def count_vectors(self) -> np.ndarray:  # (S, K)
        return all_count_vectors(*self.log_p.shape)

    @cached_property
    def cell(self) -> np.ndarray:  # (K^n,), which of the count vectors a combination has
        n, num_classes = self.log_p.shape
        place = (n + 1) ** np.arange(num_classes)
        code = np.full((n + 1) ** num_classes, -1)
        code[self.count_vectors @ place] = np.arange(len(self.count_vectors))
        return code[place[self.labels].sum(axis=1)]

    @cached_property
    def _tables(self) -> tuple[np.ndarray, np.ndarray]:
        """``log P(c)`` of every count vector, and the posterior under it, ``(S, n, K)``."""
        n, num_classes = self.log_p.shape
        size = len(self.count_vectors)
        top = np.full(size, -np.inf, dtype=np.longdouble)
        np.maximum.at(top, self.cell, self.log_probs)
        finite_top = np.where(np.isneginf(top), 0, top)
        mass = np.exp(self.log_probs - finite_top[self.cell]).astype(np.float64)
        total = np.bincount(self.cell, mass, minlength=size)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_pmf = finite_top + np.log(total.astype(np.longdouble))
            phi = np.empty((size, n, num_classes))
            for i in range(n):
                joint = np.bincount(
                    self.cell * num_classes + self.labels[:, i], mass, minlength=size * num_classes
                )
                phi[:, i] = (
                    joint.reshape(size, num_classes) / total[:, None]
                )  # NaN where the counts are impossible
        return log_pmf, phi

    @property
    def log_pmf(self) -> np.ndarray:  # (S,)
        return self._tables[0]

    @property
    def pmf(self) -> np.ndarray:
        """``(n + 1,)`` for counts 0..n when binary, else in the order of ``count_vectors``."""
        return np.exp(self.by_count(self.log_pmf)).astype(np.float64)

    def by_count(self, values: np.ndarray) -> np.ndarray:
        # Lexicographic order has (0 negatives, n positives) first.
        return values[::-1] if self.is_binary else values

    def log_weights(self, log_weight: LogWeight) -> np.ndarray:  # (S,)
        args = (int(c[1]) if self.is_binary else tuple(map(int, c)) for c in self.count_vectors)
        return np.array([log_weight(a) for a in args], dtype=np.longdouble)

    def answer(self, log_weight: LogWeight) -> Answer:
        """``log Σ_c w(c) P(c)`` and ``P(h_i = k | evidence)``, NaN if nothing is possible."""
        log_pmf, phi = self._tables
        joint = log_pmf + self.log_weights(log_weight)
        log_prob = log_sum_exp(joint)
        if np.isneginf(log_prob):
            posterior = np.full(phi.shape[1:], np.nan)
        else:
            share = np.exp(joint - log_prob)
            used = share > 0
            posterior = np.einsum("s,sik->ik", share[used].astype(np.float64), phi[used])
        return Answer(float(log_prob), posterior[:, 1] if self.is_binary else posterior)

    def exact_answers(self) -> list[Answer]:
        """The answer for each exact count 0..n, or for each row of ``count_vectors``."""
        log_pmf, phi = map(self.by_count, self._tables)
        phi = phi[:, :, 1] if self.is_binary else phi
        return [Answer(float(a), b) for a, b in zip(log_pmf, phi, strict=True)]

    def scores(self, log_weight: LogWeight) -> np.ndarray:
        """``log w(h) P(h)`` of every combination, ``(K^n,)``."""
        return self.log_probs + self.log_weights(log_weight)[self.cell]

    def probabilities(self, log_weight: LogWeight) -> np.ndarray:
        """``P(h | evidence)`` of every combination, in the order of ``labels``."""
        scores = self.scores(log_weight)
        return np.exp(scores - log_sum_exp(scores)).astype(np.float64)

    def modes(self, log_weight: LogWeight, tolerance: float = 1e-9) -> set[tuple[int, ...]]:
        """The most probable combinations, all that come within ``tolerance`` of the best."""
        scores = self.scores(log_weight)
        return {tuple(map(int, h)) for h in self.labels[scores >= scores.max() - tolerance]}

    def covariance(self, log_weight: LogWeight) -> np.ndarray:
        """Posterior covariance of the labels, ``(n, n)``, or of indicators, ``(n, K, n, K)``."""
        share = self.probabilities(log_weight)
        if self.is_binary:
            h = self.labels.astype(np.float64)
            centred = h - share @ h
            return np.einsum("c,ci,cj->ij", share, centred, centred)
        h = np.eye(self.log_p.shape[1])[self.labels]
        centred = h - np.einsum("c,cik->ik", share, h)
        return np.einsum("c,cik,cjl->ikjl", share, centred, centred)


# Far below any exponent that occurs; the product of two zeros still fits an int32.
_ZERO_EXPONENT = -(2**29)


class _Wide:
    """Non-negative numbers ``m * 2^e`` with a float64 mantissa and an integer exponent."""

    def __init__(self, m: np.ndarray, e: np.ndarray) -> None:
        self.m, self.e = m, e

    @classmethod
    def zeros(cls, *shape: int) -> "_Wide":
        return cls(np.zeros(shape), np.full(shape, _ZERO_EXPONENT, dtype=np.int32))

    def __getitem__(self, key: object) -> "_Wide":
        return _Wide(self.m[key], self.e[key])

    def __setitem__(self, key: object, other: "_Wide") -> None:
        self.m[key], self.e[key] = other.m, other.e

    def __mul__(self, other: "_Wide") -> "_Wide":
        return _Wide(self.m * other.m, self.e + other.e)

    def __add__(self, other: "_Wide") -> "_Wide":
        e = np.maximum(self.e, other.e)
        m, carry = np.frexp(np.ldexp(self.m, self.e - e) + np.ldexp(other.m, other.e - e))
        return _Wide(m, e + carry)

    def shifted(self) -> "_Wide":
        out = _Wide.zeros(len(self.m))
        out[1:] = self[:-1]
        return out

    def log(self) -> float:
        return float(mpmath.log(mpmath.mpf(float(self.m))) + int(self.e) * mpmath.log(2))


def _wide(values: Iterable[mpmath.mpf]) -> _Wide:
    pairs = [mpmath.frexp(v) for v in values]
    return _Wide(
        np.array([float(m) for m, _ in pairs]), np.array([int(e) for _, e in pairs], dtype=np.int32)
    )


def _sigmoid_pair(z: np.ndarray) -> tuple[_Wide, _Wide]:
    with mpmath.workdps(40):
        odds = [mpmath.exp(mpmath.mpf(float(v))) for v in z]
        return _wide(o / (1 + o) for o in odds), _wide(1 / (1 + o) for o in odds)


def forward_backward(z: np.ndarray, counts: Iterable[int]) -> dict[int, Answer]:
    """``log P(y)`` and the posterior of one binary bag with finite logits, for each of the counts.

    F_i(k) = P(k positives before i), G_i(k) = P(k positives after i), and
    ``phi_i = p_i Σ_k F_i(k) G_i(y - 1 - k) / P(y)``. O(n max(y)) time and memory for the table F,
    which the counts share; a count nearer to n than to 0 is answered from the mirrored bag.
    """
    z = np.asarray(z, dtype=np.float64)
    n = len(z)
    counts = sorted(set(counts))
    low = [y for y in counts if 2 * y <= n]
    answers = _forward_backward(z, low) if low else {}
    high = [n - y for y in counts if 2 * y > n]
    if high:
        for y, (log_prob, phi) in _forward_backward(-z, high).items():
            answers[n - y] = Answer(log_prob, 1 - phi)
    return answers


def _forward_backward(z: np.ndarray, counts: list[int]) -> dict[int, Answer]:
    n, top = len(z), max(counts)
    p, q = _sigmoid_pair(z)
    before = _Wide.zeros(n + 1, top + 1)
    before[0, 0] = _Wide(np.float64(0.5), np.int32(1))
    for i in range(n):
        before[i + 1] = before[i] * q[i] + before[i].shifted() * p[i]
    total = before[n]
    phi = {y: np.zeros(n) for y in counts}
    after = _Wide.zeros(top + 1)
    after[0] = _Wide(np.float64(0.5), np.int32(1))
    for i in range(n - 1, -1, -1):
        for y in counts:
            if y > 0:
                terms = before[i, :y] * after[:y][::-1] * p[i]
                phi[y][i] = np.ldexp(terms.m, terms.e - total.e[y]).sum() / total.m[y]
        after = after * q[i] + after.shifted() * p[i]
    return {y: Answer(total[y].log(), phi[y]) for y in counts}


def mpmath_forward_backward(z: np.ndarray, y: int, digits: int = 50) -> Answer:
    """The same sums in many decimal digits; slow, to show that ``forward_backward`` is right."""
    n = len(z)
    with mpmath.workdps(digits):
        odds = [mpmath.exp(mpmath.mpf(float(v))) for v in z]
        p = [o / (1 + o) for o in odds]
        q = [1 / (1 + o) for o in odds]

        def advance(row: list[mpmath.mpf], i: int) -> list[mpmath.mpf]:
            return [row[0] * q[i]] + [row[k] * q[i] + row[k - 1] * p[i] for k in range(1, y + 1)]

        start = [mpmath.mpf(1)] + [mpmath.mpf(0)] * y
        before = [start]
        for i in range(n):
            before.append(advance(before[-1], i))
        total, after, phi = before[n][y], start, np.zeros(n)
        for i in range(n - 1, -1, -1):
            if y > 0:
                phi[i] = float(p[i] * mpmath.fdot(before[i][:y], after[:y][::-1]) / total)
            after = advance(after, i)
        return Answer(float(mpmath.log(total)), phi)


def count_distribution(z: np.ndarray) -> np.ndarray:
    """``P(0), …, P(n)`` of one binary bag, instance by instance; absolute error below n eps."""
    pmf = np.ones(1)
    for p, q in zip(np.exp(log_sigmoid(z)), np.exp(log_sigmoid(-np.asarray(z))), strict=True):
        pmf = np.append(pmf * float(q), 0.0) + np.append(0.0, pmf * float(p))
    return pmf


def multiclass_recursion(z: np.ndarray, counts: Iterable[int]) -> Answer:
    """One bag with K classes, exact counts and moderate logits; instances left out one by one.

    ``phi_ik = p_ik P_{-i}(y - e_k) / P(y)``; sums of positive numbers in float64, O(n^2) tables.
    """
    p = np.exp(log_softmax(z)).astype(np.float64)
    n, num_classes = p.shape
    y = np.asarray(list(counts))
    units = np.eye(num_classes, dtype=int)

    def table(rows: Iterable[int]) -> np.ndarray:
        prob = np.zeros(y + 1)
        prob[(0,) * num_classes] = 1
        for i in rows:
            step = np.zeros_like(prob)
            for k in range(num_classes):
                to = tuple(slice(u, None) for u in units[k])
                source = tuple(slice(None, m + 1 - u) for m, u in zip(y, units[k], strict=True))
                step[to] += p[i, k] * prob[source]
            prob = step
        return prob

    total = table(range(n))[tuple(y)]
    phi = np.zeros_like(p)
    for i in range(n):
        rest = table(j for j in range(n) if j != i)
        for k in np.flatnonzero(y):
            phi[i, k] = p[i, k] * rest[tuple(y - units[k])] / total
    return Answer(float(np.log(total)), phi)


def scaled_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest ``|a - e| / max(1, |e|)``; equal infinities agree, NaN never does."""
    actual, expected = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    with np.errstate(invalid="ignore"):
        error = np.abs(actual - expected) / np.maximum(1, np.abs(expected))
    error = np.where(actual == expected, 0, np.where(np.isnan(error), np.inf, error))
    return float(error.max(initial=0))


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    error = scaled_error(actual, expected)
    assert error <= tolerance, f"scaled error {error:.2e} > {tolerance:.0e}"


def assert_frequencies(
    hits: np.ndarray, draws: int, probabilities: np.ndarray, false_alarm: float = 1e-6
) -> None:
    """Events of given probabilities, seen ``hits`` times in independent draws: is that credible?

    Chernoff: ``P(f this far from p) <= 2 exp(-draws KL(f || p))`` for each event, so a sampler that
    is right fails here with probability at most ``false_alarm``, all events together.
    """
    frequency = np.asarray(hits, dtype=np.float64) / draws
    p = np.clip(probabilities, 0, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        yes = np.where(frequency > 0, frequency * np.log(frequency / p), 0)
        no = np.where(frequency < 1, (1 - frequency) * np.log((1 - frequency) / (1 - p)), 0)
    surprise = draws * (yes + no)
    bound = np.log(2 * surprise.size / false_alarm)
    worst = np.unravel_index(np.argmax(surprise), surprise.shape)
    assert surprise[worst] <= bound, (
        f"event {tuple(map(int, worst))}: frequency {frequency[worst]:.5f}, "
        f"probability {p[worst]:.5f}, surprise {surprise[worst]:.1f} > {bound:.1f}"
    )
