"""The engine against the definition: every n up to 10, every count, K up to 4, all evidence."""

import functools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import strategies
from llpkit import likelihood
from llpkit.likelihood import Evidence
from oracle import Enumeration, all_count_vectors, assert_close
from strategies import batch, exact, pieces, rounded

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
EVERY_SIZE = range(11)

# Two classes are a binary bag, for which the automatic backend is the compiled one.
class_cases = pytest.mark.parametrize(
    ("num_classes", "backend"), [(k, backend) for k in (2, 3, 4) for backend in ("torch", "auto")]
)
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def draw_logits(style, shape, rng):
    """Logits that float32 holds exactly, so that one expectation serves both precisions."""
    if style == "ties":
        return rng.integers(-1, 2, size=shape).astype(np.float64)
    return rounded(rng.normal(size=shape) * style, torch.float32)


def check(bags, known, expected, dtype, **options):
    data = batch(bags, [k.evidence for k in known], dtype)
    log_prob, phi = likelihood.log_prob_and_posterior(*data, **options)
    assert log_prob.dtype == phi.dtype == dtype
    tolerance = TOLERANCE[dtype]
    assert_close(log_prob.numpy(), [e.log_prob for e in expected], tolerance)
    for actual, e in zip(pieces(phi, data.offsets), expected, strict=True):
        assert_close(actual, e.posterior, tolerance)
    assert_close(likelihood.log_prob(*data, **options).numpy(), log_prob.numpy(), tolerance)
    assert_close(likelihood.posterior(*data, **options).numpy(), phi.numpy(), tolerance)


@functools.lru_cache
def binary_exact_case(style, seed):
    rng = np.random.default_rng([seed, 1])
    bags, known, expected = [], [], []
    for n in EVERY_SIZE:
        z = draw_logits(style, n, rng)
        bags += [z] * (n + 1)
        known += [exact(y) for y in range(n + 1)]
        expected += Enumeration.binary(z).exact_answers()
    return bags, known, expected


@each_dtype
@pytest.mark.parametrize("style", [0, 1, 5, 50, "ties"])
def test_binary_every_count(style, dtype, backend):
    for seed in range(4):
        check(*binary_exact_case(style, seed), dtype, backend=backend)


@functools.lru_cache
def binary_evidence_case(style, seed):
    rng = np.random.default_rng([seed, 2])
    bags, known, expected = [], [], []
    for n in EVERY_SIZE:
        for kind in strategies.evidence_kinds(n, rng).values():
            z = draw_logits(style, n, rng)
            answer = Enumeration.binary(z).answer(kind.log_weight)
            bags.append(z)
            known.append(kind)
            expected.append(answer)
    return bags, known, expected


@each_dtype
@pytest.mark.parametrize("style", [0, 1, 5, 50, "ties"])
def test_binary_all_evidence_in_one_call(style, dtype, backend):
    for seed in range(4):
        check(*binary_evidence_case(style, seed), dtype, backend=backend)


@pytest.mark.parametrize("kind", strategies.evidence_kinds(3, np.random.default_rng(0)))
def test_binary_one_evidence_kind_alone(kind, backend):
    rng = np.random.default_rng(5)
    bags = [draw_logits(2, n, rng) for n in EVERY_SIZE]
    known = [strategies.evidence_kinds(n, rng)[kind] for n in EVERY_SIZE]
    expected = [
        Enumeration.binary(z).answer(k.log_weight) for z, k in zip(bags, known, strict=True)
    ]
    check(bags, known, expected, torch.float64, backend=backend)


@each_dtype
@pytest.mark.parametrize("scale", [0, 1, 50])
def test_binary_known_labels(scale, dtype, backend):
    rng = np.random.default_rng(6)
    bags, known, expected = [], [], []
    for n in EVERY_SIZE:
        for _ in range(3):
            z = draw_logits(scale, n, rng)
            z = np.where(rng.random(n) < 0.4, rng.choice([-np.inf, np.inf], size=n), z)
            enumeration = Enumeration.binary(z)
            candidates = [exact(y) for y in range(n + 1)]
            candidates += strategies.evidence_kinds(n, rng).values()
            for kind in candidates:
                answer = enumeration.answer(kind.log_weight)
                if answer.log_prob > -math.inf:
                    bags.append(z)
                    known.append(kind)
                    expected.append(answer)
    check(bags, known, expected, dtype, backend=backend)


