"""EM around classifiers: it climbs, it ends where the likelihood does, it does not freeze."""

import warnings

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from llpkit import Evidence, LLPError
from llpkit.estimators import LLPClassifier, LLPLogisticRegression
from llpkit.estimators._additive_start import _columns, _values, additive_start
from llpkit.estimators._bags_from_y import bags_of
from llpkit.estimators._m_step import may_interpolate, rounded
from tables import gaussians, in_bags


def moons(rows=1200, size=8, seed=0, noise=0.25):
    """Two interleaved arcs: no linear model has more than nine in ten right."""
    from sklearn.datasets import make_moons

    X, labels = make_moons(rows, noise=noise, random_state=seed)
    return in_bags(X, labels, size, seed)


def accuracy(model, data):
    return float((model.predict(data.X) == data.labels).mean())


# Logistic regression: exact M-steps


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("size", [2, 6, 20])
def test_the_bag_likelihood_never_falls(seed, size):
    data = gaussians(240, size, seed, distance=1.5)
    model = LLPClassifier(
        LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000),
        start="proportion",
        max_iter=40,
        tol=1e-12,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.X, data.y, data.groups)
    path = model.log_likelihoods_
    assert len(path) > 5
    assert path[-1] - path[0] > 1e-3
    assert np.diff(path).min() > -1e-9
    assert model.score(data.X, data.y, data.groups) == pytest.approx(path.max(), abs=1e-9)


class Recording(LogisticRegression):
    """Remembers the squared length of its weights after every fit."""

    lengths = []  # noqa: RUF012

    def fit(self, X, y, sample_weight=None):
        super().fit(X, y, sample_weight)
        self.lengths.append(float((self.coef_**2).sum()))
        return self


@pytest.mark.parametrize("start", ["additive", "proportion"])
@pytest.mark.parametrize("C", [0.01, 0.1, 1.0])
def test_with_a_penalty_what_is_penalised_never_falls(C, start):
    data = gaussians(400, 5, distance=1.5)
    Recording.lengths.clear()
    inner = Recording(C=C, tol=1e-10, max_iter=10_000)
    em = LLPClassifier(inner, start=start, max_iter=2000, tol=1e-9)
    em.fit(data.X, data.y, data.groups)
    lengths = np.array(Recording.lengths)
    bags = len(np.unique(data.groups))
    path = bags * em.log_likelihoods_ - lengths / (2 * C)
    assert len(path) == len(lengths) > 3
    assert np.diff(path).min() > -1e-6
    direct = LLPLogisticRegression(C=C, tol=1e-9).fit(data.X, data.y, data.groups)
    np.testing.assert_allclose(em.estimator_.coef_, direct.coef_, atol=2e-3)


@pytest.mark.parametrize("C", [0.01, 0.1, 1.0])
def test_by_default_em_ends_near_the_optimum(C):
    data = gaussians(400, 5, distance=1.5)
    em = LLPClassifier(LogisticRegression(C=C)).fit(data.X, data.y, data.groups)
    direct = LLPLogisticRegression(C=C, tol=1e-9).fit(data.X, data.y, data.groups)
    assert em.converged_
    np.testing.assert_allclose(em.estimator_.coef_, direct.coef_, atol=0.03)


