"""Data frames, series and data sets of other packages as inputs."""

import pickle

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import llpkit
import llpkit.datasets
from llpkit import Bags, LLPError
from llpkit.errors import IdentifiabilityWarning
from llpkit.estimators import LLPClassifier, LLPLogisticRegression
from tables import gaussians

# Without Hugging Face's package, the folder of tests of the same name is found instead.
needs_hugging_face = pytest.mark.skipif(
    not hasattr(datasets, "Dataset"), reason="the package datasets is not installed"
)
KINDS = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "hugging face": lambda frame: datasets.Dataset.from_pandas(frame, preserve_index=False),
}


def survey(rows=160, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, rows)
    frame = pd.DataFrame({"district": [f"d{i // 4}" for i in range(rows)], "age": age})
    frame["region"] = rng.choice(["north", "south"], rows)
    frame["n_yes"] = (age > 50).astype(int)
    frame["n_yes"] = frame.groupby("district")["n_yes"].transform("sum")
    return frame.sample(frac=1, random_state=seed)  # the index is not the position


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=needs_hugging_face if kind == "hugging face" else ())
        for kind in KINDS
    ],
)
def test_a_network_learns_from_a_frame_and_predicts_for_frames(kind, tmp_path):
    frame = survey()
    given = KINDS[kind](frame)
    bags = Bags.from_frame(given, bag="district", count="n_yes")
    model = llpkit.fit("linear", bags, given, "direct", epochs=40, lr=0.1, progress=False)
    assert model.encoder.feature_names[0] == "age"  # neither the bag nor its count
    truth = torch.tensor((frame["age"] > 50).tolist())
    assert (model.predict(given).bool() == truth).float().mean() > 0.9
    model.save(tmp_path)
    again = llpkit.load(tmp_path)
    new = KINDS[kind](frame[["age", "region"]])
    assert torch.equal(again.predict_proba(new), model.predict_proba(given))


def test_a_model_without_an_encoder_replaces_one_with_it(tmp_path):
    frame = survey()
    bags = Bags.from_frame(frame, "district", "n_yes")
    options = {"epochs": 1, "progress": False}
    llpkit.fit("linear", bags, frame, **options).save(tmp_path)
    llpkit.fit("linear", bags, torch.randn(len(frame), 3), **options).save(tmp_path)
    assert llpkit.load(tmp_path).encoder is None


def test_a_column_of_the_bag_is_named_and_others_are_left_out():
    frame = survey()
    frame["name"] = [f"person {i}" for i in range(len(frame))]
    groups = frame["district"].to_numpy()
    bags = Bags.from_groups(groups, dict(zip(groups, frame["n_yes"], strict=True)))
    with (
        pytest.warns(UserWarning, match="'name' is left out: 160 different values"),
        pytest.warns(UserWarning, match="'district' is the same in all rows of every bag"),
        pytest.warns(UserWarning, match="'n_yes' is the same in all rows of every bag"),
        pytest.warns(IdentifiabilityWarning, match="leave out columns that identify the bag"),
    ):
        model = llpkit.fit("linear", bags, frame, epochs=1, progress=False)
    assert {"age", "n_yes"} <= {column.name for column in model.encoder.columns}


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "polars", "parquet"])
def test_a_categorical_of_numbers_is_a_category(kind, tmp_path):
    frame = survey()[["district", "n_yes", "age"]]
    codes = np.resize([10, 20, 30], len(frame))
    frame["zone"] = pd.Categorical(codes)
    if kind == "polars":  # its categories are text
        zone = pl.Series("zone", codes.astype(str), dtype=pl.Categorical)
        given = pl.from_pandas(frame.drop(columns="zone")).with_columns(zone)
    else:
        given = frame if kind == "pandas" else pa.Table.from_pandas(frame, preserve_index=False)
    if kind == "parquet":
        frame.to_parquet(given := tmp_path / "t.parquet", index=False)
    names = ["age", "zone = 10", "zone = 20", "zone = 30"]
    data = llpkit.datasets.load("feature-table", table=given, bag="district", count="n_yes")
    assert sorted(data.encoder.feature_names) == names
    options = {"table": given, "bag": "district", "count": "n_yes", "numeric": ["zone"]}
    data = llpkit.datasets.load("feature-table", **options)
    assert data.encoder.feature_names == ["age", "zone"]


