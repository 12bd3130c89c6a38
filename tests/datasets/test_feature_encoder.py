"""The encoder that is kept with a model: the same features from JSON, on tables it never saw."""

import json

import pytest
import torch

from llpkit import LLPError
from llpkit.datasets import FeatureEncoder, Table

ROWS = ["age,job", "20,clerk", ",nurse", "40,?", "30,clerk"]


@pytest.fixture
def fitted(write):
    table = Table.read(write("t.csv", ROWS))
    return FeatureEncoder.fit(table, ["age", "job"]), table


def test_json_round_trip(fitted):
    encoder, table = fitted
    again = FeatureEncoder.from_json(encoder.to_json())
    assert again == encoder
    assert torch.equal(again.apply(table), encoder.apply(table))


def test_new_tables(fitted, write):
    encoder, _ = fitted
    names = encoder.feature_names
    new = Table.read(write("new.csv", ["id,job,age", "1,pilot,30", "2,NURSE,NA", "3,,1e300"]))
    features = encoder.apply(new)
    assert features.shape == (3, len(names))
    assert features.isfinite().all()
    assert features[:, names.index("job is other")].tolist() == [1, 1, 0]
    assert features[:, names.index("job is missing")].tolist() == [0, 0, 1]
    assert features[:, names.index("age is missing")].tolist() == [0, 1, 0]
    assert features[0, 0] == 0


def test_missing_for_the_first_time(write):
    full = Table.read(write("full.csv", ["age,job", "20,clerk", "30,nurse"]))
    encoder = FeatureEncoder.fit(full, ["age", "job"])
    assert encoder.feature_names == ["age", "job = clerk", "job = nurse", "job is other"]
    features = encoder.apply(Table.read(write("gaps.csv", ["age,job", ",", "20,clerk"])))
    assert features.tolist() == [[0, 0, 0, 1], [-1, 1, 0, 0]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["agee,job", "1,a"], "has no column 'age'; did you mean 'agee'?"),
        (["age,job", "1,a", "old,a"], "row 2 .*column 'age' = 'old' is not a number"),
    ],
)
def test_tables_that_do_not_fit(fitted, write, rows, message):
    with pytest.raises(LLPError, match=message.replace("?", r"\?")):
        fitted[0].apply(Table.read(write("new.csv", rows)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is not a feature encoder"),
        ("[]", "this is not a feature encoder"),
        ("{}", "this is not a feature encoder"),
        ('{"format": "other", "columns": []}', "in format 'other', not 'llpkit features 1'"),
        ('{"format": "llpkit features 1", "columns": [1]}', "this is not a feature encoder"),
        (
            json.dumps(
                {
                    "format": "llpkit features 1",
                    "columns": [{"kind": "image", "name": "x", "missing": False}],
                }
            ),
            "column 'x' is of the unknown kind 'image'",
        ),
    ],
)
def test_bad_json(text, message):
    with pytest.raises(LLPError, match=message):
        FeatureEncoder.from_json(text)
