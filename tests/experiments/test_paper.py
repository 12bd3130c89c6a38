"""What docs/reproduce.md tells of the paper's experiments is what the committed records say."""

import csv
import math
import re
import statistics
from pathlib import Path

import pytest

from llpkit.experiments import Run, Store, write_report
from llpkit.experiments import _summary as summary
from llpkit.experiments._check import TOLERANCE, TOLERANCES
from llpkit.experiments._grid import grids

ROOT = Path(__file__).parents[2]
STORE = Store([ROOT / "results" / "paper"])
EARLIER = Store([ROOT / "results" / "paper-weight-10"])
PAGE = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
NOT_MEASURED = "–"
DATASETS = ("cifar10", "group-photos")
CLAIMS = ("group-photos", "cifar10")  # columns of the tables below the claims, left to right
FLOORS = {
    "cifar10": "bird and cat, 120 epochs",
    "group-photos": "group photos at half size, 100 epochs",
}


@pytest.fixture(scope="module")
def records() -> list[dict]:
    return list(STORE.read())


@pytest.fixture(scope="module")
def chosen() -> dict[str, dict[str, dict]]:
    """For each data set, what the one grid of a method tells of it."""
    return {
        name: {m: entry for grid in grids(STORE, name) for m, entry in grid["methods"].items()}
        for name in DATASETS
    }


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """What ``llpkit report results/paper`` writes."""
    return write_report(STORE, tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="module")
def claimed(report):
    """A function: the row of a CSV file for a data set, in the comparison with most folds."""

    def row(file: str, dataset: str, **wanted: str) -> dict[str, str]:
        with (report / f"{file}.csv").open(encoding="utf-8") as lines:
            wanted |= {"dataset": dataset, "hyper_parameters": "grid"}
            found = [r for r in csv.DictReader(lines) if wanted.items() <= r.items()]
        usual = [r for r in found if "conv-large" in r["setting"] and "paper" in r["setting"]]
        return max(usual, key=lambda r: int(r["comparison"].split()[0]))

    return row


def rows(heading: str, page: str = PAGE) -> list[list[str]]:
    """The table that has this heading, as it stands in a page: its headings, then its rows."""
    for block in re.findall(r"(?:^\|.*\n)+", page, re.M):
        lines = [line.strip("|").split("|") for line in block.replace("`", "").splitlines()]
        head, _, *below = [[cell.strip() for cell in line] for line in lines]
        if heading in head:
            return [head, *below]
    raise AssertionError(f"no table has the heading {heading!r}")


def table(heading: str) -> list[dict[str, str]]:
    """The rows below, by heading."""
    head, *below = rows(heading)
    return [dict(zip(head, row, strict=True)) for row in below]


def page_says(text: str) -> bool:
    """Whether the page has these words, wherever its lines end."""
    return text in " ".join(PAGE.split())


def by_size(report: Path, batch: int) -> list[list[str]]:
    """The report's accuracies by bag size for one batch size: the headings, then the rows."""
    text = (report / "summary.md").read_text(encoding="utf-8")
    start = f"### Accuracy against bag size, 60 epochs, augmentation paper, batches of {batch},"
    part = text[text.index(start) :]
    return rows("Slope", part[part.index("last epoch. 3 folds at every size.") :])


def cells(path: Path) -> list[float | str]:
    """Every cell of a CSV file, numbers as such."""

    def number(cell: str) -> float | str:
        try:
            return float(cell)
        except ValueError:
            return cell

    with path.open(encoding="utf-8", newline="") as file:
        return [number(cell) for row in csv.reader(file) for cell in row]


def at_choice(record: dict, choice: dict | None) -> bool:
    """Whether a run has what the grid chose, and the network that it chose it for."""
    run = Run.of(record)
    own = dict(run.method_options) | {"lr": run.lr, "weight_decay": run.weight_decay}
    its_network = run.network == ("llp-gan" if run.method == "llp-gan" else "conv-large")
    chosen = choice is not None and all(own.get(key) == value for key, value in choice.items())
    return its_network and chosen