def test_a_frame_of_another_length():
    frame = survey()
    bags = Bags.from_frame(frame, "district", "n_yes")
    with pytest.raises(LLPError, match="table with 160 rows but inputs has 159"):
        llpkit.fit("linear", bags, frame[1:], progress=False)


# Bags.from_frame


def test_frames_give_the_bags_of_the_command_line(tmp_path):
    frame = survey()
    frame.to_csv(tmp_path / "t.csv", index=False)
    file = Bags.from_frame(tmp_path / "t.csv", "district", "n_yes")
    bags = Bags.from_frame(pl.from_pandas(frame), "district", "n_yes")
    assert bags.ids == file.ids
    assert bags.columns == ("district", "n_yes")
    assert torch.equal(bags.counts, file.counts)
    assert torch.equal(bags.rows, file.rows)


def test_all_kinds_of_counts():
    frame = pl.DataFrame(
        {
            "bag": ["x", "x", "y"],
            "cats": [1, 1, 0],
            "dogs": [1, 1, 1],
            "least": [0, 0, None],
            "share": [0.5, 0.5, 1],
        }
    )
    assert Bags.from_frame(frame, "bag", ["cats", "dogs"]).counts.tolist() == [[1, 1], [0, 1]]
    bounds = Bags.from_frame(frame, "bag", count_low="least", count_high="cats")
    assert [(bag.low, bag.high) for bag in bounds] == [(0, 1), (0, 0)]
    assert Bags.from_frame(frame, "bag", proportion="share").counts.tolist() == [1, 1]
    totals = pd.DataFrame({"bag": ["y", "x"], "n": [1, 2]})
    assert Bags.from_frame(frame, "bag", "n", counts_table=totals).counts.tolist() == [2, 1]
    with pytest.raises(LLPError, match=r"^the counts table: row 2.*'n' = '?-1"):
        Bags.from_frame(frame, "bag", "n", counts_table=totals.assign(n=[2, -1]))
    some = frame.with_columns(known=pl.Series(["1", None, None]))
    assert Bags.from_frame(some, "bag", known_label="known").sizes.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": [1, 2, 0]}, r"data frame: row 2 \(counted from 1\), column 'n' = 2 but row 1 of"),
        ({"n": [3, 3, 0]}, r"row 1 \(counted from 1\), column 'n' = 3 but bag 'x' has 2 rows"),
        ({"n": [1.5, 1.5, 0]}, "column 'n' = 1.5 of bag 'x' is not a whole number"),
        ({"bag": ["x", None, "y"]}, r"row 2 \(counted from 1\), column 'bag' is empty"),
    ],
)
def test_errors_name_the_row(change, message):
    frame = pd.DataFrame({"bag": ["x", "x", "y"], "n": [1, 1, 0]} | change)
    with pytest.raises(LLPError, match=message):
        Bags.from_frame(frame, "bag", "n")


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "x",
            ["a", "\ud800"],
            r"row 2 \(counted from 1\), column 'x': '\\ud800' has an unpaired surrogate",
        ),
        ("x", [["a"], ["\ud800"]], r"column 'x': '\\ud800' has an unpaired surrogate; correct it"),
        ("\ud800", ["a", "b"], r"the column name '\\ud800' has an unpaired surrogate"),
        ("x", None, r"row 2 .*, column 'x': '\\ud800' has an unpaired surrogate"),
    ],
)
def test_half_characters_are_named(name, values, message):
    frame = pd.DataFrame({"bag": [1, 1], "n": [1, 1], "x": pd.Series(values, [0, 1], object)})
    if values is None:
        categories = pd.Index(["a", "\ud800"], dtype=object)
        frame["x"] = pd.Categorical.from_codes([0, 1], categories)
    frame.columns = pd.Index(["bag", "n", name], dtype=object)
    with pytest.raises(LLPError, match=message) as error:
        Bags.from_frame(frame, "bag", "n")
    str(error.value).encode()  # can be printed


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"x": [1.0, np.inf]}, {}, r"row 2 .*, column 'x' = 'inf' is not a number, but 1 value"),
        ({"x": [10**30, 1]}, {}, r"column 'x': .*; give it one type, such as text: frame\['x'\]"),
        ({"x": [1, "a"]}, {}, "cannot be read: column 'x': .*; give it one type"),
        ({}, {"bag": "district"}, r"no column 'district'; it is the index: pass frame.reset_index"),
        ({}, {"bag": ["bag"]}, r"has no column \['bag'\]"),
        ({}, {"count": {"n": 1}}, r"has no column \{'n': 1\}"),
    ],
)
def test_frames_that_cannot_be_used(change, options, message):
    values = {"bag": ["x", "x"], "n": [1, 1], "x": [0, 1]} | change
    frame = pd.DataFrame(values, pd.Index([0, 1], name="district"))
    with pytest.raises(LLPError, match=message):
        llpkit.datasets.load(
            "feature-table", **({"table": frame, "bag": "bag", "count": "n"} | options)
        )


