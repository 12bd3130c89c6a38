"""The classical estimators: their variants keep to the conventions; bad parameters are refused."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning

from llpkit import Evidence, LLPError, estimators
from llpkit.estimators import (
    AlterSVMClassifier,
    DLLPClassifier,
    InvCalClassifier,
    MeanMapClassifier,
)
from tables import breast_cancer, counts_and_groups, two_gaussians

BINARY = [InvCalClassifier(), AlterSVMClassifier(random_state=0)]
ANY = [MeanMapClassifier(), DLLPClassifier()]
VARIANTS = [
    InvCalClassifier(kernel="rbf"),
    AlterSVMClassifier(kernel="rbf", C_p=10, n_init=2, random_state=0),
    MeanMapClassifier(laplacian=0.1),
    DLLPClassifier(hidden_layer_sizes=(4,), max_iter=100, random_state=0),
]


def name(estimator):
    return type(estimator).__name__


# Conventions; test_conventions.py has the estimators as they come


@pytest.mark.parametrize("estimator", VARIANTS, ids=repr)
def test_order_of_rows_and_names_of_bags_do_not_matter(estimator):
    X, y = two_gaussians(200)
    counts, groups = counts_and_groups(y, 5, 0)
    order = np.concatenate([np.flatnonzero(groups == g)[::-1] for g in dict.fromkeys(groups)])
    words = np.array([f"bag {g}" for g in groups])
    one = clone(estimator).fit(X, counts, groups)
    two = clone(estimator).fit(X[order], counts[order], words[order])
    if not isinstance(estimator, AlterSVMClassifier):  # there the random labels move with the rows
        assert two.decision_function(X) == pytest.approx(one.decision_function(X), abs=1e-3)
    assert (two.predict(X) == one.predict(X)).mean() > 0.99


@pytest.mark.parametrize("estimator", VARIANTS, ids=repr)
def test_a_seed_makes_fits_repeatable(estimator):
    X, y = two_gaussians(200)
    fits = [
        clone(estimator).fit(X, *counts_and_groups(y, 8, 0)).decision_function(X) for _ in range(2)
    ]
    assert (fits[0] == fits[1]).all()


@pytest.mark.parametrize("estimator", VARIANTS, ids=repr)
def test_saved_without_pickle(estimator, tmp_path):
    X, y = two_gaussians(100)
    model = clone(estimator).fit(X, *counts_and_groups(y, 4, 0))
    estimators.save(model, tmp_path / "model.skops")
    again = estimators.load(tmp_path / "model.skops")
    assert (again.predict_proba(X) == model.predict_proba(X)).all()


@pytest.mark.parametrize(
    "estimator", [InvCalClassifier(), *ANY, *VARIANTS[:1], *VARIANTS[2:]], ids=repr
)
def test_sparse_features_give_the_same(estimator):
    X, y = two_gaussians(150)
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    counts, groups = counts_and_groups(y, 3, 0)
    dense = clone(estimator).fit(X, counts, groups).decision_function(X)
    thin = clone(estimator).fit(sparse.csr_array(X), counts, groups)
    assert thin.decision_function(sparse.csr_array(X)) == pytest.approx(dense, abs=1e-3)


# Refusals


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (InvCalClassifier(C=0), r"C = 0; give a number above 0"),
        (InvCalClassifier(epsilon=-0.1), r"epsilon = -0.1; give a number from 0"),
        (InvCalClassifier(kernel="cubic"), r"kernel = 'cubic'; .*linear"),
        (InvCalClassifier(kernel="rbf", gamma=-1), r"gamma = -1; give a number above 0"),
        (AlterSVMClassifier(C=np.inf), r"C = inf; give a number above 0"),
        (AlterSVMClassifier(C_p=0), r"C_p = 0; give a number above 0"),
        (AlterSVMClassifier(n_init=0), r"n_init = 0; give a whole number of at least 1"),
        (MeanMapClassifier(laplacian=0), r"laplacian = 0; give a number above 0"),
        (MeanMapClassifier(laplacian=1, n_neighbors=0), r"n_neighbors = 0; give a whole number"),
        (MeanMapClassifier(tol="small"), r"tol = 'small'; give a number above 0"),
        (DLLPClassifier(max_iter=0.5), r"max_iter = 0.5; give a whole number of at least 1"),
        (DLLPClassifier(hidden_layer_sizes=(8, 0)), r"hidden_layer_sizes\[1\] = 0; give a whole"),
    ],
    ids=repr,
)
def test_bad_parameters_are_named(estimator, message):
    X, y = two_gaussians(40)
    with pytest.raises(LLPError, match=message):
        estimator.fit(X, *counts_and_groups(y, 4, 0))


@pytest.mark.parametrize("estimator", BINARY + ANY, ids=name)
def test_weights_are_refused_with_a_way_out(estimator):
    X, y = two_gaussians(40)
    _, groups = counts_and_groups(y, 4, 0)
    noisy = Evidence.noisy(np.ones(10), lambda seen, k: -((seen - k) ** 2), np.full(10, 4))
    with pytest.raises(LLPError, match=f"{name(estimator)} takes exact counts.*LLPClassifier"):
        clone(estimator).fit(X, noisy, groups)


@pytest.mark.parametrize("estimator", BINARY, ids=name)
def test_two_classes_only(estimator):
    X, y = load_wine(return_X_y=True)
    with pytest.raises(LLPError, match=r"Only binary classification is supported"):
        clone(estimator).fit(X, *counts_and_groups(y, 3, 0, classes=3))


@pytest.mark.parametrize("estimator", ANY, ids=name)
def test_too_few_iterations_are_told(estimator):
    X, y = breast_cancer()
    with pytest.warns(ConvergenceWarning, match=f"{name(estimator)} did not converge in 2 iter"):
        clone(estimator).set_params(max_iter=2).fit(X, *counts_and_groups(y, 4, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(estimator).fit(X, *counts_and_groups(y, 4, 0))