def test_a_wrong_m_step_would_show():
    """The check above can fail: weights that are swapped in every other M-step."""

    class Fickle(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            self.calls = getattr(self, "calls", 0) + 1
            return super().fit(X, 1 - y if self.calls % 2 == 0 else y, sample_weight)

    data = gaussians(240, 6)
    model = LLPClassifier(Fickle(), start="proportion", max_iter=6, tol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.X, data.y, data.groups)
    assert np.diff(model.log_likelihoods_).min() < -1e-3


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_em_and_direct_maximisation_agree_on_their_optimum(C):
    data = gaussians(400, 5)
    direct = LLPLogisticRegression(C=C, tol=1e-9).fit(data.X, data.y, data.groups)
    em = LLPClassifier(
        LogisticRegression(C=C, tol=1e-10, max_iter=10_000),
        start="proportion",  # the posteriors at zero weights, where the other begins
        max_iter=3000,
        tol=1e-11,
    ).fit(data.X, data.y, data.groups)
    assert em.converged_
    np.testing.assert_allclose(em.estimator_.coef_, direct.coef_, atol=2e-3)
    np.testing.assert_allclose(em.estimator_.intercept_, direct.intercept_, atol=2e-3)
    mine, theirs = (m.score(data.X, data.y, data.groups) for m in (em, direct))
    assert mine == pytest.approx(theirs, abs=1e-5)


def test_labels_make_it_the_classifier_itself():
    data = gaussians(200)
    for inner in (LogisticRegression(), RandomForestClassifier(10, random_state=0)):
        ours = LLPClassifier(inner).fit(data.X, data.labels)
        np.testing.assert_allclose(
            ours.predict_proba(data.X),
            inner.fit(data.X, data.labels).predict_proba(data.X),
            atol=1e-9,
        )
        assert ours.converged_


# Classifiers that learn by heart


def test_two_bags_are_not_divided_into_folds():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    truth = rng.random(400) < 1 / (1 + np.exp(-4 * X[:, 0]))
    groups = (X[:, 0] > 0).astype(int)  # a fit to one of them knows nothing of the other
    y = np.bincount(groups, truth).astype(int)[groups]
    model = LLPClassifier(HistGradientBoostingClassifier(max_iter=20), random_state=0)
    assert (model.fit(X, y, groups).predict(X) == truth).mean() > 0.75


def test_in_sample_posteriors_freeze_and_out_of_fold_ones_do_not():
    data, fresh = moons(), moons(seed=1)
    found = {}
    for folds in (False, True):
        model = LLPClassifier(
            DecisionTreeClassifier(min_samples_leaf=2),
            start="proportion",
            out_of_fold=folds,
            max_iter=30,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found[folds] = accuracy(model.fit(data.X, data.y, data.groups), fresh)
    assert found[True] > found[False] + 0.05


def test_auto_means_all_but_linear_models_and_naive_bayes():
    assert not any(map(may_interpolate, (LogisticRegression(), LinearSVC(), GaussianNB())))
    assert not may_interpolate(make_pipeline(StandardScaler(), LogisticRegression()))
    for inner in (
        DecisionTreeClassifier(),
        SVC(),
        MLPClassifier(),
        HistGradientBoostingClassifier(),
    ):
        assert may_interpolate(make_pipeline(StandardScaler(), inner))


def test_boosting_does_not_stop_early_on_copies_of_its_rows():
    data = gaussians(6000, 8)  # of more than 10,000 rows, or copies, "auto" means yes
    inner = HistGradientBoostingClassifier(max_iter=30)
    model = LLPClassifier(inner, out_of_fold=False, max_iter=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.X, data.y, data.groups)
        assert inner.early_stopping == "auto"
        assert model.estimator_.n_iter_ == 30
        model.set_params(estimator__early_stopping=True)
        with pytest.warns(UserWarning, match=r"early_stopping = True.*set early_stopping=False"):
            model.fit(data.X, data.y, data.groups)


def test_boosting_learns_what_a_linear_model_cannot():
    data, fresh = moons(1200, 6), moons(seed=1)
    linear = LLPLogisticRegression().fit(data.X, data.y, data.groups)
    boosting = LLPClassifier(HistGradientBoostingClassifier(max_iter=30), random_state=0)
    boosting.fit(data.X, data.y, data.groups)
    bound = HistGradientBoostingClassifier(max_iter=30).fit(data.X, data.labels)
    assert accuracy(linear, fresh) < 0.9
    assert accuracy(boosting, fresh) > accuracy(bound, fresh) - 0.03


@pytest.mark.parametrize("frame", [False, True])
def test_boosting_sees_rounded_rows_and_is_good_for_all(frame):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    X[:, 1] = rng.integers(0, 5, 3000)
    X[rng.random(3000) < 0.1, 2] = np.nan
    X = pd.DataFrame(X, columns=["a", "b", "c"]) if frame else X
    near = rounded(X, 255)
    assert [len(np.unique(np.asarray(near)[:, j])) for j in range(3)] == [255, 5, 256]
    np.testing.assert_allclose(np.asarray(near)[:, 0], np.asarray(X)[:, 0], atol=1.0)
    y = (np.asarray(X)[:, 0] > 0.1).astype(int)
    model = HistGradientBoostingClassifier(max_iter=5).fit(near, y)
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(near))


# Classifiers of every kind

KINDS = {
    "logistic": LogisticRegression(),
    "forest": RandomForestClassifier(30, min_samples_leaf=3),
    "boosting": HistGradientBoostingClassifier(max_iter=30),
    "svc": SVC(),
    "linear svc": LinearSVC(),
    "naive bayes": GaussianNB(),
    "network": MLPClassifier((8,), solver="lbfgs", alpha=1.0),
    "pipeline": make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), SVC())),
}