@functools.lru_cache
def class_exact_case(num_classes, style):
    rng = np.random.default_rng([num_classes, 3])
    bags, counts, expected = [], [], []
    for n in EVERY_SIZE:
        z = draw_logits(style, (n, num_classes), rng)
        vectors = all_count_vectors(n, num_classes)
        bags += [z] * len(vectors)
        counts.append(vectors)
        expected += Enumeration.softmax(z).exact_answers()
    return bags, np.concatenate(counts), expected


@pytest.mark.parametrize("style", [0, 1, 5, 50, "ties"])
@class_cases
def test_classes_every_count(num_classes, style, backend):
    bags, counts, expected = class_exact_case(num_classes, style)
    for dtype, tolerance in TOLERANCE.items():
        data = batch(bags, Evidence.exact(counts), dtype)
        log_prob, phi = likelihood.log_prob_and_posterior(
            data.logits, counts, data.offsets, backend=backend
        )
        assert log_prob.dtype == phi.dtype == dtype
        assert_close(log_prob.numpy(), [e.log_prob for e in expected], tolerance)
        assert_close(phi.numpy(), np.concatenate([e.posterior for e in expected]), tolerance)


@functools.lru_cache
def class_evidence_case(num_classes, style):
    rng = np.random.default_rng([num_classes, 4])
    bags, known, expected = [], [], []
    for n in EVERY_SIZE if num_classes < 4 else range(9):
        z = draw_logits(style, (n, num_classes), rng)
        enumeration = Enumeration.softmax(z)
        for kind in strategies.class_evidence_kinds(n, num_classes, rng).values():
            bags.append(z)
            known.append(kind)
            expected.append(enumeration.answer(kind.log_weight))
    return bags, known, expected


@each_dtype
@pytest.mark.parametrize("style", [0, 1, 5, 50, "ties"])
@class_cases
def test_classes_all_evidence_in_one_call(num_classes, style, dtype, backend):
    check(*class_evidence_case(num_classes, style), dtype, backend=backend)


@pytest.mark.slow
@pytest.mark.parametrize("n", [9, 10])
def test_four_classes_all_evidence_at_the_largest_sizes(n):
    rng = np.random.default_rng(n)
    for scale in (1, 50):
        z = draw_logits(scale, (n, 4), rng)
        enumeration = Enumeration.softmax(z)
        known = list(strategies.class_evidence_kinds(n, 4, rng).values())
        expected = [enumeration.answer(k.log_weight) for k in known]
        check([z] * len(known), known, expected, torch.float64)


@class_cases
def test_classes_forbidden(num_classes, backend):
    rng = np.random.default_rng(7)
    bags, known, expected = [], [], []
    for n in range(1, 7):
        for _ in range(4):
            z = draw_logits(3, (n, num_classes), rng)
            forbidden = rng.random(z.shape) < 0.4
            forbidden[np.arange(n), rng.integers(num_classes, size=n)] = False
            z[forbidden] = -np.inf
            enumeration = Enumeration.softmax(z)
            candidates = [exact(tuple(map(int, y))) for y in all_count_vectors(n, num_classes)]
            candidates += strategies.class_evidence_kinds(n, num_classes, rng).values()
            for kind in candidates:
                answer = enumeration.answer(kind.log_weight)
                if answer.log_prob > -math.inf:
                    bags.append(z)
                    known.append(kind)
                    expected.append(answer)
    check(bags, known, expected, torch.float64, backend=backend)


