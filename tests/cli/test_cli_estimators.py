"""Estimators for tables by the command line: fit, page, files, predictions, and what is refused."""

import csv
import json
import re
import zipfile

import numpy as np
import pytest
import torch

from llpkit import Bags, LLPError, estimators
from llpkit.files import add_checksums
from llpkit.statistics import bag_calibration, goodness_of_fit

COLUMNS = ("--bag", "district", "--count", "n_yes")


@pytest.fixture
def people(tmp_path):
    """Districts of people: two numbers of which one matters, a category, gaps in both."""
    rng = np.random.default_rng(0)
    district, age = rng.integers(0, 60, 400), rng.uniform(18, 90, 400)
    region = rng.choice(["north", "south"], 400)
    answer = (age > 50) != ((region == "south") & (rng.random(400) < 0.1))
    counts = np.bincount(district, answer, 60).astype(int)
    lines = ["district,n_yes,age,noise,region,answer"]
    for i in range(400):
        shown = "" if rng.random() < 0.05 else f"{age[i]:.1f}"
        where = "" if rng.random() < 0.05 else region[i]
        lines.append(
            f"d{district[i]},{counts[district[i]]},{shown},{rng.normal():.2f},{where},"
            f"{int(answer[i])}"
        )
    path = tmp_path / "people.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("figures")
def test_boosting_without_labels(llpkit, people, tmp_path):
    features = ("--features", "age", "--features", "noise", "--features", "region")
    options = ("--estimator", "hist-gradient-boosting", "--estimator-option", "max_iter=3")
    inner = ("--estimator-option", "estimator__max_iter=20", "--test-fraction", "0.25")
    done = llpkit("fit", people, *COLUMNS, *features, *options, *inner)
    assert done.code == 0, done.err
    run = tmp_path / "runs" / "people-hist-gradient-boosting-0"
    assert f"report: {run.relative_to(tmp_path)}/report.html" in done.out

    page = (run / "report.html").read_text(encoding="utf-8")
    headings = re.findall(r"<h[12]>(.*?)</h[12]>", page)
    assert headings[0] == "hist-gradient-boosting on people.csv"
    assert {"Importance of the columns", "The worst bags"} <= set(headings)
    assert "Does the model explain the counts?" in headings
    assert 'class="example' not in page  # a bad bag is no example
    assert re.search(r"age \d\d", page)  # as the table has it, not standardised

    worth = read(run / "importances.csv")
    assert worth[0]["column"] == "age"
    assert {row["column"] for row in worth} == {"age", "noise", "region"}
    worst = read(run / "worst_bags.csv")
    far = [float(row["standard_deviations"]) for row in worst]
    assert far == sorted(far, reverse=True)
    about = json.loads((run / "model.json").read_text())
    assert 1 <= len(about["history"]) <= 3
    assert (run / "figures" / "importances.png").stat().st_size > 5000


@pytest.mark.parametrize(("options", "jobs"), [((), 1), (("--estimator-option", "n_jobs=2"), 2)])
def test_threads_are_handed_on(llpkit, people, tmp_path, options, jobs):
    small = ("--estimator-option", "n_estimators=5", "--estimator-option", "max_iter=1")
    chosen = ("--estimator", "random-forest", "--threads", 1, "--out", "run")
    assert llpkit("fit", people, *COLUMNS, *chosen, *small, *options).code == 0
    model = estimators.load(tmp_path / "run" / "estimator.skops")
    assert model.estimator.n_jobs == jobs


def test_labels_predictions_and_measures(llpkit, people, tmp_path):
    options = ("--label", "answer", "--estimator", "logistic", "--out", "run", "--quiet")
    assert llpkit("fit", people, *COLUMNS, *options, "--held-out", "0.2").code == 0
    assert zipfile.is_zipfile(tmp_path / "run" / "estimator.skops")
    assert "logistic" in (tmp_path / "run" / "config.yaml").read_text()

    assert llpkit("predict", "run", people, "--out", "out.csv").code == 0
    rows = read(tmp_path / "out.csv")
    sums, counts = {}, {}
    for row in rows:
        sums[row["district"]] = sums.get(row["district"], 0.0) + float(row["posterior"])
        counts[row["district"]] = int(row["n_yes"])
    assert all(abs(sums[name] - counts[name]) < 1e-4 for name in counts)
    right = [row["label"] == row["answer"] for row in rows]
    assert np.mean(right) > 0.85

    measures = json.loads(llpkit("evaluate", "run", "--json").out)["parts"]
    assert set(measures) == {"training", "held-out"}
    assert measures["held-out"]["instances"]["accuracy"] > 0.8


