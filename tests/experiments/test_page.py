"""The page, its figures and its tables."""

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from experiments.conftest import written
from llpkit import LLPError
from llpkit.experiments import Run, Store, write_report

METHODS = ("supervised", "mle", "dllp")


def photos(method: str, fold: int, **changes) -> Run:
    given = {"experiment": "convergence", "data_options": {"size": "half"}, "augment": "paper"}
    return Run(dataset="group-photos", method=method, fold=fold, **given | changes)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Store:
    """Two data sets, three experiments, two settings; drawn once, in a folder of its own."""
    store = Store([tmp_path_factory.mktemp("filled")])
    for i, method in enumerate(METHODS):
        for fold in range(3):
            last = 0.9 - 0.05 * i + 0.01 * fold
            written(store, photos(method, fold), [0.6, 0.7, last])
            timed = photos(method, fold, experiment="epoch-time")
            written(store, timed, [0.5] * 3, history={"seconds": [9.0, 9.0, 2.0 + i]})
            for size in (2, 4, 8):
                sized = Run("bag-size", "cifar10", method, fold, bag_size=size, augment="paper")
                written(store, sized, [0.6, last - size / 50])
                kept = {"epoch": 1, "accuracy": 0.6}
                held = replace(sized, held_out=0.1)
                flat = {"held_out_log_likelihood": [-1.0, -1.1]}
                written(store, held, [0.6, last - size / 40], selected=kept, history=flat)
    return store


@pytest.fixture(scope="module")
def out(filled) -> Path:
    """The folder of the page. The faces are not even read."""

    def load(*_):
        raise AssertionError("the faces were read")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llpkit.experiments._example.load", load)
        page = write_report(filled, filled.home / "elsewhere")
    assert page == filled.home / "elsewhere" / "report.html"
    return page.parent


def test_the_page_shows_every_experiment(out):
    text = (out / "report.html").read_text(encoding="utf-8")
    heads = re.findall(r"<h[123]>(.*?)</h[123]>", text)
    for wanted in (
        "Group photos",
        "CIFAR-10, bird and cat",
        "Learning curves",
        "The methods side by side",
        "mle against each, fold by fold",
        "Time to accuracy",
        "Calibration",
        "An example bag",
        "Epoch time",
        "Accuracy against bag size",
        "Accuracy against bag size, 10% of the training bags held out",
        "Learning curves by bag size",
        "Notes",
    ):
        assert wanted in heads
    assert "the last epoch" in text
    assert "16.66" in text  # the paper's epoch time, beside ours
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "<script" not in text
    for name in (
        "group-photos-convergence-accuracy",
        "group-photos-epoch-time",
        "cifar10-bag-size-last-epoch",
        "cifar10-bag-size-4-accuracy",
        "cifar10-bag-size-10-of-the-training-bags-held-out-4-log-likelihood-held-out",
    ):
        for kind in ("png", "pdf"):
            assert (out / "figures" / f"{name}.{kind}").stat().st_size > 1000


def test_no_picture_of_a_face_is_on_the_page(out):
    text = (out / "report.html").read_text(encoding="utf-8")
    assert "data:image" not in text
    assert "<img" not in text
    assert "face 1" in text
    assert "1 of 3 female" in text