def precision(dtype):
    """One unit in the last place, relative, and the spacing of numbers next to zero."""
    info = torch.finfo(dtype)
    return {"rtol": info.eps, "atol": info.smallest_normal * info.eps}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_only_rounding(dtype, backend):
    rng = np.random.default_rng(8)
    bags, known = [], []
    for n in EVERY_SIZE:
        for kind in strategies.evidence_kinds(n, rng).values():
            bags.append(rounded(rng.normal(size=n) * 3, dtype))
            known.append(kind.evidence)
    for half, full in zip(
        likelihood.log_prob_and_posterior(*batch(bags, known, dtype), backend=backend),
        likelihood.log_prob_and_posterior(*batch(bags, known), backend=backend),
        strict=True,
    ):
        assert half.dtype == dtype
        torch.testing.assert_close(half.double(), full, **precision(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_with_classes_is_only_rounding(dtype, either_backend):
    rng = np.random.default_rng(9)
    bags, known = [], []
    for n in range(7):
        for kind in strategies.class_evidence_kinds(n, 3, rng).values():
            bags.append(rounded(rng.normal(size=(n, 3)) * 3, dtype))
            known.append(kind.evidence)
    for half, full in zip(
        likelihood.log_prob_and_posterior(*batch(bags, known, dtype), backend=either_backend),
        likelihood.log_prob_and_posterior(*batch(bags, known), backend=either_backend),
        strict=True,
    ):
        assert half.dtype == dtype
        torch.testing.assert_close(half.double(), full, **precision(dtype))


@given(bags=strategies.ragged_batches(sizes=st.integers(0, 8)))
def test_any_binary_batch(bags, backend):
    expected = [Enumeration.binary(z).answer(k.log_weight) for z, k in bags]
    logits, known = zip(*bags, strict=True)
    check(logits, known, expected, torch.float64, backend=backend)


@given(data=st.data(), num_classes=st.integers(2, 4))
def test_any_batch_of_classes(data, num_classes, either_backend):
    one = strategies.class_bags_with_evidence(num_classes, st.integers(0, 5))
    bags = data.draw(st.lists(one, min_size=1, max_size=4))
    expected = [Enumeration.softmax(z).answer(k.log_weight) for z, k in bags]
    logits, known = zip(*bags, strict=True)
    check(logits, known, expected, torch.float64, backend=either_backend)


def test_no_bags_at_all(either_backend):
    nothing = torch.zeros(0, dtype=torch.float64)
    log_prob, phi = likelihood.log_prob_and_posterior(
        nothing, [], torch.tensor([0]), backend=either_backend
    )
    assert log_prob.shape == phi.shape == (0,)
    wide = torch.zeros(0, 3, dtype=torch.float64)
    counts = torch.zeros(0, 3, dtype=torch.int64)
    log_prob, phi = likelihood.log_prob_and_posterior(
        wide, counts, torch.tensor([0]), backend=either_backend
    )
    assert log_prob.shape == (0,)
    assert phi.shape == (0, 3)


def test_counts_may_be_arrays_lists_or_whole_floats(backend):
    z = torch.tensor([0.5, -1.0, 2.0, 0.1], dtype=torch.float64)
    offsets = torch.tensor([0, 3, 4])
    expected = likelihood.posterior(z, torch.tensor([2, 1]), offsets, backend=backend)
    for counts in (
        [2, 1],
        np.array([2, 1]),
        np.array([2.0, 1.0]),
        torch.tensor([2.0, 1.0]),
        torch.tensor([2, 1], dtype=torch.int32),
        Evidence.exact([2, 1]),
    ):
        assert torch.equal(likelihood.posterior(z, counts, offsets, backend=backend), expected)


def test_logits_may_be_a_view_with_strides(backend):
    wide = torch.randn(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    offsets = torch.tensor([0, 5, 12])
    strided = likelihood.posterior(wide[:, 1], [2, 3], offsets, backend=backend)
    assert torch.equal(
        strided, likelihood.posterior(wide[:, 1].clone(), [2, 3], offsets, backend=backend)
    )


def test_backend_auto_is_the_default_and_gives_the_same():
    z = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    offsets = torch.tensor([0, 10, 50])
    auto = likelihood.posterior(z, [4, 11], offsets)
    assert torch.equal(auto, likelihood.posterior(z, [4, 11], offsets, backend="auto"))
    assert_close(
        auto.numpy(), likelihood.posterior(z, [4, 11], offsets, backend="torch").numpy(), 1e-12
    )
