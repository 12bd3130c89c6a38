"""What counts cannot determine: constructed cases that are warned about, and cases that are not."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import llpkit
from llpkit import Bags, Evidence
from llpkit.errors import IdentifiabilityWarning
from llpkit.estimators import LLPClassifier, LLPLogisticRegression
from llpkit.statistics import identifiability

B, N = 120, 8


def offsets(size=N, number=B):
    return np.arange(0, size * number + 1, size)


def logistic(x, rng, slope=2.0):
    return (rng.random(len(x)) < 1 / (1 + np.exp(-slope * x))).astype(int)


def counted(x, labels, size=N, **more):
    counts = labels.reshape(-1, size).sum(1)
    return x, Bags(offsets(size, len(x) // size), counts, **more)


def of_labels(labels, rng, gap=2.5):
    """Two features of given labels, the first of them apart."""
    x = rng.normal(size=(len(labels), 2))
    x[:, 0] += gap * labels
    return x


def half_positive(rng):
    labels = np.tile([0, 1] * (N // 2), B)
    return counted(of_labels(labels, rng), labels)


def same_quarter_of_a_symmetric_feature(rng):
    # Within every bag two instances are extreme in opposite directions; one of them is positive.
    labels = np.tile([1, 0, 0, 0], 200)
    x = rng.normal(size=(800, 1)) * 0.3
    x[0::4] += 2
    x[1::4] -= 2
    return counted(x, labels, size=4)


def bag_indicators(rng):
    x = rng.normal(size=(B * N, 1))
    labels = logistic(x[:, 0], rng)
    return counted(np.hstack([x, np.repeat(np.eye(B), N, 0)]), labels)


def constant_within_bags(rng):
    x = np.repeat(rng.normal(size=(B, 3)), N, 0)
    return counted(x, logistic(x[:, 0], rng))


def balanced_bags(rng):
    # Every bag has as many men as women, in another order.
    x = np.tile([[0.0], [1.0]], (B * N // 2, 1))
    return counted(x, logistic(x[:, 0] - 0.5, rng))


def balanced_categories(rng):
    # One column is informative; of two categories every bag has the same number of each.
    x = rng.normal(size=(B * N, 3))
    x[:, 1] = np.tile([1, 0, 0, 1], B * N // 4)
    x[:, 2] = np.tile([0, 1, 1, 0], B * N // 4)
    return counted(x, logistic(x[:, 0], rng))


def no_positives(rng):
    return counted(rng.normal(size=(B * N, 2)), np.zeros(B * N, int))


def unknown_counts(rng):
    x = rng.normal(size=(B * N, 2))
    return x, Bags(offsets(), Evidence.interval(np.zeros(B, int), np.full(B, N)))


def drowned_in_noise(rng):
    x = rng.normal(size=(B * N, 2))
    y = logistic(x[:, 0], rng).reshape(B, N).sum(1)
    noisy = y + rng.laplace(scale=500, size=B)
    return x, Bags(offsets(), Evidence.laplace(noisy, np.full(B, N), scale=500))


def two_of_each_class(rng):
    labels = np.tile([0, 0, 1, 1, 2, 2], B)
    x = rng.normal(size=(len(labels), 2))
    x[:, 0] += 3 * (labels == 1)
    x[:, 1] += 3 * (labels == 2)
    return x, Bags(offsets(6), np.full((B, 3), 2))


UNIDENTIFIED = {
    "half of every bag positive": (half_positive, "same proportions"),
    "a quarter positive, symmetric feature": (
        same_quarter_of_a_symmetric_feature,
        "same proportions",
    ),
    "indicators of the bag": (bag_indicators, "bag columns"),
    "features constant within bags": (constant_within_bags, "within bags"),
    "bags balanced in the only feature": (balanced_bags, "direction"),
    "bags balanced in two categories": (balanced_categories, "direction"),
    "no positives": (no_positives, "one class"),
    "counts unknown": (unknown_counts, "counts"),
    "counts drowned in noise": (drowned_in_noise, "counts"),
    "two of each class": (two_of_each_class, "same proportions"),
}


def random_bags(rng):
    x = rng.normal(size=(B * N, 3))
    return counted(x, logistic(x[:, 0], rng))


def labelled_rows(rng):
    x = rng.normal(size=(300, 3))
    return counted(x, logistic(x[:, 0], rng), size=1)


def large_bags(rng):
    x = rng.normal(size=(60 * 100, 3))
    return counted(x, logistic(x[:, 0], rng), size=100)


def redundant_columns(rng):
    x = rng.normal(size=(B * N, 2))
    level = rng.integers(0, 3, size=len(x))
    x = np.hstack([x, 2 * x[:, :1] - 1, np.eye(3)[level], np.ones((len(x), 1))])
    return counted(x, logistic(x[:, 0] + level - 1, rng))


def a_column_of_the_bag(rng):
    x = rng.normal(size=(B * N, 3))
    x[:, 2] = np.repeat(rng.normal(size=B), N)
    return counted(x, logistic(x[:, 0] + x[:, 2], rng))


def same_quarter_of_a_skewed_feature(rng):
    # Every bag has one of four positive, and the positives are rare and far away.
    labels = np.tile([1, 0, 0, 0], 200)
    return counted(of_labels(labels, rng, gap=5), labels, size=4)


def published_with_noise(rng):
    x = rng.normal(size=(B * N, 2))
    y = logistic(x[:, 0], rng).reshape(B, N).sum(1)
    return x, Bags(offsets(), Evidence.laplace(y + rng.laplace(size=B), np.full(B, N), scale=1))


def three_classes(rng):
    x = rng.normal(size=(B * 6, 2))
    labels = np.argmax(np.hstack([np.zeros((len(x), 1)), 2 * x]) + rng.gumbel(size=(len(x), 3)), 1)
    counts = (labels[:, None] == np.arange(3)).reshape(B, 6, 3).sum(1)
    return x, Bags(offsets(6), counts)


def half_positive_and_some_labels(rng):
    x, bags = half_positive(rng)
    known = np.full(len(x), -1)
    known[:40] = np.tile([0, 1], 20)
    return x, bags.with_labels(known)


def few_bags_many_columns(rng):
    x = rng.normal(size=(30 * 5, 40))
    return counted(x, logistic(x[:, 0], rng), size=5)


def streets(rng):
    # People of one bag are alike, which says more than random bags do.
    x = np.repeat(rng.normal(size=(B, 2)), N, 0) + 0.3 * rng.normal(size=(B * N, 2))
    return counted(x, logistic(x[:, 0], rng))


IDENTIFIED = {
    "random bags": random_bags,
    "labelled rows": labelled_rows,
    "large bags": large_bags,
    "redundant columns": redundant_columns,
    "a column of the bag": a_column_of_the_bag,
    "a quarter positive, skewed feature": same_quarter_of_a_skewed_feature,
    "published with noise": published_with_noise,
    "three classes": three_classes,
    "half positive, some labels": half_positive_and_some_labels,
    "few bags, many columns": few_bags_many_columns,
    "bags of people who are alike": streets,
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", UNIDENTIFIED)
def test_what_cannot_be_determined_is_found(name, seed):
    make, kind = UNIDENTIFIED[name]
    found = identifiability(*make(np.random.default_rng(seed)))
    assert kind in [problem.kind for problem in found.problems]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", IDENTIFIED)
def test_what_can_be_determined_is_left_alone(name, seed):
    assert identifiability(*IDENTIFIED[name](np.random.default_rng(seed))).problems == ()


def test_fitting_warns_and_says_what_would_help():
    x, bags = half_positive(np.random.default_rng(0))
    groups, y = bags.bag_index.numpy(), bags.evidence
    for model in (LLPLogisticRegression(), LLPClassifier(LogisticRegression())):
        with pytest.warns(IdentifiabilityWarning, match=r"labels for a few rows .Bags.with_labels"):
            model.fit(x, y, groups)
    with pytest.warns(IdentifiabilityWarning, match="same proportion"):
        net = llpkit.fit("linear", bags, x, "mle", epochs=1, progress=False)
    assert "same proportion" in net.details["warnings"][0]
    with pytest.warns(IdentifiabilityWarning, match="same proportion"):  # images, too
        llpkit.fit("linear", bags, x.reshape(-1, 1, 1, 2) % 1, "mle", epochs=1, progress=False)


def test_the_warning_points_at_the_call_and_names_the_columns():
    x, bags = balanced_bags(np.random.default_rng(0))
    x = np.hstack([np.random.default_rng(1).normal(size=(len(x), 1)), x])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LLPLogisticRegression().fit(x, bags.evidence, bags.bag_index.numpy())
    assert [w.category for w in caught] == [IdentifiabilityWarning]
    assert caught[0].filename == __file__
    assert "'x1'" in str(caught[0].message)
    found = identifiability(x, bags, feature_names=["age", "sex"])
    assert found.problems[0].columns == ("sex",)
    assert found.efficiency[0] < 1e-9 < found.efficiency[1]


def test_text_and_missing_values_are_no_obstacle():
    x, bags = balanced_bags(np.random.default_rng(0))
    frame = pd.DataFrame({"name": ["a"] * len(x), "sex": x[:, 0], "age": np.nan})
    frame.loc[3, "age"] = 30
    assert [p.columns for p in identifiability(frame, bags).problems] == [("sex",)]
    assert identifiability(None, bags).ok


def test_a_constant_column_is_no_direction():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=400), np.full(400, 0.1)])
    found = identifiability(x, Bags.from_labels(x[:, 0] > 0, np.arange(400) // 4))
    assert found.bag_columns == ()
    assert len(found.efficiency) == 1


def test_efficiency_is_that_of_the_information_at_a_constant_rate():
    # One over the size in random bags; the exact matrix from its definition.
    rng = np.random.default_rng(0)
    x, bags = random_bags(rng)
    sums = (x - x.mean(0)).reshape(B, N, 3).sum(1)
    total = (x - x.mean(0)).T @ (x - x.mean(0))
    wanted = np.linalg.eigvals(np.linalg.solve(total, sums.T @ sums / N))
    found = identifiability(x, bags).efficiency
    np.testing.assert_allclose(found, np.sort(wanted.real), rtol=1e-10)
    assert found.mean() == pytest.approx(1 / N, rel=0.3)


def test_rows_with_a_multiplicity_are_checked_as_well():
    # Precincts with as many men as women: their votes do not tell who voted how.
    rng = np.random.default_rng(0)
    X, precinct = np.tile([[0.0], [1.0]], (40, 1)), np.repeat(np.arange(40), 2)
    y = np.repeat(rng.binomial(30, 0.3, size=40) + rng.binomial(30, 0.7, size=40), 2)
    with pytest.warns(IdentifiabilityWarning, match="'x0'"):
        LLPLogisticRegression().fit(X, y, precinct, multiplicity=np.full(80, 30))
    many = np.where(np.arange(80) % 2, 30, rng.integers(10, 50, size=80))
    LLPLogisticRegression().fit(X, np.minimum(y, 40), precinct, multiplicity=many)