def spread(values: list[float]) -> str:
    """Mean ± deviation; the value itself where there is one."""
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{deviation}"


def signed(*values: str) -> str:
    mean, *ends = (f"{float(value):+.1f}".replace("-", "−") for value in values)
    return f"{mean} ({' to '.join(ends)})"


def accuracies(records: list[dict], choices: dict, dataset: str, augment: str) -> dict[str, str]:
    """Mean ± deviation over folds and their number, for every method that was run as chosen."""
    found: dict[str, list[float]] = {}
    for record in records:
        run = Run.of(record)
        if (run.experiment, run.dataset, run.augment) != ("convergence", dataset, augment):
            continue
        if at_choice(record, choices[run.name]["chosen"]):
            found.setdefault(run.name, []).append(100 * record["final"]["accuracy"])
    return {name: f"{spread(values)} ({len(values)})" for name, values in found.items()}


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_floors_stand_beside_what_was_measured(dataset, records, chosen):
    floors = table(FLOORS[dataset])
    columns = {"paper": "augmentation of the paper", "geometric": "--augment geometric"}
    for augment, column in columns.items():
        found = accuracies(records, chosen[dataset], dataset, augment)
        told = {row[FLOORS[dataset]]: row[column] for row in floors}
        assert told == {name: found.get(name, NOT_MEASURED) for name in told}
        assert found.keys() <= told.keys()


def test_no_mean_is_more_than_a_point_below_its_floor():
    for dataset in DATASETS:
        for row in table(FLOORS[dataset]):
            if row["floor"]:
                measured = float(row["augmentation of the paper"].split()[0])
                assert measured >= float(row["floor"]) - 1, row


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
        both = (*STORE.read(run.experiment), *EARLIER.read(run.experiment))
        [first] = [record for record in both if record["id"] == run.id]
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
    assert {tuple(row[:3]): row[3:] for row in rows("second run")[1:]} == found
    for gan, allowed in ((False, TOLERANCE), (True, TOLERANCES["llp-gan"])):
        rms = math.sqrt(statistics.fmean(d * d for d in apart[gan]))
        assert f"{rms:.1f} points" in PAGE
        assert 100 * allowed == pytest.approx(3 * rms, abs=0.6)  # about three times


def test_bags_of_sixteen_are_told_as_measured(records):
    found: dict[tuple[str, ...], list[dict]] = {}
    for record in records:
        run = Run.of(record)
        if (run.experiment, run.bag_size, run.epochs) == ("bag-size", 16, 120):
            step = run.method_options.get("step", 1.0)
            name = run.name + (f", step {step:g}" if step != 1 else "")
            setting = (name, run.augment, f"{run.lr:g}, {run.weight_decay:g}")
            found.setdefault(setting, []).append(record)
    expected = {}
    for setting, its in found.items():
        assert len(its) == 3
        scores = [spread([100 * r[key]["accuracy"] for r in its]) for key in ("final", "selected")]
        bags = [[r[key]["held_out_log_likelihood"] for r in its] for key in ("selected", "final")]
        bags.append([r["history"]["log_likelihood"][-1] for r in its])
        scores += [f"{statistics.fmean(one):.2f}".replace("-", "−") for one in bags]
        expected[setting] = scores
    assert {tuple(row[:3]): row[3:] for row in rows("bags of 16")[1:]} == expected


def test_what_is_told_of_bags_of_sixteen_holds_in_every_fold(records):
    """With geometric augmentation the pass loses what it had learnt, and mle is above direct."""
    runs: dict[str, dict[int, dict]] = {}
    for record in records:
        run = Run.of(record)
        if (run.experiment, run.bag_size, run.augment) == ("bag-size", 16, "geometric"):
            runs.setdefault(run.name, {})[run.fold] = record
    for fold, by_pass in runs["mle-pass"].items():
        assert by_pass["final"]["accuracy"] < by_pass["selected"]["accuracy"] - 0.1
        mle, direct = (runs[name][fold]["final"]["accuracy"] for name in ("mle", "direct"))
        assert mle > direct