def test_tables_hold_what_the_page_says(out):
    accuracy = {row["method"]: row for row in table(out / "accuracy.csv")}
    assert float(accuracy["mle"]["accuracy_percent"]) == pytest.approx(86)
    assert float(accuracy["mle"]["accuracy_percent_sd"]) == pytest.approx(1)
    assert float(accuracy["mle"]["gap"]) == pytest.approx(-5)
    assert accuracy["mle"]["folds"] == "3"
    [pair] = [r for r in table(out / "paired-differences.csv") if r["rival"] == "dllp"]
    assert float(pair["mean"]) == pytest.approx(5)
    times = {row["method"]: row for row in table(out / "epoch-time.csv")}
    assert float(times["mle"]["epoch_ratio"]) == pytest.approx(1.5)
    assert times["mle"]["paper"] == "16.66"
    sizes = table(out / "bag-size.csv")
    found = {(r["method"], r["size"], r["epoch"], r["setting"][-8:]): r for r in sizes}
    assert float(found["mle", "4", "last epoch", "held out"]["accuracy_percent"]) == 76
    assert float(found["mle", "4", "selected epoch", "held out"]["accuracy_percent"]) == 60
    ours = [r for r in table(out / "learning-curves.csv") if r["method"] == "mle"]
    curve = [float(r["test_accuracy"]) for r in ours if r["experiment"] == "convergence"]
    assert curve == pytest.approx([0.6, 0.7, 0.86])
    sized = [r for r in ours if r["bag_size"] == "8" and r["held_out_log_likelihood"]]
    assert [float(r["test_accuracy"]) for r in sized] == pytest.approx([0.6, 0.66])
    assert [float(r["held_out_log_likelihood"]) for r in sized] == [-1.0, -1.1]
    summary = (out / "summary.md").read_text(encoding="utf-8")
    sampling = 100 * sum(math.sqrt(p * (1 - p) / 10) for p in (0.85, 0.86, 0.87)) / 3
    assert f"| mle | 3 | 86.0 ± 1.0 (sampling {sampling:.1f}) | 0.3 | −5.0 |" in summary
    assert (
        "| dllp | 3 | +5.0 (+5.0 to +5.0) | +1.7 (+1.7 to +1.7) | 1 of 3 | 1.00 | 1.00 | – |"
        in summary
    )
    # Residuals of 1 over folds and of 2/3, 4/3, 2/3 from the line; 7 degrees of freedom.
    half = 2.364624 * math.sqrt((6 + 8) / 7 * 2 * (3 / 6) ** 2 * (1 / 3 + 10 / 90))
    sloped = f"−6.0 (−{6 + half:.1f} to −{6 - half:.1f})"
    assert f"| mle | 82.0 ± 1.0 | 78.0 ± 1.0 | 70.0 ± 1.0 | {sloped} |" in summary
    assert "last epoch. 3 folds at every size." in summary
    half = 2.776445 * math.sqrt(2 * (1 / 3 + 10 / 90))  # Welch's, of deviations of 1
    steps = [f"−{cost:.1f} (−{cost + half:.1f} to −{cost - half:.1f})" for cost in (4, 8)]
    assert f"| mle | {' | '.join(steps)} |" in summary  # 2 to 4, 4 to 8
    assert "Held-out bags: 1 at n = 2, 1 at n = 4, 1 at n = 8." in summary
    half = 4.302653 * math.sqrt(1 / 3 + 10 / 80)  # selected minus last, which deviates by 1
    gain = f"| mle | −21.0 (−{21 + half:.1f} to −{21 - half:.1f}) |"
    assert gain in summary
    assert "| mle | 1 | 1 | 1 |" in summary  # the selected epochs
    assert "sees 128 / n of them in it." in summary
    differences = "| dllp | +5.0 (+5.0 to +5.0) | +5.0 (+5.0 to +5.0) | +5.0 (+5.0 to +5.0) |"
    assert differences in summary


def test_the_other_experiments_state_their_setting(out):
    text = (out / "report.html").read_text(encoding="utf-8")
    timed = text[text.index("<h3>Epoch time</h3>") :]
    timed = timed[: timed.index("</p>")]
    assert (
        "Setting: network conv-large, half size, 3 epochs, augmentation paper, batches of 128"
        in timed
    )
    assert "a processor, 1 thread" in timed
    assert "The paper&#39;s times are of photos of 72 × 90 pixels." in timed
    sized = text[text.index("<h3>Accuracy against bag size</h3>") :]
    setting = (
        "network conv-large, 2 epochs, augmentation paper, batches of 128, 32-true, stated defaults"
    )
    assert f"Setting: {setting}." in sized


