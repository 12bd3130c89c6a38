"""What every estimator keeps to: bags from y and groups, routing, files."""

import ast
from pathlib import Path

import numpy as np
import pytest
import sklearn
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from llpkit import Bags, Evidence, LLPError, estimators, evaluation
from llpkit.estimators import (
    AlterSVMClassifier,
    DLLPClassifier,
    InvCalClassifier,
    LLPClassifier,
    LLPEnsembleClassifier,
    LLPLogisticRegression,
    LLPNetworkClassifier,
    MeanMapClassifier,
    bag_log_likelihood,
    neg_proportion_error,
)
from oracle import Enumeration
from tables import gaussians, in_bags

ALL = {
    "logistic": LLPLogisticRegression(),
    "em": LLPClassifier(LogisticRegression()),
    "em-forest": LLPClassifier(RandomForestClassifier(10, random_state=0), random_state=0),
    "em-boosting": LLPClassifier(HistGradientBoostingClassifier(max_iter=10), random_state=0),
    "em-svc": LLPClassifier(SVC(), random_state=0),
    "inv-cal": InvCalClassifier(),
    "inv-cal-rbf": InvCalClassifier(kernel="rbf"),
    "alter-svm": AlterSVMClassifier(random_state=0),
    "alter-svm-rbf": AlterSVMClassifier(kernel="rbf", C_p=10, n_init=2, random_state=0),
    "mean-map": MeanMapClassifier(),
    "mean-map-laplacian": MeanMapClassifier(laplacian=1.0),
    "dllp": DLLPClassifier(),
    "dllp-hidden": DLLPClassifier(hidden_layer_sizes=(4,), random_state=0),
    "network": LLPNetworkClassifier(random_state=0),
    "ensemble": LLPEnsembleClassifier(
        [LLPLogisticRegression(), LLPNetworkClassifier()], random_state=0
    ),
}
each = pytest.mark.parametrize("name", ALL)


@each
def test_learns_from_counts_and_tells_of_bags(name):
    data = gaussians(300, 3, distance=4.0)
    model = clone(ALL[name]).fit(data.X, data.y, data.groups)
    assert model.classes_.tolist() == [0, 1]
    assert (model.predict(data.X) == data.labels).mean() > 0.93
    p, z = model.predict_proba(data.X), model.decision_function(data.X)
    np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-z)), atol=1e-12)

    bags = Bags.from_labels(data.labels, data.groups)
    exact = evaluation.bag_log_likelihood(torch.from_numpy(z)[bags.rows], bags)
    assert model.score(data.X, data.y, data.groups) == pytest.approx(float(exact.mean()), abs=1e-9)
    phi = model.posterior(data.X, data.y, data.groups)
    np.testing.assert_allclose(np.bincount(data.groups, phi[:, 1])[data.groups], data.y, atol=1e-9)


# The others draw folds, rows or first labels in the order that they find.
ORDERLESS = ["logistic", "em", "inv-cal", "inv-cal-rbf", "mean-map", "mean-map-laplacian"]
ORDERLESS += ["dllp", "dllp-hidden"]


@pytest.mark.parametrize("name", ORDERLESS)
def test_the_order_of_rows_and_the_names_of_bags_do_not_matter(name):
    data = gaussians(90, 3)
    order = np.random.default_rng(1).permutation(len(data.X))
    names = np.array([f"bag {g % 7}/{g}" for g in data.groups])
    model = clone(ALL[name])
    p = clone(model).fit(data.X, data.y, data.groups).predict_proba(data.X)
    q = model.fit(data.X[order], data.y[order], names[order]).predict_proba(data.X)
    np.testing.assert_allclose(p, q, atol=2e-4)


@each
def test_two_columns_of_counts_say_the_same_as_one(name):
    data = gaussians(60, 3)
    sizes = np.bincount(data.groups)[data.groups]
    one = clone(ALL[name]).fit(data.X, data.y, data.groups)
    both = np.stack([sizes - data.y, data.y], 1)
    two = clone(ALL[name]).fit(data.X, both, data.groups)
    np.testing.assert_array_equal(one.decision_function(data.X), two.decision_function(data.X))
    assert two.score(data.X, both, data.groups) == one.score(data.X, data.y, data.groups)


@each
def test_a_seed_makes_fits_repeatable(name):
    data = gaussians(90, 3)
    one, two = (clone(ALL[name]).fit(data.X, data.y, data.groups) for _ in range(2))
    np.testing.assert_array_equal(one.decision_function(data.X), two.decision_function(data.X))


