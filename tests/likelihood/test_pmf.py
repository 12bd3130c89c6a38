"""The whole count distribution; large bags are in test_large.py."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import strategies
from llpkit import likelihood
from llpkit.errors import LLPError
from llpkit.likelihood import Evidence
from oracle import Enumeration, all_count_vectors, assert_close

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


def distribution(bags, dtype=torch.float64):
    data = strategies.batch(bags, Evidence.unknown(len(bags)), dtype)
    return likelihood.pmf(data.logits, data.offsets)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("scale", [0, 1, 5, 50])
def test_binary(scale, dtype):
    rng = np.random.default_rng(0)
    bags = [
        strategies.rounded(rng.normal(size=n) * scale, torch.float32) for n in [*range(11), 0, 3]
    ]
    probability, counts, offsets = result = distribution(bags, dtype)
    assert type(result).__name__ == "CountDistribution"
    assert probability.dtype == dtype
    assert counts.dtype == offsets.dtype == torch.int64
    assert offsets.tolist() == np.cumsum([0] + [len(z) + 1 for z in bags]).tolist()
    assert counts.tolist() == [y for z in bags for y in range(len(z) + 1)]
    assert_close(
        probability.numpy(),
        np.concatenate([Enumeration.binary(z).pmf for z in bags]),
        TOLERANCE[dtype],
    )


@pytest.mark.parametrize("scale", [0, 1, 5, 50])
@pytest.mark.parametrize("num_classes", [2, 3, 4])
def test_classes(num_classes, scale):
    rng = np.random.default_rng(1)
    bags = [rng.normal(size=(n, num_classes)) * scale for n in range(8)]
    probability, counts, offsets = distribution(bags)
    sizes = [math.comb(len(z) + num_classes - 1, num_classes - 1) for z in bags]
    assert offsets.tolist() == np.cumsum([0, *sizes]).tolist()
    assert counts.shape == (sum(sizes), num_classes)
    for b, z in enumerate(bags):
        rows = slice(offsets[b], offsets[b + 1])
        found = {
            tuple(c): p
            for c, p in zip(counts[rows].tolist(), probability[rows].tolist(), strict=True)
        }
        vectors = all_count_vectors(len(z), num_classes)
        assert set(found) == {tuple(map(int, c)) for c in vectors}
        assert_close(
            [found[tuple(map(int, c))] for c in vectors], Enumeration.softmax(z).pmf, 1e-12
        )
        assert abs(sum(found.values()) - 1) <= 1e-12


def test_known_labels():
    assert_close(
        distribution([np.array([np.inf, 0.0, -np.inf])]).probability.numpy(),
        [0, 0.5, 0.5, 0],
        1e-15,
    )


@given(bags=strategies.ragged_batches())
def test_sums_to_one_and_agrees_with_log_prob(bags):
    logits = [z for z, _ in bags]
    probability, counts, offsets = distribution(logits)
    assert (probability >= 0).all()
    b = torch.repeat_interleave(torch.arange(len(logits)), offsets.diff())
    totals = torch.zeros(len(logits), dtype=torch.float64).index_add_(0, b, probability)
    assert_close(totals.numpy(), np.ones(len(logits)), 1e-12)
    each = strategies.batch([logits[i] for i in b], Evidence.exact(counts))
    log_prob = likelihood.log_prob(*each, validate=False)
    assert_close(probability.numpy(), log_prob.exp().numpy(), 1e-11)


def test_an_empty_batch():
    result = likelihood.pmf(torch.zeros(0), torch.tensor([0]))
    assert result.probability.shape == (0,)
    assert result.offsets.tolist() == [0]


def test_too_many_states():
    with pytest.raises(LLPError, match="states"):
        likelihood.pmf(torch.zeros(1000, 10), torch.tensor([0, 1000]))
    with pytest.raises(LLPError, match="states"):
        likelihood.pmf(torch.zeros(30, 3), torch.tensor([0, 30]), max_states=20)


@given(st.integers(0, 60), st.floats(-30, 30))
def test_equal_instances_are_binomial(n, z):
    p = 1 / (1 + math.exp(-z))
    q = 1 / (1 + math.exp(z))
    expected = [math.comb(n, y) * p**y * q ** (n - y) for y in range(n + 1)]
    assert_close(distribution([np.full(n, z)]).probability.numpy(), expected, 1e-12)
