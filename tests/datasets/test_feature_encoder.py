"""The encoder that is kept with a model: the same features from JSON, on tables it never saw."""

import json

import pytest
import torch

from llpkit import LLPError
from llpkit.tables import FeatureEncoder, Table

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
    assert features[:, names.index("job = clerk")].tolist() == [0, 0, 0]
    assert features[:, names.index("job = nurse")].tolist() == [0, 0, 0]
    assert "job is other" not in names  # its weight would be one that nothing was learnt about
    assert features[:, names.index("job is missing")].tolist() == [0, 0, 1]
    assert features[:, names.index("age is missing")].tolist() == [0, 1, 0]
    assert features[0, 0] == 0


def test_missing_for_the_first_time(write):
    full = Table.read(write("full.csv", ["age,job", "20,clerk", "30,nurse"]))
    encoder = FeatureEncoder.fit(full, ["age", "job"])
    assert encoder.feature_names == ["age", "job = clerk", "job = nurse"]
    gaps = Table.read(write("gaps.csv", ["age,job", "20,clerk", ",", "30,pilot", "30,"]))
    assert encoder.apply(gaps).tolist() == [[-1, 1, 0], [0, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert [note.partition("(header not counted), ")[2] for note in encoder.notes(gaps)] == [
        "column 'age' is empty, which did not occur in training; the mean is used instead",
        "column 'job' = 'pilot', which did not occur in training; the column is ignored in such a "
        "row",
        "column 'job' is empty, which did not occur in training; the column is ignored in such a "
        "row (2 such rows in all)",
    ]
    assert encoder.notes(full) == []


def test_rare_levels_share_a_feature_that_new_ones_have_too(write):
    rows = ["job", *(f"j{i}" for i in range(70))]
    encoder = FeatureEncoder.fit(Table.read(write("t.csv", rows)), ["job"])
    new = Table.read(write("new.csv", ["job", "pilot"]))
    assert encoder.feature_names[-1] == "job is other"
    assert encoder.apply(new)[0].nonzero().tolist() == [[64]]
    encoder = FeatureEncoder.from_json(encoder.to_json())
    assert encoder.notes(Table.read(write("t.csv", rows))) == []
    (note,) = encoder.notes(new)
    assert "'pilot', which did not occur in training; it counts as one of the column's rare" in note


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
            "column 'x' has the unknown kind 'image'",
        ),
    ],
)
def test_bad_json(text, message):
    with pytest.raises(LLPError, match=message):
        FeatureEncoder.from_json(text)