@pytest.mark.parametrize(
    "kind", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_array]
)
@pytest.mark.parametrize("name", [name for name in ORDERLESS if name != "em"])
def test_sparse_features_give_the_same(name, kind):
    data = gaussians(150, 3)
    X = np.where(np.abs(data.X) < 0.5, 0.0, data.X)
    dense = clone(ALL[name]).fit(X, data.y, data.groups)
    found = clone(ALL[name]).fit(kind(X), data.y, data.groups)
    for method in ("decision_function", "predict_proba"):
        answers = getattr(found, method)(kind(X)), getattr(dense, method)(X)
        np.testing.assert_allclose(*answers, rtol=0, atol=1e-8)


@each
def test_without_groups_the_rows_are_labelled(name):
    data = gaussians(60)
    words = np.array(["no", "yes"])[data.labels]
    plain = clone(ALL[name]).fit(data.X, words)
    alone = clone(ALL[name]).fit(data.X, data.labels, np.arange(60))
    assert plain.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(
        plain.decision_function(data.X), alone.decision_function(data.X), atol=1e-9
    )
    log_p = np.log(plain.predict_proba(data.X)[np.arange(60), data.labels])
    assert plain.score(data.X, words) == pytest.approx(log_p.mean(), abs=1e-9)


@each
def test_files_hold_the_estimator_without_pickle(name, tmp_path):
    data = gaussians(60)
    model = clone(ALL[name]).fit(data.X, data.y, data.groups)
    estimators.save(model, tmp_path / "model.skops")
    again = estimators.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict_proba(data.X), model.predict_proba(data.X))
    assert again.score(data.X, data.y, data.groups) == model.score(data.X, data.y, data.groups)


