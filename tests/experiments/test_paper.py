"""What docs/reproduce.md tells of the paper's experiments is what the committed records say."""

import math
import re
import statistics
from pathlib import Path

import pytest

from llpkit.experiments import Run, Store
from llpkit.experiments._check import TOLERANCE, TOLERANCES
from llpkit.experiments._grid import grids

ROOT = Path(__file__).parents[2]
STORE = Store([ROOT / "results" / "paper"])
PAGE = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
NOT_MEASURED = "–"
DATASETS = ("cifar10", "group-photos")
FLOORS = {
    "cifar10": "bird and cat, 120 epochs",
    "group-photos": "group photos at half size, 100 epochs",
}


@pytest.fixture(scope="module")
def records() -> list[dict]:
    return list(STORE.read())


@pytest.fixture(scope="module")
def chosen() -> dict[str, dict[str, dict]]:
    """For each data set, what its grid tells of every method."""
    return {name: grids(STORE, name)[0]["methods"] for name in DATASETS}


def table(heading: str) -> list[dict[str, str]]:
    """The rows below a line of headings that has this one, as they stand in the page."""
    for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.M):
        lines = [line.strip("|").split("|") for line in block.splitlines()]
        head, _, *rows = [[cell.strip(" `") for cell in line] for line in lines]
        if heading in head:
            return [dict(zip(head, row, strict=True)) for row in rows]
    raise AssertionError(f"no table has the heading {heading!r}")


def at_choice(record: dict, choice: dict | None) -> bool:
    run = Run.of(record)
    own = dict(run.method_options) | {"lr": run.lr, "weight_decay": run.weight_decay}
    return choice is not None and all(own.get(key) == value for key, value in choice.items())


def accuracies(records: list[dict], choices: dict, dataset: str, augment: str) -> dict[str, str]:
    """Mean ± deviation over folds and their number, for every method that was run as chosen."""
    found: dict[str, list[float]] = {}
    for record in records:
        run = Run.of(record)
        if (run.experiment, run.dataset, run.augment) != ("convergence", dataset, augment):
            continue
        if at_choice(record, choices[run.name]["chosen"]):
            found.setdefault(run.name, []).append(100 * record["final"]["accuracy"])
    return {
        name: f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f} ({len(values)})"
        for name, values in found.items()
        if len(values) > 1
    }


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_floors_stand_beside_what_was_measured(dataset, records, chosen):
    rows = table(FLOORS[dataset])
    columns = {"paper": "augmentation of the paper", "geometric": "--augment geometric"}
    for augment, column in columns.items():
        found = accuracies(records, chosen[dataset], dataset, augment)
        told = {row[FLOORS[dataset]]: row[column] for row in rows}
        assert told == {name: found.get(name, NOT_MEASURED) for name in told}
        assert found.keys() <= told.keys()


def test_no_mean_is_more_than_a_point_below_its_floor():
    for dataset in DATASETS:
        for row in table(FLOORS[dataset]):
            best = [float(cell.split()[0]) for cell in list(row.values())[2:] if " ± " in cell]
            if best and row["floor"]:
                assert max(best) >= float(row["floor"]) - 1, row


def test_the_grid_chose_what_is_told(chosen):
    for row in table("bird and cat"):
        its = [chosen[dataset].get(row["method"]) for dataset in DATASETS]
        for told, one in zip((row["bird and cat"], row["group photos"]), its, strict=True):
            choice = (one or {}).get("chosen")
            if choice is None:
                assert told == NOT_MEASURED
                continue
            options = {k: v for k, v in choice.items() if k not in ("refresh", "step")}
            words = [f"{k.replace('_', ' ')} {v:g}" for k, v in options.items()]
            assert told == ", ".join(words)
        if NOT_MEASURED not in row.values():
            costs = [one["cost"] for one in its if one]
            assert row["runs"] == " + ".join(str(cost["runs"]) for cost in costs)
            assert row["seconds"] == f"{sum(cost['seconds'] for cost in costs):.0f}"


def test_epoch_times_are_those_of_the_records(records):
    heads = {"cifar10": "CIFAR-10", "group-photos": "group photos"}
    told = {row[""]: row for row in table("the paper, CIFAR-10")}
    for dataset, head in heads.items():
        turns: dict[str, dict[int, float]] = {}
        for record in records:
            run = Run.of(record)
            if (run.experiment, run.dataset) == ("epoch-time", dataset) and not record["compiled"]:
                seconds = record["history"]["seconds"][2:]
                turns.setdefault(run.name, {})[run.fold] = statistics.fmean(seconds)
        bound = turns.pop("supervised")
        assert told.keys() == turns.keys()
        for name, its in turns.items():
            ratios = [its[turn] / bound[turn] for turn in bound]
            expected = f"{statistics.fmean(ratios):.2f} ± {statistics.stdev(ratios):.2f}"
            assert told[name][head] == expected, (dataset, name)


def test_what_a_second_run_gave_is_told():
    names = {"cifar10": "bird and cat", "group-photos": "group photos"}
    found, apart = {}, {}
    for second in Store([ROOT / "results" / "paper-again"]).read():
        run = Run.of(second)
        [first] = [record for record in STORE.read(run.experiment) if record["id"] == run.id]
        assert first["started"] != second["started"]
        assert first["code"] == second["code"]
        then, now = (100 * record["final"]["accuracy"] for record in (first, second))
        apart.setdefault(run.method == "llp-gan", []).append(now - then)
        bags = f", bags of {run.bag_size}" if run.experiment == "bag-size" else ""
        found[names[run.dataset] + bags, run.name, str(run.fold)] = [
            f"{then:.1f}",
            f"{now:.1f}",
            f"{now - then:+.1f}".replace("-", "−"),
        ]
    rows = [list(row.values()) for row in table("second run")]
    assert {tuple(row[:3]): row[3:] for row in rows} == found
    for gan, allowed in ((False, TOLERANCE), (True, TOLERANCES["llp-gan"])):
        rms = math.sqrt(statistics.fmean(d * d for d in apart[gan]))
        assert f"{rms:.1f} points" in PAGE
        assert 100 * allowed == pytest.approx(3 * rms, abs=0.6)  # three times, rounded up
