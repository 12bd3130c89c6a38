"""Standard errors: against classical formulas, finite differences and enumeration."""

import math

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from torch import nn

import llpkit
from llpkit import LLPError
from llpkit.estimators import LLPClassifier, LLPLogisticRegression, LLPMixedLogisticRegression
from llpkit.statistics import bootstrap, summary
from llpkit.statistics.covariance import Curvature, estimated
from llpkit.statistics.models import adapt


def survey(bags=60, size=6, classes=2, seed=0, effect=0.0):
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(bags), size)
    X = random.normal(size=(bags * size, 2)) + random.normal(size=(bags, 1))[groups]
    weights = np.array([[0, 0], [1.0, -0.5], [-0.5, 0.5]])[:classes]
    z = X @ weights.T
    z[:, 1] += effect * random.normal(size=bags)[groups]
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (random.random(len(X))[:, None] > p.cumsum(1)).sum(1)
    counts = np.stack([np.bincount(groups, labels == k) for k in range(classes)], 1).astype(int)
    y = counts[:, 1] if classes == 2 else counts
    return X, y[groups], groups, labels


def test_bags_of_one_have_the_classical_standard_errors():
    X, _, _, labels = survey()
    model = LLPLogisticRegression(C=math.inf, tol=1e-9).fit(X, labels)
    found = summary(model, X, labels)
    p = model.predict_proba(X)[:, 1]
    design = np.column_stack([np.ones(len(X)), X])
    fisher = np.linalg.inv(design.T @ (design * (p * (1 - p))[:, None]))
    np.testing.assert_allclose(found.covariance, fisher, rtol=1e-8)
    residual = design * (labels - p)[:, None]
    meat = residual.T @ residual * len(X) / (len(X) - 1)
    np.testing.assert_allclose(found.sandwich().covariance, fisher @ meat @ fisher, rtol=1e-6)


def test_classes_in_bags_of_one_have_the_multinomial_information():
    X, _, _, codes = survey(classes=3)
    labels = np.array(["a", "b", "c"])[codes]
    model = LLPLogisticRegression(C=math.inf, tol=1e-9).fit(X, labels)
    found = summary(model, X, labels, reference="b")
    p = model.predict_proba(X)[:, [0, 2]]
    design = np.column_stack([np.ones(len(X)), X])
    information = np.zeros((6, 6))
    for x, q in zip(design, p, strict=True):
        information += np.kron(np.diag(q) - np.outer(q, q), np.outer(x, x))
    np.testing.assert_allclose(found.covariance, np.linalg.inv(information), rtol=1e-6)
    assert found.names[0] == "a: (intercept)"
    other = summary(model, X, labels, reference="a")
    assert found.estimate[0] == pytest.approx(-other.estimate[0])


@pytest.mark.parametrize("kind", ["binary", "classes", "mixed", "mixed classes", "intervals"])
def test_the_hessian_agrees_with_finite_differences(kind):
    classes = 3 if "classes" in kind else 2
    X, y, groups, _ = survey(bags=30, classes=classes, effect=1.0)
    estimator = LLPMixedLogisticRegression if "mixed" in kind else LLPLogisticRegression
    if kind == "intervals":
        y = llpkit.Evidence.interval((y - 1).clip(0), (y + 1).clip(max=6))
    model = estimator(C=10.0).fit(X, y, groups)
    adapter, _ = adapt(model, X)
    rows = adapter.rows(X, y, groups, None)
    found = estimated(adapter, X, rows)
    estimate = adapter.estimate.copy()

    def slope(at):
        adapter.estimate = at
        z, jacobian = adapter.logits(X[rows.bags.rows.numpy()])
        sd = None if adapter.sd is None else math.exp(at[-1])
        return Curvature(z, rows, sd).scores(jacobian).sum(0)

    step = 1e-5
    numeric = [(slope(estimate + step * e) - slope(estimate - step * e)) / (2 * step)
               for e in np.eye(len(estimate))]  # fmt: skip
    scale = np.abs(found.information).max()
    np.testing.assert_allclose(-np.array(numeric), found.information, atol=1e-5 * scale)
    np.testing.assert_allclose(found.scores.sum(0), slope(estimate), atol=1e-8)


def test_a_pipeline_and_names_of_columns():
    pd = pytest.importorskip("pandas")
    X, y, groups, _ = survey()
    table = pd.DataFrame(X, columns=["age", "income"])
    plain = LLPLogisticRegression(C=math.inf, tol=1e-8).fit(table, y, groups)
    found = summary(plain, table, y, groups)
    assert found.names == ["(intercept)", "age", "income"]
    assert list(found.to_frame().index) == found.names
    pipeline = make_pipeline(StandardScaler(), LLPLogisticRegression(C=math.inf, tol=1e-8))
    pipeline[:-1].fit(table)
    pipeline[-1].fit(pipeline[:-1].transform(table), y, groups)
    scaled = summary(pipeline, table, y, groups)
    assert scaled.names == found.names
    # Standardising changes the units, not the evidence.
    np.testing.assert_allclose(scaled.z[1:], found.z[1:], rtol=1e-3)
    ours, theirs = found.predict(table[:5]), scaled.predict(table[:5])
    np.testing.assert_allclose(ours.low, theirs.low, rtol=1e-3)


