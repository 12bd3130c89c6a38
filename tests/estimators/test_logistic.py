"""Logistic regression by the exact likelihood: its objective, its optimum, its limits."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from llpkit import Evidence, LLPError
from llpkit.estimators import LLPLogisticRegression
from llpkit.estimators._bags_from_y import bags_of
from llpkit.estimators.logistic import calibrate
from oracle import Enumeration
from tables import gaussians, in_bags


def penalised(data, coef, intercept, C):
    """The objective by its definition, all label combinations enumerated."""
    total = 0.0
    for g in np.unique(data.groups):
        rows = np.flatnonzero(data.groups == g)
        z = data.X[rows] @ coef + intercept
        y = data.y[rows[0]]
        if np.ndim(y):
            answer = Enumeration.softmax(z).answer(lambda k, y=tuple(y): 0.0 if k == y else -np.inf)
        else:
            answer = Enumeration.binary(z).answer(lambda k, y=int(y): 0.0 if k == y else -np.inf)
        total += answer.log_prob
    return 0.5 * float((coef**2).sum()) - C * total


def test_optimum_of_the_enumerated_objective():
    data = gaussians(40, 4)
    model = LLPLogisticRegression(C=2.0, tol=1e-9).fit(data.X, data.y, data.groups)
    w, b = model.coef_[0], model.intercept_[0]
    best = penalised(data, w, b, 2.0)
    for j in range(3):
        step = 1e-3 * np.eye(3)[j]
        ends = [penalised(data, w + s * step[:2], b + s * step[2], 2.0) for s in (-1, 1)]
        assert min(ends) > best
        assert abs(ends[0] - ends[1]) / 2e-3 < 1e-5  # the derivative there


def test_optimum_with_three_classes():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 36)
    X = rng.normal(size=(36, 2)) + 2.0 * np.array([[0, 0], [1, 0], [0, 1]])[labels]
    data = in_bags(X, labels, 3, num_classes=3)
    model = LLPLogisticRegression(C=2.0, tol=1e-9).fit(data.X, data.y, data.groups)
    best = penalised(data, model.coef_.T, model.intercept_, 2.0)
    for _ in range(20):
        step = 1e-2 * rng.normal(size=(3, 3))
        assert penalised(data, model.coef_.T + step[:2], model.intercept_ + step[2], 2.0) > best


@pytest.mark.filterwarnings("ignore:y has 3 different numbers")
@pytest.mark.parametrize("positive", [None, 2])
def test_labels_give_the_logistic_regression_of_scikit_learn(positive):
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    y = y if positive is None else (y == positive).astype(int)
    ours = LLPLogisticRegression(C=0.7, tol=1e-8).fit(X, y)
    theirs = LogisticRegression(C=0.7, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)


def test_warm_start_begins_at_the_last_solution():
    data = gaussians(240, 4)
    model = LLPLogisticRegression(warm_start=True).fit(data.X, data.y, data.groups)
    first = model.n_iter_
    coef = model.coef_.copy()
    model.fit(data.X, data.y, data.groups)
    assert model.n_iter_ <= 1 < first
    np.testing.assert_allclose(model.coef_, coef, atol=1e-4)
    model.fit(data.X[:, :1], data.y, data.groups)  # another number of features: from the beginning
    assert model.coef_.shape == (1, 1)


def test_without_intercept_and_with_strong_penalty():
    data = gaussians(120, 4)
    model = LLPLogisticRegression(C=1e-6, fit_intercept=False).fit(data.X, data.y, data.groups)
    assert model.intercept_ == 0
    assert np.abs(model.coef_).max() < 1e-3


def test_not_converging_is_said():
    data = gaussians(120, 4)
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 iterations; scale the"):
        LLPLogisticRegression(max_iter=1).fit(data.X, data.y, data.groups)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0}, "C = 0; give a number above 0"),
        ({"C": "much"}, "C = 'much'; give a number above 0"),
        ({"tol": -1}, "tol = -1"),
        ({"max_iter": 0.5}, "max_iter = 0.5; give a whole number of at least 1"),
        ({"approximation": "guess"}, "approximation = 'guess'; .* available: auto, saddlepoint"),
    ],
)
def test_bad_parameters_are_refused_in_fit(parameters, message):
    data = gaussians(20)
    with pytest.raises(LLPError, match=message):
        LLPLogisticRegression(**parameters).fit(data.X, data.y, data.groups)


@pytest.mark.parametrize("spare", [None, 0.0, 1e-200], ids=["no column", "zeros", "tiny"])
def test_equal_proportions_are_a_saddle_that_is_left(spare):
    # One of four in every bag: the gradient vanishes where all weights do.
    rng = np.random.default_rng(0)
    labels = np.tile([1, 0, 0, 0], 100)
    X = (2.0 * labels - 1 + 0.5 * rng.normal(size=400))[:, None]
    if spare is not None:
        X = np.c_[X, np.full(400, spare)]
    model = LLPLogisticRegression(C=10, random_state=0)
    with np.errstate(over="raise"):
        model.fit(X, np.ones(400, int), np.arange(400) // 4)
    assert (model.predict(X) == labels).mean() > 0.95
    assert np.abs(model.coef_).max() < 100


def test_bags_of_which_nothing_is_known_change_nothing():
    data = gaussians(120, 4)
    known = LLPLogisticRegression(tol=1e-8).fit(data.X, data.y, data.groups)
    more = np.vstack([data.X, data.X + 7])
    groups = np.concatenate([data.groups, data.groups + 1000])
    first = np.unique(data.groups, return_index=True)[1]
    evidence = Evidence.concat([Evidence.exact(data.y[first]), Evidence.unknown(len(first))])
    model = LLPLogisticRegression(tol=1e-8).fit(more, evidence, groups)
    np.testing.assert_allclose(model.coef_, known.coef_, atol=1e-4)


@pytest.mark.filterwarnings("ignore::llpkit.errors.IdentifiabilityWarning")
def test_a_bag_with_nothing_positive_has_a_finite_answer():
    data = gaussians(40, 4)
    model = LLPLogisticRegression().fit(data.X, np.zeros(40, int), data.groups)
    assert np.isfinite(model.coef_).all()
    assert (model.predict(data.X) == 0).all()


def test_sinkhorn_for_many_classes():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 300)
    X = 4.0 * np.eye(6)[labels] + rng.normal(size=(300, 6))
    data = in_bags(X, labels, 30, num_classes=6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LLPLogisticRegression(approximation="sinkhorn").fit(data.X, data.y, data.groups)
    assert (model.predict(data.X) == labels).mean() > 0.8
    assert np.isfinite(model.score(data.X, data.y, data.groups))


def test_calibration_finds_slope_and_shift():
    rng = np.random.default_rng(0)
    z = 2.0 * rng.normal(size=20_000) - 0.5
    labels = (rng.random(20_000) < 1 / (1 + np.exp(-z))).astype(int)
    data = in_bags(z[:, None], labels, 4)
    bags, _ = bags_of(data.X, data.y, data.groups)
    scale = calibrate((z + 3) / 5, bags)
    assert scale.slope == pytest.approx(5, rel=0.05)
    np.testing.assert_allclose(scale((z + 3) / 5), z, atol=0.25)


def test_calibration_with_three_classes():
    rng = np.random.default_rng(0)
    z = 1.5 * rng.normal(size=(9_000, 3))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (rng.random(9_000)[:, None] > p.cumsum(1)).sum(1)
    data = in_bags(z, labels, 3, num_classes=3)
    bags, _ = bags_of(data.X, data.y, data.groups)
    shift = np.array([1.0, -2.0, 0.5])
    found = calibrate(3 * z + shift, bags)(3 * z + shift)
    np.testing.assert_allclose(
        found - found.mean(1, keepdims=True), z - z.mean(1, keepdims=True), atol=0.4
    )