def test_commands_stand_where_their_records_are_shown(tmp_path):
    store = Store([tmp_path])
    made = {"convergence": "llpkit reproduce convergence --jobs 6", "epoch-time": "llpkit timed"}
    for fold, method in enumerate(METHODS):
        for experiment, command in made.items():
            written(store, photos(method, 0, experiment=experiment), [0.8] * 3, command=command)
        written(store, photos(method, 1), [0.8] * 3, command=f"llpkit more {fold}")
    out = write_report(store, command="llpkit report some").parent
    text = (out / "report.html").read_text(encoding="utf-8")
    shown = re.findall(r'<pre class="command"[^>]*><code>(.*?)</code>', text)
    assert shown == [
        "llpkit reproduce convergence --jobs 6",
        "llpkit more 0",
        "llpkit more 1",
        "llpkit more 2",
        "llpkit timed",
        "llpkit report some",
    ]
    assert {r["command"] for r in table(out / "runs.csv")} == set(shown[:-1])
    with Image.open(out / "figures" / "group-photos-epoch-time.png") as picture:
        assert picture.text["Comment"] == "llpkit timed\nllpkit report some"
    assert "```sh\nllpkit timed\n```" in (out / "summary.md").read_text(encoding="utf-8")


def test_a_report_takes_away_what_the_last_one_wrote(store):
    runs = [photos(method, 0) for method in ("mle", "dllp")]
    runs.append(photos("mle", 0, experiment="epoch-time"))
    for run in runs:
        path = Path(written(store, run, [0.8] * 3).id)
    out = write_report(store).parent
    (out / "mine.txt").write_text("a note")
    before = {path.name for path in out.rglob("*.*")}
    (store.home / "records" / "epoch-time" / f"{path}.json").unlink()
    for fold in (1, 2):  # more folds, another method: figures keep their names
        for method in METHODS:
            written(store, photos(method, fold), [0.8] * 3)
    write_report(store)
    after = {path.name for path in out.rglob("*.*")}
    gone = {"epoch-time.csv", "group-photos-epoch-time.png", "group-photos-epoch-time.pdf"}
    assert before - after >= gone
    assert "mine.txt" in after
    assert "group-photos-convergence-accuracy.png" in before & after


@pytest.mark.parametrize("name", ["files.json", "summary.md", "runs.csv"])
def test_a_report_touches_only_its_own_files(store, llpkit, name):
    """The list of another program, which names a file of the user, and names that are taken."""
    written(store, photos("mle", 0), [0.8] * 3)
    mine = Path("mine")
    mine.mkdir()
    (mine / "thesis.csv").write_text("years of work")
    (mine / name).write_text(json.dumps(["thesis.csv"]))
    code, _, err = llpkit("report", store.home, "--out", "mine")
    assert code == 2
    assert f"mine/{name} was not written by llpkit report" in err
    assert {path.name: path.read_text() for path in mine.iterdir()} == {
        "thesis.csv": "years of work",
        name: '["thesis.csv"]',
    }


def test_a_file_of_a_report_that_was_changed_since_is_kept(store):
    timed = written(store, photos("mle", 0, experiment="epoch-time"), [0.8] * 3)
    written(store, photos("mle", 0), [0.8] * 3)
    out = write_report(store).parent
    (out / "epoch-time.csv").write_text("my own table")
    (store.home / "records" / "epoch-time" / f"{timed.id}.json").unlink()
    write_report(store)
    assert (out / "epoch-time.csv").read_text() == "my own table"
    assert not (out / "figures" / "group-photos-epoch-time.png").exists()


def test_a_report_does_not_go_among_the_records(store):
    written(store, photos("mle", 0), [0.8] * 3)
    for out in (store.home / "records", store.home / "records" / "convergence" / "new"):
        with pytest.raises(LLPError, match="which are read; choose another folder"):
            write_report(store, out)
    assert len(list(store.read())) == 1


def test_figures_of_other_settings_have_other_names(store):
    for augment in ("paper", "geometric"):
        for seed in (0, 1):
            written(store, photos("mle", 0, augment=augment, seed=seed), [0.8])
    names = [path.stem for path in (write_report(store).parent / "figures").glob("*-accuracy.png")]
    assert sorted(names) == [
        "group-photos-convergence-accuracy",
        "group-photos-convergence-seed-1-accuracy",
        "group-photos-geometric-convergence-accuracy",
        "group-photos-geometric-convergence-seed-1-accuracy",
    ]


def test_why_there_are_no_seconds_is_told(store):
    for method in METHODS:
        written(store, photos(method, 0), [0.8] * 3)
    written(store, photos("mle", 0, experiment="epoch-time"), [0.8] * 3, compiled=True)
    told = write_report(store).read_text(encoding="utf-8")
    assert (
        "There are no seconds for supervised, dllp: no timed runs in this setting; mle: runs "
        "of a processor, 1 thread, not compiled, but timed ones of a processor, 1 thread, "
        "compiled."
    ) in told
    written(store, photos("mle", 1, experiment="epoch-time"), [0.8] * 3)
    told = write_report(store).read_text(encoding="utf-8")
    assert "There are none for supervised, dllp: no timed runs in this setting." in told