def test_a_pipeline_in_a_pipeline_is_the_same_as_its_steps_in_one():
    pd = pytest.importorskip("pandas")
    X, y, groups, _ = survey(classes=3)
    X = pd.DataFrame(X, columns=["age", "income"])
    scale, square = StandardScaler(), PolynomialFeatures(include_bias=False)
    model = LLPLogisticRegression()
    model.fit(square.fit_transform(scale.fit_transform(X)), y, groups)
    flat = make_pipeline(scale, square, model)
    for nested in (make_pipeline(scale, make_pipeline(square, model)), make_pipeline(flat)):
        found, known = (summary(each, X, y, groups) for each in (nested, flat))
        assert found.names == known.names
        assert found.names[3] == "1: age^2"
        np.testing.assert_array_equal(found.covariance, known.covariance)
        np.testing.assert_array_equal(found.predict(X).low, known.predict(X).low)
        found, known = (
            bootstrap(each, X, y, groups, replicates=2).replicates for each in (nested, flat)
        )
        np.testing.assert_array_equal(found, known)


def test_a_linear_network_has_the_same_standard_errors():
    X, y, groups, _ = survey(bags=20)
    model = LLPLogisticRegression(C=math.inf, tol=1e-9).fit(X, y, groups)
    network = nn.Linear(2, 1).double()
    with torch.no_grad():
        network.weight.copy_(torch.from_numpy(model.coef_))
        network.bias.copy_(torch.from_numpy(model.intercept_))
    bags = llpkit.Bags.from_groups(groups, y[::6])
    ours = summary(model, X, y, groups)
    theirs = summary(network, torch.from_numpy(X), bags)
    assert theirs.names == ["weight[0, 0]", "weight[0, 1]", "bias[0]"]
    np.testing.assert_allclose(theirs.standard_error, ours.standard_error[[1, 2, 0]], rtol=1e-6)
    low = theirs.predict(torch.from_numpy(X[:4])).low
    np.testing.assert_allclose(low, ours.predict(X[:4]).low, rtol=1e-6)


def test_the_curvature_of_a_network_counts():
    X, y, groups, _ = survey(bags=8)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)).double()
    bags = llpkit.Bags.from_groups(groups, y[::6])
    adapter, x = adapt(network, torch.from_numpy(X))
    found = estimated(adapter, x, adapter.rows(x, bags, None, None))

    def total(flat):
        z = adapter._forward(flat, adapter._inputs(X)[bags.rows])
        return llpkit.likelihood.log_prob(z, bags.evidence, bags.offsets).sum()

    exact = torch.autograd.functional.hessian(total, adapter.flat)
    np.testing.assert_allclose(found.information, -exact.numpy(), atol=1e-8)


def test_intervals_and_odds_ratios():
    X, y, groups, _ = survey()
    found = summary(LLPLogisticRegression(C=math.inf).fit(X, y, groups), X, y, groups, level=0.9)
    low, high = found.conf_int().T
    np.testing.assert_allclose((low + high) / 2, found.estimate)
    np.testing.assert_allclose((high - low) / 2, 1.6448536 * found.standard_error)
    np.testing.assert_allclose(found.odds_ratios()[:, 1], np.exp(low))
    guess = found.predict(X[:7])
    assert ((guess.low < guess.probability) & (guess.probability < guess.high)).all()
    np.testing.assert_allclose(guess.low[:, 0], 1 - guess.high[:, 1])
    for text in (str(found), found._repr_html_()):
        assert "x1" in text
        assert "Bags" in text


def test_a_redundant_column_is_undetermined_unless_penalised():
    X, y, groups, _ = survey()
    twice = np.column_stack([X, X[:, 0]])
    model = LLPLogisticRegression(C=math.inf).fit(twice, y, groups)
    found = summary(model, twice, y, groups)
    assert np.isinf(found.standard_error).tolist() == [False, True, False, True]
    assert "undetermined" in str(found)
    total = found.turned([[0, 1, 0, 1]], ["x0 + x2"])  # their sum is determined
    alone = summary(LLPLogisticRegression(C=math.inf).fit(X, y, groups), X, y, groups)
    assert total.standard_error[0] == pytest.approx(alone.standard_error[1], rel=1e-3)
    penalised = LLPLogisticRegression(C=1).fit(twice, y, groups)
    assert np.isfinite(summary(penalised, twice, y, groups).standard_error).all()


def test_a_penalty_is_that_of_the_weights_of_all_classes():
    X, y, groups, _ = survey(classes=3)
    tight = summary(LLPLogisticRegression(C=1e-6).fit(X, y, groups), X, y, groups)
    # Weights of three classes with variance C: a difference of two has variance 2 C.
    assert tight.standard_error[1] == pytest.approx(math.sqrt(2e-6), rel=1e-2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, X, y, g: summary(m, X, y, g, level=95), "level = 95"),
        (lambda m, X, y, g: summary(m, X, y, g, covariance="hc3"), "covariance = 'hc3'"),
        (lambda m, X, y, g: summary(m, X, y, g, reference=7), "reference = 7 is not a class"),
        (lambda m, X, y, g: summary(m, X, y, g).predict(X[:, :1]), "X has 1 columns"),
        (lambda _, X, y, g: summary(nn.Linear(2, 1), X, y, g), "pass llpkit.Bags as y"),
        (lambda _, X, y, g: summary(nn.Linear(2, 3000), X, y, g), "9,000 parameters"),
    ],
)
def test_errors(call, message):
    X, y, groups, _ = survey(bags=10)
    model = LLPLogisticRegression().fit(X, y, groups)
    with pytest.raises(LLPError, match=message):
        call(model, X, y, groups)


def test_other_estimators_are_sent_to_the_bootstrap():
    from sklearn.naive_bayes import GaussianNB

    X, y, groups, _ = survey(bags=10)
    model = LLPClassifier(GaussianNB(), tol=10.0).fit(X, y, groups)
    with pytest.raises(LLPError, match="bootstrap"):
        summary(model, X, y, groups)
