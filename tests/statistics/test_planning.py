"""Planning: the information of bags by its definition, and predictions that come true."""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from llpkit.errors import LLPError
from llpkit.estimators import LLPLogisticRegression
from llpkit.likelihood import log_prob
from llpkit.statistics import assume, bag_information, compare, next_bags, plan

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def by_enumeration(x, weights):
    """The information of one bag: the variance of the score over all label combinations' counts."""
    n, width = x.shape
    total = np.zeros((width, width))
    for y in range(n + 1):
        w = torch.tensor(weights, requires_grad=True)
        log_p = log_prob(torch.from_numpy(x) @ w, [y], [0, n])
        (score,) = torch.autograd.grad(log_p.sum(), w)
        total += float(log_p.detach().exp()) * np.outer(score, score)
    return total


def test_information_is_the_variance_of_the_score():
    rng = np.random.default_rng(0)
    sizes = [1, 3, 0, 6]
    x, weights = rng.normal(size=(10, 3)), rng.normal(size=3)
    offsets = np.append(0, np.cumsum(sizes))
    found = bag_information(x, weights, offsets)
    for b, (first, last) in enumerate(pairwise(offsets)):
        wanted = by_enumeration(x[first:last], weights) if last > first else 0
        np.testing.assert_allclose(found[b], wanted, atol=1e-12)


def test_large_bags_leave_out_only_what_has_no_weight():
    rng = np.random.default_rng(0)
    x, weights = np.column_stack([rng.normal(size=400), np.ones(400)]), np.array([1.0, 0.5])
    np.testing.assert_allclose(
        bag_information(x, weights, [0, 400])[0], by_enumeration(x, weights), rtol=1e-10
    )


def test_efficiency_by_size_as_in_the_reference_design():
    X = np.random.default_rng(0).normal(size=(5000, 2))
    model = assume(X)._replace(weights=np.array([1.0, 1.0, 0.0]))
    found = plan(X, [1, 2, 4, 8, 16], model=model)
    wanted = [1, 0.64, 0.34, 0.156, 0.075]
    assert [found[n].efficiency for n in found.sizes] == pytest.approx(wanted, rel=0.1)


def test_predictions_come_true(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import planning

    rows = planning.main(
        ["--sizes", "1,8", "--bags", "200", "--replicates", "60", "--out", str(tmp_path)]
    )
    sys.modules.pop("planning")
    for row in rows:
        # Sixty replicates leave 6 % to chance in each of two independent weights.
        assert row.ratio == pytest.approx(1, abs=0.2)
        assert row.simulated_accuracy == pytest.approx(row.predicted_accuracy, abs=0.01)


def test_assumptions_are_met():
    X = np.random.default_rng(0).gamma(2.0, size=(2000, 3)) * [1, 100, 0]
    model = assume(X, rate=0.2, accuracy=0.9)
    p = 1 / (1 + np.exp(-model.design @ model.weights))
    assert p.mean() == pytest.approx(0.2, abs=1e-6)
    assert np.maximum(p, 1 - p).mean() == pytest.approx(0.9, abs=1e-6)


def test_rare_values_and_categories_are_guessed_soberly():
    rng = np.random.default_rng(0)
    rare = (rng.random(4000) < 0.01).astype(float)
    p = 1 / (
        1 + np.exp(-((guess := assume(np.c_[rng.normal(size=4000), rare])).design @ guess.weights))
    )
    assert 0.5 < p[rare > 0].mean() < 0.95  # a few rows are not all but certain
    twins = rng.integers(2, size=4000).astype(float)
    for columns in ([twins, twins], [twins, np.ones(4000), 1 - twins]):
        assert np.isfinite(assume(np.stack(columns, 1), accuracy=0.8).weights).all()
    level = rng.integers(3, size=4000)
    one_hot = (level[:, None] == np.arange(3)).astype(float)
    guess = assume(one_hot, accuracy=0.7)
    assert len(np.unique((guess.design @ guess.weights).round(6))) > 1
    found = plan(one_hot, sizes=[1, 8], accuracy=0.7)
    assert max(found[1].standard_errors(200)[:-1]) < 0.5


def test_a_constant_column_has_no_weight():
    x = np.column_stack([np.random.default_rng(0).normal(size=400), np.full(400, 0.1)])
    assert assume(x).weights[1] == 0


def test_goals_are_reached_by_the_fewest_bags():
    X = np.random.default_rng(0).normal(size=(1000, 2))
    one = plan(X, [4], accuracy=0.85)[4]
    bags = one.bags_for_standard_error(0.3)
    assert one.standard_errors(bags)[:-1].max() <= 0.3 < one.standard_errors(bags - 1)[:-1].max()
    bags = one.bags_for_accuracy(0.84)
    assert one.accuracy(bags) >= 0.84 > one.accuracy(bags - 1)
    assert one.bags_for_accuracy(0.9) is None


def test_bags_of_similar_instances_say_more():
    X = np.random.default_rng(0).normal(size=(640, 1))
    order = np.argsort(np.argsort(X[:, 0]))
    found = compare(X, {"random": np.arange(640) // 8, "alike": order // 8}, accuracy=0.8)
    (random, n), (alike, m) = found["random"], found["alike"]
    assert n == m == 80
    assert alike.accuracy(n) > random.accuracy(n)


def test_the_next_bag_adds_most():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(60, 2)), np.repeat(np.arange(12), 5)
    model = LLPLogisticRegression().fit(X, (X[:, 0] > 0).astype(int))
    chosen = next_bags(X, groups, counted=[0, 1, 2], number_of_bags=3, model=model)
    ids = [name for name, _ in chosen]
    assert len(set(ids)) == 3
    assert not {0, 1, 2} & set(ids)
    design = np.column_stack([X, np.ones(60)])
    weights = np.append(model.coef_[0], model.intercept_)
    every = bag_information(design, weights, np.arange(0, 61, 5))
    before = every[:3].sum(0)
    gains = [np.linalg.slogdet(before + every[b])[1] for b in range(3, 12)]
    assert ids[0] == 3 + int(np.argmax(gains))
    with pytest.raises(LLPError, match="counted has 99"):
        next_bags(X, groups, counted=[99], model=model)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: plan(X, accuracy=0.5), "accuracy = 0.5; give a number between"),
        (lambda X: plan(X, rate=0.9, accuracy=0.8), "accuracy = 0.8"),
        (lambda X: plan(X, [0]), "sizes = 0"),
        (lambda X: plan(X, [2])[4], "size 4 was not planned"),
        (lambda X: plan(X * 0), "all columns of X are constant"),
        (lambda X: compare(X, {"by": [1, 2]}), "by has 2 rows but X has 40"),
        (lambda X: plan(X, [2])[2].bags_for_standard_error(0.1, "age"), "no column 'age'"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(LLPError, match=message):
        call(np.random.default_rng(0).normal(size=(40, 2)))


def test_too_many_columns_are_refused_and_a_plan_is_a_table():
    random = np.random.default_rng(0)
    with pytest.raises(LLPError, match=r"31\.3 GiB.*principal components"):
        plan(random.normal(size=(50, 1024)), sizes=[2])
    lines = str(plan(random.normal(size=(50, 2)), sizes=[1, 4])).splitlines()
    assert [line.split()[0] for line in lines[-3:-1]] == ["1", "4"]