def test_every_run_is_in_a_table(filled, out):
    rows = table(out / "runs.csv")
    records = {record["id"]: record for record in filled.read()}
    assert len(rows) == len(records)
    for row in rows:
        record = records[row["id"]]
        assert float(row["accuracy"]) == record["final"]["accuracy"]
        assert row["fold"] == str(record["run"]["fold"])
        assert row["code"] == "0" * 12


def test_folders_are_drawn_together(tmp_path):
    parts = [Store([tmp_path / name]) for name in ("one", "two")]
    for fold, part in enumerate(parts):
        for method in METHODS:
            written(part, photos(method, fold), [0.8])
    both = Store([folder for part in parts for folder in part.folders])
    page = write_report(both)
    assert page == tmp_path / "one" / "report" / "report.html"
    assert {row["folds"] for row in table(page.parent / "accuracy.csv")} == {"2"}


def test_a_few_records_are_enough_for_a_page(store):
    written(store, photos("dllp", 4), [0.8])
    text = write_report(store).read_text(encoding="utf-8")
    assert "Learning curves" in text
    assert "fold by fold" not in text  # there is nothing to compare it with


def test_hostile_names_are_harmless(store):
    written(store, photos("mle", 0), [0.8], command="llpkit <script>alert(1)</script> $\\frac")
    assert "<script>alert" not in write_report(store).read_text(encoding="utf-8")


def test_other_data_and_shared_machines_are_told(store):
    written(store, photos("mle", 0), [0.8])
    written(store, photos("mle", 1), [0.8], data={"sha256": "1" * 64}, jobs=6)
    text = write_report(store).read_text(encoding="utf-8")
    assert "has records made from different data, as checksums tell" in text
    assert "1 of 2 runs shared their machine" in text


def test_a_quick_look_says_so(store):
    written(store, photos("mle", 0), [0.8], quick=True)
    said = write_report(store).read_text(encoding="utf-8")
    assert "All runs on this page were made with --quick: few folds and few epochs" in said
    written(store, photos("mle", 1), [0.8])
    said = write_report(store).read_text(encoding="utf-8")
    assert "1 of 2 runs on this page were made with --quick" in said


def test_what_is_mixed_in_a_comparison_is_told(store):
    card = {"hardware": {"gpu": "a card"}, "versions": {"torch": "3"}}
    written(store, photos("mle", 0), [0.8])
    written(store, photos("mle", 1), [0.8], code="1" * 12, compiled=True, device="cuda", **card)
    written(store, photos("dllp", 0), [0.8], chosen_by="grid", hardware={"threads": 4})
    text = write_report(store).read_text(encoding="utf-8")
    for told in (
        "mixes source code (000000000000: 2 runs; 111111111111: 1 run)",
        "mixes compiled and plain networks (plain: 2 runs; compiled: 1 run)",
        "mixes devices (cpu: 2 runs; cuda: 1 run)",
        "mixes machines (a processor, 1 thread: 1 run; a card: 1 run; a processor, 4 threads",
        "mixes versions of torch (2: 2 runs; 3: 1 run)",
    ):
        assert told in text


def test_a_choice_with_options_is_told_as_such(store):
    written(store, photos("mle", 0), [0.8], chosen_by="grid of augmentation none")
    softer = photos("mle", 0, method_options={"step": 0.5})
    written(store, softer, [0.8], chosen_by="grid of augmentation none, options")
    text = write_report(store).read_text(encoding="utf-8")
    assert "mixes sources of hyper-parameters (grid: 1 run; grid and options: 1 run)" in text


def test_records_that_are_there_twice_and_differ_are_told(tmp_path):
    parts = [Store([tmp_path / name]) for name in ("one", "two")]
    for fold in range(2):
        for part, last in zip(parts, (0.8, 0.8 + 0.1 * fold), strict=True):
            run = written(part, photos("mle", fold), [last])
    both = Store([tmp_path / "one", tmp_path / "two"])
    assert both.differing() == [run.id]
    page = write_report(both)
    assert f"In several folders with different results: 1 record ({run.id})" in page.read_text()
    assert {row["accuracy"] for row in table(page.parent / "runs.csv")} == {"0.8"}