@pytest.mark.parametrize(
    ("kind", "routed"), [*((kind, False) for kind in KINDS), ("pipeline", True)]
)
def test_any_classifier(kind, routed):
    data = gaussians(400, 4, distance=3.5)
    with sklearn.config_context(enable_metadata_routing=routed), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LLPClassifier(KINDS[kind], random_state=0).fit(data.X, data.y, data.groups)
    assert accuracy(model, data) > 0.93
    # Its probabilities are those of the counts: as many positives as there are.
    assert model.predict_proba(data.X)[:, 1].mean() == pytest.approx(data.labels.mean(), abs=0.04)


def test_lightgbm(tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    from llpkit import estimators

    data = gaussians(600, 4, distance=3.5)
    inner = lightgbm.LGBMClassifier(n_estimators=30, verbose=-1, n_jobs=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        model = LLPClassifier(inner, random_state=0).fit(data.X, data.y, data.groups)
        assert accuracy(model, data) > 0.93
        warnings.filterwarnings("ignore", message=".* holds objects of lightgbm")
        estimators.save(model, tmp_path / "lightgbm.skops")
        with pytest.raises(LLPError, match=r"would create objects of lightgbm\.basic\.Booster"):
            estimators.load(tmp_path / "lightgbm.skops")
        names = ["lightgbm.basic.Booster", "lightgbm.sklearn.LGBMClassifier"]
        again = estimators.load(tmp_path / "lightgbm.skops", trusted=names)
        np.testing.assert_array_equal(again.predict(data.X), model.predict(data.X))


def test_digits_by_their_class_counts():
    X, labels = load_digits(return_X_y=True)
    data = in_bags(X / 16, labels, 3, num_classes=10)
    model = LLPClassifier(LogisticRegression(C=10), start="proportion", max_iter=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.X, data.y, data.groups)
    assert accuracy(model, data) > 0.9
    assert model.predict_proba(data.X).shape == (len(X), 10)


def test_tables_with_categories_and_missing_values():
    pd = pytest.importorskip("pandas")
    data = moons(600, 4)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(data.X, columns=["x", "y"])
    frame["side"] = pd.Categorical(np.where(data.X[:, 0] > 0.5, "right", "left"))
    frame.loc[rng.random(600) < 0.1, "x"] = np.nan
    boosting = HistGradientBoostingClassifier(max_iter=30, categorical_features="from_dtype")
    model = LLPClassifier(boosting, random_state=0).fit(frame, data.y, data.groups)
    assert accuracy(model, data._replace(X=frame)) > 0.85
    assert model.feature_names_in_.tolist() == ["x", "y", "side"]

    columns = make_column_transformer(
        (OneHotEncoder(), ["side"]), (StandardScaler(), ["y"]), remainder="drop"
    )
    pipe = LLPClassifier(make_pipeline(columns, LogisticRegression()))
    assert accuracy(pipe.fit(frame, data.y, data.groups), data._replace(X=frame)) > 0.75


def test_sparse_rows_and_texts():
    data = gaussians(400, 4, distance=3.5)
    thin = sparse.csr_matrix(data.X)
    model = LLPClassifier(LogisticRegression()).fit(thin, data.y, data.groups)
    assert (model.predict(thin) == data.labels).mean() > 0.93
    texts = [f"{'good' if label else 'bad'} thing {i % 7}" for i, label in enumerate(data.labels)]
    model = LLPClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression(C=10)), max_iter=50)
    assert (model.fit(texts, data.y, data.groups).predict(texts) == data.labels).all()


