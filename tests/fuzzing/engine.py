"""The engine against brute force: every kind of evidence, function, backend and precision.

A round draws some forty bags and asks every function for all of them. One case is one bag checked
through one function, or one call with junk arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fuzzing.brute_force import (
    UNIT,
    Answers,
    combinations,
    count_vectors,
    enumerate_bags,
    recursion,
)
from fuzzing.scoring import Score, answer, attempt, fail, must_refuse
from llpkit import Evidence, likelihood

SIZES = {1: 8, 2: 8, 3: 7, 4: 5, 5: 4}
"""The largest bag by the number of classes; 1 stands for binary logits ``(N,)``."""
DTYPES = (torch.float64, torch.float64, torch.float32, torch.float32, torch.float16, torch.bfloat16)
SCALES = (0.0, 0.1, 1.0, 1.0, 3.0, 10.0, 100.0, 1e3)
LEAST = -1e10
"""A bag of more than two classes is refused if its log-likelihood is below."""
HUGE = (1e5, 1e9, 1e15, 1e18, 1e19, 1e30, 1e100, 1e300)
DRAWS = 256


@dataclass
class Known:
    """What is known of the counts of some bags of one kind, twice."""

    evidence: Evidence
    log_weight: list[Callable[[np.ndarray], np.ndarray]]  # of count vectors (S, K), one per bag


@dataclass
class Batch:
    """Bags as the engine gets them and as the brute force gets them."""

    logits: torch.Tensor
    evidence: Evidence
    offsets: np.ndarray
    classes: int  # 1 for binary
    bags: list[np.ndarray]  # (n, max(2, K)) float64 each, as rounded to the dtype
    log_weight: list[Callable[[np.ndarray], np.ndarray]]
    exact: bool  # logits and weights are whole in units of 1 / 1024

    def __repr__(self) -> str:
        e = self.evidence
        return (
            f"logits=torch.tensor({self.logits.tolist()}, dtype={self.logits.dtype}), "
            f"Evidence(low={e.low.tolist()}, high={e.high.tolist()}, table={e.table.tolist()}, "
            f"table_offsets={e.table_offsets.tolist()}), offsets={self.offsets.tolist()}"
        )


def case(rng: np.random.Generator, score: Score) -> None:
    """One round."""
    kind = rng.random()
    if kind < 0.1:
        junk(rng, score)
    elif kind < 0.2:
        long_bags(rng, score)
    else:
        classes = int(rng.choice([1, 1, 1, 2, 3, 4, 5]))
        batch = draw_batch(rng, classes, possible=rng.random() < 0.85)
        check(batch, enumerated(batch), rng, score)


# Drawing bags


def draw_batch(
    rng: np.random.Generator, classes: int, possible: bool, sizes: np.ndarray | None = None
) -> Batch:
    """Some bags; where they need not be possible, some are not."""
    long = sizes is not None
    if sizes is None:
        most = int(rng.integers(1, SIZES[classes] + 1))
        many = min(60, 20_000 // max(2, classes) ** most)
        sizes = rng.integers(0, most + 1, int(rng.integers(1, max(2, many))))
        if rng.random() < 0.1:
            sizes[:] = 1
    dtype = DTYPES[rng.integers(len(DTYPES))]
    if classes > 2:
        dtype = DTYPES[rng.integers(4)]
    exact = not long and rng.random() < 0.25
    columns = max(2, classes)
    with_infinities = rng.random() < 0.3
    bags, labels = [], []
    for n in sizes:
        z = _logits(rng, (n, columns), exact, dtype)
        label = rng.integers(0, columns, n)
        if classes == 1:
            z[:, 0] = 0.0
        if with_infinities:
            _known_labels(rng, z, label, classes, possible)
        bags.append(z)
        labels.append(label)
    counts = np.array([np.bincount(y, minlength=columns) for y in labels]).reshape(-1, columns)
    if not possible:
        wrong = rng.random(len(sizes)) < 0.1
        counts = np.where(
            wrong[:, None], counts[rng.permutation(len(counts))], counts
        )  # counts of another bag, at times of another size
    known = _known(rng, sizes, counts, classes)
    flat = np.concatenate(bags) if len(bags) else np.zeros((0, columns))
    logits = torch.tensor(flat[:, 1] if classes == 1 else flat, dtype=dtype)
    if rng.random() < 0.2:  # a view with gaps
        logits = torch.stack([logits, logits + 1], 1)[:, 0]
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
    return Batch(logits, known.evidence, offsets, classes, bags, known.log_weight, exact)


def _logits(
    rng: np.random.Generator, shape: tuple[int, int], exact: bool, dtype: torch.dtype
) -> np.ndarray:
    scale = float(rng.choice(SCALES))
    if exact:
        scale = min(float(rng.choice(HUGE)), float(torch.finfo(dtype).max) / 64)
        parts = [rng.normal(size=shape) * scale, rng.normal(size=shape) * 3, np.full(shape, scale)]
        which = rng.integers(0, 3, shape) if rng.random() < 0.5 else np.zeros(shape, int)
        z = np.choose(which, parts) * rng.choice([-1, 1], shape)
        z = np.round(z * UNIT) / UNIT
    else:
        z = rng.normal(size=shape) * scale + rng.normal() * scale * rng.integers(0, 2)
        if rng.random() < 0.2:
            z = np.round(z)  # ties
    z = np.clip(z, -6e4, 6e4) if dtype == torch.float16 else z
    z = torch.tensor(z).to(dtype).double().numpy()
    return np.round(z * UNIT) / UNIT if exact and dtype == torch.bfloat16 else z


def _known_labels(
    rng: np.random.Generator, z: np.ndarray, label: np.ndarray, classes: int, possible: bool
) -> None:
    """Infinite logits, agreeing with the labels where the bag is to be possible."""
    for i in range(len(z)):
        if rng.random() < 0.7:
            continue
        own = int(label[i]) if possible or rng.random() < 0.8 else int(rng.integers(z.shape[1]))
        if classes == 1:
            z[i, 1] = np.inf if own else -np.inf
        elif rng.random() < 0.5:
            z[i, own] = np.inf
        else:
            forbidden = rng.random(z.shape[1]) < 0.5
            forbidden[own] = False
            z[i, forbidden] = -np.inf


def _known(rng: np.random.Generator, sizes: np.ndarray, counts: np.ndarray, classes: int) -> Known:
    """Evidence that agrees with the counts ``(B, K)``, of one kind or of all kinds mixed."""
    kinds = ["exact", "interval", "at_least", "noisy", "unknown", "weights"]
    if classes > 1:
        kinds.remove("weights")
    mixed = rng.random() < 0.4
    chosen = (
        kinds if mixed else [kinds[rng.integers(len(kinds))] if rng.random() < 0.6 else "exact"]
    )
    of_bag = rng.integers(0, len(chosen), len(sizes))
    parts, order, weights = [], [], []
    for number, kind in enumerate(chosen):
        where = np.flatnonzero(of_bag == number)
        if len(where):
            part = _of_kind(rng, kind, sizes[where], counts[where], classes)
            parts.append(part.evidence)
            order.append(where)
            weights += part.log_weight
    if not parts:
        empty = counts[:0] if classes > 1 else counts[:0, 1]
        return Known(Evidence.exact(empty), [])
    places = np.argsort(np.concatenate(order))
    evidence = Evidence.concat(parts)
    if mixed:
        evidence = evidence[places]
    return Known(evidence, [weights[p] for p in places])


def _of_kind(
    rng: np.random.Generator, kind: str, sizes: np.ndarray, counts: np.ndarray, classes: int
) -> Known:
    binary = classes == 1
    seen = counts[:, 1] if binary else counts
    shown = (lambda c: c[:, 1:]) if binary else (lambda c: c)  # the counts that are spoken of

    def within(low: np.ndarray, high: np.ndarray) -> list[Callable[[np.ndarray], np.ndarray]]:
        rows = zip(low.reshape(len(low), -1), high.reshape(len(high), -1), strict=True)
        return [
            lambda c, a=a, b=b: np.where(((shown(c) >= a) & (shown(c) <= b)).all(1), 0.0, -np.inf)
            for a, b in rows
        ]

    if kind == "exact":
        return Known(Evidence.exact(seen), within(seen, seen))
    if kind == "interval":
        low = np.maximum(0, seen - rng.integers(0, 3, seen.shape))
        high = seen + rng.integers(0, 3, seen.shape)
        return Known(Evidence.interval(low, high), within(low, high))
    if kind == "at_least":
        low = np.maximum(0, seen - rng.integers(0, 3, seen.shape))
        return Known(Evidence.at_least(low), within(low, np.full(low.shape, 10**9)))
    if kind == "unknown":
        number = len(sizes)
        evidence = Evidence.unknown(number) if binary else Evidence.unknown(number, classes)
        return Known(evidence, within(np.zeros_like(seen), np.full(seen.shape, 10**9)))
    if kind == "noisy":
        # Densities whose logarithms are whole in units of 1 / 1024.
        observed = seen + rng.integers(-8, 9, seen.shape) / 8
        square = rng.random() < 0.5

        def density(o: Any, k: Any) -> Any:
            return -0.5 * (o - k) ** 2 if square else -0.5 * abs(o - k)

        rows = observed.reshape(len(observed), -1)
        weights = [(lambda c, o=o: density(o, shown(c)).sum(1)) for o in rows]
        return Known(Evidence.noisy(observed, density, sizes), weights)
    tables = []
    for n, y in zip(sizes, seen, strict=True):
        table = np.round(rng.normal(size=n + 1) * rng.choice([1, 30, 1000]) * UNIT) / UNIT
        table[rng.random(n + 1) < 0.3] = -np.inf
        if y <= n:
            table[y] = 0.0
        tables.append(table)
    ends = np.append(0, np.cumsum(sizes + 1))
    weights = [(lambda c, t=t: t[c[:, 1]]) for t in tables]
    return Known(Evidence.weights(np.concatenate(tables), ends), weights)


# What must come out


def enumerated(batch: Batch) -> dict[int, tuple[np.ndarray, Answers]]:
    """By bag size: which bags have it, and their answers."""
    sizes = np.diff(batch.offsets)
    found = {}
    for n in np.unique(sizes):
        where = np.flatnonzero(sizes == n)
        z = np.stack([batch.bags[b] for b in where])
        vectors = count_vectors(int(n), z.shape[2])
        weights = np.stack([batch.log_weight[b](vectors) for b in where])
        found[int(n)] = where, enumerate_bags(z, weights, batch.exact)
    return found


def long_bags(rng: np.random.Generator, score: Score) -> None:
    """Binary bags that are too long to enumerate."""
    n = int(rng.choice([9, 12, 13, 16, 20, 33, 64, 90]))
    batch = draw_batch(rng, 1, rng.random() < 0.9, np.full(int(rng.integers(1, 12)), n))
    z = np.stack([bag[:, 1] for bag in batch.bags])
    vectors = np.stack([n - np.arange(n + 1), np.arange(n + 1)], 1)
    weights = np.stack([weight(vectors) for weight in batch.log_weight])
    check(batch, {n: (np.arange(len(z)), recursion(z, weights))}, rng, score)


class Expected:
    """The answers in the order of the batch."""

    def __init__(self, batch: Batch, found: dict[int, tuple[np.ndarray, Answers]]) -> None:
        number, rows = len(batch.bags), len(batch.logits)
        columns = max(2, batch.classes)
        self.possible = np.zeros(number, bool)
        self.log_prob = np.zeros(number)
        self.slack = np.zeros(number)
        self.posterior, self.least, self.most, self.prior = (
            np.zeros((rows, columns)) for _ in range(4)
        )
        for n, (where, part) in found.items():
            places = (batch.offsets[where][:, None] + np.arange(n)).ravel()
            self.possible[where] = part.possible
            self.log_prob[where] = part.log_prob.astype(np.float64)
            self.slack[where] = part.slack
            for name in ("posterior", "least", "most", "prior"):
                getattr(self, name)[places] = getattr(part, name).reshape(-1, columns)
        self.bag = np.repeat(np.arange(number), np.diff(batch.offsets))
        if batch.classes == 1:
            for name in ("posterior", "least", "most", "prior"):
                setattr(self, name, getattr(self, name)[:, 1])


def check(
    batch: Batch,
    found: dict[int, tuple[np.ndarray, Answers]],
    rng: np.random.Generator,
    score: Score,
) -> None:
    """Every function on the whole batch; impossible bags must be refused, and are then dropped."""
    expected = Expected(batch, found)
    counts: Any = batch.evidence
    if batch.evidence.is_exact and rng.random() < 0.5:
        counts = batch.evidence.counts.numpy()
    offsets: Any = [batch.offsets, batch.offsets.tolist(), torch.tensor(batch.offsets)][
        rng.integers(3)
    ]
    arguments = batch.logits, counts, offsets
    absurd = batch.classes > 2 and bool((expected.log_prob < LEAST).any())
    if absurd or not expected.possible.all():
        for function in ("log_prob", "posterior", "sample", "mode"):
            must_refuse(
                lambda f=function: getattr(likelihood, f)(*arguments),
                score,
                batch=batch,
                f=function,
            )
        if batch.classes == 1 or not (expected.log_prob[expected.possible] < LEAST).any():
            _unchecked(batch, arguments, expected, score)
        return
    backends = ["auto", "torch", "numba"]
    for backend in backends:
        info = {"function": "log_prob_and_posterior", "backend": backend, "batch": batch}
        log_p, phi = answer(
            lambda b=backend: likelihood.log_prob_and_posterior(*arguments, backend=b), **info
        )
        _compare_log_prob(log_p, expected, batch, info)
        _compare_posterior(phi, expected, batch, info)
        score.confirm(2 * len(batch.bags))
    backend = str(rng.choice(backends))
    info = {"backend": backend, "batch": batch}
    log_p = answer(lambda: likelihood.log_prob(*arguments, backend=backend), **info)
    _compare_log_prob(log_p, expected, batch, {**info, "function": "log_prob"})
    phi = answer(lambda: likelihood.posterior(*arguments, backend=backend), **info)
    _compare_posterior(phi, expected, batch, {**info, "function": "posterior"})
    _gradient(batch, arguments, expected, rng, backend)
    score.confirm(3 * len(batch.bags))
    _distribution(batch, found, offsets)
    _labels(batch, arguments, found, expected, rng)
    score.confirm(3 * len(batch.bags))
    if batch.classes > 2 and batch.evidence.is_exact and not batch.exact:
        _bound(batch, arguments, expected, score)
        for backend in ("torch", "numba"):
            _saddlepoint(batch, arguments, expected, backend, score)


def _rounding(dtype: torch.dtype) -> float:
    """How far rounding to the dtype moves a number, of its size."""
    return 1e-12 if dtype == torch.float64 else float(torch.finfo(dtype).eps)


def _compare_log_prob(
    log_p: torch.Tensor, expected: Expected, batch: Batch, info: dict[str, Any]
) -> None:
    if log_p.dtype != batch.logits.dtype or log_p.shape != expected.log_prob.shape:
        fail("log_prob has another dtype or shape", got=(log_p.dtype, log_p.shape), **info)
    got, want = log_p.detach().double().numpy(), expected.log_prob
    limits = torch.finfo(batch.logits.dtype)
    with np.errstate(invalid="ignore"):
        error = np.abs(got - want) / np.maximum(1, np.abs(want))
    good = (error <= _rounding(batch.logits.dtype)) | (got == want)
    good |= (want < limits.min) & np.isneginf(got)  # beyond what the dtype can hold
    if not good.all():
        b = int((~good).argmax())
        fail(
            f"log_prob[{b}] = {got[b]!r}, expected {want[b]!r}", bag=batch.bags[b].tolist(), **info
        )


def _compare_posterior(
    phi: torch.Tensor, expected: Expected, batch: Batch, info: dict[str, Any]
) -> None:
    if phi.dtype != batch.logits.dtype or phi.shape != expected.posterior.shape:
        fail("posterior has another dtype or shape", got=(phi.dtype, phi.shape), **info)
    got = phi.detach().double().numpy()
    room = _rounding(phi.dtype)
    good = (got >= expected.least - room) & (got <= expected.most + room)
    good &= (got >= 0) & (got <= 1)
    if got.ndim == 2:
        good &= (np.abs(got.sum(1) - 1) <= 4 * room)[:, None]
    if not good.all():
        place = tuple(int(v[0]) for v in np.nonzero(~good))
        b = int(expected.bag[place[0]])
        fail(
            f"posterior{list(place)} of bag {b} = {got[place]!r}, "
            f"expected {expected.posterior[place]!r}; its row is {got[place[0]].tolist()}",
            bag=batch.bags[b].tolist(),
            **info,
        )


def _unchecked(batch: Batch, arguments: Any, expected: Expected, score: Score) -> None:
    """Without validation an impossible bag has log-probability -inf and its prior as posterior."""
    sizes = np.diff(batch.offsets)
    low, high = batch.evidence.low.numpy(), batch.evidence.high.numpy()
    n = sizes if low.ndim == 1 else sizes[:, None]
    has_table = len(batch.evidence.table) > 0
    if has_table and (low.ndim == 2 or (high != n).any()):
        return  # tables must fit the bags
    for backend in ("torch", "auto"):
        info = {
            "function": "log_prob_and_posterior, validate=False",
            "backend": backend,
            "batch": batch,
        }
        log_p, phi = answer(
            lambda b=backend: likelihood.log_prob_and_posterior(
                *arguments, backend=b, validate=False
            ),
            **info,
        )
        _compare_log_prob(log_p, expected, batch, info)
        gone = ~expected.possible[expected.bag]
        for name in ("least", "most"):
            bound = getattr(expected, name)
            bound[gone] = expected.prior[gone]
        expected.posterior[gone] = expected.prior[gone]
        _compare_posterior(phi, expected, batch, info)
        score.confirm(2 * len(batch.bags))


def _gradient(
    batch: Batch, arguments: Any, expected: Expected, rng: np.random.Generator, backend: str
) -> None:
    """The gradient of the log-probability is posterior minus prior."""
    _, counts, offsets = arguments
    z = batch.logits.detach().double().requires_grad_()
    info = {"function": "gradient", "backend": backend, "batch": batch}
    log_p = answer(lambda: likelihood.log_prob(z, counts, offsets, backend=backend), **info)
    scale = torch.from_numpy(rng.normal(size=len(log_p)))
    (gradient,) = torch.autograd.grad(log_p @ scale, z)
    weight = scale.numpy()[expected.bag]
    weight = weight if gradient.dim() == 1 else weight[:, None]
    ends = np.stack(
        [weight * (bound - expected.prior) for bound in (expected.least, expected.most)]
    )
    room = 2e-12 * np.maximum(1, np.abs(weight))
    got = gradient.numpy()
    good = (got >= ends.min(0) - room) & (got <= ends.max(0) + room)
    if not good.all():
        place = tuple(int(v[0]) for v in np.nonzero(~good))
        b = int(expected.bag[place[0]])
        fail(
            f"gradient{list(place)} of bag {b} = {got[place]!r}, expected {ends[(0, *place)]!r}",
            bag=batch.bags[b].tolist(),
            **info,
        )


def _distribution(batch: Batch, found: dict[int, tuple[np.ndarray, Answers]], offsets: Any) -> None:
    info = {"function": "pmf", "batch": batch}
    pmf = answer(lambda: likelihood.pmf(batch.logits, offsets), **info)
    ends = pmf.offsets.numpy()
    sizes, classes = np.diff(batch.offsets), max(2, batch.classes)
    lengths = np.zeros(len(sizes), np.int64)
    for n, (where, _) in found.items():
        lengths[where] = n + 1 if batch.classes == 1 else len(count_vectors(n, classes))
    if not np.array_equal(ends, np.append(0, np.cumsum(lengths))):
        fail("pmf has other offsets", got=ends, **info)
    got, counts = pmf.probability.double().numpy(), pmf.counts.numpy()
    room = max(2e-14, float(torch.finfo(batch.logits.dtype).eps))
    for n, (where, part) in found.items():
        if batch.classes == 1:
            vectors = np.arange(n + 1)
            shares = part.pmf[:, ::-1] if part.scores.size else part.pmf
        else:
            vectors, shares = count_vectors(n, classes), part.pmf
        for b, want, slack in zip(where, shares, part.slack, strict=True):
            own = slice(ends[b], ends[b + 1])
            if not np.array_equal(counts[own], vectors):
                fail("pmf lists other counts", bag=b, got=counts[own], **info)
            # A combination's score may move by the slack; probabilities move with it.
            error = np.abs(got[own] - want) > room + np.expm1(min(2 * slack, 30.0)) * want
            if error.any() or not (got[own] >= 0).all() or not (got[own] <= 1 + room).all():
                fail(
                    f"pmf of bag {b} = {got[own].tolist()}, expected {want.tolist()}",
                    bag=batch.bags[b].tolist(),
                    **info,
                )


def _labels(
    batch: Batch,
    arguments: Any,
    found: dict[int, tuple[np.ndarray, Answers]],
    expected: Expected,
    rng: np.random.Generator,
) -> None:
    """Draws are possible, credible and as frequent as they should be; the mode is a best one."""
    seed = int(rng.integers(2**31))
    info = {"function": "sample", "seed": seed, "batch": batch}
    many = rng.random() < 0.1
    number = DRAWS if many else 1
    drawn = answer(lambda: likelihood.sample(*arguments, seed, num_samples=number), **info).numpy()
    if drawn.shape != (number, len(batch.logits)):
        fail("sample has another shape", got=drawn.shape, **info)
    best = answer(lambda: likelihood.mode(*arguments), function="mode", batch=batch).numpy()
    if best.shape != (len(batch.logits),):
        fail("mode has another shape", got=best.shape, **info)
    columns = max(2, batch.classes)
    for n, (where, part) in found.items():
        for b, scores, slack in zip(where, _padded(part), part.slack, strict=True):
            own = slice(batch.offsets[b], batch.offsets[b + 1])
            of_bag = {**info, "bag": batch.bags[b].tolist()}
            if not len(scores):  # too long to enumerate: the counts alone are looked at
                _agrees(batch, b, [*drawn[:, own], best[own]], of_bag)
                continue
            place = columns ** np.arange(n)
            codes = drawn[:, own] @ place
            if not (scores[codes] >= -60 - 2 * slack).all():
                worst = drawn[int(scores[codes].argmin()), own]
                fail(f"a draw from bag {b} is incredible: {worst.tolist()}", **of_bag)
            if not scores[best[own] @ place] >= -2 * slack - 1e-9:
                right = combinations(n, columns)[int(scores.argmax())]
                fail(
                    f"mode of bag {b} = {best[own].tolist()}, expected {right.tolist()}",
                    **{**of_bag, "function": "mode"},
                )
    if many:
        hot = drawn == 1 if batch.classes == 1 else drawn[:, :, None] == np.arange(columns)
        # Hoeffding: once in 10^13 instances is a deviation larger than this.
        far = np.sqrt(np.log(2e13) / (2 * DRAWS))
        mean = hot.mean(0)
        if not ((mean >= expected.least - far) & (mean <= expected.most + far)).all():
            fail("draws are not as frequent as the posterior says", mean=mean.tolist(), **info)


def _padded(part: Answers) -> list[np.ndarray]:
    return list(part.scores) if part.scores.size else [np.zeros(0)] * len(part.slack)


def _agrees(batch: Batch, b: int, draws: list[np.ndarray], info: dict[str, Any]) -> None:
    """Labels of a long binary bag: allowed by the known ones and by the weights."""
    z = batch.bags[b][:, 1]
    for h in draws:
        y = int(h.sum())
        weight = batch.log_weight[b](np.array([[len(h) - y, y]]))[0]
        if np.isneginf(weight) or (h[z == np.inf] != 1).any() or (h[z == -np.inf] != 0).any():
            fail(f"labels {h.tolist()} of bag {b} contradict what is known", **info)


def _bound(batch: Batch, arguments: Any, expected: Expected, score: Score) -> None:
    """The tilted bound is never below the exact log-probability, and its posterior fits."""
    info = {"function": "sinkhorn", "batch": batch}
    found, refusal = attempt(
        lambda: likelihood.log_prob_and_posterior(*arguments, approximation="sinkhorn"), **info
    )
    if refusal is not None:
        # It may give up on extreme logits, never on ordinary ones.
        if np.abs(np.concatenate(batch.bags)).max(initial=0) <= 20:
            fail(f"the bound was refused for ordinary logits: {refusal}", **info)
        score.refuse()
        return
    log_p, phi = (x.double().numpy() for x in found)  # type: ignore[union-attr]
    room = _room(batch)
    low = log_p < expected.log_prob - room * np.maximum(1, np.abs(expected.log_prob))
    if low.any() or np.isnan(log_p).any():
        b = int((low | np.isnan(log_p)).argmax())
        fail(f"bound[{b}] = {log_p[b]} is below {expected.log_prob[b]}", **info)
    _fits_the_counts(phi, batch, expected, info)
    score.confirm(len(batch.bags))


def _saddlepoint(
    batch: Batch, arguments: Any, expected: Expected, backend: str, score: Score
) -> None:
    """The saddlepoint approximation is a distribution, fits the counts and is close to exact."""
    info = {"function": "saddlepoint", "backend": backend, "batch": batch}
    options = {"approximation": "saddlepoint", "backend": backend}
    found, refusal = attempt(
        lambda: likelihood.log_prob_and_posterior(*arguments, **options), **info
    )
    ordinary = np.abs(np.concatenate(batch.bags)).max(initial=0) <= 20
    if refusal is not None:
        if ordinary:
            fail(f"the approximation was refused for ordinary logits: {refusal}", **info)
        score.refuse()
        return
    log_p, phi = (x.double().numpy() for x in found)  # type: ignore[union-attr]
    if np.isnan(log_p).any() or np.isnan(phi).any():
        fail("the approximation is NaN", got=[log_p.tolist(), phi.tolist()], **info)
    _fits_the_counts(phi, batch, expected, info)
    if ordinary:
        # Two classes are exact; bags of a few instances of more are off by a fraction of a nat.
        most = np.where((batch.evidence.counts.numpy() > 0).sum(1) <= 2, 1e-5, 1.0)
        most = most + _room(batch) * (1 + np.abs(expected.log_prob))
        off = np.abs(log_p - expected.log_prob) > most
        if off.any():
            b = int(off.argmax())
            fail(f"log_prob[{b}] = {log_p[b]}, exact {expected.log_prob[b]}", **info)
    score.confirm(len(batch.bags))


def _room(batch: Batch) -> float:
    """How far approximations may be from what they promise."""
    dtype = batch.logits.dtype
    return 1e-6 if dtype == torch.float64 else 4 * _rounding(dtype)


def _fits_the_counts(
    phi: np.ndarray, batch: Batch, expected: Expected, info: dict[str, Any]
) -> None:
    """An approximate posterior is a distribution, and its sums over bags are the counts."""
    room = _room(batch)
    inside = (phi >= 0) & (phi <= 1) & (np.abs(phi.sum(1) - 1) <= 10 * room)[:, None]
    if not inside.all():
        fail("the approximate posterior is no distribution", got=phi.tolist(), **info)
    sums = np.zeros((len(batch.bags), batch.classes))
    np.add.at(sums, expected.bag, phi)
    if np.abs(sums - batch.evidence.counts.numpy()).max(initial=0) > 1e-4 + 20 * room:
        fail("the approximate posterior does not sum to the counts", got=sums.tolist(), **info)


# Junk


class Stranger:
    """An object that is nothing in particular."""

    def __repr__(self) -> str:
        return "Stranger()"


def _never() -> list[Any]:
    """What is neither logits nor counts nor offsets."""
    return [
        None,
        "12",
        b"12",
        Stranger(),
        {},
        {"a": 1},
        {1, 2},
        lambda: 0,
        object,
        float("nan"),
        1j,
        [None, None],
        ["a", "b"],
        [[0, 1], [2]],
        [Stranger()],
        np.array(["1", "2"]),
        np.array([1, None], dtype=object),
        np.array([1j, 2]),
        np.zeros((1, 1, 1)),
        np.array("2020-01-01", dtype="M8[D]"),
        torch.tensor([1j, 2]),
        torch.zeros(2, 2, 2),
        torch.zeros(2).to_sparse(),
        torch.zeros(2, device="meta"),
        range(-5, -1),
        [float("inf"), 1],
        [2**63, 1],
        [10**30, 1],
        [-(10**30), 1],
        [0.5, 1],
        [float("nan"), 1],
        [-1, 1],
        iter([1, 2]),
        slice(0, 2),
        np.ma.masked_array([1, 2], [True, False]),
    ]


def junk(rng: np.random.Generator, score: Score) -> None:
    """Calls with one argument replaced, either by junk or by another spelling of the same."""
    for _ in range(20):
        classes = int(rng.choice([1, 3]))
        batch = draw_batch(rng, classes, possible=True, sizes=rng.integers(0, 4, 3))
        expected = Expected(batch, enumerated(batch))
        _junk_call(rng, batch, expected, score)


def _junk_call(rng: np.random.Generator, batch: Batch, expected: Expected, score: Score) -> None:
    name = str(rng.choice(["log_prob", "posterior", "log_prob_and_posterior", "sample", "mode"]))
    function = getattr(likelihood, name)
    arguments: dict[str, Any] = {
        "logits": batch.logits,
        "counts": batch.evidence,
        "offsets": torch.tensor(batch.offsets),
    }
    which = str(rng.choice(["logits", "counts", "offsets", "option", "spelling"]))
    pool = _never()
    thing = pool[rng.integers(len(pool))]
    z, ends = batch.logits, batch.offsets
    if which == "logits":
        nan = z.clone()
        if nan.numel():
            nan[int(rng.integers(len(z)))] = float("nan")
        wrong = [thing, thing, z.long(), z > 0, z.to(torch.complex64), z.tolist()]
        wrong += [z[:, None], z[None], torch.cat([z, z.new_zeros((1, *z.shape[1:]))])]
        wrong += [z.double().numpy()]
        wrong += [nan] if nan.numel() else []
        wrong += [z[:-1]] if len(z) else []
        if z.dim() == 2 and len(z):
            none, two = z.clone(), z.clone()
            none[0], two[0, :2] = -torch.inf, torch.inf
            wrong += [none, two, z[:, :2], z[:, :1], z[:, :0]]
        arguments["logits"] = wrong[rng.integers(len(wrong))]
    elif which == "counts":
        n = np.diff(ends)
        shape = (3,) if z.dim() == 1 else (3, z.shape[1])
        too_many = np.zeros(shape, int) + (n + 1 if z.dim() == 1 else n[:, None] + 1)
        wrong = [thing, thing, batch.evidence[:2], Evidence.concat([batch.evidence] * 2), too_many]
        wrong += [-1 - too_many, np.full(shape, 0.5), np.full(shape, np.nan), np.zeros((3, 7), int)]
        wrong += [too_many.astype(float) * 1e300, Evidence.at_least(too_many), [batch.evidence]]
        wrong += [torch.tensor(too_many, dtype=torch.uint8), too_many.tolist(), str(batch)]
        arguments["counts"] = wrong[rng.integers(len(wrong))]
    elif which == "offsets":
        wrong = [thing, thing, ends[:-1], ends[1:] + 1, ends[::-1] - 1, np.append(ends, ends[-1])]
        wrong += [ends + 0.5, ends - 1, ends[None], ends * 1e300 + 1, [], np.append(ends, 2**62), 3]
        wrong += [np.where(np.arange(4) == 1, ends[-1] + 1, ends), ends.astype(str)]
        arguments["offsets"] = wrong[rng.integers(len(wrong))]
    elif which == "option":
        odd = [thing, -1, 1.5, "many", float("nan"), [2], Stranger()]
        option = str(
            rng.choice(["backend", "approximation", "max_states", "num_samples", "generator"])
        )
        if name in ("sample", "mode") and option in ("backend", "approximation"):
            option = "max_states"
        if name != "sample" and option in ("num_samples", "generator"):
            option = "max_states"
        value = odd[rng.integers(len(odd))]
        if value is None or (option == "max_states" and z.dim() == 1):
            return  # None stands for the default; binary bags need no budget
        arguments[option] = value
    else:
        _spelling(rng, batch, expected, score)
        return
    info = {**arguments, "function": name}
    must_refuse(lambda: function(**arguments), score, **info)


def _spelling(rng: np.random.Generator, batch: Batch, expected: Expected, score: Score) -> None:
    """The same arguments in other types give the same answer."""
    ends = batch.offsets
    spelt: list[Any] = [
        ends.tolist(),
        tuple(ends.tolist()),
        ends.astype(float),
        ends.astype(np.uint8),
        ends.astype(np.uint64),
        torch.tensor(ends, dtype=torch.int32),
        torch.tensor(ends, dtype=torch.float32),
        [np.int16(v) for v in ends],
        range(4) if np.array_equal(ends, np.arange(4)) else ends,
    ]
    offsets = spelt[rng.integers(len(spelt))]
    counts: Any = batch.evidence
    if batch.evidence.is_exact:
        y = batch.evidence.counts.numpy()
        ways = [y, y.tolist(), y.astype(np.int8), torch.tensor(y).to(torch.uint8)]
        ways += [y.astype(np.uint64), tuple(y.tolist())]
        floats = [y.astype(float), torch.tensor(y).to(torch.bfloat16)]
        if y.ndim == 1 and y.max(initial=0) == 1 and (np.diff(ends)[y == 1] > 1).any():
            for shares in floats:  # they may be
                must_refuse(
                    lambda s=shares: likelihood.log_prob(batch.logits, s, offsets),
                    score,
                    counts=shares,
                )
        else:
            ways += floats
        counts = ways[rng.integers(len(ways))]
        if y.max(initial=0) <= 1 and rng.random() < 0.3:
            counts = y.astype(bool)
    info = {"counts": counts, "offsets": offsets, "batch": batch}
    log_p, phi = answer(
        lambda: likelihood.log_prob_and_posterior(batch.logits, counts, offsets), **info
    )
    _compare_log_prob(log_p, expected, batch, info)
    _compare_posterior(phi, expected, batch, info)
    score.confirm(1)