def test_differences_in_bags_of_sixteen_are_those_of_the_report(report):
    with (report / "bag-size-differences.csv").open(encoding="utf-8") as lines:
        wanted = {"size": "16", "epoch": "last epoch", "reference": "mle"}
        wanted |= {"hyper_parameters": "defaults"}
        found = [row for row in csv.DictReader(lines) if wanted.items() <= row.items()]
    for row in table("bags of 16, mle minus"):
        name = row.pop("bags of 16, mle minus")
        for augment, told in row.items():
            [its] = [
                r for r in found if r["rival"] == name and f"augmentation {augment}" in r["setting"]
            ]
            assert told == signed(its["mean"], its["low"], its["high"])


def test_both_e_steps_are_told_at_the_same_hyper_parameters(records):
    for name, *cells in rows("stated defaults, bags of 1 to 12")[1:]:
        its = []
        for record in records:
            run = Run.of(record)
            setting = (run.experiment, run.dataset, run.augment, run.network)
            if setting == ("convergence", "cifar10", "paper", "conv-large") and run.name == name:
                its += [record] * ((run.lr, run.weight_decay) == (1e-3, 0.0))
        assert len(its) == 10
        train, test = (
            [record["history"][key] for record in its]
            for key in ("log_likelihood", "test_log_likelihood")
        )
        ends = [[h[-1] for h in train], [h[59] for h in test], [h[-1] for h in test]]
        expected = [f"{statistics.fmean(end):.2f}".replace("-", "−") for end in ends]
        assert cells == [*expected, spread([100 * r["final"]["accuracy"] for r in its])]


def test_larger_steps_are_told_as_the_report_has_them(report):
    told = [row[1:] for row in rows("accuracy, 1024 instances a step")]
    expected = by_size(report, 1024)
    assert told == [row[1:-1] for row in expected]
    small = {row[0]: row[-3:-1] for row in by_size(report, 128)[1:]}
    better = [[], []]
    for name, *large in [row[:-1] for row in expected[1:]]:
        for place, two in enumerate(zip(small[name], large, strict=True)):
            better[place].append(max(float(cell.split()[0]) for cell in two))
    assert all(max(ends) - min(ends) < 3 for ends in better)  # "all four are within 3 points"


def test_bag_sizes_are_told_as_the_report_has_them(report):
    """Mean ± deviation at every size, and points a doubling: of the longest table by size."""
    told, (head, *expected) = rows("points a doubling"), by_size(report, 128)
    assert told[0][1:-1] == head[1:-1]
    assert told[1:] == expected
    slope = re.match(r"−(\S+) \(−(\S+) to −(\S+)\)", expected[0][-1])
    assert slope
    assert f"falls by {slope[1]} points ({slope[3]} to {slope[2]}) a doubling" in PAGE


def test_the_two_networks_stand_side_by_side_as_measured(records, chosen):
    networks = {"conv-large": "conv-large", "llp-gan": "that of llp-gan"}
    places = {"group-photos": "photos", "cifar10": "CIFAR-10"}
    found: dict[tuple[str, str], list[float]] = {}
    for record in records:
        run = Run.of(record)
        if (run.experiment, run.augment) != ("convergence", "paper") or run.fold > 1:
            continue
        tried = run.network == "llp-gan" and run.lr == 3e-4 and run.method != "llp-gan"
        if tried or at_choice(record, chosen[run.dataset][run.name]["chosen"]):
            where = f"{places[run.dataset]}, {networks[run.network]}"
            found.setdefault((run.name, where), []).append(100 * record["final"]["accuracy"])
    for row in table("accuracy on folds 0 and 1"):
        name = row.pop("accuracy on folds 0 and 1")
        means = {where: found.get((name, where), []) for where in row}
        assert all(len(its) in (0, 2) for its in means.values())
        assert row == {k: f"{statistics.fmean(v):.1f}" if v else "" for k, v in means.items()}