def test_bags_without_a_count_help_nobody_and_harm_nobody():
    data = gaussians(400, 4, distance=3.5)
    first = np.unique(data.groups, return_index=True)[1]
    known = Evidence.concat([Evidence.exact(data.y[first[:50]]), Evidence.unknown(50)])
    forest = RandomForestClassifier(30, min_samples_leaf=3)
    model = LLPClassifier(forest, random_state=0).fit(data.X, known, data.groups)
    assert accuracy(model, data) > 0.93


def test_evidence_that_is_less_than_a_count():
    data = gaussians(600, 4, distance=3.5)
    low, high = np.maximum(data.y - 1, 0), np.minimum(data.y + 1, 4)
    model = LLPClassifier(LogisticRegression(), max_iter=100)
    model.fit(data.X, Evidence.interval(low, high), data.groups)
    assert accuracy(model, data) > 0.9


# Starts, restarts, annealing, stopping


def test_the_start_is_near_what_is_to_be_found():
    data = gaussians(2000, 30)
    paths = {}
    for start in ("proportion", "additive"):
        model = LLPClassifier(LogisticRegression(), start=start, tol=1e-4, max_iter=500)
        paths[start] = model.fit(data.X, data.y, data.groups).log_likelihoods_
    assert len(paths["additive"]) < len(paths["proportion"]) / 2
    assert paths["additive"][-1] >= paths["proportion"][-1] - 1e-2


def test_the_start_reads_numbers_categories_and_what_is_missing():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "number": np.append(np.arange(99.0), np.nan),
            "mostly zero": np.append(np.zeros(90), np.linspace(1, 900, 10)),
            "few": np.arange(100) % 3,
            "text": np.array(["a", "b"])[np.arange(100) % 2],
            "constant": 1.0,
        }
    )
    columns = _columns(frame, np.arange(100))
    parts = [column.features(_values(frame, j)) for j, column in columns]
    features = sparse.hstack([sparse.csr_array(part) for part in parts]).toarray()
    assert [j for j, _ in columns] == [0, 0, 1, 2, 3]
    assert features.shape[0] == 100
    assert features[99, 1] == 1  # the number is missing there, and in no other row
    assert features[:99, 1].sum() == 0
    assert (features[:, -2:] == np.eye(2)[np.arange(100) % 2]).all()


def test_the_start_of_many_rows_takes_some_bags(monkeypatch):
    data = gaussians(3000, 5)
    bags, _ = bags_of(data.X, data.y, data.groups)
    whole = additive_start(data.X, bags, None, np.random.RandomState(0))
    monkeypatch.setattr("llpkit.estimators.base.ENOUGH", 1500)
    half = additive_start(data.X, bags, None, np.random.RandomState(0))
    assert half.shape == whole.shape
    assert 1e-6 < np.abs(half - whole).mean() < 0.1
    np.testing.assert_allclose(np.bincount(data.groups, half)[data.groups], data.y, atol=1e-9)


def test_text_in_rows_that_the_start_does_not_take(monkeypatch):
    monkeypatch.setattr("llpkit.estimators.base.ENOUGH", 300)
    data = gaussians(400, 4)
    bags, _ = bags_of(data.X, data.y, data.groups)
    for g in range(10):  # the text is in one bag in turn, and some of these bags are not taken
        X = data.X[:, :1].astype(object)
        X[np.flatnonzero(data.groups == g)[0]] = "?"
        phi = additive_start(X, bags, None, np.random.RandomState(0))
        assert np.isfinite(phi).all()


