"""Fits to partitions against fits in memory."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits
from xgboost import XGBClassifier

from large import frames, write
from llpkit import Bags, LLPError, distributed
from llpkit.distributed.binned import Bins
from llpkit.distributed.partitions import RowGroups
from llpkit.distributed.steps import groups_for, shares
from llpkit.estimators import LLPClassifier, LLPLogisticRegression, MeanMapClassifier, load, save
from llpkit.estimators.persistence import BOOSTERS
from llpkit.tables import CountColumns

FEATURES = ["x0", "x1", "x2"]


def in_memory(frame, estimator):
    return estimator.fit(frame[FEATURES].to_numpy(), frame["n"].to_numpy(), frame["bag"].to_numpy())


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sample", [50, 10**6])
def test_logistic_is_the_fit_in_memory(tmp_path, sample, intercept):
    write(tmp_path, 5)
    estimator = LLPLogisticRegression(tol=1e-8, C=0.1, fit_intercept=intercept)
    events = []
    model = distributed.fit(
        estimator, tmp_path, bag="bag", count="n", sample_rows=sample, log=events.append
    )
    one = in_memory(pd.concat(frames(5)), LLPLogisticRegression(**estimator.get_params()))
    np.testing.assert_allclose(model.coef_, one.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, one.intercept_, atol=1e-5)
    X = frames(1, seed=9)[0][FEATURES].to_numpy()
    np.testing.assert_allclose(model.predict_proba(X), one.predict_proba(X), atol=1e-5)
    assert events[0] == {"step": "check", "rows": 1500, "bags": model_bags(5)}
    save(model, tmp_path / "model.skops")
    assert (load(tmp_path / "model.skops").coef_ == model.coef_).all()


def model_bags(parts):
    return pd.concat(frames(parts))["bag"].nunique()


def test_frames_and_arrays_and_files_agree(tmp_path):
    write(tmp_path, 3)
    frame = dd.concat([dd.from_pandas(part, npartitions=1) for part in frames(3)])
    whole = pd.concat(frames(3))
    X, bag, n = (
        da.from_array(whole[name].to_numpy(), chunks=(300, -1) if name is FEATURES else 300)
        for name in (FEATURES, "bag", "n")
    )
    estimator = LLPLogisticRegression()
    found = [
        distributed.fit(estimator, tmp_path, bag="bag", count="n").coef_,
        distributed.fit(estimator, frame, bag="bag", count="n", persist=False).coef_,
        distributed.fit(estimator, X, bag=bag, count=n).coef_,
    ]
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
    with pytest.raises(LLPError, match="rechunk them alike"):
        distributed.fit(estimator, X, bag=bag.rechunk(100), count=n)


def test_classes_and_other_counts(tmp_path):
    for path, part in zip(write(tmp_path, 3), frames(3), strict=True):
        size = part.groupby("bag")["n"].transform("size")
        more = part.assign(rest=size - part["n"], low=part["n"] - 1, share=part["n"] / size)
        more.assign(low=more["low"].clip(lower=0)).to_parquet(path, index=False)
    whole = pd.concat([pd.read_parquet(path) for path in sorted(tmp_path.glob("*.parquet"))])
    options = {"bag": "bag", "features": FEATURES}
    estimator = LLPLogisticRegression(tol=1e-8)
    exact = distributed.fit(estimator, tmp_path, count="n", **options)
    shares_ = distributed.fit(
        estimator, tmp_path, count=CountColumns(proportion="share"), **options
    )
    np.testing.assert_allclose(shares_.coef_, exact.coef_, atol=1e-5)
    two = distributed.fit(estimator, tmp_path, count=["rest", "n"], **options)
    y = whole[["rest", "n"]].to_numpy()
    one = LLPLogisticRegression(tol=1e-8).fit(
        whole[FEATURES].to_numpy(), y, whole["bag"].to_numpy()
    )
    np.testing.assert_allclose(
        two.predict_proba(whole[FEATURES].to_numpy()),
        one.predict_proba(whole[FEATURES].to_numpy()),
        atol=1e-4,
    )
    ranges = distributed.fit(
        estimator, tmp_path, count=CountColumns(count_low="low", count_high="n"), **options
    )
    assert ranges.coef_[0, 0] > 0.5


def test_noisy_counts_are_read_as_such(tmp_path):
    write(tmp_path, 2)
    whole = pd.concat(frames(2))
    bags = Bags.from_frame(whole, "bag", count="n", count_noise="geometric:2")
    of_row = torch.from_numpy(np.unique(whole["bag"], return_inverse=True)[1])
    one = LLPLogisticRegression(tol=1e-8).fit(
        whole[FEATURES].to_numpy(), bags.evidence[of_row], whole["bag"].to_numpy()
    )
    count = CountColumns("n", count_noise="geometric:2")
    found = distributed.fit(LLPLogisticRegression(tol=1e-8), tmp_path, bag="bag", count=count)
    np.testing.assert_allclose(found.coef_, one.coef_, atol=1e-4)


def test_boosting(tmp_path):
    paths = write(tmp_path, 4, rows=2000)
    estimator = LLPClassifier(
        XGBClassifier(n_estimators=15, max_depth=3, n_jobs=1), max_iter=4, random_state=0
    )
    events = []
    with pytest.warns(UserWarning, match="did not converge"):
        model = distributed.fit(
            estimator.set_params(tol=1e-12),
            tmp_path,
            bag="bag",
            count="n",
            sample_rows=1500,
            log=events.append,
        )
    whole = pd.concat([pd.read_parquet(path) for path in paths])
    X, y, bag = whole[FEATURES].to_numpy(), whole["n"].to_numpy(), whole["bag"].to_numpy()
    # What the E-steps saw is what the ordinary estimator computes.
    assert model.score(X, y, bag) == pytest.approx(max(model.log_likelihoods_), abs=1e-5)
    assert [e["step"] for e in events[:4]] == ["check", "start", "E", "M"]
    one = in_memory(whole, LLPClassifier(estimator.estimator, random_state=0))
    rows = frames(4, seed=5)[0]
    assert model.score(rows[FEATURES].to_numpy(), rows["n"], rows["bag"]) > -0.1 + one.score(
        rows[FEATURES].to_numpy(), rows["n"], rows["bag"]
    )
    with pytest.warns(UserWarning, match="to load it pass trusted"):
        save(model, tmp_path / "model.skops")
    again = load(tmp_path / "model.skops", trusted=BOOSTERS)
    assert (again.predict_proba(X) == model.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (MeanMapClassifier(), "MeanMapClassifier cannot be fitted to partitions"),
        (LLPClassifier(XGBClassifier(booster="dart")), "booster='dart'"),
        (LLPClassifier(LLPLogisticRegression()), "on partitions the M-step is XGBoost's"),
        (LLPClassifier(out_of_fold=True), "out_of_fold=True"),
    ],
)
def test_refused(tmp_path, estimator, message):
    write(tmp_path, 1)
    with pytest.raises(LLPError, match=message):
        distributed.fit(estimator, tmp_path, bag="bag", count="n")


def test_refused_data(tmp_path):
    write(tmp_path, 1)
    with pytest.raises(LLPError, match="count is missing"):
        distributed.fit(LLPLogisticRegression(), tmp_path, bag="bag")
    with pytest.raises(LLPError, match="no column to learn from"):
        distributed.fit(LLPLogisticRegression(), tmp_path, bag="bag", count="n", features=[])
    with pytest.raises(LLPError, match="data is a DataFrame"):
        distributed.fit(LLPLogisticRegression(), frames(1)[0], bag="bag", count="n")
    with pytest.raises(LLPError, match="3 classes"):
        distributed.fit(LLPClassifier(), tmp_path, bag="bag", count=["n", "x0", "x1"])


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=40), st.floats(-6, 6, width=32))
def test_thresholds_on_bins_are_thresholds_on_numbers(column, x):
    bins = Bins.of(np.array(column)[:, None])
    seen = bins.numbers(bins.code(np.array([[x]])))[0, 0]
    for end in bins.marks[0]:
        assert (seen < end) == (np.float32(x) < end)


def test_shares_and_groups():
    assert sorted(i for share in shares([3, 1, 2, 2], 2) for i in share) == [0, 1, 2, 3]
    assert groups_for([10**6], float("inf")) == 1
    assert groups_for([15_000_000, 14_000_000], 1e9) == 4


def test_trees_on_groups_of_partitions(tmp_path, monkeypatch):
    write(tmp_path, 4, rows=2000)
    # Memory for the gradients of two partitions of the four.
    monkeypatch.setattr("llpkit.distributed.ranks.Ranks.memory", 4000 * 32 / 0.12)
    estimator = LLPClassifier(
        XGBClassifier(n_estimators=12, max_depth=3, n_jobs=1), max_iter=1, random_state=0
    )
    events = []
    with pytest.warns(UserWarning, match="did not converge"):
        model = distributed.fit(
            estimator, tmp_path, bag="bag", count="n", sample_rows=400, log=events.append
        )
    assert [e["groups"] for e in events if e["step"] == "M"] == [2]
    whole = pd.concat([pd.read_parquet(path) for path in sorted(tmp_path.glob("*.parquet"))])
    found = model.score(whole[FEATURES].to_numpy(), whole["n"], whole["bag"])
    assert found == pytest.approx(max(model.log_likelihoods_), abs=1e-5)
    assert model.log_likelihoods_[1] > model.log_likelihoods_[0]


def boosted(data, log=None):
    estimator = LLPClassifier(
        XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1), max_iter=3, tol=1e-12, random_state=0
    )
    with pytest.warns(UserWarning, match="did not converge"):
        return distributed.fit(
            estimator, data, bag="bag", count="n", features=FEATURES, sample_rows=400, log=log
        )


def trees(model):
    return bytes(model.estimator_.get_booster().save_raw("ubj"))


def test_every_step_uses_what_was_read_once(tmp_path, monkeypatch):
    paths = write(tmp_path, 4, rows=1000)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    read, seen = RowGroups.read, []

    def counted(self, columns=None):
        seen.append(self.path)
        return read(self, columns)

    monkeypatch.setattr(RowGroups, "read", counted)
    boosted(tmp_path)
    assert sorted(seen) == sorted(3 * list(map(str, paths)))  # the check; XGBoost's two passes
    assert not list(scratch.iterdir())


def test_boosting_on_a_dask_dataframe(tmp_path):
    write(tmp_path, 3, rows=1000)
    frame = dd.concat([dd.from_pandas(part, npartitions=1) for part in frames(3, rows=1000)])
    assert trees(boosted(frame)) == trees(boosted(tmp_path))


def test_another_fit_in_the_same_process_does_not_change_the_model(tmp_path):
    """It takes the place of what the first one keeps, as the end of a worker would."""
    write(tmp_path, 3, rows=1000)
    between = []

    def log(event):
        if (event["step"], event.get("iteration")) in (("E", 1), ("M", 2)):
            between.append(boosted(tmp_path))

    first, second = boosted(tmp_path), boosted(tmp_path, log)
    assert len(between) == 2
    assert trees(first) == trees(second) == trees(between[1])
    assert first.log_likelihoods_.tolist() == second.log_likelihoods_.tolist()


@pytest.mark.filterwarnings("ignore::UserWarning")  # too few rows and iterations
def test_a_sample_is_calibrated_in_one_thread(tmp_path, monkeypatch):
    from llpkit.distributed import boosting

    seen, calibrate = [], boosting.calibrate

    def note(*arguments):
        seen.append(max(pool["num_threads"] for pool in threadpool_info()))
        return calibrate(*arguments)

    write(tmp_path, 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Dask does, too late for this process
    monkeypatch.setattr(boosting, "calibrate", note)
    inner = XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1)
    with threadpool_limits(4):
        distributed.fit(LLPClassifier(inner, max_iter=2, tol=1e-9), tmp_path, bag="bag", count="n")
    assert seen
    assert set(seen) == {1}
