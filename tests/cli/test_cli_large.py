"""Tables larger than memory: ``fit --engine dask``, and ``predict`` in batches."""

import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from large import frames, write

COLUMNS = ("--bag", "bag", "--count", "n", "--estimator", "logistic")


@pytest.fixture
def run(llpkit, tmp_path, monkeypatch):
    """A run that was trained in memory, and small batches."""
    table = tmp_path / "train.parquet"
    pd.concat(frames(2)).to_parquet(table, index=False)
    assert llpkit("fit", table, *COLUMNS, "--out", "run", "-q").code == 0
    monkeypatch.setattr("llpkit.runs.streaming.ROWS", 37)
    monkeypatch.setattr("llpkit.runs.streaming.IN_MEMORY", 200)
    return tmp_path / "run"


def test_batches_are_the_table_in_memory(llpkit, run, monkeypatch):
    frame = pd.concat(frames(2, seed=1), ignore_index=True)
    frame.to_parquet("new.parquet", index=False)
    done = llpkit("predict", run, "new.parquet", "--out", "streamed.parquet")
    assert done.code == 0, done.err
    assert "600 rows with probability, label, posterior" in done.out
    monkeypatch.setattr("llpkit.runs.streaming.IN_MEMORY", 10**6)
    assert llpkit("predict", run, "new.parquet", "--out", "whole.parquet").code == 0
    one, two = (pd.read_parquet(f"{name}.parquet") for name in ("streamed", "whole"))
    assert list(one.columns) == list(two.columns)
    for name in ("probability", "posterior"):
        np.testing.assert_allclose(one[name], two[name], atol=1e-6)
    assert (one["label"] == two["label"]).all()
    pd.testing.assert_frame_equal(one[frame.columns], frame)
    sums = one.groupby("bag")["posterior"].sum()
    np.testing.assert_allclose(sums, one.groupby("bag")["n"].first(), atol=1e-4)


def test_bags_longer_than_a_batch_and_over_files(llpkit, run):
    frame = pd.concat(frames(1, seed=2), ignore_index=True).assign(bag="all", n=120)
    (run.parent / "new").mkdir()
    frame.iloc[:150].to_parquet("new/a.parquet", index=False)
    frame.iloc[150:].to_parquet("new/b.parquet", index=False)
    done = llpkit("predict", run, "new/*.parquet", "--out", "p.parquet")
    assert done.code == 0, done.err
    assert pd.read_parquet("p.parquet")["posterior"].sum() == pytest.approx(120, abs=1e-3)


@pytest.mark.parametrize("ids", [int, str])
def test_scattered_bags_have_no_posterior(llpkit, run, ids, monkeypatch):
    frame = pd.concat(frames(2, seed=1), ignore_index=True)
    frame["bag"] = frame["bag"].astype(ids)
    first = frame["bag"] == frame["bag"].iloc[0]
    pd.concat([frame[~first], frame[first]]).to_parquet("end.parquet", index=False)
    torn = pd.concat([frame.iloc[1:], frame.iloc[:1]])
    torn.to_parquet("torn.parquet", index=False)
    monkeypatch.setitem(sys.modules, "pandas", None)  # llpkit does not require it
    done = llpkit("predict", run, "end.parquet", "--out", "p.parquet", "--prefix", "p_")
    assert done.code == 0, done.err
    assert pq.read_schema("p.parquet").names[-1] == "p_posterior"  # moved, but still together
    done = llpkit("predict", run, "torn.parquet", "--out", "p.parquet")
    assert done.code == 0
    bag = ids(frame["bag"].iloc[0])
    assert f"no posterior column: the rows of bag {bag!r} are not next to each other" in done.err
    assert "sort the table by 'bag'" in done.err
    assert pq.read_schema("p.parquet").names[-1] == "label"


@pytest.mark.usefixtures("run")
def test_posteriors_with_known_labels_need_the_table_in_memory(llpkit):
    frame = pd.concat(frames(2), ignore_index=True)
    frame["known"] = np.where(frame["n"] == 0, "0", "")
    frame.to_parquet("known.parquet", index=False)
    done = llpkit("fit", "known.parquet", *COLUMNS, "--known-label", "known", "--out", "labelled")
    assert done.code == 0, done.err
    done = llpkit("predict", "labelled", "known.parquet", "--out", "p.parquet")
    assert "no posterior column: column 'known' has known labels" in done.err
    assert pq.read_schema("p.parquet").names[-1] == "label"


def test_refused(llpkit, run):
    pd.concat(frames(2)).to_parquet("new.parquet", index=False)
    done = llpkit("predict", run, "new.parquet", "--out", "p.csv")
    assert (done.code, "as .parquet" in done.err) == (2, True)
    pq.write_table(pa.table({"x0": np.zeros(300)}), "few.parquet")
    done = llpkit("predict", run, "few.parquet", "--out", "p.parquet")
    assert (done.code, "'x1'" in done.err) == (2, True)
    done = llpkit("fit", "new.parquet", "--bag", "bag", "--count", "n", "--engine", "dask")
    assert "--engine dask needs --estimator logistic or --estimator xgboost" in done.err
    done = llpkit("fit", "new.parquet", *COLUMNS, "--engine", "dask", "--held-out", "0.1")
    assert "--held-out goes with --engine memory" in done.err
    done = llpkit("fit", "new.parquet", *COLUMNS, "--scheduler", "tcp://127.0.0.1:1")
    assert "--scheduler goes with --engine dask" in done.err


@pytest.mark.slow
def test_fit_on_dask(llpkit, tmp_path):
    (tmp_path / "votes").mkdir()
    paths = write(tmp_path / "votes", 4)
    options = ("--engine", "dask", "--memory-limit", "1GB", "--out", "run")
    done = llpkit("fit", "votes/*.parquet", *COLUMNS, *options)
    assert done.code == 0, done.err
    assert "checked 1,200 rows" in done.err
    assert llpkit("predict", "run", "votes/*.parquet", "--out", "p.parquet").code == 0
    assert len(pd.read_parquet("p.parquet")) == 1200
    assert llpkit("evaluate", "run", paths[0]).code == 0
    frame = pd.read_parquet(paths[2])
    frame.assign(n=99).to_parquet(paths[2])
    done = llpkit("fit", "votes/*.parquet", *COLUMNS, *options, "--force")
    assert done.code == 2
    assert "partition 2" in done.err