def test_a_smaller_weight_is_told_as_measured(records):
    """Of llp-gan's runs that an earlier search led to, and how far below the others they end."""

    def ends(found, dataset: str) -> list[dict]:
        wanted = ("convergence", dataset, "llp-gan")
        runs = ((Run.of(record), record) for record in found)
        return [r for run, r in runs if (run.experiment, run.dataset, run.method) == wanted]

    for dataset, words in (
        ("cifar10", "end at {} on CIFAR-10, {} points ({} to {}) lower"),
        ("group-photos", "and at {} on photos, {} lower ({} to +{})"),
    ):
        earlier, now = ends(EARLIER.read(), dataset), ends(records, dataset)
        assert {Run.of(r).method_options["weight"] for r in earlier} == {10.0}
        ours, theirs = (summary.by_fold(found, "final") for found in (now, earlier))
        assert len(theirs) == 5
        assert ours.keys() == theirs.keys()
        lower = [ours[fold] - theirs[fold] for fold in ours]
        numbers = [statistics.fmean(theirs.values()), *summary.interval(lower, now)]
        assert page_says(words.format(*(f"{n:.1f}".replace("-", "−") for n in numbers)))


def test_what_stopping_gains_in_bags_of_sixteen_is_that_of_the_report(report):
    with (report / "bag-size-selected.csv").open(encoding="utf-8") as lines:
        found = [row for row in csv.DictReader(lines) if row["hyper_parameters"] == "defaults"]

    def gain(method: str, augment: str) -> list[float]:
        [row] = [
            r for r in found if r["method"] == method and f"augmentation {augment}" in r["setting"]
        ]
        assert row["size"] == "16"
        return [float(row[key]) for key in ("mean", "low", "high")]

    mean, low, high = gain("mle-pass", "geometric")
    assert page_says(f"a gain of {mean:.1f} points ({low:.1f} to +{high:.1f})".replace("-", "−"))
    mean, low, high = gain("direct", "paper")
    assert page_says(f"costs `direct` {-mean:.1f} points ({-high:.1f} to {-low:.1f}) there")


def test_the_committed_tables_are_those_of_the_records(report):
    """``llpkit report`` again, where records were added or the report has changed."""
    kept = ROOT / "results" / "paper" / "report"
    old, new = ((folder / "summary.md").read_text(encoding="utf-8") for folder in (kept, report))
    end = "## How it was made"
    assert old.split(end)[0] == new.split(end)[0]
    for path in kept.glob("*.csv"):
        old, new = cells(path), cells(report / path.name)
        assert len(old) == len(new)
        for before, after in zip(old, new, strict=True):
            same = before == after or math.isclose(before, after, rel_tol=1e-6)
            assert same, (path.name, before, after)
    for path in kept.glob("figures/*"):
        assert (report / "figures" / path.name).exists()


@pytest.mark.parametrize("reference", ["mle-pass", "mle"])
def test_differences_are_those_of_the_report(reference, claimed):
    for name, *cells in rows(f"{reference} minus")[1:]:
        expected = []
        for dataset in CLAIMS:
            own = claimed("paired-differences", dataset, reference=reference, rival=name)
            expected += [signed(own["mean"], own["low"], own["high"])]
            expected += [signed(own["along"], own["along_low"], own["along_high"])]
            expected += [f"{own['ahead']} of {own['epochs']}"]
        assert cells == expected, name


