"""`llpkit.load` opens what the command line wrote, and predicts for data frames."""

import random
import shutil

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from PIL import Image

import llpkit
from llpkit import LLPError
from llpkit.config import check
from llpkit.errors import UnseenValueWarning
from llpkit.runs import fit, open_run
from llpkit.tables import Table


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch):
    monkeypatch.setattr("llpkit.report.Figure.contents", lambda *_: b"a figure" * 500)


def people(bags=30, seed=0):
    draw = random.Random(seed)
    rows = []
    for bag in range(bags):
        ages = [draw.randint(18, 90) for _ in range(draw.randint(1, 6))]
        n = sum(age > 50 for age in ages)
        rows += [(f"d{bag}", n, age, draw.choice(["north", "south"])) for age in ages]
    return pd.DataFrame(rows, columns=["district", "n_yes", "age", "region"])


@pytest.fixture(scope="module", params=["network", "estimator"])
def run(request, tmp_path_factory):
    """A run directory of each kind, and its table."""
    folder = tmp_path_factory.mktemp(request.param)
    frame = people()
    frame.to_csv(folder / "people.csv", index=False)
    kind = {"network": {"network": "linear", "method": "direct", "epochs": 2}}.get(
        request.param, {"estimator": "logistic"}
    )
    names = {"class_names": ["no", "yes"]}
    data = {"table": str(folder / "people.csv"), "bag": "district", "count": "n_yes", **names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llpkit.report.Figure.contents", lambda *_: b"a figure" * 500)
        fit(check({"data": data, **kind}), folder / "run")
    return folder / "run", frame


FRAMES = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_run_predicts_for_a_frame_with_the_raw_columns(run, kind):
    folder, frame = run
    model = llpkit.load(folder)
    found = open_run(folder, "cpu")
    expected = found.model.predict_proba(found.encoder.apply(Table.of(frame)))
    new = FRAMES[kind](frame[["region", "age"]])  # in another order, without bags and counts
    assert torch.equal(model.predict_proba(new), expected)
    assert model.class_names == ("no", "yes")
    assert set(model.predict(new).tolist()) <= {0, 1}


def test_posteriors_of_a_frame_agree_with_the_counts(run):
    folder, frame = run
    counts = frame.groupby("district")["n_yes"].first()
    bags = llpkit.Bags.from_groups(frame["district"], counts)
    posterior = llpkit.load(folder).posterior(frame, bags)[bags.rows, 1]
    sums = torch.zeros(len(bags), dtype=posterior.dtype).index_add(0, bags.bag_index, posterior)
    np.testing.assert_allclose(sums, bags.counts, atol=1e-4)


def test_values_that_training_never_had_are_named(run):
    folder, _ = run
    model = llpkit.load(folder)
    new = pd.DataFrame({"age": [20, 30, 40], "region": ["west", "north", "east"]})
    with pytest.warns(UnseenValueWarning, match=r"'region' = 'west'.*2 such rows.*'west', 'east'"):
        model.predict_proba(new)


def test_what_a_frame_lacks_is_named(run):
    folder, frame = run
    model = llpkit.load(folder)
    with pytest.raises(LLPError, match="the data frame has no column 'region'; did you mean 'reg"):
        model.predict_proba(frame.rename(columns={"region": "regions"}))
    bad = frame.astype({"age": object})
    bad.loc[2, "age"] = "old"
    with pytest.raises(LLPError, match=r"data frame cannot be read: column 'age'"):
        model.predict_proba(bad)
    bad["age"] = bad["age"].astype(str)
    with pytest.raises(LLPError, match=r"row 3 \(counted from 1\), column 'age' = 'old' is not"):
        model.predict_proba(bad)


def test_a_damaged_encoder_is_refused(run, tmp_path):
    folder, _ = run
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "encoder.json").write_text("{}")
    with pytest.raises(LLPError, match=r"encoder\.json has changed since it was written"):
        llpkit.load(copy)
    shutil.rmtree(copy)
    with pytest.raises(LLPError, match="is not a run directory"):
        llpkit.load(copy)


def test_a_model_of_arrays_takes_no_frame():
    x = torch.randn(40, 2)
    bags = llpkit.random_bags((x[:, 0] > 0).long(), 4, generator=0)
    model = llpkit.fit("linear", bags, x, epochs=1, progress=False)
    with pytest.raises(LLPError, match="inputs is a DataFrame, but this model was trained on arr"):
        model.predict_proba(pd.DataFrame(x.numpy()))


def test_a_run_of_images_takes_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for i in range(8):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(f"{i}.png")
    frame = pd.DataFrame({"file": [f"{i}.png" for i in range(8)], "bag": [0, 0, 1, 1] * 2})
    frame["n"] = 1 + frame["bag"]
    frame.to_csv("t.csv", index=False)
    data = {"table": "t.csv", "bag": "bag", "count": "n", "image": "file"}
    chosen = {"network": "small-cnn", "method": "direct", "epochs": 1}
    fit(check({"data": data, **chosen}), tmp_path / "run")
    pixels = torch.stack([torch.from_numpy(np.array(Image.open(f))) for f in frame["file"]])
    model = llpkit.load("run")
    expected = model.predict_proba(pixels.permute(0, 3, 1, 2))
    assert torch.allclose(model.predict_proba(pl.from_pandas(frame)), expected)
    with pytest.raises(LLPError, match=r"row 1 \(counted from 1\), column 'file': there is no"):
        model.predict_proba(pd.DataFrame({"file": ["none.png"]}))


@pytest.mark.slow
def test_boosters_need_trust(tmp_path):
    frame = people(60)
    frame.to_csv(tmp_path / "people.csv", index=False)
    data = {"table": str(tmp_path / "people.csv"), "bag": "district", "count": "n_yes"}
    fit(check({"data": data, "estimator": "lightgbm"}), tmp_path / "run")
    with pytest.raises(LLPError, match="trust_model=True"):
        llpkit.load(tmp_path / "run")
    model = llpkit.load(tmp_path / "run", trust_model=True)
    assert model.predict_proba(frame).shape == (len(frame), 2)