def test_methods_with_unequal_folds_are_shown_apart(store):
    for fold in range(3):
        for method in ("supervised", "mle"):
            written(store, photos(method, fold), [0.6, 0.9 - 0.1 * fold])
    written(store, photos("dllp", 0), [0.6, 0.8])
    out = write_report(store).parent
    rows = {(r["method"], r["folds"]): r for r in table(out / "accuracy.csv")}
    assert set(rows) == {
        ("supervised", "3"),
        ("mle", "3"),
        ("supervised", "1"),
        ("mle", "1"),
        ("dllp", "1"),
    }
    assert float(rows["mle", "1"]["accuracy_percent"]) == 90
    for name in ("accuracy", "learning-curves", "paired-differences", "time-to-accuracy"):
        told = {row["comparison"] for row in table(out / f"{name}.csv")}
        assert told == {"3 folds of 2 methods", "1 fold of 3 methods, all methods"}
    text = (out / "report.html").read_text(encoding="utf-8")
    for title in ("Group photos: 3 folds of 2 methods", "Group photos: 1 fold of 3 methods"):
        assert title in text


def test_records_of_folds_that_are_not_shared_are_told(store):
    for method, folds in {"mle": (0, 1, 2), "dllp": (2, 3)}.items():
        for fold in folds:
            written(store, photos(method, fold), [0.8])
    text = write_report(store).read_text(encoding="utf-8")
    assert "uses 2 of 5 records." in text
    assert "Left out: mle folds 0, 1; dllp fold 3." in text


def tuned(store: Store) -> None:
    """The defaults of three methods, and what a grid chose for one of them."""
    for fold in range(3):
        for i, method in enumerate(METHODS):
            written(store, photos(method, fold), [0.6, 0.9 - 0.05 * i + 0.01 * fold])
        best = photos("mle", fold, lr=0.003)
        written(store, best, [0.6, 0.89 + 0.01 * fold], chosen_by="grid of 40 epochs")


def test_what_the_grid_chose_and_the_defaults_have_chapters_of_their_own(store, monkeypatch):
    tuned(store)
    choice = {"lr": 0.001, "weight_decay": 0.0}
    chosen = dict.fromkeys(METHODS, choice) | {"mle": choice | {"lr": 0.003}}
    entry = {"edges": [], "folds": [0], "candidates": [], "cost": {"runs": 1, "seconds": 1.0}}
    about = {"network": "conv-large", "data_options": {"size": "half"}, "epochs": 40}
    about |= {"batch_size": 128, "augment": "paper", "precision": "32-true", "seed": 0}
    grid = {"dataset": "group-photos", "rule": "a rule", "settings": about}
    grid["methods"] = {name: entry | {"chosen": chosen[name]} for name in METHODS}
    monkeypatch.setattr("llpkit.experiments._page.grids", lambda *_: [grid])
    out = write_report(store).parent
    heads = re.findall(r"<h2>(.*?)</h2>", (out / "report.html").read_text(encoding="utf-8"))
    assert [head for head in heads if "photos" in head] == [
        "Group photos: the settings side by side",
        "Group photos: hyper-parameters chosen by the grid",
        "Group photos: stated defaults",
        "Group photos: the other experiments",
    ]
    rows = {(r["hyper_parameters"], r["method"]): r for r in table(out / "accuracy.csv")}
    assert set(rows) == {(by, name) for by in ("grid", "defaults") for name in METHODS}
    assert float(rows["grid", "mle"]["gap"]) == pytest.approx(-1)
    assert float(rows["defaults", "mle"]["gap"]) == pytest.approx(-5)
    runs = table(out / "runs.csv")
    by = {(r["method"], r["lr"]): r["hyper_parameters"] for r in runs}
    assert by["mle", "0.001"] == "defaults"
    assert by["mle", "0.003"] == "grid"
    assert by["dllp", "0.001"] == "grid and defaults"
    summary = (out / "summary.md").read_text(encoding="utf-8")
    assert "| defaults, which are the grid's choice |" in summary
    assert "mixes sources" not in summary
    names = {path.stem for path in (out / "figures").glob("*-accuracy.png")}
    assert names == {
        "group-photos-convergence-accuracy",
        "group-photos-convergence-stated-defaults-accuracy",
    }