def test_a_count_column_for_each_of_two_classes(llpkit, people, tmp_path):
    rows = read(people)
    size = {row["district"]: 0 for row in rows}
    for row in rows:
        size[row["district"]] += 1
    lines = ["district,no,yes,age"]
    for row in rows:
        no = size[row["district"]] - int(row["n_yes"])
        lines.append(f"{row['district']},{no},{row['n_yes']},{row['age']}")
    (tmp_path / "two.csv").write_text("\n".join(lines) + "\n")
    counts = ("--bag", "district", "--count", "no", "--count", "yes")
    done = llpkit("fit", "two.csv", *counts, "--estimator", "logistic", "--out", "run")
    assert done.code == 0, done.err
    assert llpkit("predict", "run", "two.csv", "--out", "out.csv").code == 0
    out = read(tmp_path / "out.csv")
    right = [row["label"] in ("yes", "1") for row in out]
    truth = [row["answer"] == "1" for row in rows]
    assert np.mean(np.array(right) == truth) > 0.85


def test_more_classes(llpkit, tmp_path):
    rng = np.random.default_rng(0)
    lines = ["bag,a,b,c,x,y"]
    for bag in range(60):
        labels = rng.integers(0, 3, 4)
        counts = np.bincount(labels, minlength=3)
        for label in labels:
            x, y = rng.normal(size=2) + 4 * np.array([[0, 0], [1, 0], [0, 1]])[label]
            lines.append(f"{bag},{counts[0]},{counts[1]},{counts[2]},{x:.2f},{y:.2f}")
    (tmp_path / "three.csv").write_text("\n".join(lines) + "\n")
    counts = ("--count", "a", "--count", "b", "--count", "c")
    done = llpkit("fit", "three.csv", "--bag", "bag", *counts, "--estimator", "naive-bayes")
    assert done.code == 0, done.err
    run = tmp_path / "runs" / "three-naive-bayes-0"
    assert "expected_c" in (run / "worst_bags.csv").read_text()
    assert llpkit("predict", run, "three.csv", "--out", "p.csv").code == 0
    assert "probability_c" in (tmp_path / "p.csv").read_text()


def test_what_did_not_converge_is_a_note(llpkit, people):
    options = ("--estimator", "hist-gradient-boosting", "--estimator-option", "max_iter=1")
    fast = ("--estimator-option", "estimator__max_iter=2", "--out", "run")
    done = llpkit("fit", people, *COLUMNS, *options, *fast)
    assert done.code == 0
    assert "EM did not converge in 1 iterations" in done.err


@pytest.mark.usefixtures("people")
def test_a_configuration_names_an_estimator(llpkit, tmp_path):
    (tmp_path / "run.yaml").write_text(
        "data: {table: people.csv, bag: district, count: n_yes}\n"
        "estimator: logistic\nestimator_options: {C: 0.5}\n"
    )
    assert llpkit("fit", "run.yaml", "--out", "run").code == 0
    assert "C=0.5" in (tmp_path / "run" / "report.html").read_text()
    again = llpkit("fit", "run/config.yaml", "--out", "again")
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--estimator", "logistc"), "--estimator = 'logistc'; did you mean 'logistic'?"),
        (("--estimator", "logistic", "--epochs", "3"), "--epochs goes with a network"),
        (("--estimator", "logistic", "--network", "mlp"), "--network goes with a network"),
        (("--estimator", "logistic", "--precision", "64-true"), "--precision goes with a network"),
        (("--estimator", "logistic", "--compile", "true"), "--compile goes with a network"),
        (("--estimator", "logistic", "--devices", "2"), "--devices goes with a network"),
        (("--estimator-option", "C=1"), "--estimator-option goes with an estimator; name one"),
        (
            ("--estimator", "logistic", "--estimator-option", "c=1"),
            "logistic has no option 'c'; did you mean 'C'?",
        ),
        (
            ("--estimator", "logistic", "--estimator-option", "C=-1"),
            "C = -1; give a number above 0",
        ),
    ],
)
def test_what_does_not_fit_is_refused(llpkit, people, options, message):
    done = llpkit("fit", people, *COLUMNS, *options, "--out", "run")
    assert done.code == 2
    assert message in done.err


def test_images_are_refused(llpkit):
    done = llpkit("fit", "--dataset", "digits", "--estimator", "logistic", "--out", "run")
    assert done.code == 2
    assert "digits holds images, and the estimator logistic takes tables" in done.err


