"""The tilted approximation: ``phi = softmax(z + t)``, its columns summing to the counts."""

import numpy as np
import pytest
import torch

from llpkit import likelihood
from llpkit.errors import LLPError
from llpkit.likelihood import Evidence
from oracle import assert_close
from strategies import batch


def sinkhorn(bags, counts, **options):
    data = batch(bags, Evidence.exact(counts))
    log_prob, phi = likelihood.log_prob_and_posterior(*data, approximation="sinkhorn", **options)
    assert torch.isfinite(log_prob).all()
    return log_prob.numpy(), phi.numpy()


@pytest.mark.parametrize("sd", [0, 1, 10])
def test_rows_and_columns_sum_right_and_the_tilt_is_one_vector_a_bag(sd):
    rng = np.random.default_rng(sd)
    bags = [rng.normal(size=(n, 4)) * sd for n in (4, 30, 500)]
    counts = np.array([[1, 1, 1, 1], [7, 3, 12, 8], [100, 150, 200, 50]])
    _, phi = sinkhorn(bags, counts)
    start = 0
    for z, y in zip(bags, counts, strict=True):
        own = phi[start : start + len(z)]
        start += len(z)
        assert (own >= 0).all()
        assert_close(own.sum(axis=1), np.ones(len(z)), 1e-9)
        assert_close(own.sum(axis=0), y, 1e-7)
        tilt = np.log(own) - z
        tilt -= tilt[:, :1]
        assert_close(tilt, np.broadcast_to(tilt[0], tilt.shape), 1e-6)


def test_equal_instances_are_exact():
    z = np.tile([0.3, -1.0, 2.0], (12, 1))
    _, phi = sinkhorn([z], [[2, 6, 4]])
    assert_close(phi, np.tile([2 / 12, 6 / 12, 4 / 12], (12, 1)), 1e-9)


def test_a_class_without_instances_gets_nothing():
    z = np.random.default_rng(1).normal(size=(8, 3))
    _, phi = sinkhorn([z], [[5, 0, 3]])
    assert_close(phi[:, 1], np.zeros(8), 1e-12)
    assert_close(phi.sum(axis=0), [5, 0, 3], 1e-8)


def test_one_instance_and_none():
    log_prob, phi = sinkhorn(
        [np.zeros((0, 3)), np.array([[0.0, 1.0, 2.0]])], [[0, 0, 0], [0, 1, 0]]
    )
    assert_close(phi, [[0, 1, 0]], 1e-9)
    assert log_prob.shape == (2,)


def test_it_comes_close_to_the_exact_posterior_as_bags_grow():
    rng = np.random.default_rng(2)
    errors = []
    for n in (6, 24, 60):
        z = rng.normal(size=(n, 3))
        counts = [[n // 3] * 3]
        exact = likelihood.posterior(*batch([z], Evidence.exact(counts))).numpy()
        errors.append(np.abs(sinkhorn([z], counts)[1] - exact).mean())
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.01


def test_it_serves_where_the_exact_sum_does_not():
    z = np.random.default_rng(3).normal(size=(1000, 10))
    counts = [[100] * 10]
    data = batch([z], Evidence.exact(counts))
    for function in (likelihood.log_prob, likelihood.posterior, likelihood.log_prob_and_posterior):
        with pytest.raises(LLPError, match='approximation="saddlepoint"'):
            function(*data)
    _, phi = sinkhorn([z], counts)
    assert_close(phi.sum(axis=0), counts[0], 1e-6)


def test_it_is_for_classes_only():
    with pytest.raises(LLPError, match="sinkhorn"):
        likelihood.posterior(torch.zeros(3), [1], torch.tensor([0, 3]), approximation="sinkhorn")


@pytest.mark.parametrize("sd", [100, 1000])
def test_logits_far_apart_are_solved_too(sd):
    rng = np.random.default_rng(4)
    bags = [rng.normal(size=(60, 10)) * sd for _ in range(5)]
    counts = rng.multinomial(60, [0.1] * 10, size=5)
    _, phi = sinkhorn(bags, counts)
    assert_close(phi.reshape(5, 60, 10).sum(axis=1), counts, 1e-5)


def test_an_impossible_bag_is_refused_or_has_no_probability():
    known = torch.tensor([[0.0, 1.0, -torch.inf]]).repeat(4, 1)
    data = known, [[1, 1, 2]], torch.tensor([0, 4])
    with pytest.raises(LLPError, match="rule out the counts"):
        likelihood.log_prob(*data, approximation="sinkhorn")
    assert likelihood.log_prob(*data, approximation="sinkhorn", validate=False) == -torch.inf
