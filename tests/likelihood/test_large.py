"""Large bags against recursions that share nothing with the engine."""

import functools
import math

import numpy as np
import pytest
import torch

import strategies
from llpkit import likelihood
from llpkit.likelihood import Evidence
from oracle import (
    Answer,
    assert_close,
    count_distribution,
    forward_backward,
    log_sum_exp,
    multiclass_recursion,
)
from strategies import batch

SIZES = (11, 33, 64, 65, 128, 500, 2000, 5000)
SPREADS = (0, 0.1, 1, 10, 100, 300)


def counts_to_try(n):
    return sorted({1, n // 10, n // 2, n - 1})


@functools.lru_cache
def answers(n, sd, mean=0.0):
    z = np.random.default_rng([n, int(10 * sd)]).normal(size=n) * sd + mean
    return z, forward_backward(z, counts_to_try(n))


def check(n, sd, mean, backend):
    z, expected = answers(n, sd, mean)
    counts = sorted(expected)
    data = batch([z] * len(counts), Evidence.exact(counts))
    log_prob, phi = likelihood.log_prob_and_posterior(*data, backend=backend)
    for y, one, row in zip(
        counts, log_prob.tolist(), phi.view(len(counts), n).numpy(), strict=True
    ):
        assert_close(one, expected[y].log_prob, 1e-10)
        assert np.abs(row - expected[y].posterior).max() <= 1e-9
        assert abs(row.sum() - y) <= 1e-8


@pytest.mark.parametrize("sd", SPREADS)
@pytest.mark.parametrize("n", SIZES)
def test_exact_counts(n, sd, backend):
    check(n, sd, 0.0, backend)


@pytest.mark.parametrize("mean", [-200.0, 25.0])
@pytest.mark.parametrize("sd", [0, 1, 100])
@pytest.mark.parametrize("n", [65, 500])
def test_exact_counts_far_from_the_mean(n, sd, mean, backend):
    check(n, sd, mean, backend)


@pytest.mark.slow
@pytest.mark.parametrize("mean", [-200.0, 25.0])
@pytest.mark.parametrize("sd", SPREADS)
@pytest.mark.parametrize("n", [2000, 5000])
def test_exact_counts_far_from_the_mean_largest(n, sd, mean, backend):
    check(n, sd, mean, backend)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_every_count_of_a_random_bag(seed, backend):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(11, 400))
    # Few clusters far apart: between two of them a saddle point is hardest to find.
    z = rng.choice(rng.normal(size=4) * rng.choice([1, 30, 300]), size=n) + rng.normal(
        size=n
    ) * rng.choice([0, 0.1, 3])
    expected = forward_backward(z, range(n + 1))
    data = batch([z] * (n + 1), Evidence.exact(range(n + 1)))
    log_prob, phi = likelihood.log_prob_and_posterior(*data, backend=backend)
    assert_close(log_prob.numpy(), [expected[y].log_prob for y in range(n + 1)], 1e-10)
    assert_close(
        phi.view(n + 1, n).numpy(), np.stack([expected[y].posterior for y in range(n + 1)]), 1e-9
    )


@pytest.mark.parametrize("gap", [1.0, 40.0, 600.0, 1e5])
@pytest.mark.parametrize("n", [12, 40, 200])
def test_two_clusters(n, gap, backend):
    z = np.where(np.arange(n) < n // 3, gap, -gap)
    counts = sorted({0, 1, n // 3 - 1, n // 3, n // 3 + 1, n - 1, n})
    expected = forward_backward(z, counts)
    data = batch([z] * len(counts), Evidence.exact(counts))
    log_prob, phi = likelihood.log_prob_and_posterior(*data, backend=backend)
    assert_close(log_prob.numpy(), [expected[y].log_prob for y in counts], 1e-10)
    assert_close(
        phi.view(len(counts), n).numpy(), np.stack([expected[y].posterior for y in counts]), 1e-9
    )


@pytest.mark.parametrize("size", [300.0, 590.0, 600.0, 700.0, 745.0, 1500.0])
@pytest.mark.parametrize("n", [8, 64, 100, 140, 160, 161, 200])
def test_one_extreme_logit(n, size, backend):
    """The product of all odds comes close to the range of float64, or leaves it."""
    bags, counts, expected = [], [], []
    for sign in (-1, 1):
        z = np.zeros(n)
        z[0] = sign * size
        for y, answer in forward_backward(z, {0, 1, 2, n // 2, n - 1, n}).items():
            bags.append(z)
            counts.append(y)
            expected.append(answer)
    log_prob, phi = likelihood.log_prob_and_posterior(
        *batch(bags, Evidence.exact(counts)), backend=backend
    )
    assert_close(log_prob.numpy(), [e.log_prob for e in expected], 1e-10)
    assert_close(phi.numpy(), np.concatenate([e.posterior for e in expected]), 1e-9)


def test_none_and_all_positive(backend):
    z = np.random.default_rng(0).normal(size=3000) * 50
    data = batch([z, z], Evidence.exact([0, 3000]))
    log_prob, phi = likelihood.log_prob_and_posterior(*data, backend=backend)
    assert_close(log_prob.numpy(), [-np.logaddexp(0, z).sum(), -np.logaddexp(0, -z).sum()], 1e-12)
    assert_close(phi.view(2, -1).numpy(), np.stack([np.zeros(3000), np.ones(3000)]), 0)


def mixture(single, log_weight):
    """The answer under evidence, put together from the answers for single counts."""
    joint = np.array([a.log_prob + log_weight(y) for y, a in single.items()], dtype=np.longdouble)
    log_prob = log_sum_exp(joint)
    shares = np.exp(joint - log_prob).astype(float)
    phi = sum(s * a.posterior for s, a in zip(shares, single.values(), strict=True))
    return Answer(float(log_prob), phi)


@functools.lru_cache
def every_count(n, sd):
    z = np.random.default_rng([n, sd]).normal(size=n) * sd
    return z, forward_backward(z, range(n + 1))


@functools.lru_cache
def evidence_answers(n, sd):
    z, single = every_count(n, sd)
    kinds = strategies.evidence_kinds(n, np.random.default_rng([n, sd]))
    kinds["far tail"] = strategies.interval(n - 3, n)
    kinds["two far counts"] = strategies.weights(
        [0.0 if k in (2, n - 2) else -math.inf for k in range(n + 1)]
    )
    return z, kinds, [mixture(single, k.log_weight) for k in kinds.values()]


@pytest.mark.parametrize("sd", [0, 1, 10, 100])
@pytest.mark.parametrize("n", [40, 150])
def test_evidence(n, sd, backend):
    z, kinds, expected = evidence_answers(n, sd)
    data = batch([z] * len(kinds), [k.evidence for k in kinds.values()])
    log_prob, phi = likelihood.log_prob_and_posterior(*data, backend=backend)
    for kind, one, row, e in zip(
        kinds, log_prob.tolist(), phi.view(len(kinds), n).numpy(), expected, strict=True
    ):
        assert_close(one, e.log_prob, 1e-10)
        assert np.abs(row - e.posterior).max() <= 1e-9, kind


@pytest.mark.parametrize("steepness", [0.1, 10, 1000])
@pytest.mark.parametrize("n", [30, 100, 170])
def test_steep_tables(n, steepness, backend):
    rng = np.random.default_rng(n)
    bags, known, expected = [], [], []
    for sd in (0, 1, 20):
        z, single = every_count(n, sd)
        rough = rng.normal(size=n + 1) * steepness
        ramp = np.arange(n + 1) * steepness
        bowl = (np.arange(n + 1) - 0.4 * n) ** 2 * steepness / n
        for table in (rough, ramp, -ramp, bowl, -bowl):
            bags.append(z)
            known.append(strategies.weights(table))
            expected.append(mixture(single, known[-1].log_weight))
    data = batch(bags, [k.evidence for k in known])
    log_prob, phi = likelihood.log_prob_and_posterior(*data, backend=backend)
    for one, row, e in zip(
        log_prob.tolist(), strategies.pieces(phi, data.offsets), expected, strict=True
    ):
        assert_close(one, e.log_prob, 1e-10)
        assert_close(row, e.posterior, 1e-9)


@pytest.mark.parametrize("sd", [1, 30])
def test_at_least_one_and_nearly_all_of_a_large_bag(sd, backend):
    n = 5000
    z = np.random.default_rng(sd).normal(size=n) * sd - 5
    low = n - 8
    single = forward_backward(z, range(low, n + 1))
    joint = np.array([a.log_prob for a in single.values()])
    top = log_sum_exp(joint)
    shares = np.exp(joint - top)
    phi = sum(s * a.posterior for s, a in zip(shares, single.values(), strict=True))
    none = -np.logaddexp(0, z).sum()
    prior = 1 / (1 + np.exp(-z))
    data = batch([z, z], Evidence.at_least([1, low]))
    log_prob, posterior = likelihood.log_prob_and_posterior(*data, backend=backend)
    assert_close(log_prob.numpy(), [np.log(-np.expm1(none)), top], 1e-10)
    assert_close(posterior.view(2, n).numpy(), np.stack([prior / -np.expm1(none), phi]), 1e-9)


def test_at_least_one_when_even_one_is_unlikely(backend):
    z = np.random.default_rng(1).normal(size=1000) - 45
    log_prob, phi = likelihood.log_prob_and_posterior(
        *batch([z], Evidence.at_least([1])), backend=backend
    )
    odds = np.exp(z - z.max())
    # P(1) dominates: two positives are e^-45 times as likely as one.
    assert_close(log_prob.numpy(), [np.log(np.exp(z).sum())], 1e-10)
    assert_close(phi.numpy(), odds / odds.sum(), 1e-10)


def test_known_labels_in_a_large_bag(backend):
    rng = np.random.default_rng(2)
    z = rng.normal(size=700) * 4
    known = rng.choice([0, 1, -1], p=[0.7, 0.2, 0.1], size=700)
    free = z[known == 0]
    y = int((known == 1).sum()) + 200
    expected = forward_backward(free, [200])[200]
    mixed = np.where(known == 0, z, np.where(known > 0, np.inf, -np.inf))
    log_prob, phi = likelihood.log_prob_and_posterior(
        *batch([mixed], Evidence.exact([y])), backend=backend
    )
    assert_close(log_prob.numpy(), [expected.log_prob], 1e-10)
    assert_close(phi.numpy()[known == 0], expected.posterior, 1e-9)
    assert np.array_equal(phi.numpy()[known != 0], known[known != 0] == 1)


def test_large_and_small_bags_in_one_call(backend):
    rng = np.random.default_rng(3)
    sizes = [1, 3000, 0, 12, 70, 800, 2, 500, 13, 64]
    bags = [rng.normal(size=n) * 3 for n in sizes]
    counts = [n // 3 for n in sizes]
    log_prob, phi = likelihood.log_prob_and_posterior(
        *batch(bags, Evidence.exact(counts)), backend=backend
    )
    start = 0
    for z, y, one in zip(bags, counts, log_prob.tolist(), strict=True):
        expected = forward_backward(z, [y])[y] if len(z) else Answer(0.0, z)
        assert_close(one, expected.log_prob, 1e-10)
        assert_close(phi[start : start + len(z)].numpy(), expected.posterior, 1e-9)
        start += len(z)


@pytest.mark.parametrize("sd", [0.1, 1, 30])
def test_float32_of_large_bags(sd, backend):
    z = strategies.rounded(np.random.default_rng(4).normal(size=1000) * sd, torch.float32)
    expected = forward_backward(z, [300])[300]
    data = batch([z], Evidence.exact([300]), torch.float32)
    log_prob, phi = likelihood.log_prob_and_posterior(*data, backend=backend)
    assert_close(log_prob.numpy(), [expected.log_prob], 2e-5)
    assert_close(phi.numpy(), expected.posterior, 2e-5)


@pytest.mark.parametrize("sd", [0, 1, 20])
@pytest.mark.parametrize("n", [1, 200, 5000])
def test_count_distribution(n, sd):
    z = np.random.default_rng([n, sd]).normal(size=n) * sd
    result = likelihood.pmf(torch.tensor(z), torch.tensor([0, n]))
    assert result.offsets.tolist() == [0, n + 1]
    assert torch.equal(result.counts, torch.arange(n + 1))
    assert np.abs(result.probability.numpy() - count_distribution(z)).max() <= 1e-12
    assert (result.probability >= 0).all()
    assert abs(result.probability.sum().item() - 1) <= 1e-12


@pytest.mark.parametrize("counts", [(10, 9, 11), (28, 1, 1), (0, 17, 13), (8, 8, 7, 7)])
@pytest.mark.parametrize("sd", [0, 1, 3])
def test_classes(counts, sd):
    rng = np.random.default_rng(5)
    n, num_classes = sum(counts), len(counts)
    z = rng.normal(size=(n, num_classes)) * sd
    expected = multiclass_recursion(z, counts)
    log_prob, phi = likelihood.log_prob_and_posterior(*batch([z], Evidence.exact([counts])))
    assert_close(log_prob.numpy(), [expected.log_prob], 1e-11)
    assert_close(phi.numpy(), expected.posterior, 1e-11)


@pytest.mark.parametrize("sd", [1, 30, 300])
def test_two_classes_are_the_binary_bag(sd, either_backend):
    rng = np.random.default_rng(6)
    n, y = 200, 60
    z = rng.normal(size=(n, 2)) * sd
    expected = forward_backward(z[:, 1] - z[:, 0], [y])[y]
    for wide in (z, np.column_stack([z, np.full(n, -np.inf)])):
        counts = [[n - y, y, 0][: wide.shape[1]]]
        data = batch([wide], Evidence.exact(counts))
        log_prob, phi = likelihood.log_prob_and_posterior(*data, backend=either_backend)
        assert_close(log_prob.numpy(), [expected.log_prob], 1e-10)
        assert_close(phi.numpy()[:, 1], expected.posterior, 1e-9)
        assert_close(phi.numpy().sum(axis=1), np.ones(n), 1e-9)


def test_ten_classes():
    rng = np.random.default_rng(7)
    z = rng.normal(size=(16, 10)) * 3
    counts = np.bincount(rng.permutation(np.arange(16) % 10), minlength=10)
    log_prob, phi = likelihood.log_prob_and_posterior(*batch([z], Evidence.exact([counts])))
    assert_close(phi.numpy().sum(axis=0), counts, 1e-11)
    assert_close(phi.numpy().sum(axis=1), np.ones(16), 1e-11)
    # Leave one out: phi_0k = p_0k P(rest has y - e_k) / P(y).
    p = np.exp(z[0] - np.logaddexp.reduce(z[0]))
    rest = batch([z[1:]] * 10, Evidence.exact(counts - np.eye(10, dtype=int)))
    expected = p * np.exp(likelihood.log_prob(*rest).numpy() - log_prob.item())
    assert_close(phi.numpy()[0], expected, 1e-11)