BAD = {
    "count above the bag": ("d1,9,1\nd1,9,2\n", r"row 1 .* column 'n' = 9 but bag 'd1' has 2 rows"),
    "rows that disagree": ("d1,1,1\nd1,2,2\n", r"row 2 .* = 2 but row 1 of the same bag, 'd1'"),
    "text in a number": (
        "d1,1,1\nd1,1,2\nd1,1,x\n",
        r"row 3 .* column 'x' = 'x' is not a number, but 2 values of that column are",
    ),
    "nothing": ("", "has no rows below its header"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_refused_by_row(llpkit, tmp_path, case):
    rows, message = BAD[case]
    (tmp_path / "bad.csv").write_text(f"bag,n,x\n{rows}")
    done = llpkit("fit", "bad.csv", "--bag", "bag", "--count", "n", "--estimator", "logistic")
    assert done.code == 2
    assert re.search(message, done.err)


def test_a_missing_column_and_an_empty_file_are_refused(llpkit, people, tmp_path):
    done = llpkit("fit", people, "--bag", "distrct", "--count", "n_yes", "--estimator", "logistic")
    assert "people.csv has no column 'distrct'; did you mean 'district'?" in done.err
    (tmp_path / "empty.csv").write_text("")
    done = llpkit("fit", "empty.csv", "--bag", "a", "--count", "b", "--estimator", "logistic")
    assert done.code == 2
    assert "empty.csv is empty" in done.err


def test_a_damaged_estimator_is_told(llpkit, people, tmp_path):
    assert llpkit("fit", people, *COLUMNS, "--estimator", "logistic", "--out", "run").code == 0
    (tmp_path / "run" / "estimator.skops").write_bytes(b"nothing")
    done = llpkit("predict", "run", people, "--out", "p.csv")
    assert done.code == 2
    assert "run is damaged: estimator.skops has changed since it was written" in done.err
    add_checksums(tmp_path / "run", ["estimator.skops"])
    done = llpkit("predict", "run", people, "--out", "p.csv")
    assert done.code == 2
    assert "is not a valid estimator" in done.err


def test_a_plugin_adds_an_estimator(llpkit, people, tmp_path, own_parts):
    fit = ("fit", people, *COLUMNS, "--estimator", "no-intercept", "--out", "run", "--quiet")
    assert llpkit(*fit).code == 2
    mine = ("--plugin", own_parts)
    done = llpkit(*mine, *fit, "--estimator-option", "C=0.1")
    assert done.code == 0, done.err
    done = llpkit(*mine, "predict", "run", people, "--out", "p.csv")
    assert done.code == 0, done.err
    model = estimators.load(tmp_path / "run" / "estimator.skops")
    assert model.C == 0.1
    assert model.intercept_.tolist() == [0]
    del estimators.ESTIMATORS._entries["no-intercept"]
    with pytest.raises(LLPError, match=r"would create objects of .*NoIntercept"):
        estimators.load(tmp_path / "run" / "estimator.skops")


def test_an_estimator_of_a_plugin_can_be_searched(llpkit, people, tmp_path, own_parts):
    fit = ("fit", people, *COLUMNS, "--estimator", "no-intercept", "--out", "run", "--quiet")
    done = llpkit("--plugin", own_parts, *fit, "--search", 3)
    assert done.code == 0, done.err
    about = json.loads((tmp_path / "run" / "model.json").read_text())["details"]["search"]
    assert {one["settings"]["C"] for one in about["tried"]} == {0.1, 1.0, 10.0}


def test_bags_are_checked_by_their_counts():
    bags = Bags([0, 2, 5], [2, 0])
    logits = torch.tensor([0.0, 0.0, 2.0, 2.0, 2.0], dtype=torch.float64)
    found = goodness_of_fit(logits, bags)
    p = torch.sigmoid(torch.tensor(2.0)).item()
    assert found.expected.tolist() == pytest.approx([1.0, 3 * p])
    assert found.distance.tolist() == pytest.approx([1 / 0.5**0.5, (3 * p / (1 - p)) ** 0.5])
    curve = bag_calibration(found, bags, bins=2)
    assert curve.mean_predicted.tolist() == pytest.approx([(1 + 3 * p) / 5])
    assert curve.fraction_positive.tolist() == pytest.approx([0.4])


def test_a_search_keeps_its_choice_in_the_run(llpkit, people, tmp_path):
    fit = ("fit", people, *COLUMNS, "--estimator", "logistic", "--features", "age")
    done = llpkit(*fit, "--search", 3, "--out", "searched")
    assert done.code == 0, done.err
    assert "behind the best" in done.out
    about = json.loads((tmp_path / "searched" / "model.json").read_text())["details"]["search"]
    assert len(about["tried"]) == 3
    assert about["chosen"] == about["tried"][0]["settings"]
    page = (tmp_path / "searched" / "report.html").read_text(encoding="utf-8")
    assert "<h2>Search</h2>" in page

    # The configuration in the run fits the chosen settings, without another search.
    again = llpkit("fit", tmp_path / "searched" / "config.yaml", "--out", "again")
    assert again.code == 0, again.err
    assert "behind the best" not in again.out
    first, second = (
        estimators.load(tmp_path / run / "estimator.skops") for run in ("searched", "again")
    )
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert about["chosen"]["C"] == first.C


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--search goes with an estimator"),
        (("--estimator", "ensemble"), "no values to try for the estimator ensemble"),
        (("--estimator", "logistic", "--estimator-option", "C=2"), "already fixed: C"),
    ],
)
def test_a_search_with_nothing_to_try_is_refused(llpkit, people, options, message):
    done = llpkit("fit", people, *COLUMNS, "--search", 5, *options)
    assert done.code == 2
    assert message in " ".join(done.err.split())
