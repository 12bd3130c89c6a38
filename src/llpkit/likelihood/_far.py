r"""K classes whose logits are so far apart that float64 cannot add them up.

A sum of logits near 1e18 is rounded to a multiple of 128, so the recursion would lose what tells
label combinations apart. Whole numbers lose nothing, and any float64 is one over a power of two. In
whole numbers we find the best label combination :math:`h` with the known counts, by shortest paths
between classes, and with it potentials :math:`\pi` such that

.. math:: r_{ik} = z_{ik} + \pi_k - z_{i h_i} - \pi_{h_i} \le 0.

Combinations with the same counts weigh :math:`e^{\sum_i r_{i k_i}}` against each other: the best
has a zero in every term, so float64 holds all that matter. Counts that are not exact are a mixture
over all counts that they allow.
"""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llpkit.errors import LLPError
from llpkit.likelihood import _multiclass
from llpkit.likelihood._evidence import Evidence
from llpkit.likelihood._ragged import bag_index, ranges, to_offsets

LIMIT = 2.0**20
"""Logits up to this size are added up in float64 with an error of about 1e-9."""

_COUNTS = 2000
"""The most counts that evidence which is not exact may allow in one bag."""

Row = list[int | None]
"""The logits of an instance as whole numbers; ``None`` for a class that it cannot have."""


class Candidate(NamedTuple):
    """One possible vector of counts of a bag."""

    counts: tuple[int, ...]
    labels: list[int]  # (n,) the best combination
    relative: list[list[float]]  # (n, K) what an instance loses by another class
    log_size: float  # log-weight of the best combination, less that of the best of all counts


class FarBag(NamedTuple):
    """A bag of logits that are far apart."""

    number: int  # its place among the bags
    candidates: list[Candidate]
    log_scale: float  # log-probability of the best combination of all


def far_bags(z: Tensor, offsets: Tensor) -> Tensor:
    """The numbers of the bags that must be solved here; NaN is for others to deal with."""
    large = (z.abs() > LIMIT) & z.isfinite()
    if not bool(large.any()):
        return offsets.new_zeros(0)
    bag = bag_index(offsets)
    sick = bag[z.isnan().any(1) | (z == -torch.inf).all(1)]
    found: Tensor = bag[large.any(1)].unique()
    return found[~torch.isin(found, sick)]


def prepare(z: Tensor, offsets: Tensor, evidence: Evidence, far: Tensor) -> list[FarBag]:
    """Solve in whole numbers the bags that have a solution."""
    bags = []
    for b in far.tolist():
        rows, unit = _whole(z[int(offsets[b]) : int(offsets[b + 1])].tolist())
        known = _possible(evidence[[b]], len(rows), b)
        top, found = None, []
        for counts, weight in known:
            solved = _assign(rows, counts)
            if solved is None:
                continue
            labels, potentials, total = solved
            # The weight of the counts is a float as well, and joins in as a whole number.
            up, down = weight.as_integer_ratio()
            size = (total * down + up * unit, down)
            if top is None or size[0] * top[1] > top[0] * size[1]:
                top = size
            relative = [
                _relative(row, k, potentials, unit) for row, k in zip(rows, labels, strict=True)
            ]
            found.append((counts, labels, relative, size))
        if top is None:
            continue
        candidates = [
            Candidate(c, h, r, _ratio(s[0] * top[1] - top[0] * s[1], s[1] * top[1] * unit))
            for c, h, r, s in found
        ]
        tops = [max(x for x in row if x is not None) for row in rows]
        norms = [
            math.log(sum(math.exp(_ratio(x - t, unit)) for x in row if x is not None))
            for row, t in zip(rows, tops, strict=True)
        ]
        scale = _ratio(top[0] - sum(tops) * top[1], top[1] * unit)
        bags.append(FarBag(b, candidates, scale - math.fsum(norms)))
    return bags


