"""The network for tables, and estimators weighted by held-out bags."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from llpkit import LLPError
from llpkit.estimators import (
    DLLPClassifier,
    LLPClassifier,
    LLPEnsembleClassifier,
    LLPLogisticRegression,
    LLPNetworkClassifier,
)
from tables import gaussians, in_bags


def test_a_network_without_hidden_layers_is_logistic_regression():
    data = gaussians(200, 3, distance=2.0)
    one = LLPNetworkClassifier(hidden_layer_sizes=(), tol=1e-8).fit(data.X, data.y, data.groups)
    two = LLPLogisticRegression(tol=1e-8).fit(data.X, data.y, data.groups)
    np.testing.assert_allclose(one.coefs_[0].T, two.coef_, rtol=1e-4, atol=1e-4)


def test_the_losses_of_a_network_are_those_of_the_methods():
    data = gaussians(200, 3, distance=2.0)
    how = {"hidden_layer_sizes": (4,), "random_state": 0, "tol": 1e-4, "max_iter": 1000}
    one = LLPNetworkClassifier(loss="proportion", **how).fit(data.X, data.y, data.groups)
    two = DLLPClassifier(**how).fit(data.X, data.y, data.groups)
    np.testing.assert_array_equal(one.decision_function(data.X), two.decision_function(data.X))
    for loss in ("likelihood", "one-vs-rest", "square"):
        model = LLPNetworkClassifier(loss=loss, **how).fit(data.X, data.y, data.groups)
        assert (model.predict(data.X) == data.labels).mean() > 0.75, loss
    with pytest.raises(LLPError, match="loss = 'likelyhood'; give likelihood, one-vs-rest, squ"):
        LLPNetworkClassifier(loss="likelyhood").fit(data.X, data.y, data.groups)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_held_out_bags_tell_which_member_to_trust():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (900, 3))
    product = in_bags(X, (X[:, 0] * X[:, 1] > 0).astype(int), 3)  # which no linear model can tell
    members = [LLPLogisticRegression(), LLPNetworkClassifier(hidden_layer_sizes=(8,))]
    model = LLPEnsembleClassifier(members, random_state=0)
    model.fit(product.X, product.y, product.groups)
    assert model.weights_[1] > 0.8
    assert sum(model.parts_.values()) == pytest.approx(1)
    assert (model.predict(X) == product.labels).mean() > 0.9
    Z = rng.normal(size=(600, 5))
    linear = in_bags(Z, (Z[:, 0] + rng.logistic(size=600) > 0).astype(int), 4)
    model.fit(linear.X, linear.y, linear.groups)
    # The network fits noise, which bags it has not seen give away.
    assert model.weights_[0] > 2 * model.weights_[1]


def test_rows_of_a_bag_need_not_be_together():
    data = gaussians(240, 3, distance=2.0)
    members = [LLPLogisticRegression(), LLPClassifier(LogisticRegression())]
    model = LLPEnsembleClassifier(members, random_state=0).fit(data.X, data.y, data.groups)
    order = np.random.default_rng(0).permutation(240)
    same = LLPEnsembleClassifier(members, random_state=0)
    same.fit(data.X[order], data.y[order], data.groups[order])
    z = [m.decision_function(data.X) for m in (model, same)]
    assert np.corrcoef(*z)[0, 1] > 0.999  # the folds are drawn anew


def test_members_are_equal_if_there_are_too_few_bags():
    data = gaussians(20, 4, distance=4.0)
    members = [LLPLogisticRegression(C=c) for c in (0.1, 1.0)]
    model = LLPEnsembleClassifier(members).fit(data.X, data.y, data.groups)
    assert model.weights_.tolist() == [0.5, 0.5]
    for wrong in ([], [LogisticRegression()]):
        with pytest.raises(LLPError, match=r"estimators = .*give a list of estimators of llpkit"):
            LLPEnsembleClassifier(wrong).fit(data.X, data.y, data.groups)


def test_several_classes():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 240)
    X = 3 * np.eye(3)[labels] + rng.normal(size=(240, 3))
    data = in_bags(X, labels, 4, num_classes=3)
    members = [LLPLogisticRegression(), LLPNetworkClassifier(hidden_layer_sizes=(4,))]
    model = LLPEnsembleClassifier(members, random_state=0).fit(X, data.y, data.groups)
    assert model.decision_function(X).shape == (240, 3)
    assert (model.predict(X) == labels).mean() > 0.85


class Loud(LLPLogisticRegression):
    """A member that is too sure of itself."""

    def _logits(self, X):
        return 20 * super()._logits(X)


def test_a_member_that_is_too_sure_has_no_more_say():
    data = gaussians(40, 3, distance=0.6)
    members = ([member(C=1), DLLPClassifier()] for member in (LLPLogisticRegression, Loud))
    quiet, loud = (LLPEnsembleClassifier(both, random_state=0) for both in members)
    p, q = (model.fit(data.X, data.y, data.groups).predict_proba(data.X) for model in (quiet, loud))
    np.testing.assert_allclose(p, q, atol=1e-3)


def test_members_that_differ_only_by_their_seed_are_one_voice():
    data = gaussians(40, 3, distance=0.6)
    two = [LLPLogisticRegression(), DLLPClassifier()]
    models = (LLPEnsembleClassifier(m, random_state=0) for m in (two, [*two, DLLPClassifier()]))
    p, q = (model.fit(data.X, data.y, data.groups).predict_proba(data.X) for model in models)
    np.testing.assert_allclose(p, q, atol=1e-3)