def test_restarts_keep_the_highest_likelihood():
    data = gaussians(200, 10)
    common = {"start": "proportion", "max_iter": 60, "random_state": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one = LLPClassifier(GaussianNB(), **common).fit(data.X, data.y, data.groups)
        many = LLPClassifier(GaussianNB(), n_init=6, **common).fit(data.X, data.y, data.groups)
    assert many.log_likelihoods_.max() >= one.log_likelihoods_.max()
    assert len(many.log_likelihoods_) == many.n_iter_


def test_annealing_begins_softly_and_ends_where_em_does():
    data = gaussians(400, 4)
    common = {"start": "additive", "tol": 1e-7, "max_iter": 400}
    plain = LLPClassifier(LogisticRegression(), **common).fit(data.X, data.y, data.groups)
    soft = LLPClassifier(LogisticRegression(), annealing=0.2, **common)
    soft.fit(data.X, data.y, data.groups)
    assert soft.log_likelihoods_[1] < plain.log_likelihoods_[1] - 1e-3
    assert soft.log_likelihoods_[-1] == pytest.approx(plain.log_likelihoods_[-1], abs=1e-4)


def test_warm_starts_save_iterations_and_change_nothing():
    data = gaussians(400, 4)
    seen = []

    class Watched(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            super().fit(X, y, sample_weight)
            seen.append((self.warm_start, int(self.n_iter_[0])))
            return self

    LLPClassifier(Watched(), start="proportion", max_iter=50).fit(data.X, data.y, data.groups)
    assert all(warm for warm, _ in seen)
    assert seen[-1][1] < seen[0][1]


def test_the_same_seed_gives_the_same_model():
    data = moons(400)
    make = lambda seed: LLPClassifier(  # noqa: E731
        RandomForestClassifier(5), max_iter=3, tol=1.0, random_state=seed
    ).fit(data.X, data.y, data.groups)
    a, b, c = make(0), make(0), make(1)
    np.testing.assert_array_equal(a.predict_proba(data.X), b.predict_proba(data.X))
    assert np.abs(a.predict_proba(data.X) - c.predict_proba(data.X)).max() > 0


def test_not_converging_is_said():
    data = gaussians(200, 10)
    model = LLPClassifier(LogisticRegression(), start="proportion", max_iter=2, tol=1e-9)
    with pytest.warns(ConvergenceWarning, match=r"EM did not converge in 2 iter.*raise max_iter"):
        model.fit(data.X, data.y, data.groups)
    assert not model.converged_


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LLPClassifier(KNeighborsClassifier()), "KNeighborsClassifier.fit takes no sample_weight"),
        (LLPClassifier(start="zero"), "start = 'zero'; give additive or proportion"),
        (LLPClassifier(out_of_fold="yes"), "out_of_fold = 'yes'; give true, false or auto"),
        (LLPClassifier(n_init=0), "n_init = 0; give a whole number of at least 1"),
        (LLPClassifier(n_folds=1), "n_folds = 1; give a whole number of at least 2"),
        (LLPClassifier(annealing=2), "annealing = 2; give a number above 0 and up to 1"),
    ],
)
def test_bad_parameters_are_refused_in_fit(model, message):
    data = gaussians(40)
    with pytest.raises(LLPError, match=message):
        model.fit(data.X, data.y, data.groups)


def test_bags_without_any_positive_leave_nothing_to_learn():
    data = gaussians(40, 4)
    with pytest.raises(LLPError, match="the counts leave only class 0"):
        LLPClassifier(LogisticRegression()).fit(data.X, np.zeros(40, int), data.groups)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_naive_bayes_on_constant_columns_is_an_error(value):
    data = gaussians(40)
    model = LLPClassifier(GaussianNB())
    with np.errstate(all="ignore"), pytest.raises(LLPError, match="GaussianNB gave scores"):
        model.fit(np.full((40, 2), value), data.y, data.groups)
