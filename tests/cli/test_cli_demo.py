"""``llpkit demo``: a table and a page, from nothing but the installation."""

import csv
import json
from pathlib import Path

import pytest
import torch

from llpkit import datasets, demo
from llpkit.methods import METHODS


def test_the_quick_demo_shows_every_method(llpkit):
    done = llpkit("demo", "--quick", "--epochs", 1, "--out", "shown")
    assert done.code == 0, done.err
    for method in METHODS:
        assert f"{method}, seed 0: test accuracy" in done.err
        assert method in done.out
    assert done.out.splitlines()[-1] == "shown/report.html"
    page = Path("shown/report.html").read_text()
    assert all(method in page for method in METHODS)
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "data:image/png" in page
    record = json.loads(Path("shown/demo.json").read_text())
    assert [row["method"] for row in record["summary"]] == list(demo.LR)
    with Path("shown/histories.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == set(METHODS)
    assert list(Path("shown/figures").glob("*.png"))
    assert not Path(".shown.llpkit").exists()

    again = llpkit("demo", "--quick", "--epochs", 1, "--out", "shown", "--quiet")
    assert again == (0, "shown/report.html\n", "")


def test_a_folder_that_is_no_demo_is_not_replaced(llpkit):
    Path("mine").mkdir()
    done = llpkit("demo", "--quick", "--out", "mine")
    assert done.code == 2
    assert "mine exists and is not a demo" in done.err


def test_every_method_takes_part():
    assert set(demo.LR) == set(METHODS)


def test_test_digits_are_in_no_training_bag():
    data = datasets.load("digits")
    split = demo.divide(data, seed=3)
    train, test = set(split.bags.rows.tolist()), set(split.test_bags.rows.tolist())
    assert not train & test
    assert len(train | test) == len(data.inputs)
    assert len(test) == demo.TEST
    assert int(split.bags.sizes.max()) <= 12
    counts = torch.zeros(len(split.bags), dtype=torch.int64)
    counts.index_add_(0, split.bags.bag_index, data.truth[split.bags.rows])
    assert torch.equal(counts, split.bags.counts)


@pytest.mark.slow
def test_mle_is_near_the_bound_and_above_dllp_and_amle(llpkit):
    done = llpkit("demo", "--seeds", 5, "--out", "shown")
    assert done.code == 0, done.err
    rows = {r["method"]: r for r in json.loads(Path("shown/demo.json").read_text())["summary"]}
    assert rows["mle"]["accuracy"] > rows["supervised"]["accuracy"] - 0.02
    assert rows["mle"]["accuracy"] > rows["dllp"]["accuracy"]
    assert rows["mle"]["accuracy"] > rows["amle"]["accuracy"]
