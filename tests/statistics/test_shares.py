"""Shares of groups: against enumeration, between forms of input, and by simulation."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import expit
from sklearn.naive_bayes import GaussianNB

from llpkit import Evidence, LLPError
from llpkit.estimators import LLPClassifier, LLPLogisticRegression, LLPMixedLogisticRegression
from llpkit.statistics import bounds, goodman, shares


def precincts(bags=40, size=20, classes=2, seed=0):
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(bags), size)
    member = (random.random(len(groups)) < random.random(bags)[groups]).astype(int)
    z = np.column_stack([np.zeros(len(member)), 1.5 * member - 0.7, -member])[:, :classes]
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (random.random(len(p))[:, None] > p.cumsum(1)).sum(1)
    counts = np.stack([np.bincount(groups, labels == k) for k in range(classes)], 1).astype(int)
    y = (counts[:, 1] if classes == 2 else counts)[groups]
    return member[:, None].astype(float), y, groups, labels


def aggregated(X, y, groups):
    rows, inverse, times = np.unique(
        np.column_stack([groups, X]), axis=0, return_inverse=True, return_counts=True
    )
    first = np.array([np.flatnonzero(inverse == i)[0] for i in range(len(rows))])
    return X[first], y[first], groups[first], times


def test_label_uncertainty_is_that_of_all_combinations():
    X, y, groups, _ = precincts(bags=3, size=6)
    random = np.random.default_rng(1)
    X = np.column_stack([X, random.normal(size=len(X))])
    model = LLPLogisticRegression(C=1.0).fit(X, y, groups)
    found = shares(model, X, y, groups, by=0, covariance=np.zeros((3, 3)))
    p = model.predict_proba(X)[:, 1]
    mean, second = 0.0, 0.0
    moments = []
    for b in range(3):
        rows = groups == b
        member, q, count = X[rows, 0], p[rows], y[rows][0]
        weights, totals = [], []
        for h in itertools.product([0, 1], repeat=6):
            if sum(h) == count:
                weights.append(np.prod(np.where(h, q, 1 - q)))
                totals.append(float(member @ h))
        w, t = np.array(weights) / sum(weights), np.array(totals)
        moments.append((w @ t, w @ t**2 - (w @ t) ** 2))
    size = X[:, 0].sum()
    mean, second = np.sum(moments, 0)
    assert found.share[1, 1] == pytest.approx(mean / size)
    assert found.label_sd[1, 1] == pytest.approx(math.sqrt(second) / size)
    assert (found.model_sd == 0).all()


def test_the_model_part_is_the_derivative_of_the_expected_share():
    X, y, groups, _ = precincts(classes=3, bags=20, size=5)
    model = LLPLogisticRegression(C=math.inf).fit(X, y, groups)
    V = np.diag([9.0, 1.0, 0, 0])  # an intercept is a tilt, which the counts make irrelevant
    found = shares(model, X, y, groups, by=0, covariance=V)
    step = 1e-5
    means = []
    for sign in (1, -1):
        model.coef_[1] += sign * step
        means.append(shares(model, X, y, groups, by=0, covariance=0 * V).share)
        model.coef_[1] -= sign * step
    slope = (means[0] - means[1]) / (2 * step)
    np.testing.assert_allclose(found.model_sd, np.abs(slope), rtol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", [LLPLogisticRegression, LLPMixedLogisticRegression])
def test_aggregated_rows_give_the_same(classes, kind):
    X, y, groups, _ = precincts(classes=classes, size=12)
    few = aggregated(X, y, groups)
    assert len(few[0]) < len(X) / 3
    long = kind(C=math.inf).fit(X, y, groups)
    short = kind(C=math.inf).fit(*few[:3], multiplicity=few[3])
    np.testing.assert_allclose(short.coef_, long.coef_, rtol=2e-3, atol=1e-4)
    short.coef_, short.intercept_ = long.coef_, long.intercept_
    if kind is LLPMixedLogisticRegression:
        short.effect_sd_ = long.effect_sd_
    ours = shares(short, *few[:3], by=0, multiplicity=few[3])
    theirs = shares(long, X, y, groups, by=0)
    np.testing.assert_allclose(ours.share, theirs.share, atol=1e-9)
    np.testing.assert_allclose(ours.covariance, theirs.covariance, rtol=1e-5, atol=1e-9)
    phi = short.posterior(*few[:3], multiplicity=few[3])
    again = long.posterior(X, y, groups)
    np.testing.assert_allclose(phi[0], again[(few[0][0] == X).all(1) & (groups == 0)][0])
    assert short.score(*few[:3], multiplicity=few[3]) == pytest.approx(long.score(X, y, groups))


def test_counts_are_met():
    X, y, groups, _ = precincts(classes=3)
    found = shares(LLPLogisticRegression().fit(X, y, groups), X, y, groups, by=0)
    counts = y[:: len(y) // 40].sum(0)
    np.testing.assert_allclose(found.sizes @ found.share, counts)
    np.testing.assert_allclose(found.share.sum(1), 1)
    # What is certain in total is certain: the covariance of all totals with their sum is zero.
    total = np.kron(found.sizes, np.eye(3))
    assert np.abs(total @ found.covariance).max() < 1e-9


def test_truth_is_inside_bounds_and_mostly_inside_intervals():
    inside = []
    for seed in range(40):
        X, y, groups, labels = precincts(seed=seed)
        found = shares(LLPLogisticRegression(C=math.inf).fit(X, y, groups), X, y, groups, by=0)
        truth = np.array([labels[X[:, 0] == g].mean() for g in (0, 1)])
        assert (found.bounds.low[:, 1] <= truth).all()
        assert (truth <= found.bounds.high[:, 1]).all()
        inside.append((found.low[:, 1] <= truth) & (truth <= found.high[:, 1]))
    assert 0.85 <= np.mean(inside) < 1  # 2 x 40 intervals of 95 %, the two groups almost as one


def test_differences_of_groups():
    X, y, groups, _ = precincts()
    found = shares(LLPLogisticRegression().fit(X, y, groups), X, y, groups, by=0)
    gap, low, high = found.difference(1.0, 0.0)
    assert gap == pytest.approx(found.share[1, 1] - found.share[0, 1])
    assert low < gap < high
    # The total is known, so one group's gain is the other's loss, and the difference is less sure.
    assert high - low > (found.high - found.low)[:, 1].max()
    with pytest.raises(LLPError, match="is unknown"):
        found.difference(1.0, 7.0)


def test_bounds_are_sharp():
    cells, counts = np.array([[2, 1], [1, 2]]), np.array([[1, 2], [2, 1]])
    totals = {g: [] for g in range(2)}
    for labels in itertools.product([0, 1], repeat=6):
        h = np.array(labels)
        if h[:3].sum() == 2 and h[3:].sum() == 1:  # group 0 is the instances 0, 1 and 3
            totals[0].append(h[[0, 1, 3]].mean())
            totals[1].append(h[[2, 4, 5]].mean())
    found = bounds(cells, counts)
    for g in range(2):
        assert found.low[g, 1] == pytest.approx(min(totals[g]))
        assert found.high[g, 1] == pytest.approx(max(totals[g]))


def test_goodman_recovers_constant_shares():
    random = np.random.default_rng(0)
    cells = random.integers(1000, 9000, (50, 3)) // 10 * 10
    truth = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])
    found = goodman(cells, (cells @ truth).round().astype(int))
    np.testing.assert_allclose(found.share, truth, atol=1e-3)
    with pytest.raises(LLPError, match="bag 1 has 3 members"):
        bounds([[1, 1], [1, 2]], [[1, 1], [2, 2]])


def test_any_estimator_by_bootstrap():
    X, y, groups, _ = precincts(bags=30)
    model = LLPClassifier(GaussianNB(), max_iter=3, random_state=0).fit(X, y, groups)
    found = shares(model, X, y, groups, by=0, covariance="bootstrap", replicates=6)
    assert (found.model_sd > 0).all()
    assert (found.label_sd > 0).all()
    assert found.share.shape == (2, 2)


def test_columns_by_name_and_imprecise_counts():
    pd = pytest.importorskip("pandas")
    X, y, groups, _ = precincts()
    table = pd.DataFrame(X, columns=["woman"])
    evidence = Evidence.interval((y - 1).clip(0), (y + 1).clip(max=20))
    model = LLPLogisticRegression().fit(table, evidence, groups)
    found = shares(model, table, evidence, groups, by="woman")
    assert found.bounds is None
    assert found.goodman is None
    assert found.by == "woman"
    exact = shares(LLPLogisticRegression().fit(table, y, groups), table, y, groups, by="woman")
    assert (found.label_sd > exact.label_sd).all()  # a rounded count says less
    assert list(exact.to_frame().columns[:3]) == ["woman", "class", "instances"]
    assert "woman" in str(exact)
    assert "<table>" in exact._repr_html_()


def test_the_figure_draws_every_group():
    X, y, groups, _ = precincts(classes=3)
    found = shares(LLPLogisticRegression().fit(X, y, groups), X, y, groups, by=0)
    figure = found.figure()
    assert figure.alt.count("%") == 6
    assert len(figure.contents("png")) > 5000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "sex"}, "X has no such column"),
        ({"by": [1, 2]}, r"by has shape \(2,\)"),
        ({"by": 0, "covariance": np.eye(5)}, r"covariance has shape \(5, 5\)"),
        ({"by": 0, "replicates": 5}, "only with covariance='bootstrap'"),
    ],
)
def test_errors(options, message):
    X, y, groups, _ = precincts(bags=5)
    model = LLPLogisticRegression().fit(X, y, groups)
    with pytest.raises(LLPError, match=message):
        shares(model, X, y, groups, **options)


def test_large_bags_of_equal_rows_need_no_approximation():
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(6), 400)
    member = random.random(2400) < np.linspace(0.1, 0.9, 6)[groups]
    labels = np.where(random.random(2400) < 0.3, 0, np.where(member, 1, 2))
    counts = np.stack([np.bincount(groups, labels == k) for k in range(3)], 1).astype(int)
    X = member[:, None].astype(float)
    model = LLPLogisticRegression().fit(X, counts[groups], groups)
    assert model.approximation_ is None
    found = shares(model, X, counts[groups], groups, by=0)
    assert np.isfinite(found.covariance).all()
    assert expit(model.decision_function(X)).shape == (2400, 3)
