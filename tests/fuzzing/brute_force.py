"""Label counts by brute force: every combination of labels, many bags of one size at a time.

Nothing here knows the engine. Scores of combinations are sums of the distances of a label's logit
from its instance's best one. They are kept in ``np.longdouble``, or, where logits are huge, in
Python integers: units of 2^-10, in which all logits and log-weights are whole. Then two
combinations that differ by 1 in 10^18 still differ by exactly 1.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from oracle import all_combinations, all_count_vectors

UNIT = 1024  # exact scores are counted in units of 1 / 1024


combinations, count_vectors = cache(all_combinations), cache(all_count_vectors)


@cache
def cell_of_combination(n: int, num_classes: int) -> np.ndarray:
    """The row of ``count_vectors`` that each combination has, ``(C,)``."""
    place = {tuple(c): s for s, c in enumerate(count_vectors(n, num_classes).tolist())}
    counts = np.stack([(combinations(n, num_classes) == k).sum(1) for k in range(num_classes)], 1)
    return np.array([place[tuple(c)] for c in counts.tolist()])


@cache
def has_label(n: int, num_classes: int) -> np.ndarray:
    """Whether a combination gives instance i the label k, ``(C, n, K)``."""
    return combinations(n, num_classes)[:, :, None] == np.arange(num_classes)


def distances(z: np.ndarray, exact: bool) -> tuple[np.ndarray, np.ndarray]:
    """How far each label is below the best of its instance, and which labels are ruled out.

    ``z`` is ``(..., K)`` with +inf for a label that is known and -inf for one that cannot be.
    """
    known = (z == np.inf).any(-1, keepdims=True)
    out = (z == -np.inf) | (known & (z != np.inf))
    safe = np.where(out | known, 0.0, z)
    if exact:
        units = np.array([int(v * UNIT) for v in safe.ravel()], dtype=object).reshape(z.shape)
        top = np.where(out, -(10**400), units).max(-1, keepdims=True) if z.size else units
        return np.where(out, 0, top - units), out
    wide = safe.astype(np.longdouble)
    top = np.where(out, -np.inf, wide).max(-1, keepdims=True) if z.size else wide
    return np.where(out, 0, top - wide), out


@dataclass(frozen=True)
class Answers:
    """What m bags of one size must give."""

    possible: np.ndarray  # (m,) bool
    log_prob: np.ndarray  # (m,) longdouble, -inf where impossible
    posterior: np.ndarray  # (m, n, K), NaN where impossible
    least: np.ndarray  # (m, n, K) the posterior if scores are off by ``slack``
    most: np.ndarray
    prior: np.ndarray  # (m, n, K)
    pmf: np.ndarray  # (m, S)
    scores: np.ndarray  # (m, C) log P(combination and evidence) below the best, -inf: impossible
    slack: np.ndarray  # (m,) how far rounding of the logits alone can move a score


def log_sum_exp(x: np.ndarray, axis: int) -> np.ndarray:
    top = x.max(axis, keepdims=True, initial=-np.inf)
    safe = np.where(np.isneginf(top), 0, top)
    with np.errstate(divide="ignore"):
        return np.squeeze(safe, axis) + np.log(np.exp(x - safe).sum(axis))


def enumerate_bags(z: np.ndarray, log_weight: np.ndarray, exact: bool) -> Answers:
    """All answers for bags ``z`` of shape ``(m, n, K)`` and log-weights ``(m, S)`` of counts."""
    m, n, classes = z.shape
    labels, cell = combinations(n, classes), cell_of_combination(n, classes)
    d, out = distances(z, exact)
    total = np.zeros((m, len(labels)), dtype=object if exact else np.longdouble)
    ruled_out = np.zeros((m, len(labels)), dtype=bool)
    for i in range(n):
        total = total + d[:, i][:, labels[:, i]]
        ruled_out |= out[:, i][:, labels[:, i]]
    units = UNIT if exact else 1
    with np.errstate(divide="ignore"):
        below = np.where(out, -np.inf, -(d.astype(np.longdouble)) / units)  # (m, n, K)
        normaliser = log_sum_exp(below, 2)  # (m, n)
        prior = np.exp(below - normaliser[..., None]).astype(np.float64)

    weights = np.where(np.isneginf(log_weight), 0.0, log_weight)
    if exact:
        weights = np.array([int(w * UNIT) for w in weights.ravel()], object).reshape(weights.shape)
    allowed = ~ruled_out & ~np.isneginf(log_weight)[:, cell]
    score = weights[:, cell] - total
    lowest = -(10**400) if exact else -np.inf
    best = np.where(allowed, score, lowest).max(1)
    possible = allowed.any(1)
    best = np.where(possible, best, 0)
    below_best = np.where(allowed, score - best[:, None], 0).astype(np.longdouble) / units
    scores = np.where(allowed, below_best, -np.inf)
    log_z = log_sum_exp(scores, 1)
    # The best score and the normalisers stay apart until the last step.
    log_prob = best.astype(np.longdouble) / units + log_z - normaliser.sum(1)
    log_prob = np.where(possible, log_prob, -np.inf)

    largest = np.where(np.isfinite(z), np.abs(z), 0).sum((1, 2))
    slack = 8 * np.finfo(np.float64).eps * largest
    hot = has_label(n, classes)
    p = np.exp(scores - np.where(possible, log_z, 0)[:, None])
    posterior = np.einsum("mc,cik->mik", p.astype(np.float64), hot.astype(np.float64))
    posterior[~possible] = np.nan
    if exact:
        with_label = np.where(hot[None], scores[:, :, None, None], -np.inf)
        without = np.where(hot[None], -np.inf, scores[:, :, None, None])
        with np.errstate(invalid="ignore", over="ignore"):
            odds = log_sum_exp(with_label, 1) - log_sum_exp(without, 1)
            reach = 2 * slack[:, None, None]
            least = (1 / (1 + np.exp(-(odds - reach)))).astype(np.float64)
            most = (1 / (1 + np.exp(-(odds + reach)))).astype(np.float64)
    else:
        room = 2.2 * slack[:, None, None] * posterior * (1 - posterior)
        least, most = posterior - room, posterior + room

    free = np.where(ruled_out, -np.inf, -(total.astype(np.longdouble)) / units)
    share = np.exp(free - normaliser.sum(1)[:, None]).astype(np.float64)
    pmf = np.stack([np.bincount(cell, row, len(log_weight[0])) for row in share]) if m else share
    return Answers(
        possible, log_prob, posterior, least, most, prior, pmf, scores, slack.astype(np.float64)
    )


def recursion(z: np.ndarray, log_weight: np.ndarray) -> Answers:
    """The same for m longer binary bags ``(m, n)``, log-weights ``(m, n + 1)``: a recursion.

    Forward over the counts of the instances seen, backward from the weights of the final count,
    in logarithms of extended precision. The ``scores`` of combinations are left empty.
    """
    m, n = z.shape
    both = np.stack([np.zeros_like(z), z], 2)
    both = np.where(np.isneginf(z)[..., None], np.array([0.0, -np.inf]), both)
    d, out = distances(both, exact=False)
    below = np.where(out, -np.inf, -d)
    log_p = below - log_sum_exp(below, 2)[..., None]  # (m, n, 2)
    nothing = np.full((m, 1), -np.inf, dtype=np.longdouble)

    def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return log_sum_exp(np.stack([a, b]), 0)

    forward = [np.concatenate([np.zeros((m, 1), np.longdouble), *[nothing] * n], 1)]
    for i in range(n):
        up = np.concatenate([nothing, forward[-1][:, :-1]], 1)
        forward.append(add(forward[-1] + log_p[:, i, :1], up + log_p[:, i, 1:]))
    after = log_weight.astype(np.longdouble)
    log_prob = log_sum_exp(forward[-1] + after, 1)
    possible = ~np.isneginf(log_prob)
    posterior = np.full((m, n, 2), np.nan)
    safe = np.where(possible, log_prob, 0)
    for i in reversed(range(n)):
        up = np.concatenate([after[:, 1:], nothing], 1)
        positive = log_sum_exp(forward[i] + log_p[:, i, 1:] + up, 1) - safe
        negative = log_sum_exp(forward[i] + log_p[:, i, :1] + after, 1) - safe
        posterior[:, i] = np.exp(np.stack([negative, positive], 1))
        after = add(after + log_p[:, i, :1], up + log_p[:, i, 1:])
    posterior[~possible] = np.nan
    slack = 8 * np.finfo(np.float64).eps * np.where(np.isfinite(z), np.abs(z), 0).sum(1)
    room = 2.2 * slack[:, None, None] * posterior * (1 - posterior)
    prior = np.exp(log_p).astype(np.float64)
    pmf = np.exp(forward[-1]).astype(np.float64)
    return Answers(
        possible,
        log_prob,
        posterior,
        posterior - room,
        posterior + room,
        prior,
        pmf,
        np.zeros((m, 0)),
        slack,
    )
