"""The oracles against each other and against closed forms, before anything relies on them."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import oracle
from oracle import Enumeration, assert_close, assert_frequencies, forward_backward


def only(y):
    return lambda count: 0.0 if count == y else -math.inf


def test_enumeration_of_two_instances_by_hand():
    a, b = 0.3, 0.6
    bag = Enumeration.binary(np.array([math.log(a / (1 - a)), math.log(b / (1 - b))]))
    assert_close(bag.pmf, [(1 - a) * (1 - b), a * (1 - b) + b * (1 - a), a * b], 1e-15)
    one = bag.answer(only(1))
    p_one = a * (1 - b) + b * (1 - a)
    assert_close(one.log_prob, math.log(p_one), 1e-15)
    assert_close(one.posterior, [a * (1 - b) / p_one, b * (1 - a) / p_one], 1e-15)
    assert bag.modes(only(1)) == {(0, 1)}
    phi = one.posterior[0]
    assert_close(bag.covariance(only(1)), phi * (1 - phi) * np.array([[1, -1], [-1, 1]]), 1e-15)


def test_enumeration_of_three_classes_by_product():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4, 3))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    total, phi, best = 0.0, np.zeros((4, 3)), (0.0, ())
    for labels in itertools.product(range(3), repeat=4):
        prob = math.prod(p[i, k] for i, k in enumerate(labels))
        counts = tuple(labels.count(k) for k in range(3))
        weight = {(1, 2, 1): 0.5, (0, 2, 2): 2.0}.get(counts, 0.0)
        total += weight * prob
        phi += weight * prob * np.eye(3)[list(labels)]
        best = max(best, (weight * prob, labels))
    bag = Enumeration.softmax(z)
    weights = {(1, 2, 1): math.log(0.5), (0, 2, 2): math.log(2.0)}
    answer = bag.answer(lambda c: weights.get(c, -math.inf))
    assert_close(answer.log_prob, math.log(total), 1e-14)
    assert_close(answer.posterior, phi / total, 1e-14)
    assert bag.modes(lambda c: weights.get(c, -math.inf)) == {best[1]}


@pytest.mark.parametrize("n", range(11))
def test_enumeration_of_equal_instances_is_binomial(n):
    p = 0.2
    bag = Enumeration.binary(np.full(n, math.log(p / (1 - p))))
    assert_close(
        bag.pmf, [math.comb(n, y) * p**y * (1 - p) ** (n - y) for y in range(n + 1)], 1e-15
    )
    for y in range(n + 1):
        assert_close(bag.answer(only(y)).posterior, np.full(n, y / max(n, 1)), 1e-15)


def test_enumeration_knows_infinite_logits():
    bag = Enumeration.binary(np.array([np.inf, 0.0, -np.inf]))
    assert_close(bag.pmf, [0, 0.5, 0.5, 0], 1e-15)
    assert_close(bag.answer(only(2)).posterior, [1, 1, 0], 0)
    assert bag.answer(only(0)).log_prob == -math.inf
    three = Enumeration.softmax(np.array([[0.0, -np.inf, 0.0], [-np.inf, 1.0, -np.inf]]))
    assert_close(three.answer(only((1, 1, 0))).posterior, [[1, 0, 0], [0, 1, 0]], 0)


@pytest.mark.parametrize("num_classes", [2, 3, 4])
def test_enumeration_is_normalised(num_classes):
    bag = Enumeration.softmax(np.random.default_rng(1).normal(size=(6, num_classes)) * 5)
    assert len(bag.pmf) == math.comb(6 + num_classes - 1, num_classes - 1)
    assert_close(bag.pmf.sum(), 1.0, 1e-15)
    everything = bag.answer(oracle.no_evidence)
    assert_close(everything.log_prob, 0.0, 1e-15)
    assert_close(everything.posterior, np.exp(bag.log_p).astype(float), 1e-15)
    covariance = bag.covariance(oracle.no_evidence)
    assert_close(covariance.sum(axis=(1, 3)), np.zeros((6, 6)), 1e-14)


@pytest.mark.parametrize("sd", [0, 1, 50, 300])
def test_forward_backward_equals_enumeration(sd):
    rng = np.random.default_rng(sd)
    for n in range(1, 11):
        z = rng.normal(size=n) * sd
        bag = Enumeration.binary(z)
        for y, (log_prob, phi) in forward_backward(z, range(n + 1)).items():
            expected = bag.answer(only(y))
            assert_close(log_prob, expected.log_prob, 1e-14)
            assert_close(phi, expected.posterior, 1e-14)


@pytest.mark.parametrize("sd", [1, 30, 300])
def test_forward_backward_equals_mpmath(sd):
    z = np.random.default_rng(sd).normal(size=300) * sd
    answers = forward_backward(z, [1, 30, 150, 299])
    for y, (log_prob, phi) in answers.items():
        expected = oracle.mpmath_forward_backward(z, y)
        assert_close(log_prob, expected.log_prob, 1e-13)
        assert_close(phi, expected.posterior, 1e-13)


def test_forward_backward_of_equal_instances_is_binomial():
    n, z = 5000, 1.7
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(z)))
        for y, (log_prob, phi) in forward_backward(np.full(n, z), [1, 500, 2500, 4999]).items():
            expected = (
                mpmath.log(mpmath.binomial(n, y)) + y * mpmath.log(p) + (n - y) * mpmath.log(1 - p)
            )
            assert_close(log_prob, float(expected), 1e-12)
            assert_close(phi, np.full(n, y / n), 1e-12)


def test_count_distribution_equals_forward_backward():
    z = np.random.default_rng(3).normal(size=200) * 3
    pmf = oracle.count_distribution(z)
    answers = forward_backward(z, range(201))
    assert_close(pmf, [math.exp(answers[y].log_prob) for y in range(201)], 1e-14)


def test_multiclass_recursion_equals_enumeration():
    z = np.random.default_rng(4).normal(size=(7, 3)) * 2
    answer = oracle.multiclass_recursion(z, (3, 0, 4))
    expected = Enumeration.softmax(z).answer(only((3, 0, 4)))
    assert_close(answer.log_prob, expected.log_prob, 1e-14)
    assert_close(answer.posterior, expected.posterior, 1e-14)


def test_comparisons_can_fail():
    assert_close([1.0, -np.inf], [1.0, -np.inf], 0)
    for wrong in ([1.0, 0.0], [1.0, np.nan], [1.0, np.inf], [1.1, -np.inf]):
        with pytest.raises(AssertionError, match="scaled error"):
            assert_close(wrong, [1.0, -np.inf], 1e-3)
    with pytest.raises(AssertionError, match="shape"):
        assert_close([1.0], [[1.0]], 1)


def test_frequencies_can_fail():
    draws = 20_000
    p = np.array([0.0, 0.1, 0.5, 1.0])
    assert_frequencies(draws * p, draws, p)
    assert_frequencies(draws * p + [0, 60, -90, 0], draws, p)
    for shift in ([1, 0, 0, 0], [0, 300, 0, 0], [0, 0, -500, 0], [0, 0, 0, -1]):
        with pytest.raises(AssertionError, match="surprise"):
            assert_frequencies(draws * p + shift, draws, p)