def test_deviations_over_folds_are_those_of_the_report(claimed):
    for name, *cells in rows("standard deviation")[1:]:
        expected = []
        for dataset in CLAIMS:
            own = claimed("accuracy", dataset, method=name)
            keys = ("sd", "sampling_sd", "band")
            sd, sampling, band = (float(own[f"accuracy_percent_{key}"]) for key in keys)
            expected += [f"{sd:.1f} ({sampling:.1f})", f"{band:.1f}"]
            p = ""
            if name != "mle-pass":
                pair = {"reference": "mle-pass", "rival": name}
                p = f"{float(claimed('paired-differences', dataset, **pair)['equal_spread']):.2f}"
            expected.append(p)
        assert cells == expected, name


def test_epochs_to_an_accuracy_are_those_of_the_report(claimed):
    def span(own: dict[str, str], key: str, spec: str) -> str:
        value, low, high = (float(own[f"{key}{end}"]) for end in ("", "_low", "_high"))
        return f"{value:{spec}} ({low:{spec}} to {high:{spec}})"

    for name, *cells in rows("epochs")[1:]:
        expected = []
        for dataset in CLAIMS:
            own = claimed("time-to-accuracy", dataset, reference="mle-pass", method=name)
            ratios = [span(own, key, ".2f") for key in ("ratio", "own_ratio") if own["ratio"]]
            expected += [span(own, "epochs", ".0f"), *(ratios or ["", ""])]
        assert cells == expected, name


def test_the_claims_about_epochs_are_those_of_the_report(claimed):
    for dataset, start in zip(CLAIMS, ("| on photos", "| on CIFAR-10 about"), strict=True):
        [line] = [line for line in PAGE.splitlines() if line.startswith(start)]
        amle, dllp = (
            claimed("time-to-accuracy", dataset, reference="mle-pass", method=name)
            for name in ("amle", "dllp")
        )
        own = [f"{float(row['own_ratio']):.1f}" for row in (amle, dllp)]
        assert f"`amle` needs {own[0]} times as many and `dllp` {own[1]} times" in line
        assert f"`dllp` needs {float(dllp['ratio']):.1f} times as many" in line


def test_accuracies_on_the_way_are_those_of_the_records(records, chosen):
    for name, *cells in rows("accuracy after")[1:]:
        expected = []
        for dataset, epochs in (("group-photos", (10, 40, 100)), ("cifar10", (10, 40, 120))):
            curves = [
                record["history"]["test_accuracy"]
                for record in records
                if (run := Run.of(record)).experiment == "convergence"
                and (run.dataset, run.name, run.augment) == (dataset, name, "paper")
                and at_choice(record, chosen[dataset][name]["chosen"])
            ]
            for epoch in epochs:
                expected.append(f"{100 * statistics.fmean(c[epoch - 1] for c in curves):.1f}")
        assert cells == expected, name


def test_the_commands_of_the_page_made_the_records(llpkit):
    block = PAGE[PAGE.index("The records in `results/paper` were made") :].split("```")[1]
    commands = [line.split() for line in block.splitlines() if line.startswith("llpkit ")]
    assert len(commands) > 5
    for _, *words in commands:
        code, out, err = llpkit(*words, "--out", ROOT / "results" / "paper", "--dry-run")
        assert code == 0, err
        told = re.match(r"\S+ on \S+: (\d+) runs?, (\d+) done", out)
        assert told
        assert told[1] == told[2], words


def test_the_readme_tells_what_the_page_does():
    """Its table is made of three of the page, which are compared with the records above."""
    measured = {
        name: {row[FLOORS[name]]: row["augmentation of the paper"] for row in table(FLOORS[name])}
        for name in DATASETS
    }
    sizes = {row["instances in a bag"]: row for row in table("points a doubling")}
    times = {row[""]: row["CIFAR-10"].split()[0] for row in table("the paper, CIFAR-10")}
    for head, photos, cifar, bags, time in rows("the same in bags of 16, 60 epochs", README)[1:]:
        name = head.split(",")[0]
        assert photos == measured["group-photos"][name]
        assert cifar == measured["cifar10"][name]
        assert bags == (f"{sizes[name]['n = 16']} (3)" if name in sizes else "")
        assert time == ({"supervised": "1.00"} | times)[name]