@pytest.mark.parametrize(
    "inner",
    [
        HistGradientBoostingClassifier(max_iter=3, categorical_features=[1]),
        MLPClassifier((3,), max_iter=5),
        MLPClassifier((3,), solver="sgd", max_iter=5),
        CalibratedClassifierCV(LinearSVC(), cv=2),
        RandomForestClassifier(3),
        GradientBoostingClassifier(n_estimators=3),
        make_pipeline(StandardScaler(), SVC()),
    ],
    ids=lambda inner: type(inner).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_files_hold_what_is_inside_em(inner, tmp_path):
    data = gaussians(60)
    X = np.c_[data.X[:, 0], data.labels ^ (np.arange(60) % 5 == 0)]
    model = LLPClassifier(inner, max_iter=2, random_state=0).fit(X, data.y, data.groups)
    estimators.save(model, tmp_path / "model.skops")
    again = estimators.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


class Stranger(LLPLogisticRegression):
    pass


def test_a_file_makes_no_types_that_are_not_known(tmp_path):
    data = gaussians(60)
    file = tmp_path / "model.skops"
    with pytest.warns(UserWarning, match=r"holds objects of .*Stranger; to load it pass trusted="):
        estimators.save(Stranger().fit(data.X, data.y, data.groups), file)
    with pytest.raises(LLPError, match=r"would create objects of .*Stranger.*pass trusted="):
        estimators.load(file)
    file.write_bytes(file.read_bytes()[:99])
    with pytest.raises(LLPError, match="is not a valid estimator"):
        estimators.load(file)
    with pytest.raises(LLPError, match=r"none\.skops does not exist"):
        estimators.load(tmp_path / "none.skops")


def test_nothing_private_of_scikit_learn_is_imported():
    private = [
        f"{file.name}:{node.lineno}"
        for file in Path(estimators.__file__).parents[1].rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn")
        if any(
            part.startswith("_")
            for part in [*node.module.split("."), *(alias.name for alias in node.names)]
        )
    ]
    assert private == []


# What y and groups may be


def test_posterior_and_score_agree_with_enumeration():
    data = gaussians(12, 4)
    model = LLPLogisticRegression().fit(data.X, data.y, data.groups)
    z, phi = model.decision_function(data.X), model.posterior(data.X, data.y, data.groups)
    total = 0.0
    for g in np.unique(data.groups):
        rows = np.flatnonzero(data.groups == g)
        count = int(data.y[rows[0]])
        answer = Enumeration.binary(z[rows]).answer(lambda k, y=count: 0.0 if k == y else -np.inf)
        total += answer.log_prob
        np.testing.assert_allclose(phi[rows, 1], answer.posterior, atol=1e-12)
    assert model.score(data.X, data.y, data.groups) == pytest.approx(float(total) / 3, abs=1e-12)


def test_evidence_an_entry_a_bag_or_an_entry_a_row():
    data = gaussians(60, 3)
    _, first, bag = np.unique(data.groups, return_index=True, return_inverse=True)
    y = data.y[first]
    per_bag = Evidence.interval(np.maximum(y - 1, 0), np.minimum(y + 1, 3))
    per_row = per_bag[bag]
    a = LLPLogisticRegression().fit(data.X, per_bag, data.groups)
    b = LLPLogisticRegression().fit(data.X, per_row, data.groups)
    c = LLPLogisticRegression().fit(data.X, [per_row[i] for i in range(60)], data.groups)
    np.testing.assert_array_equal(a.coef_, b.coef_)
    np.testing.assert_array_equal(a.coef_, c.coef_)
    exact = LLPLogisticRegression().fit(data.X, data.y, data.groups)
    assert abs(a.coef_ - exact.coef_).max() > 1e-3
    assert a.score(data.X, per_row, data.groups) > exact.score(data.X, data.y, data.groups)


def test_evidence_of_bags_is_in_the_order_of_the_sorted_ids():
    data = gaussians(90, 3)
    counts = np.bincount(data.groups, data.labels)
    model = LLPLogisticRegression()
    known = model.fit(data.X, data.y, data.groups).decision_function(data.X)
    for groups in (data.groups, [f"{g:03}" for g in data.groups], [(g,) for g in data.groups]):
        for evidence in (
            Evidence.exact(counts),
            Bags.from_groups(groups, counts).evidence,
            Bags.from_proportions(groups, counts / 3).evidence,
            Bags.from_labels(data.labels, groups).evidence,
        ):
            found = model.fit(data.X, evidence, groups).decision_function(data.X)
            np.testing.assert_array_equal(found, known)


@each
def test_every_estimator_takes_evidence_of_bags(name):
    data = gaussians(90, 3)
    counts, names = np.bincount(data.groups, data.labels), [f"{g:03}" for g in data.groups]
    known = clone(ALL[name]).fit(data.X, data.y, data.groups).decision_function(data.X)
    model = clone(ALL[name]).fit(data.X, Evidence.exact(counts), names)
    np.testing.assert_array_equal(model.decision_function(data.X), known)


@pytest.mark.filterwarnings("ignore::llpkit.errors.IdentifiabilityWarning")
def test_evidence_of_bags_whose_order_can_be_mistaken():
    X = np.arange(4.0)[:, None]
    model, evidence = LLPLogisticRegression(), Evidence.exact([1, 0])
    with pytest.raises(LLPError, match="an entry per row"):
        model.fit(X, evidence, [1, "a", 1, "a"])
    model.fit(X, evidence[[0, 1, 0, 1]], [1, "a", 1, "a"])
    # A bag of one in every row: by rows, or by bags?
    labels = Evidence.exact([1, 0, 0, 1])
    with pytest.raises(LLPError, match="leave groups out"):
        model.fit(X, labels, [3, 1, 0, 2])
    z = model.fit(X, labels, [0, 1, 2, 3]).decision_function(X)
    np.testing.assert_allclose(model.fit(X, labels).decision_function(X), z, atol=1e-3)
    model.fit(X, Evidence.at_least([1, 1, 1, 1]), [3, 1, 0, 2])  # the same either way


def test_floats_that_may_be_shares_are_no_counts():
    X, groups = np.arange(6.0)[:, None], [1, 0, 1, 0, 2, 2]
    with pytest.raises(LLPError, match=r"y\[1\] = 1\.0.*bag 0.*int.*from_proportions"):
        LLPLogisticRegression().fit(X, np.array([0.0, 1, 0, 1, 1, 1]), groups)
    LLPLogisticRegression().fit(X, np.array([0, 1, 0, 1, 1, 1]), groups)
    LLPLogisticRegression().fit(X, np.array([0.0, 1, 0, 1, 2, 2]), groups)


def test_noisy_counts_of_a_bag_must_agree_in_all_rows():
    data = gaussians(6, 3)
    first = np.unique(data.groups, return_index=True)[1]
    observed = data.y[first] + 0.3
    noisy = Evidence.noisy(observed, lambda seen, count: -((seen - count) ** 2), [3, 3])
    of_row = data.groups.copy()
    model = LLPLogisticRegression().fit(data.X, noisy[of_row], data.groups)
    np.testing.assert_array_equal(
        model.coef_, LLPLogisticRegression().fit(data.X, noisy, data.groups).coef_
    )
    of_row[4] = 1 - of_row[4]
    with pytest.raises(LLPError, match=r"evidence of rows \d and 4, both in bag \d, differs"):
        model.fit(data.X, noisy[of_row], data.groups)


def test_tables_and_series_of_pandas():
    pd = pytest.importorskip("pandas")
    data = gaussians(60, 3)
    frame = pd.DataFrame(data.X, columns=["a", "b"])
    names = pd.Series([f"d{g}" for g in data.groups], index=np.arange(60)[::-1])
    model = LLPLogisticRegression().fit(frame, pd.Series(data.y), names)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    plain = LLPLogisticRegression().fit(data.X, data.y, data.groups)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-12)


