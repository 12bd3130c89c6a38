"""Columns of lists, such as embeddings, as features."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import llpkit
from llpkit import Bags, LLPError
from llpkit.cli import main
from llpkit.tables import FeatureEncoder, Table


def embeddings(rows=120, width=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(3, 2, (rows, width)).astype(np.float32)
    bag = [f"b{i // 4}" for i in range(rows)]
    n = np.repeat((x[:, 0] > 3).reshape(-1, 4).sum(1), 4)
    return x, {"bag": bag, "n": n, "age": rng.integers(18, 90, rows)}


KINDS = {
    "fixed": lambda x: pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1]),
    "list": lambda x: pa.array(x.tolist()),
    "large": lambda x: pa.array(x.tolist(), pa.large_list(pa.float32())),
    "half": lambda x: pa.array(x.astype(np.float16).tolist(), pa.list_(pa.float16())),
    "integers": lambda x: pa.array(np.rint(x).astype(int).tolist()),
    "chunks": lambda x: pa.chunked_array([pa.array(x[:5].tolist()), pa.array(x[5:].tolist())]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_is_a_standardised_feature(kind):
    x, columns = embeddings()
    table = Table.of(pa.table({"e": KINDS[kind](x), "age": columns["age"]}))
    encoder = FeatureEncoder.fit(table, ["e", "age"])
    assert encoder.feature_names == ["e[0]", "e[1]", "e[2]", "e[3]", "age"]
    found = encoder.apply(table)[:, :4]
    expected = (x - x.mean(0)) / x.std(0)
    limit = {"integers": 0.5, "half": 0.01}.get(kind, 1e-5)
    assert float((found - torch.from_numpy(expected)).abs().max()) < limit
    again = FeatureEncoder.from_json(encoder.to_json())
    assert again == encoder


def test_frames_of_arrays():
    x, columns = embeddings()
    frame = pd.DataFrame(columns | {"e": list(x)})
    bags = Bags.from_frame(frame, "bag", "n")
    options = {"epochs": 2, "progress": False, "method": "direct"}
    model = llpkit.fit("linear", bags, frame, **options)
    other = pl.from_pandas(frame)
    assert torch.equal(model.predict_proba(frame), model.predict_proba(other))
    assert model.input_shape == (5,)


def test_missing_lists():
    table = Table.of(pa.table({"e": [[1.0, 2.0], None, [3.0, 6.0]]}))
    encoder = FeatureEncoder.fit(table, ["e"])
    assert encoder.feature_names == ["e[0]", "e[1]", "e is missing"]
    assert encoder.apply(table).tolist() == [[-1, -1, 0], [0, 0, 1], [1, 1, 0]]
    full = FeatureEncoder.fit(Table.of(pa.table({"e": [[1.0], [3.0]]})), ["e"])
    gap = Table.of(pa.table({"e": [[1.0], None]}))
    assert full.apply(gap).tolist() == [[-1], [0]]
    assert "row 2 (counted from 1), column 'e' is empty, which did not" in full.notes(gap)[0]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[1.0, 2.0], [1.0]], r"row 2 .*'e' has 1 number but row 1 has 2; give lists"),
        ([None, [1.0], [1.0, 2.0]], r"row 3 .* has 2 numbers but row 2 has 1"),
        ([[1.0], [np.nan]], r"row 2 .* has an entry that is not a finite number"),
        ([[1.0], [None]], r"row 2 .* has an entry that is not a finite number"),
        ([[], []], "the lists in column 'e' are all empty"),
    ],
)
def test_bad_lists_name_the_row(lists, message):
    table = Table.of(pa.table({"e": pa.array(lists, pa.list_(pa.float64()))}))
    with pytest.raises(LLPError, match=message):
        FeatureEncoder.fit(table, ["e"])


def test_lists_of_another_length_than_in_training():
    encoder = FeatureEncoder.fit(Table.of(pa.table({"e": [[1.0, 2.0]]})), ["e"])
    with pytest.raises(LLPError, match=r"row 1 .* has 1 number but training had 2"):
        encoder.apply(Table.of(pa.table({"e": [[1.0]]})))


def test_lists_of_words_are_left_out():
    _, columns = embeddings(8)
    frame = pa.table(columns | {"tags": [["a", "b"]] * 8})
    bags = Bags.from_frame(frame, "bag", "n")
    with pytest.warns(UserWarning, match="'tags' is left out: .*holds list<item: string>"):
        llpkit.fit("linear", bags, frame, epochs=1, progress=False)


@pytest.mark.parametrize("model", [["--estimator", "logistic"], ["--network", "linear"]])
def test_the_command_line(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("llpkit.report.Figure.contents", lambda *_: b"a figure" * 500)
    x, columns = embeddings(width=3)
    pq.write_table(pa.table(columns | {"e": KINDS["fixed"](x)}), "t.parquet")
    options = ["--bag", "bag", "--count", "n", *model, "--out", "run"]
    if "--network" in model:
        options += ["--epochs", "1", "--method", "direct"]
    assert main(["fit", "t.parquet", *options]) == 0, capsys.readouterr().err
    assert main(["predict", "run", "t.parquet", "--out", "p.csv"]) == 0, capsys.readouterr().err
    with Path("p.csv").open() as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_allclose(json.loads(rows[3]["e"]), x[3], rtol=1e-6)
    expected = llpkit.load("run").predict_proba(pq.read_table("t.parquet"))[:, 1]
    np.testing.assert_allclose([float(row["probability"]) for row in rows], expected, rtol=1e-5)
    if "logistic" in model:
        assert main(["summary", "run"]) == 0
        assert "e[2]" in capsys.readouterr().out
