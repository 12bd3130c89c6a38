"""The commands ``summary`` and ``shares``."""

import csv
import html
import json
import random

import pytest

from llpkit import load
from llpkit.statistics.summary import LOG_SD


def write_votes(path, bags=40, seed=0):
    """Voters in precincts: two groups, who vote differently."""
    draw = random.Random(seed)
    lines = ["precinct,votes,age,town"]
    for bag in range(bags):
        lean, rural = draw.random(), draw.random()
        people = ["old" if draw.random() < lean else "young" for _ in range(10)]
        votes = sum(draw.random() < (0.8 if age == "old" else 0.3) for age in people)
        towns = ["a" if draw.random() < rural else "b" for _ in people]
        lines += [f"{bag},{votes},{age},{town}" for age, town in zip(people, towns, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def votes(tmp_path):
    return write_votes(tmp_path / "votes.csv")


def fit(llpkit, table, estimator="logistic", **options):
    extra = [part for key, value in options.items() for part in (f"--{key}", value)]
    done = llpkit(
        "fit", table, "--bag", "precinct", "--count", "votes", "--estimator", estimator,
        "--out", "run", "--quiet", *extra,
    )  # fmt: skip
    assert done.code == 0, done.err


def test_summary_of_a_run(llpkit, votes):
    fit(llpkit, votes, **{"test-fraction": 0.2})
    done = llpkit("summary", "run")
    assert done.code == 0, done.err
    assert "age = young (against old)" in done.out or "age = old (against young)" in done.out
    found = json.loads(llpkit("summary", "run", "--json", "--sandwich", "--level", 0.9).out)
    assert found["covariance"] == "sandwich"
    assert found["bags"] == 32
    (age,) = (row for row in found["parameters"] if "age" in row["name"])
    assert abs(age["z"]) > 3
    assert age["odds_ratio_low"] < age["odds_ratio"] < age["odds_ratio_high"]


def test_summary_needs_a_likelihood(llpkit, votes):
    fit(llpkit, votes, "naive-bayes")
    done = llpkit("summary", "run")
    assert done.code == 2
    assert "--estimator logistic" in done.err


def test_shares_of_a_table_a_run_and_aggregated_rows(llpkit, votes, tmp_path):
    done = llpkit(
        "shares", votes, "--bag", "precinct", "--count", "votes", "--by", "age",
        "--out", "shares.csv", "--figure", "shares.png",
    )  # fmt: skip
    assert done.code == 0, done.err
    rows = list(csv.DictReader((tmp_path / "shares.csv").read_text().splitlines()))
    share = {row["age"]: float(row["share"]) for row in rows if row["class"] == "votes"}
    assert 0.7 < share["old"] < 0.9
    assert 0.2 < share["young"] < 0.4
    assert (tmp_path / "shares.png").stat().st_size > 0

    fit(llpkit, votes, "mixed-logistic")
    done = llpkit("shares", "run", "--by", "age", "--json")
    assert done.code == 0, done.err
    (old,) = (r for r in json.loads(done.out) if (r["age"], r["class"]) == ("old", "positive"))
    assert old["share"] == pytest.approx(share["old"], abs=0.05)
    assert old["least"] <= old["low"] <= old["share"] <= old["high"] <= old["most"]

    cells: dict[tuple[str, ...], int] = {}
    for row in csv.DictReader(votes.read_text().splitlines()):
        key = row["precinct"], row["votes"], row["age"]
        cells[key] = cells.get(key, 0) + 1
    short = tmp_path / "short.csv"
    lines = [",".join([*key, str(number)]) for key, number in cells.items()]
    short.write_text("\n".join(["precinct,votes,age,voters", *lines]) + "\n")
    done = llpkit(
        "shares", short, "--bag", "precinct", "--count", "votes", "--by", "age",
        "--multiplicity", "voters", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    (old,) = (r for r in json.loads(done.out) if (r["age"], r["class"]) == ("old", "votes"))
    assert old["share"] == pytest.approx(share["old"], abs=0.05)


def test_shares_of_any_estimator_by_refits(llpkit, votes):
    fit(llpkit, votes, "naive-bayes")
    done = llpkit("shares", "run", "--by", "age")
    assert done.code == 2
    assert "--bootstrap 100" in done.err
    done = llpkit("shares", "run", "--by", "town", "--bootstrap", 3)
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["votes.csv", "--by", "age"], "give --bag and --count"),
        (["votes.csv", "--bag", "precinct", "--count", "votes", "--by", "sex"], "sex"),
        (["votes.csv", "--bag", "precinct", "--count", "age", "--by", "age"], "not a number"),
        (["votes.csv", "--by", "age", "--figure", "x.svg"], "neither .png nor .pdf"),
        (["votes.csv", "--by", "age", "--out", "x.xlsx"], "does not end in .csv"),
        (["run", "--by", "age", "--multiplicity", "n"], "for a table, not for a run"),
        (["run", "--by", "age", "--bag", "precinct"], "--bag is for a table"),
    ],
)
def test_errors(llpkit, votes, arguments, message):
    if arguments[0] == "run":
        fit(llpkit, votes)
    done = llpkit("shares", *arguments)
    assert done.code == 2
    assert message in done.err.replace("\n", " ")


