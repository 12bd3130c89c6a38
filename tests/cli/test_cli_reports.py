"""Counts as they were published, and labels known for some rows, by the command line."""

import csv
import random
from pathlib import Path

import pytest
import torch

from llpkit import Bags, load
from llpkit.likelihood import log_prob
from llpkit.tables import CountColumns, Table

FIT = ("--bag", "bag", "--network", "linear", "--epochs", 1, "--force", "--out", "run")


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def write(counts: dict[str, object], size: int = 3, **more: list[object]) -> None:
    draw = random.Random(0)
    lines = [",".join(["bag", "n", "x", *more])]
    for bag, count in counts.items():
        for _ in range(size):
            extra = [str(column[len(lines) - 1]) for column in more.values()]
            lines.append(",".join([bag, str(count), f"{draw.random():.3f}", *extra]))
    Path("t.csv").write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("noise", "counts"),
    [
        ("laplace:2", {"a": -0.7, "b": 3.9, "c": 1.5}),
        ("laplace:epsilon=0.5,sensitivity=1", {"a": 0.2, "b": 1.8}),
        ("gaussian:epsilon=0.5,delta=1e-5", {"a": 0.2, "b": 1.8}),
        ("geometric:epsilon=1", {"a": -2, "b": 4}),
        ("binomial:0.9", {"a": 1, "b": 2}),
        ("rounded:5", {"a": 0, "b": 5}),
        ("suppressed:2", {"a": "", "b": 2, "c": "<2", "d": "*"}),
    ],
)
def test_every_kind_of_noise_is_read(noise, counts):
    write(counts)
    bags = CountColumns("n", count_noise=noise).bags(Table.read("t.csv"), "bag")
    assert not bags.evidence.is_exact
    assert bool(
        log_prob(torch.zeros(bags.num_instances), bags.evidence, bags.offsets).isfinite().all()
    )


def test_noise_of_a_run_is_kept(llpkit):
    write({"a": -0.7, "b": 3.9})
    done = llpkit("fit", "t.csv", "--count", "n", "--count-noise", "laplace:2", *FIT)
    assert done.code == 0, done.err
    assert "count_noise: 'laplace:2'" in Path("run/config.yaml").read_text()
    assert llpkit("predict", "run", "t.csv", "--out", "p.csv").code == 0
    assert all(0 <= float(row["posterior"]) <= 1 for row in rows_of("p.csv"))


@pytest.mark.parametrize(
    ("noise", "counts", "message"),
    [
        ("laplac:2", {"a": 1}, "did you mean 'laplace'?"),
        ("laplace", {"a": 1}, "give one of the two"),
        ("laplace:two", {"a": 1}, "scale in --count-noise = 'two'; give a number"),
        ("suppressed:5,rounded:10", {"a": 1}, "give one kind, which applies to all bags"),
        ("laplace:sigma=2", {"a": 1}, "laplace has scale, epsilon, sensitivity, not 'sigma'"),
        ("rounded:5", {"a": 3}, "row 1 (header not counted), column 'n' = 3 is not a multiple"),
        ("rounded:5", {"a": 10}, "are rows of the bag missing?"),
        ("suppressed:3", {"a": "<5"}, "'<5' is not a number"),
        ("suppressed:3", {"a": 2}, "column 'n' = 2, but counts below 3 were hidden"),
        ("geometric:1", {"a": 1.5}, "column 'n' = 1.5 is not whole, as counts with geometric"),
        ("binomial:0.9", {"a": -1}, "column 'n' = -1 is negative"),
        ("laplace:2", {"a": ""}, "column 'n' is empty"),
    ],
)
def test_wrong_noise_is_told_where(llpkit, noise, counts, message):
    write(counts)
    done = llpkit("fit", "t.csv", "--count", "n", "--count-noise", noise, *FIT)
    assert done.code == 2
    assert message in done.err


def test_noise_goes_with_counts(llpkit):
    write({"a": 0.5})
    done = llpkit("fit", "t.csv", "--proportion", "n", "--count-noise", "laplace:1", *FIT)
    assert "--count-noise belongs to --count" in done.err


def test_labels_of_some_rows_and_bags_without_a_count(llpkit):
    known = ["yes", "", "", "", "no", "NA", "", "", ""]
    write({"a": 1, "b": "", "c": 2}, known=known)
    names = ("--class-name", "no", "--class-name", "yes")
    done = llpkit("fit", "t.csv", "--count", "n", "--known-label", "known", *names, *FIT)
    assert done.code == 0, done.err
    assert "2 rows with a known label, each in its own bag" in done.err
    assert "of the bags, 4 exact counts, 1 unknown count" in done.err
    assert llpkit("predict", "run", "t.csv", "--out", "p.csv").code == 0
    posterior = [float(row["posterior"]) for row in rows_of("p.csv")]
    assert posterior[:3] == [1, 0, 0]
    assert posterior[4] == 0
    assert sum(posterior[6:]) == pytest.approx(2, abs=1e-5)
    # A table without these columns still gets probabilities.
    Path("new.csv").write_text("bag,x\nz,0.5\n")
    assert llpkit("predict", "run", "new.csv", "--out", "q.csv").code == 0
    assert set(rows_of("q.csv")[0]) == {"bag", "x", "probability", "label"}


def test_labels_alone_are_enough_and_need_no_bag(llpkit):
    Path("t.csv").write_text("bag,x,label\n,1,1\n,0,0\na,2,\na,3,\n")
    done = llpkit("fit", "t.csv", "--known-label", "label", *FIT)
    assert done.code == 0, done.err
    Path("t.csv").write_text("bag,x,label\n,1,1\n,0,\na,2,\n")
    done = llpkit("fit", "t.csv", "--known-label", "label", *FIT)
    assert "row 2 (header not counted), column 'bag' is empty" in done.err


def test_labels_of_several_classes_name_them(llpkit):
    kinds = ["cat", "dog", "bird", ""]
    rows = [f"{i // 8},{i % 7},{kinds[i % 4]}" for i in range(80)]
    Path("t.csv").write_text("\n".join(["bag,x,kind", *rows]))
    done = llpkit("fit", "t.csv", "--known-label", "kind", *FIT)
    assert done.code == 0, done.err
    assert load("run").class_names == ("bird", "cat", "dog")
    done = llpkit("evaluate", "run", "t.csv", "--json")
    assert done.code == 0, done.err
    assert Bags.from_frame("t.csv", "bag", known_label="kind").num_classes == 3
    codes = [f"{i // 8},{i % 7},{i % 12 + 1}" for i in range(80)]
    Path("t.csv").write_text("\n".join(["bag,x,kind", *codes]))
    assert llpkit("fit", "t.csv", "--known-label", "kind", *FIT).code == 0
    assert load("run").class_names == tuple(map(str, range(1, 13)))


def test_a_label_that_contradicts_the_count_names_the_bag(llpkit):
    write({"a": 0}, label=[1, "", ""])
    done = llpkit("fit", "t.csv", "--count", "n", "--known-label", "label", *FIT)
    assert "the count of bag 'a', 0, contradicts the known labels of its rows" in done.err
    assert "row 1 (header not counted), column 'label' = 'positive'; correct" in done.err
