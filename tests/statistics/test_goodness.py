"""Goodness of fit: uniform under the true model, and powerful against wrong ones."""

import numpy as np
import pytest
import torch
from scipy import stats

from llpkit import Bags, Evidence
from llpkit.statistics import bag_calibration, goodness_of_fit


def draw(rng, num_classes=None, bags=300, top=9):
    """Logits, and bags whose counts are drawn from them."""
    sizes = rng.integers(1, top, size=bags)
    offsets = np.append(0, np.cumsum(sizes))
    if num_classes is None:
        z = rng.normal(0.3, 1.5, size=sizes.sum())
        hot = rng.random(len(z)) < 1 / (1 + np.exp(-z))
    else:
        z = rng.normal(size=(sizes.sum(), num_classes)) * 1.5
        hot = (z + rng.gumbel(size=z.shape)).argmax(1)[:, None] == np.arange(num_classes)
    counts = np.add.reduceat(hot.astype(int), offsets[:-1], axis=0)
    return torch.from_numpy(z), offsets, counts, sizes


def p_values(make, times=60, **more):
    found = []
    for seed in range(times):
        rng = np.random.default_rng(seed)
        z, bags = make(rng, **more)
        one = goodness_of_fit(z, bags, seed=seed)
        found.append((one.pit_p, one.dispersion_p))
    return np.array(found)


def true(rng, num_classes=None, known=None, **more):
    z, offsets, counts, sizes = draw(rng, num_classes, **more)
    return z, Bags(offsets, counts if known is None else known(counts, sizes, rng))


def interval(y, n, _):
    # Counts are published in pairs, so the range says nothing about where in it the count is.
    low = y - y % 2
    return Evidence.interval(low, np.minimum(low + 1, n))


def laplace(y, n, rng):
    return Evidence.laplace(y + rng.laplace(scale=1.5, size=len(y)), n, scale=1.5)


@pytest.mark.parametrize("known", [None, interval, laplace])
def test_p_values_are_uniform_under_the_true_model(known):
    found = p_values(true, known=known, bags=150)
    for column in found.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3


def test_classes_have_no_more_false_alarms_than_stated():
    found = p_values(true, num_classes=3, times=40, bags=80, top=6)
    assert (found < 0.05).mean() < 0.12  # of 80 values, more than 9 with probability 1 %


def test_the_transform_is_the_definition():
    z, bags = true(np.random.default_rng(0), bags=40)
    found = goodness_of_fit(z, bags, seed=3)
    v = np.random.default_rng(3).random((40, 1))[:, 0]
    for b, bag in enumerate(bags):
        p = [1.0]
        for q in torch.sigmoid(z[bag.rows]).tolist():
            p = np.convolve(p, [1 - q, q])
        y = bag.count
        assert found.pit[b] == pytest.approx(sum(p[:y]) + v[b] * p[y], abs=1e-12)


def shifted(rng):
    z, bags = true(rng)
    return z + 0.5, bags


def too_sure(rng):
    z, bags = true(rng)
    return 3 * z, bags


def too_vague(rng):
    z, bags = true(rng)
    return 0 * z + 0.2, bags


def shared_effect(rng):
    sizes = np.full(300, 12)
    z = rng.normal(size=(300, 12))
    p = 1 / (1 + np.exp(-(z + rng.normal(size=(300, 1)))))
    counts = (rng.random(p.shape) < p).sum(1)
    return torch.from_numpy(z.ravel()), Bags(np.append(0, np.cumsum(sizes)), counts)


@pytest.mark.parametrize("wrong", [shifted, too_sure, shared_effect])
def test_a_wrong_model_is_found(wrong):
    found = p_values(wrong, times=10)
    assert (found.min(1) < 0.01).mean() >= 0.9


def test_dispersion_says_in_which_way_a_model_is_wrong():
    rng = np.random.default_rng(0)
    assert goodness_of_fit(*true(rng, bags=2000)).dispersion == pytest.approx(1, abs=0.1)
    assert goodness_of_fit(*shared_effect(rng)).dispersion > 1.5


def test_worst_bags_and_calibration():
    bags = Bags([0, 4, 8, 8, 12], [2, 4, 0, 2])
    found = goodness_of_fit(torch.zeros(12), bags)
    assert int(found.worst[0]) == 1
    assert found.distance.tolist() == [0, 2, 0, 0]
    assert len(found.pit) == 3  # without the empty bag
    curve = bag_calibration(found, bags)
    assert curve.mean_predicted.tolist() == [0.0, 0.5]
    assert curve.fraction_positive.tolist() == [0.0, pytest.approx(8 / 12)]