def test_counts_of_a_frame_with_missing_ones_are_floats():
    frame = pd.DataFrame(
        {"bag": list("aabb"), "n": [1, 1, None, None], "least": [None, None, 1, 1]}
    )
    columns = {"bag": "bag", "count": "n", "count_low": "least"}
    with pytest.raises(LLPError, match=r"give integers: frame\['n'\].astype\('Int64'\)"):
        Bags.from_frame(frame, **columns)
    frame["n"] = frame["n"].astype("Int64")
    assert [(bag.low, bag.high) for bag in Bags.from_frame(frame, **columns)] == [(1, 1), (1, 2)]


@pytest.mark.parametrize(
    "dates",
    [
        lambda days: days,
        lambda days: days.tz_localize("UTC"),
        lambda days: days.date,
        lambda days: days.time,
        lambda days: [None, *days.strftime("%Y-%m-%d")[1:]],
        lambda days: days.strftime("%Y-%m-%dT%H:%M"),
    ],
)
def test_dates_are_left_out_with_a_remedy(dates):
    frame = survey()
    frame["day"] = dates(pd.date_range("2024-01-01", periods=40).repeat(4))
    bags = Bags.from_frame(frame, "district", "n_yes")
    with pytest.warns(UserWarning, match="'day' is left out: it holds dates or times; turn them"):
        model = llpkit.fit("linear", bags, frame, epochs=1, progress=False)
    assert not any(name.startswith("day") for name in model.encoder.feature_names)
    # They are categories if somebody asks for it.
    options = {"bag": "district", "count": "n_yes", "categorical": ["day"]}
    asked = llpkit.datasets.load("feature-table", table=frame, **options)
    assert any(name.startswith("day = ") for name in asked.encoder.feature_names)


def test_columns_of_odd_types_and_names():
    frame = survey()
    frame["cut"] = pd.cut(frame["age"], [0, 40, 100])
    frame["dummy"] = pd.arrays.SparseArray(np.resize([0, 1], len(frame)))
    options = {"table": frame, "bag": "district", "count": pd.Index(["n_yes"])}
    names = llpkit.datasets.load("feature-table", **options).encoder.feature_names
    assert {"cut = (0, 40]", "cut = (40, 100]", "dummy"} <= set(names)
    frame.columns = ["district", "age", "age", "n_yes", "cut", "dummy"]
    with pytest.raises(LLPError, match="two columns are called 'age'; rename one"):
        Bags.from_frame(frame, "district", "n_yes")


def test_what_is_no_frame_is_refused():
    with pytest.raises(LLPError, match="table is of type dict; give the path of a file"):
        Bags.from_frame({"bag": [1]}, "bag", "n")


def test_parts_of_bags_remember_their_columns():
    bags = Bags.from_frame(survey(), "district", "n_yes")
    parts = [*bags.split(0.5, 0), bags.to("cpu"), Bags.concat([bags, bags])]
    parts.append(bags.with_labels([0] + [-1] * 159) if bags[0].low == 0 else bags)
    assert all(part.columns == ("district", "n_yes") for part in parts)
    assert all(part.bag_column == "district" for part in [*parts, pickle.loads(pickle.dumps(bags))])
    assert Bags.concat([bags, Bags([0, 2], [1])]).bag_column is None


