"""The search for settings by the likelihood of held-out bags."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from llpkit import Evidence, LLPError
from llpkit.estimators import (
    ESTIMATORS,
    LLPClassifier,
    LLPLogisticRegression,
    bag_log_likelihood,
    progress,
    search,
    tried,
)
from llpkit.estimators.searches import grid_of


def toy(rows=160, columns=6):
    """Counts that depend on the first of many columns: a penalty helps."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    labels = rng.random(rows) < 1 / (1 + np.exp(-X[:, 0]))
    groups = np.arange(rows) // 4
    return X, np.bincount(groups, labels).astype(int)[groups], groups


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "ensemble"])
def test_every_estimator_has_values_to_try_that_it_knows(name):
    known = ESTIMATORS[name].build().get_params(deep=True)
    # EM has parameters of its own, such as max_iter, which are not those of its classifier.
    prefix = "estimator__" if "estimator" in known else ""
    for key, values in ESTIMATORS[name].grid.items():
        assert prefix + key.removeprefix(prefix) in known
        assert not prefix or key.startswith(prefix) or key not in known
        assert len(values) > 1


def test_the_best_for_bags_that_were_held_out_is_fitted_to_all():
    X, y, groups = toy()
    found = search("logistic", X, y, groups, n_folds=4)
    table = tried(found)
    assert len(table) == 8
    assert table[0].settings == found.best_params_
    assert [one.mean for one in table] == sorted((one.mean for one in table), reverse=True)
    assert table[0].settings["C"] < 10
    # The score of one candidate, worked out by hand.
    one = table[3]
    scores = []
    for train, test in found.cv.split(X, y, groups):
        assert not set(groups[train]) & set(groups[test])
        model = LLPLogisticRegression(**one.settings).fit(X[train], y[train], groups[train])
        scores.append(bag_log_likelihood(model, X[test], y[test], groups[test]))
    assert one.mean == pytest.approx(np.mean(scores))
    assert one.standard_error == pytest.approx(np.std(scores, ddof=1) / 2)
    again = LLPLogisticRegression(**found.best_params_).fit(X, y, groups)
    np.testing.assert_allclose(found.predict_proba(X), again.predict_proba(X), atol=1e-6)


def test_a_seed_determines_the_search_and_the_estimator_as_it_is_comes_first():
    X, y, groups = toy()
    one, two = (
        search("naive-bayes", X, y, groups, candidates=3, n_folds=2, random_state=5)
        for _ in range(2)
    )
    np.testing.assert_array_equal(
        one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"]
    )
    params = one.cv_results_["params"]
    assert len(params) == 3
    assert params[0] == {"estimator__var_smoothing": 1e-9}


def test_imprecise_counts_pipelines_and_own_grids():
    X, y, groups = toy()
    bags = y[::4]
    evidence = Evidence.interval(np.maximum(bags - 1, 0), np.minimum(bags + 1, 4))
    pipe = make_pipeline(StandardScaler(), LLPLogisticRegression())
    grid = {"llplogisticregression__C": [0.1, 1.0, 10.0]}
    found = search(pipe, X, evidence, groups, grid, n_folds=2)
    assert len(tried(found)) == 3
    assert found.best_estimator_.predict(X).shape == (160,)


def test_without_groups_rows_have_labels():
    X, _, _ = toy()
    labels = np.where(X[:, 0] > 0, "yes", "no")
    found = search("logistic", X, labels, candidates=2, n_folds=2)
    assert (found.best_estimator_.predict(X) == labels).mean() > 0.9


def test_every_candidate_is_a_step():
    X, y, groups = toy()
    steps = []
    with progress(lambda tasks: steps.append((tasks[0].name, tasks[0].done, tasks[0].total))):
        search("logistic", X, y, groups, candidates=3, n_folds=2)
    assert [one for one in steps if one[0] == "candidate"][-1] == ("candidate", 3, 3)


def test_what_cannot_be_searched():
    X, y, groups = toy()
    with pytest.raises(LLPError, match="no values to try for the estimator ensemble"):
        search("ensemble", X, y, groups)
    with pytest.raises(LLPError, match="pass a grid"):
        search(LLPLogisticRegression(), X, y, groups)
    with pytest.raises(LLPError, match=r"no option 'c'; did you mean 'C'"):
        search(LLPLogisticRegression(), X, y, groups, {"c": [1.0]})
    with pytest.raises(LLPError, match="at least two bags"):
        search("logistic", X[:4], y[:4], groups[:4])
    with pytest.raises(LLPError, match="C = -1"):
        search(LLPLogisticRegression(C=-1), X, y, groups, {"max_iter": [10, 20]}, n_folds=2)


def test_a_candidate_that_fails_is_not_chosen():
    X, y, groups = toy()
    found = search(LLPLogisticRegression(), X, y, groups, {"C": [-1.0, 0.1]}, n_folds=2)
    assert found.best_params_["C"] > 0
    assert np.isnan(tried(found)[-1].mean)


def test_a_parameter_of_the_classifier_needs_no_prefix():
    from sklearn.naive_bayes import GaussianNB

    X, y, groups = toy()
    model = LLPClassifier(GaussianNB())
    found = search(model, X, y, groups, {"var_smoothing": [1e-9, 0.1]}, n_folds=2)
    assert "var_smoothing" in tried(found)[0].settings


def test_a_name_that_em_has_as_well_keeps_its_prefix():
    X, y, groups = toy(40, 2)
    fixed = {"max_leaf_nodes": 4, "learning_rate": 0.1, "max_iter": 2, "estimator__tol": 1e-3}
    grid = grid_of("hist-gradient-boosting", fixed)
    assert set(grid) == {"estimator__max_iter", "min_samples_leaf", "l2_regularization"}
    model = ESTIMATORS["hist-gradient-boosting"].build().set_params(tol=1.0)
    found = search(model, X, y, groups, {"estimator__max_iter": [1, 2]}, n_folds=2)
    assert set(tried(found)[0].settings) == {"estimator__max_iter"}