def test_the_page_shows_coefficients(llpkit, votes, tmp_path):
    fit(llpkit, votes, "mixed-logistic")
    page = (tmp_path / "run" / "report.html").read_text()
    for row in json.loads(llpkit("summary", "run", "--json").out)["parameters"]:
        assert html.escape(row["name"]) in page or row["name"] == LOG_SD  # shown as a deviation


def test_json_has_no_infinities(llpkit, tmp_path):
    values = [((7 * b + 3 * i) % 5, b, b % 3) for b in range(40) for i in range(4)]
    rows = [f"{b},{n},{x},{2 * x + 1},{b % 2}" for x, b, n in values]
    (tmp_path / "t.csv").write_text("\n".join(["bag,n,x,twin,one", *rows]))  # "one" is of the bag
    plain = ("--estimator", "logistic", "--estimator-option", "C=inf", "--drop", "one")
    llpkit("fit", "t.csv", "--bag", "bag", "--count", "n", *plain, "--out", "run", "-q")

    def refuse(constant):
        raise AssertionError(constant)

    found = json.loads(llpkit("summary", "run", "--json").out, parse_constant=refuse)
    assert any(None in row.values() for row in found["parameters"])
    assert any("do not determine" in note for note in found["notes"])
    planned = llpkit("plan", "t.csv", "--by", "one", "--drop", "n", "--bags", 5, "--json").out
    json.loads(planned, parse_constant=refuse)


def test_summary_names_the_option_for_maximum_likelihood(llpkit, votes):
    fit(llpkit, votes)
    assert "--estimator-option C=inf is plain maximum" in llpkit("summary", "run").out
    fit(llpkit, votes, **{"estimator-option": "C=inf", "out": "plain"})
    plain = llpkit("summary", "plain").out
    assert "Penalised" not in plain
    assert "do not determine" not in plain  # contrasts of levels are determined
    first = repr(load("run")).splitlines()[0]
    assert first == "Fitted logistic (binary, 4 inputs)"


def test_what_is_undetermined_has_the_names_of_the_table(llpkit, votes):
    lines = votes.read_text().splitlines()
    twice = [lines[0] + ",same", *(f"{line},{line.split(',')[3]}" for line in lines[1:])]
    votes.write_text("\n".join(twice))
    fit(llpkit, votes, **{"estimator-option": "C=inf"})
    found = llpkit("summary", "run").out
    assert found.count("do not determine a combination of") == 1
    (note,) = (line for line in found.splitlines() if "determine a combination" in line)
    assert "same = " in note
    assert "town = " in note