def test_a_frame_in_another_order_than_the_bags_is_refused():
    frame = survey()
    bags = Bags.from_frame(frame, "district", "n_yes")
    mixed = frame.sample(frac=1, random_state=7)
    options = {"epochs": 1, "progress": False}
    with pytest.raises(LLPError, match="pass the frame that the bags were made from"):
        llpkit.fit("linear", bags, mixed, **options)
    other = Bags.from_frame(mixed, "district", "n_yes")[:1]
    with pytest.raises(LLPError, match="but in held_out this row is in"):
        llpkit.fit("linear", bags[:5], frame, held_out=other, **options)
    model = llpkit.fit("linear", bags, frame, **options)
    with pytest.raises(LLPError, match="pass the frame that the bags were made from"):
        model.posterior(mixed, bags)
    whole = model.posterior(frame, bags)
    # Without the column there is nothing to compare.
    assert torch.equal(model.posterior(frame.drop(columns="district"), bags), whole)
    assert torch.equal(model.posterior(frame, bags[::2])[bags[2].rows], whole[bags[2].rows])


def test_bag_ids_agree_however_their_numbers_are_written(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text("bag,n,x,label\n007,1,1,\n007,1,2,\n08,1,3,yes\n08,1,5,\n,,4,no\n")
    bags = Bags.from_frame(file, "bag", "n", known_label="label", class_names=["no", "yes"])
    frame = pd.read_csv(file).drop(columns=["label"])  # 7.0 and 8.0
    two = Bags.concat([bags, bags])
    for given, inputs in ((bags, frame), (two, pd.concat([frame, frame]))):
        model = llpkit.fit("linear", given, inputs, epochs=1, progress=False)
        assert model.posterior(inputs, given).shape == (len(inputs), 2)
    with pytest.raises(LLPError, match=r"= '8', but in bags this row is in '007'"):
        model.posterior(frame[::-1].iloc[[1, 2, 3, 4, 0]], bags)


def test_a_bag_of_one_row_is_checked_whatever_its_name():
    frame = pd.DataFrame({"bag": ["row 1", "row 2"], "n": [0, 1], "x": [1.0, 2.0]})
    bags = Bags.from_frame(frame, "bag", "n")
    for given in (bags, bags.with_labels([0, -1])):
        with pytest.raises(LLPError, match=r"= 'row \d', but in bags this row is in 'row \d'"):
            llpkit.fit("linear", given, frame[::-1], epochs=1, progress=False)


def test_a_lazy_frame_is_refused_without_a_warning():
    frame = pl.from_pandas(survey())
    bags = Bags.from_frame(frame, "district", "n_yes")
    with pytest.raises(LLPError, match=r"pass frame\.collect\(\)"):
        Bags.from_frame(frame.lazy(), "district", "n_yes")
    with pytest.raises(LLPError, match=r"pass frame\.collect\(\)"):
        llpkit.fit("linear", bags, frame.lazy(), epochs=1, progress=False)


# Series


@pytest.mark.parametrize(
    "series",
    [
        pd.Series,
        lambda x: pd.Series(x, dtype="category"),
        lambda x: pd.Series(x, dtype="string"),
        pl.Series,
        lambda x: pl.Series(x, dtype=pl.Categorical),
        pa.array,
        lambda x: pa.chunked_array([x]),
        pytest.param(lambda x: datasets.Dataset.from_dict({"g": x})["g"], marks=needs_hugging_face),
    ],
)
def test_series_of_groups_counts_and_labels(series):
    groups = series(["b", "a", "b", "c"])
    assert Bags.from_groups(groups, {"a": 0, "b": 1, "c": 1}).ids == ("a", "b", "c")
    labels = [0, 1, 1, 0]
    for one in (labels, pl.Series(labels), pa.array(labels), pd.array(labels, "Int64")):
        assert Bags.from_labels(one, groups).counts.tolist() == [1, 1, 0]
    assert Bags.from_groups(groups, pl.Series([0, 1, 1])).counts.tolist() == [0, 1, 1]
    assert Bags.from_proportions(groups, pa.array([0.0, 0.5, 1.0])).counts.tolist() == [0, 1, 1]


# Estimators


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize(
    "estimator", [LLPLogisticRegression(), LLPClassifier(LogisticRegression())]
)
def test_estimators_take_frames(estimator, kind):
    data = gaussians()
    frame = KINDS[kind](pd.DataFrame(data.X, columns=["u", "v"]))
    column = {"pandas": pd.Series, "polars": pl.Series, "pyarrow": pa.array}[kind]
    y, groups = column(data.y), column(data.groups)
    estimator.fit(frame, y, groups)
    assert estimator.feature_names_in_.tolist() == ["u", "v"]
    expected = estimator.predict_proba(pd.DataFrame(data.X, columns=["u", "v"]))
    np.testing.assert_allclose(estimator.predict_proba(frame), expected, rtol=1e-12)
    assert estimator.posterior(frame, y, groups).shape == (240, 2)


# Data sets


class Pairs(Dataset):
    """Features and labels by row, as for supervised training."""

    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        return self.x[row], 0


def toy(rows=80):
    x = torch.randn(rows, 3)
    return x, llpkit.random_bags((x[:, 0] > 0).long(), 4, generator=0)


@pytest.mark.parametrize("kind", [Pairs, TensorDataset, lambda x: pd.Series(list(x.numpy()))[::1]])
def test_a_data_set_trains_as_its_tensor(kind):
    x, bags = toy()
    options = {"epochs": 2, "progress": False, "method": "direct"}
    expected = llpkit.fit("linear", bags, x, **options).predict_proba(x)
    model = llpkit.fit("linear", bags, kind(x), resident=False, workers=0, **options)
    assert torch.allclose(model.predict_proba(x), expected, atol=1e-6)
    assert torch.equal(model.predict_proba(kind(x)), model.predict_proba(x))


def test_an_array_that_cannot_be_written_to():
    x, bags = toy()
    array = pd.DataFrame(x.numpy()).to_numpy()
    array.flags.writeable = False  # as in pandas 3
    llpkit.fit("linear", bags, array, epochs=1, progress=False)


@needs_hugging_face
def test_columns_of_hugging_face():
    x, bags = toy()
    data = datasets.Dataset.from_dict({"x": x.tolist()})
    model = llpkit.fit("linear", bags, data["x"], epochs=1, progress=False)
    assert torch.allclose(model.predict_proba(data["x"]), model.predict_proba(x), atol=1e-6)


@needs_hugging_face
def test_images_of_hugging_face():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), np.uint8)
    data = datasets.Dataset.from_dict(
        {"image": [Image.fromarray(one) for one in pixels]},
        features=datasets.Features({"image": datasets.Image()}),
    )
    bags = llpkit.random_bags([0, 1] * 20, 4, generator=0)
    model = llpkit.fit("small-cnn", bags, data["image"], "direct", epochs=1, progress=False)
    assert model.input_shape == (3, 8, 8)
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    assert torch.allclose(model.predict_proba(data["image"]), model.predict_proba(images))


