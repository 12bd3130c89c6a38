"""Loading by name: the registry, its refusals, and the data sets that need no files."""

import inspect
import math
import os

import pytest
import torch

from llpkit import Bags, LLPError, datasets
from llpkit.datasets import DATASETS, DataSet, load

FROM_FILES = ["cifar10", "group-photos", "fashion-mnist", "adult"]


def same(a, b):
    return (
        torch.equal(a.inputs, b.inputs)
        and torch.equal(a.truth, b.truth)
        and torch.equal(a.bags.rows, b.bags.rows)
        and torch.equal(a.bags.counts, b.bags.counts)
    )


def counts_match_truth(data):
    for bag in data.bags:
        labels = data.truth[bag.rows]
        expected = (
            int(labels.sum())
            if data.bags.num_classes is None
            else tuple(torch.bincount(labels, minlength=data.bags.num_classes).tolist())
        )
        assert bag.count == expected


# The registry


@pytest.mark.parametrize("name", DATASETS)
def test_every_entry_says_what_it_is(name):
    entry = DATASETS[name]
    assert entry.summary
    assert "\n" not in entry.summary
    assert bool(entry.source) == bool(entry.save_as) == bool(entry.files) == (name in FROM_FILES)
    assert "data_dir" not in entry.options
    own_bags = ("group-photos", "image-table", "feature-table")
    assert entry.random_bags == (name not in own_bags)


def test_options_and_their_defaults():
    assert DATASETS["cifar10"].options == {"classes": ("bird", "cat"), "split": "all"}
    assert DATASETS["feature-table"].options["bag"] is inspect.Parameter.empty


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digit", {}, "no data set 'digit'; did you mean 'digits'?"),
        ("Group_Photos", {}, "did you mean 'group-photos'?"),
        ("?", {}, "available: adult, cifar10, digits"),
        ("cifar10", {"clases": "bird,cat"}, "no option 'clases'; did you mean 'classes'?"),
        ("digits", {"zzz": 1}, "no option 'zzz'; available: positive, classes"),
        ("feature-table", {"table": "a.csv"}, "needs the option 'bag'; it must have table, bag"),
        ("image-table", {"table": "a.csv", "bag": "b"}, "needs the option 'image'"),
        ("group-photos", {"bag_size": 3}, "bag_size = 3 but group-photos comes with bags"),
    ],
)
def test_refusals(name, options, message):
    with pytest.raises(LLPError) as error:
        load(name, **options)
    assert message in str(error.value)


@pytest.mark.usefixtures("registries")
def test_register():
    @datasets.register("coins", summary="a coin, tossed", files=("coins.txt",))
    def coins(*, bag_size=None, seed=0, tosses=10):
        labels = torch.arange(tosses) % 2
        x = labels[:, None].float()
        return datasets.in_random_bags("coins", x, labels, ["tails", "heads"], bag_size, seed)

    assert len(load("coins", bag_size=2, tosses=6).bags) == 3
    assert DATASETS["coins"].options == {"tosses": 10}
    with pytest.raises(LLPError, match="there is already a data set 'coins'"):
        datasets.register("coins", summary="another")(coins)


@pytest.mark.parametrize("name", FROM_FILES)
def test_missing_data_says_where_to_get_it_and_where_to_put_it(name, tmp_path):
    with pytest.raises(LLPError) as error:
        load(name, data_dir=tmp_path)
    message = str(error.value)
    assert f"{name} is not in {tmp_path}" in message
    assert DATASETS[name].source in message
    assert DATASETS[name].save_as in message
    assert "LLPKIT_DATA" in message


def test_data_is_looked_for_in_the_option_then_the_variable_then_the_cache(tmp_path, monkeypatch):
    def place():
        with pytest.raises(LLPError) as error:
            load("cifar10", data_dir=option)
        return str(error.value).removeprefix("cifar10 is not in ").split(". Get")[0]

    option = None
    cache = os.environ["XDG_CACHE_HOME"]
    assert place() == os.path.join(cache, "llpkit", "data")
    monkeypatch.setenv("LLPKIT_DATA", str(tmp_path / "variable"))
    assert place() == str(tmp_path / "variable")
    option = tmp_path / "option"
    assert place() == str(tmp_path / "option")


# DataSet


def test_a_data_set_checks_its_parts():
    bags, x = Bags([0, 2], [1]), torch.zeros(3, 1)
    with pytest.raises(LLPError, match=r"have \{2, 3\} rows|have \{3, 2\} rows"):
        DataSet("toy", x, bags, None, ("a", "b"))
    with pytest.raises(LLPError, match="give one name per class"):
        DataSet("toy", x[:2], bags, None, ("a", "b", "c"))


