"""The commands ``check`` and ``plan``: what is printed, written and returned."""

import csv
import json
import random
from pathlib import Path

import pytest

BAGS = ("--bag", "district", "--count", "n_yes")


def write(path: str, half: bool = False, bags: int = 60) -> None:
    draw = random.Random(0)
    lines = ["district,n_yes,age,income"]
    for district in range(bags):
        people = [(draw.randint(18, 90), draw.randint(10, 90)) for _ in range(6)]
        n_yes = 3 if half else sum(age > 54 for age, _ in people)
        lines += [f"{district},{n_yes},{age},{income}" for age, income in people]
    Path(path).write_text("\n".join(lines))


def test_check_finds_nothing_in_good_data(llpkit):
    write("good.csv")
    done = llpkit("check", "good.csv", *BAGS)
    assert done.code == 0, done.err
    assert "No problem found" in done.out
    assert "60 with 360 instances, size 6" in done.out


def test_check_names_the_problem_and_the_remedy(llpkit):
    write("half.csv", half=True)
    done = llpkit("check", "half.csv", *BAGS)
    assert done.code == 1
    assert "same proportion" in done.out
    assert "--known-label" in done.out
    done = llpkit("check", "half.csv", *BAGS, "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert (found["ok"], found["problems"][0]["kind"]) == (False, "same proportions")


def test_check_warns_of_counts_that_say_little(llpkit):
    write("good.csv")
    lines = Path("good.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    # All but two counts are known to be possible, or nearly so.
    wide = [[bag, max(0, int(n) - 4), min(6, int(n) + 4), age] for bag, n, age, _ in rows]
    text = "\n".join(",".join(map(str, row)) for row in [["district", "lo", "hi", "age"], *wide])
    Path("wide.csv").write_text(text)
    done = llpkit(
        "check", "wide.csv", "--bag", "district", "--count-low", "lo", "--count-high", "hi"
    )
    assert done.code == 0, done.err
    assert "of the information of exact counts: 60 bags are worth about as much as" in done.err
    assert "No other problem found" in done.out
    done = llpkit("check", "good.csv", *BAGS, "--json")
    assert json.loads(done.out)["warnings"] == []
    assert json.loads(done.out)["explained"] == 1


def test_check_takes_configurations_and_data_sets(llpkit):
    write("good.csv")
    Path("c.yaml").write_text("data: {table: good.csv, bag: district, count: n_yes}\n")
    assert llpkit("check", "c.yaml").code == 0
    assert llpkit("check", "--dataset", "digits").code == 0
    assert llpkit("check", "none.csv", *BAGS).code == 2


def test_training_notes_what_the_counts_do_not_determine(llpkit):
    write("half.csv", half=True)
    done = llpkit("fit", "half.csv", *BAGS, "--network", "linear", "--epochs", 1, "--out", "run")
    assert done.code == 0
    assert "same proportion" in done.err
    assert "same proportion" in Path("run/report.html").read_text()


def test_plan_says_how_many_bags(llpkit):
    write("people.csv")
    arguments = (
        "plan",
        "people.csv",
        "--features",
        "age",
        "--features",
        "income",
        "--by",
        "district",
    )
    goals = ("--bags", 100, "--standard-error", 0.2, "--target-accuracy", 0.79, "--sizes", "1,4,16")
    done = llpkit(*arguments, *goals, "--json", "--out", "plan")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    one, four, sixteen = found["sizes"]
    assert one["efficiency"] == pytest.approx(1)
    assert one["efficiency"] > four["efficiency"] > sixteen["efficiency"]
    # The number of bags that a standard error takes, against what 100 bags give.
    for row in found["sizes"]:
        bags = 100 * (row["standard_error"] / 0.2) ** 2
        assert row["bags_for_standard_error"] == pytest.approx(bags, abs=1)
    assert found["ways"][0]["bags"] == 60
    with Path("plan/plan.csv").open() as file:
        assert [row["size"] for row in csv.DictReader(file)] == ["1", "4", "16"]
    assert Path("plan/plan-accuracy.png").exists()
    assert "never" in llpkit(*arguments, "--target-accuracy", 0.99, "--sizes", 4).out


def test_plan_with_the_model_of_a_run(llpkit):
    write("people.csv")
    fit = ("fit", "people.csv", *BAGS, "--estimator", "logistic", "--out", "run")
    assert llpkit(*fit, "--features", "age", "--features", "income").code == 0
    done = llpkit("plan", "people.csv", "--run", "run", "--sizes", "1,8", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["best_accuracy"] > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sizes", "1,x"), "--sizes = '1,x'; give whole numbers"),
        (("--sizes", "1,0"), "--sizes = 0; give a whole number from 1 to 100000"),
        (("--rate", 0.5, "--accuracy", 0.4), "accuracy = 0.4; give a number"),
        (("--rate", 2), "rate = 2"),
        (("--bags", 0), "--bags = 0"),
        (("--by", "nothing"), "has no column 'nothing'"),
    ],
)
def test_plan_refuses_what_cannot_be(llpkit, options, message):
    write("people.csv", bags=5)
    done = llpkit("plan", "people.csv", "--features", "age", *options)
    assert done.code == 2
    assert message in done.err