class Items(Dataset):
    def __init__(self, items, length=None):
        self.items, self.length = items, length

    def __len__(self):
        return self.length or len(self.items)

    def __getitem__(self, row):
        return self.items[row]


class Endless(IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Endless(), "an IterableDataset, which has no item numbers"),
        (Pairs([torch.zeros(2)] * 79 + [torch.zeros(3)]), r"item 79 of inputs has shape \(3,\)"),
        (Pairs([torch.tensor(0.0)] * 80), "item 0 of inputs is a single number"),
        (Pairs(["a"] * 80), "item 0 of inputs is a str; give a tensor"),
        (Pairs([torch.tensor([0.0, np.nan])] * 80), "item 0 of inputs has values that are not fi"),
        (Pairs([torch.zeros(2)] * 79), "with 80 rows but inputs has 79"),
        (
            Pairs([{"pixels": 1, "y": 0}] * 80),
            "item 0 of inputs is a dict with 'pixels', 'y'; give",
        ),
        (Items([{"pixels": torch.zeros(2)}] * 80), "is a dict with 'pixels'; give a tensor"),
        (Items([()] * 80), "item 0 of inputs is empty"),
        (Items([[]] * 80), "item 0 of inputs is empty"),
        (Items([torch.zeros(2).to_sparse()] * 80), "a Tensor; give a tensor.* of real numbers"),
        (Items([torch.zeros(2) * 1j] * 80), "a Tensor; give a tensor.* of real numbers"),
        (Items({}, 80), r"item 0 of inputs cannot be read: KeyError\(0\); correct the data set"),
    ],
)
def test_bad_data_sets(data, message):
    _, bags = toy()
    with pytest.raises(LLPError, match=message):
        llpkit.fit("linear", bags, data, epochs=1, progress=False)