def evaluate(
    bags: list[FarBag], offsets: Tensor, z: Tensor, direction: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """As :func:`._multiclass.evaluate`, for the rows of these bags; and those rows."""
    sizes = offsets.diff()
    index = torch.tensor([b.number for b in bags], device=z.device)
    rows = ranges(offsets[:-1][index], sizes[index])
    log_p, counts, inner, source = _copies(bags, offsets, z)
    of_copy = None if direction is None else direction[source]
    exact = Evidence.exact(counts)
    log_prob, phi, product = _multiclass.evaluate(log_p, inner, exact, of_copy)
    found, parts, slopes, copy = [], [], [], 0
    for bag in bags:
        number, n = len(bag.candidates), int(sizes[bag.number])
        own = slice(int(inner[copy]), int(inner[copy + number]))
        size = log_p.new_tensor([c.log_size for c in bag.candidates])
        share = size + log_prob[copy : copy + number]  # (C,)
        total = share.logsumexp(0)
        found.append(total + bag.log_scale)
        weight = (share - total).exp()[:, None, None]
        each = phi[own].reshape(number, n, -1)
        parts.append((weight * each).sum(0))
        if product is not None and of_copy is not None:
            along = (each * of_copy[own].reshape(number, n, -1)).sum((1, 2), keepdim=True)
            slope = product[own].reshape(number, n, -1) + each * (along - (weight * along).sum(0))
            slopes.append((weight * slope).sum(0))
        copy += number
    derivative = torch.cat(slopes) if product is not None else None
    return torch.stack(found), torch.cat(parts), derivative, rows


def put_relative(log_p: Tensor, offsets: Tensor, bags: list[FarBag]) -> None:
    """In the place of log-probabilities, how far each is below the best; for exact counts."""
    for bag in bags:
        rows = slice(int(offsets[bag.number]), int(offsets[bag.number + 1]))
        log_p[rows] = log_p.new_tensor(bag.candidates[0].relative).reshape(log_p[rows].shape)


def _copies(
    bags: list[FarBag], offsets: Tensor, z: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every candidate as a bag of its own with exact counts; and the rows that it comes from."""
    chosen = [(bag.number, one) for bag in bags for one in bag.candidates]
    number = offsets.new_tensor([b for b, _ in chosen])
    lengths = offsets.diff()[number]
    relative = [row for _, one in chosen for row in one.relative]
    log_p = z.new_tensor(relative).reshape(len(relative), z.shape[1])
    counts = offsets.new_tensor([one.counts for _, one in chosen])
    return log_p, counts, to_offsets(lengths), ranges(offsets[:-1][number], lengths)


def _relative(row: Row, best: int, potentials: list[int], unit: int) -> list[float]:
    """How far every class of an instance is below its best one."""
    tilted = [None if x is None else x + p for x, p in zip(row, potentials, strict=True)]
    top = tilted[best]
    assert top is not None
    return [-math.inf if x is None else _ratio(x - top, unit) for x in tilted]


def _ratio(number: int, unit: int) -> float:
    """A whole number of units as a float."""
    try:
        return number / unit
    except OverflowError:
        return -math.inf if number < 0 else math.inf


def _whole(logits: list[list[float]]) -> tuple[list[Row], int]:
    """Logits as whole numbers of a unit, ``1 / unit``; a known class is 0 and all others none."""
    rows = []
    for row in logits:
        known = math.inf in row
        kept = [0.0 if x == math.inf else x for x in row]
        gone = [x != math.inf if known else x == -math.inf for x in row]
        rows.append([None if g else x.as_integer_ratio() for x, g in zip(kept, gone, strict=True)])
    unit = max((x[1] for row in rows for x in row if x is not None), default=1)
    return [[None if x is None else x[0] * (unit // x[1]) for x in row] for row in rows], unit


def _possible(evidence: Evidence, n: int, b: int) -> list[tuple[tuple[int, ...], float]]:
    """All counts that the evidence of one bag allows, and their log-weights."""
    low, high = evidence.low[0].tolist(), evidence.high[0].clamp(max=n).tolist()
    found: list[tuple[int, ...]] = [()]
    for k, (first, last) in enumerate(zip(low, high, strict=True)):
        least, most = sum(low[k + 1 :]), sum(high[k + 1 :])
        found = [
            (*part, y)
            for part in found
            for y in range(max(first, n - sum(part) - most), min(last, n - sum(part) - least) + 1)
        ]
        if len(found) > _COUNTS:
            raise LLPError(
                f"bag {b} has logits beyond {LIMIT:.0f}, and its evidence allows more than "
                f"{_COUNTS} counts, which is too much for exact arithmetic; scale the logits down, "
                "or lower the learning rate"
            )
    counts = torch.tensor(found, dtype=torch.int64, device=evidence.device)
    if not found:
        return []
    bag = torch.zeros(len(found), dtype=torch.int64, device=evidence.device)
    weights = _multiclass.log_weight(evidence, bag, counts).sum(1).tolist()
    return [(y, w) for y, w in zip(found, weights, strict=True) if w > -math.inf]


def _assign(rows: list[Row], counts: tuple[int, ...]) -> tuple[list[int], list[int], int] | None:
    """The best classes with these counts, potentials that prove it, and the sum of the logits."""
    classes = range(len(counts))
    labels = [max((x, -k) for k, x in enumerate(row) if x is not None)[1] * -1 for row in rows]
    members: list[set[int]] = [{i for i, h in enumerate(labels) if h == k} for k in classes]
    costs: list[list[Any]] = [_costs(rows, members, k) for k in classes]
    while any(len(members[k]) > counts[k] for k in classes):
        start = [0 if len(members[k]) > counts[k] else None for k in classes]
        distance, before = _shortest(costs, start)
        ends = [k for k in classes if len(members[k]) < counts[k] and distance[k] is not None]
        if not ends:
            return None
        here = min(ends, key=lambda k: distance[k])
        path = [here]
        while before[here] is not None:
            here = before[here]
            path.append(here)
        moves = [(costs[one][two][1], one, two) for two, one in pairwise(path)]
        for i, one, two in moves:
            members[one].remove(i)
            members[two].add(i)
            labels[i] = two
        for k in path:
            costs[k] = _costs(rows, members, k)
    potentials, _ = _shortest(costs, [0] * len(counts))
    total = sum(row[k] for row, k in zip(rows, labels, strict=True))  # type: ignore[misc]
    return labels, potentials, total


def _costs(rows: list[Row], members: list[set[int]], k: int) -> list[tuple[int, int] | None]:
    """What it costs to move an instance of class ``k`` to each class, and which one it is."""
    found: list[tuple[int, int] | None] = []
    for other in range(len(members)):
        moves = [
            (rows[i][k] - rows[i][other], i)  # type: ignore[operator]
            for i in members[k]
            if other != k and rows[i][other] is not None
        ]
        found.append(min(moves, default=None))
    return found


def _shortest(costs: list[list[Any]], start: list[Any]) -> tuple[list[Any], list[Any]]:
    """Distances between classes, and the class before each (Bellman and Ford)."""
    distance: list[Any] = list(start)
    before: list[Any] = [None] * len(start)
    for _ in start:
        changed = False
        for one, row in enumerate(costs):
            for two, move in enumerate(row):
                if move is None or distance[one] is None:
                    continue
                length = distance[one] + move[0]
                if distance[two] is None or length < distance[two]:
                    distance[two], before[two], changed = length, one, True
        if not changed:
            break
    return distance, before


def draw(
    bag: FarBag, offsets: Tensor, z: Tensor, generator: torch.Generator | None, copies: int | None
) -> Tensor:
    """Labels ``(copies, n)`` of one bag drawn from the posterior; for ``None`` the best ones."""
    if copies is None:
        best = max(bag.candidates, key=lambda one: one.log_size)
        return torch.tensor([best.labels], device=z.device)
    sizes = offsets.diff()
    log_p, counts, inner, _ = _copies([bag], offsets, z)
    log_prob = _multiclass.evaluate(log_p, inner, Evidence.exact(counts))[0]
    share = log_prob + log_prob.new_tensor([one.log_size for one in bag.candidates])
    chosen = torch.multinomial(share.softmax(0), copies, replacement=True, generator=generator)
    n = int(sizes[bag.number])
    own = inner.new_tensor([0, n])
    drawn = [
        _multiclass.draw(
            log_p[c * n : (c + 1) * n], own, Evidence.exact(counts[c : c + 1]), generator, 1
        )
        for c in chosen.tolist()
    ]
    return torch.cat(drawn)