BAD = {
    "a bag that disagrees": (
        lambda d: (d.X, np.where(np.arange(60) == 7, d.y + 1, d.y), d.groups),
        r"y\[\d+\] = \d but y\[\d+\] = \d, both in bag \d+; y describes the whole bag",
    ),
    "a count above the size": (
        lambda d: (d.X, np.where(d.groups == 5, 9, d.y), d.groups),
        r"y\[11\] = 9 but bag 5 has 3 instances; if these rows are part of a table",
    ),
    "a negative count": (
        lambda d: (d.X, np.where(d.groups == 5, -1, d.y), d.groups),
        r"y\[11\] = -1 of bag 5 is negative",
    ),
    "half a count": (
        lambda d: (d.X, d.y / 2, d.groups),
        r"y\[\d+\] = [01].5 of bag \d+ is not a whole number; y is a count; for proportions",
    ),
    "a missing count": (
        lambda d: (d.X, np.where(d.groups == 5, np.nan, d.y), d.groups),
        r"y\[11\] = nan of bag 5 is not a whole number",
    ),
    "text": (lambda d: (d.X, d.y.astype(str), d.groups), r"'\d'\)? of bag .* is not a number"),
    "groups of another length": (
        lambda d: (d.X, d.y, d.groups[1:]),
        "groups has 59 rows but X has 60",
    ),
    "y of another length": (lambda d: (d.X, d.y[1:], d.groups), "y has 59 entries but groups"),
    "a missing bag": (
        lambda d: (d.X, d.y, np.where(np.arange(60) == 3, np.nan, d.groups)),
        r"groups\[3\] = nan is missing",
    ),
    "no y": (lambda d: (d.X, None, d.groups), "requires y to be passed"),
    "three axes": (lambda d: (d.X, np.zeros((60, 2, 2)), d.groups), "y has shape"),
    "class counts short of the bag": (
        lambda d: (d.X, np.stack([d.y, d.y], 1), d.groups),
        "the counts of all classes must sum to that",
    ),
    "bags": (
        lambda d: (d.X, Bags.from_groups(d.groups, dict(zip(d.groups, d.y, strict=True)))),
        "y is Bags; give y = bags.evidence",
    ),
    "evidence of other bags": (
        lambda d: (d.X, Evidence.exact([1, 2]), d.groups),
        "y has 2 entries but groups has 60 rows",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_bags_are_refused(case):
    make, message = BAD[case]
    with pytest.raises(LLPError, match=message):
        LLPLogisticRegression().fit(*make(gaussians(60, 3)))


def test_scoring_refuses_labels_and_classes_that_were_not_learnt():
    data = gaussians(60, 3)
    model = LLPLogisticRegression().fit(data.X, data.y, data.groups)
    with pytest.raises(LLPError, match=r"y\[\d+\] = [23] is not a class.*enable_metadata_routing"):
        model.score(data.X, data.y)
    with pytest.raises(LLPError, match="3 classes, but the estimator was fitted to 2"):
        model.score(data.X, np.eye(3, dtype=int)[data.labels], np.arange(60))


def test_binary_estimators_say_so():
    data = gaussians(60)
    with pytest.raises(LLPError, match="takes counts of one class, and y has 3"):
        InvCalClassifier().fit(data.X, np.eye(3, dtype=int)[data.labels], np.arange(60))


def test_numbers_without_groups_may_be_counts_and_are_warned_of():
    data = gaussians(60, 3)
    with pytest.warns(UserWarning, match=r"no groups, so y is treated as the label"):
        LLPLogisticRegression().fit(data.X, data.y)


# Searches, pipelines, routing


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_a_search_over_bags_by_their_likelihood():
    data = gaussians(240, 4)
    search = GridSearchCV(LLPLogisticRegression(), {"C": [1e-4, 1.0]}, cv=GroupKFold(3))
    search.fit(data.X, data.y, groups=data.groups)
    assert search.best_params_ == {"C": 1.0}
    # Held-out bags are whole, and the score is theirs.
    train, test = next(GroupKFold(3).split(data.X, groups=data.groups))
    assert not set(data.groups[train]) & set(data.groups[test])
    model = LLPLogisticRegression(C=1.0).fit(data.X[train], data.y[train], data.groups[train])
    held_out = model.score(data.X[test], data.y[test], data.groups[test])
    assert search.cv_results_["split0_test_score"][1] == pytest.approx(held_out, abs=1e-9)
    assert search.score(data.X, data.y, groups=data.groups) == pytest.approx(
        search.best_estimator_.score(data.X, data.y, data.groups)
    )


@pytest.mark.usefixtures("routing")
def test_scorers_cross_validation_and_pipelines():
    data = gaussians(240, 4)
    pipe = make_pipeline(StandardScaler(), LLPClassifier(LogisticRegression()))
    common = {"cv": GroupKFold(3), "params": {"groups": data.groups}}
    scores = cross_val_score(pipe, data.X, data.y, **common)
    named = cross_val_score(pipe, data.X, data.y, scoring=bag_log_likelihood, **common)
    np.testing.assert_allclose(scores, named, atol=1e-9)
    errors = -cross_val_score(pipe, data.X, data.y, scoring=neg_proportion_error, **common)
    assert 0 < errors.min() <= errors.max() < 0.25
    assert (cross_val_predict(pipe, data.X, data.y, **common) == data.labels).mean() > 0.75
    search = GridSearchCV(
        pipe,
        {"llpclassifier__estimator__C": [1e-4, 1.0]},
        cv=GroupKFold(3),
        scoring={"likelihood": bag_log_likelihood, "error": neg_proportion_error},
        refit="likelihood",
    ).fit(data.X, data.y, groups=data.groups)
    assert search.best_params_ == {"llpclassifier__estimator__C": 1.0}


@pytest.mark.usefixtures("routing")
def test_evidence_goes_through_a_search():
    data = gaussians(120, 4)
    evidence = Evidence.interval(np.maximum(data.y - 1, 0), np.minimum(data.y + 1, 4))
    scores = cross_val_score(
        LLPLogisticRegression(),
        data.X,
        evidence,
        cv=GroupKFold(3),
        params={"groups": data.groups},
        error_score="raise",
    )
    assert np.isfinite(scores).all()


def test_without_routing_a_pipeline_takes_groups_by_the_step_and_a_search_cannot():
    data = gaussians(120, 4)
    pipe = make_pipeline(StandardScaler(), LLPLogisticRegression())
    pipe.fit(data.X, data.y, llplogisticregression__groups=data.groups)
    assert (pipe.predict(data.X) == data.labels).mean() > 0.7
    search = GridSearchCV(LLPLogisticRegression(), {"C": [1.0]}, cv=GroupKFold(3), error_score=0)
    with pytest.warns(UserWarning, match=".") as caught:
        search.fit(data.X, data.y, groups=data.groups)
    assert any("enable_metadata_routing=True" in str(warning.message) for warning in caught)


def test_scorers_by_hand():
    data = gaussians(60, 3)
    model = LLPLogisticRegression().fit(data.X, data.y, data.groups)
    bags = Bags.from_labels(data.labels, data.groups)
    p = torch.from_numpy(model.predict_proba(data.X)[:, 1])[bags.rows]
    far = evaluation.proportion_error(p, bags)
    assert neg_proportion_error(model, data.X, data.y, data.groups) == pytest.approx(-far)
    assert repr(neg_proportion_error) == "neg_proportion_error"


def test_more_classes_by_their_counts():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 240)
    X = rng.normal(size=(240, 2)) + 3.0 * np.array([[0, 0], [1, 0], [0, 1]])[labels]
    data = in_bags(X, labels, 4, num_classes=3)
    for model in (LLPLogisticRegression(), LLPClassifier(LogisticRegression()), DLLPClassifier()):
        model.fit(data.X, data.y, data.groups)
        assert model.classes_.tolist() == [0, 1, 2]
        assert (model.predict(data.X) == labels).mean() > 0.9
        phi = model.posterior(data.X, data.y, data.groups)
        sums = np.stack([np.bincount(data.groups, column) for column in phi.T], 1)
        np.testing.assert_allclose(sums[data.groups], data.y, atol=1e-6)


@pytest.mark.parametrize("kind", [LLPLogisticRegression, LLPClassifier])
def test_a_column_of_text_is_named(kind):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": np.arange(8.0), "smoker": ["1", "no"] * 4})
    groups, y = np.repeat([0, 1], 4), np.repeat([1, 3], 4)
    with pytest.raises(LLPError, match=r"column 'smoker' of X holds text \('no'\).*OneHotEncoder"):
        kind().fit(frame, y, groups)