def test_options_that_are_nobodys_choice_are_not_called_one(store):
    """A method that was run at a learning rate of the user's alone, beside one at its default."""
    for fold in range(3):
        written(store, photos("mle", fold), [0.6, 0.9])
        written(store, photos("dllp", fold, lr=0.01), [0.6, 0.8], chosen_by="options")
    out = write_report(store).parent
    assert {row["hyper_parameters"] for row in table(out / "accuracy.csv")} == {""}
    summary = (out / "summary.md").read_text(encoding="utf-8")
    assert "options, which" not in summary
    assert "mixes sources of hyper-parameters (defaults: 3 runs; options: 3 runs)" in summary


def test_a_single_size_of_bags_has_one_table(store):
    for fold in range(3):
        for method, last in (("mle", 0.84), ("direct", 0.81)):
            run = Run("bag-size", "cifar10", method, fold, bag_size=16, augment="paper")
            flat = {"held_out_log_likelihood": [-1.0, -1.1]}
            kept = {"epoch": 1, "accuracy": 0.8}
            written(store, replace(run, held_out=0.1), [0.8, last], selected=kept, history=flat)
    out = write_report(store).parent
    summary = (out / "summary.md").read_text(encoding="utf-8")
    assert "### Accuracy in bags of 16" in summary
    assert "| mle | 84.0 ± 0.0 |  | 80.0 ± 0.0 |  | −4.0 (−4.0 to −4.0) | 1 |" in summary
    assert "| direct | 81.0 ± 0.0 | +3.0 (+3.0 to +3.0) | 80.0 ± 0.0 |" in summary
    assert "regression" not in summary
    names = {path.stem for path in (out / "figures").glob("cifar10-bag-size*.png")}
    assert names == {
        "cifar10-bag-size-16-accuracy",
        "cifar10-bag-size-16-log-likelihood-held-out",
    }


def test_methods_of_fewer_folds_have_every_section(store):
    for fold in range(3):
        for method in ("supervised", "mle"):
            written(store, photos(method, fold), [0.6, 0.9 - 0.1 * fold])
    written(store, photos("dllp", 1), [0.6, 0.8])
    page = write_report(store)
    names = {path.stem for path in (page.parent / "figures").glob("*.png")}
    assert {
        "group-photos-convergence-calibration-mle",
        "group-photos-convergence-all-methods-calibration-dllp",
        "group-photos-convergence-all-methods-proportion-error",
    } <= names
    assert "group-photos-convergence-all-methods-calibration-mle" not in names
    last = page.read_text(encoding="utf-8").split("An example bag</h3>")[-1]
    assert "dllp" in last[: last.index("the truth")]


def test_settings_stand_in_the_order_of_the_protocol_below_an_overview(store):
    for augment, folds in {"geometric": 3, "paper": 2}.items():
        for fold in range(folds):
            for i, method in enumerate(METHODS):
                last = 0.8 + 0.01 * fold - 0.1 * i + 0.05 * (augment == "paper")
                written(store, photos(method, fold, augment=augment), [0.6, last])
    out = write_report(store).parent
    text = (out / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"<h2>(Group.*?)</h2>", text) == [
        "Group photos: the settings side by side",
        "Group photos: augmentation paper",
        "Group photos: augmentation geometric",
    ]
    summary = (out / "summary.md").read_text(encoding="utf-8")
    assert "| method | augmentation paper | augmentation geometric |" in summary
    assert "| mle | 75.5 ± 0.7 (2 folds) | 71.0 ± 1.0 (3 folds) |" in summary
    [row] = [
        r
        for r in table(out / "settings.csv")
        if r["method"] == "mle" and "geometric" in r["setting"]
    ]
    assert (float(row["accuracy_percent"]), row["folds"]) == (pytest.approx(71), "3")


def test_nothing_to_draw(store):
    with pytest.raises(LLPError, match="holds no records; make some with llpkit reproduce"):
        write_report(store)