def test_repr():
    bags = Bags([0, 2], [1])
    data = DataSet("toy", torch.zeros(2, 3), bags, None, ("no", "yes"))
    assert data.title == "toy: 2 rows of 3 features"
    assert repr(data).startswith("DataSet('toy', 2 rows of 3 features, Bags(")


# Digits


def test_digits():
    data = load("digits")
    assert data.inputs.shape == (1797, 1, 8, 8)
    assert data.inputs.dtype == torch.uint8
    assert (int(data.inputs.min()), int(data.inputs.max())) == (0, 255)
    assert data.class_names == ("even", "odd")
    assert data.truth.dtype == torch.int64
    assert int(data.truth[:10].sum()) == 5  # they begin 0, 1, …, 9
    assert (int(data.bags.sizes.min()), int(data.bags.sizes.max())) == (1, 12)
    assert data.bags.num_instances == 1797
    counts_match_truth(data)


def test_seed_and_bag_size():
    assert same(load("digits"), load("digits", bag_size=(1, 12), seed=0))
    assert not same(load("digits"), load("digits", seed=1))
    assert load("digits", bag_size=16).bags.sizes[:-1].unique().tolist() == [16]
    with pytest.raises(LLPError, match="size = 0"):
        load("digits", bag_size=0)


def test_digits_other_classes():
    data = load("digits", positive={3, 8})
    assert data.class_names == ("0, 1, 2, 4, 5, 6, 7, 9", "3, 8")
    assert int(data.truth.sum()) == 183 + 174
    ten = load("digits", classes=10)
    assert ten.class_names == tuple("0123456789")
    assert ten.truth[:10].tolist() == list(range(10))
    counts_match_truth(ten)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positive": []}, "give some digits, but not all ten"),
        ({"positive": range(10)}, "give some digits, but not all ten"),
        ({"positive": [10]}, "a digit in positive = 10; give a whole number from 0 to 9"),
        ({"positive": 3}, "positive = 3; give a list of digits"),
        ({"positive": "13"}, "give a list of digits"),
        ({"classes": 3}, "classes = 3; give 2, or 10"),
        ({"classes": 10, "positive": [1]}, "leave out positive or classes=10"),
    ],
)
def test_digits_refusals(options, message):
    with pytest.raises(LLPError, match=message):
        load("digits", **options)


# Synthetic


@pytest.mark.parametrize(("classes", "features"), [(2, 1), (2, 5), (3, 2), (5, 4), (4, 9)])
def test_synthetic_means_are_as_far_apart_as_stated(classes, features):
    data = load("synthetic", rows=20_000, classes=classes, features=features, separation=4)
    assert data.inputs.dtype == torch.float32
    means = torch.stack([data.inputs[data.truth == k].mean(0) for k in range(classes)])
    apart = torch.pdist(means)
    assert torch.allclose(apart, torch.full_like(apart, 4.0), atol=0.12)
    assert torch.allclose(data.inputs.mean(0), torch.zeros(features), atol=0.12)
    noise = data.inputs - means[data.truth]
    assert torch.allclose(noise.std(0), torch.ones(features), atol=0.05)
    counts_match_truth(load("synthetic", rows=50, classes=classes, features=features))


def test_synthetic_positives_lie_to_the_right_and_the_note_is_true():
    data = load("synthetic", rows=50_000, separation=2)
    right = ((data.inputs[:, 0] > 0).long() == data.truth).double().mean()
    assert data.notes == ("the best classifier gets 84.1 % right",)
    assert math.isclose(float(right), 0.841, abs_tol=0.005)


def test_synthetic_is_repeatable():
    assert same(load("synthetic", seed=3), load("synthetic", seed=3))
    assert not same(load("synthetic", seed=3), load("synthetic", seed=4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows = 0; give a whole number from 1"),
        ({"rows": 2.5}, "rows = 2.5; give a whole number"),
        ({"rows": True}, "rows = True"),
        ({"classes": 1}, "classes = 1; give a whole number from 2"),
        ({"classes": 4, "features": 2}, "features = 2; give a whole number from 3"),
        ({"separation": "far"}, "separation = 'far'; give a number"),
        ({"separation": float("nan")}, "separation = nan"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_synthetic_refusals(options, message):
    with pytest.raises(LLPError, match=message):
        load("synthetic", **options)


def test_encoder_is_absent_where_there_is_no_table():
    assert load("synthetic", rows=3).encoder is None
