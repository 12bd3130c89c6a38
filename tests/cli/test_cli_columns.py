"""Columns left out, bags without rows, class names, and evaluation from labels alone."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from llpkit import load

COLUMNS = ("--bag", "district", "--count", "n_yes")
LINEAR = ("--network", "linear", "--method", "direct", "--epochs", 1)


def without(survey: Path, *columns: str) -> Path:
    """The survey without some columns, as new.csv."""
    rows = [line.split(",") for line in survey.read_text().splitlines()]
    kept = [i for i, name in enumerate(rows[0]) if name not in columns]
    Path("new.csv").write_text("".join(",".join(row[i] for i in kept) + "\n" for row in rows))
    return Path("new.csv")


# Columns that are left out


@pytest.mark.parametrize("model", [LINEAR, ("--estimator", "logistic")])
def test_columns_to_leave_out(llpkit, survey, model):
    drop = ("--drop", "region", "--drop", "answer")
    done = llpkit("fit", survey, *COLUMNS, *drop, *model, "--out", "run")
    assert done.code == 0, done.err
    encoder = json.loads(Path("run/encoder.json").read_text())
    assert [column["name"] for column in encoder["columns"]] == ["age"]
    new = without(survey, "region", "answer")
    assert llpkit("predict", "run", new, "--out", "p.csv").code == 0


def test_other_commands_leave_columns_out(llpkit, survey):
    shares = ("shares", survey, *COLUMNS, "--by", "region", "--json")
    assert llpkit(*shares, "--drop", "answer", "--drop", "age").code == 0
    assert llpkit("check", survey, *COLUMNS, "--drop", "answer").code in (0, 1)
    assert llpkit("plan", survey, "--drop", "answer", "--drop", "district", "--sizes", 2).code == 0


def test_what_cannot_be_left_out(llpkit, survey):
    done = llpkit("fit", survey, *COLUMNS, "--drop", "regoin", "--out", "run")
    assert done.code == 2
    assert "has no column 'regoin' to leave out; did you mean 'region'?" in done.err
    both = llpkit("fit", survey, *COLUMNS, "--drop", "region", "--features", "age", "--out", "run")
    assert "but --features names the columns to learn from; give one of the two" in both.err
    for command in ("fit", "shares", "plan"):
        by = {"fit": (), "shares": ("--by", "region"), "plan": ("--by", "district")}[command]
        given = () if command == "plan" else COLUMNS
        done = llpkit(command, survey, *given, *by, "--features", "district")
        assert "column 'district' holds the" in done.err
        assert "leave it out of --features" in done.err


# Classes


def test_classes_are_called_like_their_columns(llpkit):
    lines = ["bag,cats,dogs,birds,weight"]
    lines += [f"b{i // 3},1,1,1,{(i % 3) * 10 + i % 5}" for i in range(60)]
    Path("pets.csv").write_text("\n".join(lines))
    counts = [part for name in ("cats", "dogs", "birds") for part in ("--count", name)]
    done = llpkit("fit", "pets.csv", "--bag", "bag", *counts, *LINEAR, "--out", "run")
    assert done.code == 0, done.err
    assert load("run").class_names == ("cats", "dogs", "birds")


# Bags without rows


def test_bags_without_rows_can_be_ignored(llpkit, survey):
    counts = {}
    for line in survey.read_text().splitlines()[1:]:
        district, n_yes, *_ = line.split(",")
        counts[district] = n_yes
    extra = {f"empty{i}": "0" for i in range(7)}
    lines = ["district,n_yes", *(f"{k},{v}" for k, v in (counts | extra).items())]
    Path("counts.csv").write_text("\n".join(lines))
    new = without(survey, "n_yes")
    command = ("fit", new, *COLUMNS, *LINEAR, "--counts-table", "counts.csv", "--out", "run")
    done = llpkit(*command)
    assert done.code == 2
    assert "is in bags 'empty0', 'empty1', 'empty2', 'empty3', 'empty4' and 2 more" in done.err
    assert "leave them out with --ignore-empty" in done.err
    done = llpkit(*command, "--ignore-empty")
    assert done.code == 0, done.err
    assert "counts.csv without rows: 'empty0', 'empty1', 'empty2', 'empty3', 'em" in done.err
    again = llpkit("evaluate", "run", new, "--counts-table", "counts.csv", "--json")
    found = json.loads(again.out)["parts"]["all"]  # the run's own setting holds here as well
    assert found["bags"]["number"] == 30


# Labels alone


@pytest.mark.parametrize("model", [LINEAR, ("--estimator", "logistic")])
def test_counts_follow_from_labels(llpkit, survey, model):
    label = ("--label", "answer")
    assert llpkit("fit", survey, *COLUMNS, *model, *label, "--out", "run").code == 0
    whole = json.loads(llpkit("evaluate", "run", survey, "--json").out)["parts"]["all"]
    done = llpkit("evaluate", "run", without(survey, "n_yes"), "--json")
    assert json.loads(done.out)["parts"]["all"] == whole
    assert "the counts of bags are computed from the labels in column 'answer'" in done.err
    alone = llpkit("evaluate", "run", without(survey, "n_yes", "district"), "--json")
    assert json.loads(alone.out)["parts"]["all"] == {"instances": whole["instances"]}


def test_labels_that_contradict_the_counts_are_noted(llpkit, survey):
    table, label = Path("upside-down.csv"), ("--label", "answer")
    table.write_text(survey.read_text().replace(",1\n", ",no\n").replace(",0\n", ",yes\n"))
    names = ("--class-name", "no", "--class-name", "yes")
    done = llpkit("fit", table, *COLUMNS, *LINEAR, *label, *names, "--out", "run")
    assert "the labels in column 'answer' contradict the counts of 2" in done.err
    done = llpkit("evaluate", "run", table, "--json")
    assert "the labels in column 'answer' contradict the counts of 2" in done.err
    names = ("--class-name", "yes", "--class-name", "no")
    done = llpkit("fit", table, *COLUMNS, *LINEAR, *label, *names, "--out", "right")
    assert "contradict" not in done.err


def test_images_with_labels_alone(llpkit):
    rng = np.random.default_rng(0)
    lines = ["file,bag,n,kind"]
    for i in range(12):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(f"{i}.png")
        lines.append(f"{i}.png,b{i // 3},1,{int(i % 3 == 0)}")
    Path("t.csv").write_text("\n".join(lines))
    options = ("--bag", "bag", "--count", "n", "--image", "file", "--network", "small-cnn")
    done = llpkit("fit", "t.csv", *options, "--epochs", 1, "--method", "direct", "--out", "run")
    assert done.code == 0, done.err
    label = ("--label", "kind", "--json")
    whole = json.loads(llpkit("evaluate", "run", "t.csv", *label).out)["parts"]["all"]
    new = without(Path("t.csv"), "n")
    assert json.loads(llpkit("evaluate", "run", new, *label).out)["parts"]["all"] == whole
    alone = llpkit("evaluate", "run", without(Path("t.csv"), "n", "bag"), *label)
    assert json.loads(alone.out)["parts"]["all"] == {"instances": whole["instances"]}


# Counts and bounds


def test_exact_counts_beside_ranges(llpkit, survey):
    lines = ["district,n,lo,hi,age"]
    for line in survey.read_text().splitlines()[1:]:
        district, n_yes, age, *_ = line.split(",")
        known = (f"{n_yes},,", f",{n_yes},{n_yes}", ",0,", ",,")[int(district[1:]) % 4]
        lines.append(f"{district},{known},{age}")
    Path("mixed.csv").write_text("\n".join(lines))
    names = ("--bag", "district", "--count", "n", "--count-low", "lo", "--count-high", "hi")
    done = llpkit("fit", "mixed.csv", *names, *LINEAR, "--out", "run")
    assert done.code == 0, done.err
    assert "of the bags, 16 exact counts, 14 unknown counts" in done.err
    assert llpkit("predict", "run", "mixed.csv", "--out", "p.csv").code == 0
    assert "posterior" in Path("p.csv").read_text()
    # Exact counts alone are enough for posteriors.
    done = llpkit("predict", "run", without(Path("mixed.csv"), "lo", "hi"), "--out", "q.csv")
    assert done.code == 0
    assert "column 'n' is empty" in done.err
    again = llpkit("check", "mixed.csv", *names)
    assert "16 exact counts, 14 unknown counts" in again.out
