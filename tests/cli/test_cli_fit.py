"""``llpkit fit``: run directories, whole or not there; the errors on the way."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file

SYNTHETIC = (
    *("fit", "--dataset", "synthetic", "--data-option", "rows=200", "--network", "linear"),
    *("--threads", "1", "--quiet"),
)


def same_weights(one: Path, other: Path) -> bool:
    a, b = (load_file(run / "weights.safetensors") for run in (one, other))
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


# The run directory


@pytest.mark.usefixtures("figures")
def test_a_run_directory_holds_everything(llpkit):
    done = llpkit(
        *("fit", "--dataset", "digits", "--epochs", 2, "--test-fraction", 0.2, "--seed", 5),
        *("--held-out", 0.1, "--method", "mle", "--out", "run"),
    )
    assert done.code == 0, done.err
    run = Path("run")
    assert {path.name for path in run.iterdir()} == {
        *("config.yaml", "weights.safetensors", "model.json", "metrics.csv"),
        *("environment.json", "report.html", "figures", "checksums.json", "worst_bags.csv"),
    }
    assert {path.suffix for path in (run / "figures").iterdir()} >= {".png"}
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["data"] == {"dataset": "digits"}
    assert (config["method"], config["epochs"], config["seed"]) == ("mle", 2, 5)
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert {"log_likelihood", "held_out_log_likelihood", "test_accuracy"} <= set(rows[0])
    about = json.loads((run / "environment.json").read_text())
    assert about["command"].startswith("llpkit fit --dataset digits --epochs 2")
    assert about["seed"] == 5
    assert len(about["data"]["sha256"]) == 64
    assert {"torch", "llpkit", "python"} <= set(about["versions"])
    assert about["command"] in (run / "report.html").read_text()
    assert not Path(".run.llpkit").exists()
    assert "accuracy" in done.out
    assert "report: run/report.html" in done.out


def test_a_table_needs_no_more_than_its_columns(llpkit, survey):
    done = llpkit("fit", survey, "--bag", "district", "--count", "n_yes", "--epochs", 2)
    assert done.code == 0, done.err
    run = Path("runs/survey-auto-0")
    assert (run / "encoder.json").exists()
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["data"]["table"] == str(survey)


def test_quiet_prints_nothing(fit_survey):
    assert fit_survey("--quiet", "--out", "run") == (0, "", "")


def test_yaml_and_options_that_win(llpkit, survey):
    Path("c.yaml").write_text(
        f"data: {{table: {survey.name}, bag: district, count: n_yes}}\n"
        "network: linear\nepochs: 2\nlr: 1e-2\nmethod: direct\n"
    )
    assert llpkit("fit", "c.yaml", "--epochs", 1, "--method", "mle", "--out", "run").code == 0
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert (config["epochs"], config["method"], config["lr"]) == (1, "mle", 0.01)
    assert llpkit("fit", "run/config.yaml", "--out", "again", "--quiet").code == 0
    assert same_weights(Path("run"), Path("again"))


def test_the_same_command_gives_the_same_weights(llpkit):
    for out in ("one", "two"):
        assert llpkit(*SYNTHETIC, "--epochs", 3, "--out", out).code == 0
    assert llpkit(*SYNTHETIC, "--epochs", 3, "--seed", 1, "--out", "three").code == 0
    assert same_weights(Path("one"), Path("two"))
    assert not same_weights(Path("one"), Path("three"))


def test_a_run_that_is_there_is_kept_unless_forced(llpkit):
    assert llpkit(*SYNTHETIC, "--epochs", 1, "--out", "run").code == 0
    before = Path("run/weights.safetensors").read_bytes()
    done = llpkit(*SYNTHETIC, "--epochs", 2, "--out", "run")
    assert done.code == 2
    assert "run exists; choose another directory with --out, or replace it: --force" in done.err
    assert Path("run/weights.safetensors").read_bytes() == before
    assert llpkit(*SYNTHETIC, "--epochs", 2, "--out", "run", "--force").code == 0
    assert Path("run/weights.safetensors").read_bytes() != before
    assert sorted(path.name for path in Path().iterdir()) == ["run"]
    # With nothing to resume, a run that is to be replaced lends none of its settings.
    assert llpkit(*SYNTHETIC, "--out", "run", "--force", "--resume").code == 0
    assert yaml.safe_load(Path("run/config.yaml").read_text())["epochs"] == 30


def test_a_forced_run_that_fails_leaves_the_old_one(llpkit):
    assert llpkit(*SYNTHETIC, "--epochs", 1, "--out", "run").code == 0
    before = Path("run/weights.safetensors").read_bytes()
    done = llpkit(*SYNTHETIC, "--epochs", 1, "--out", "run", "--force", "--lr", "1e300")
    assert done.code == 2
    assert "lower the learning rate" in done.err
    assert Path("run/weights.safetensors").read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == ["run"]


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_folder_that_is_no_run_is_never_replaced(llpkit, force):
    Path("mine").mkdir()
    Path("mine/thesis.tex").touch()
    done = llpkit(*SYNTHETIC, "--out", "mine", *force)
    assert done.code == 2
    assert "mine exists and is not a run" in done.err
    assert Path("mine/thesis.tex").exists()


def test_an_out_that_cannot_be_made(llpkit):
    Path("file").touch()
    done = llpkit(*SYNTHETIC, "--out", "file/run")
    assert done.code == 2
    assert "file/run cannot be written" in done.err


# Stopped and resumed


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "llpkit", *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_epochs(process: subprocess.Popen[str], checkpoint: Path, epochs: int) -> None:
    """Until the checkpoint was written so many times."""
    seen, end = set(), time.monotonic() + 90
    while len(seen) < epochs:
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        if checkpoint.exists():
            seen.add(checkpoint.stat().st_mtime_ns)
        time.sleep(0.001)


def test_killed_and_resumed_it_ends_with_the_same_weights(llpkit):
    options = (*SYNTHETIC, "--epochs", 120, "--method", "mle", "--held-out", "0.2")
    process = start(*options, "--out", "killed")
    wait_for_epochs(process, Path(".killed.llpkit/work/checkpoint.pt"), 5)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not Path("killed").exists()

    refused = llpkit(*options, "--out", "killed")
    assert refused.code == 2
    assert "killed holds a run that was stopped; continue it with --resume" in refused.err
    other = llpkit(*options, "--out", "killed", "--resume", "--lr", 0.5)
    assert other.code == 2
    assert "has --lr = None, but this one has 0.5; resume it with its own settings" in other.err
    early = llpkit("evaluate", "killed")
    assert early.code == 2
    assert (
        "was stopped before its end; continue it with: llpkit fit --resume --out killed"
        in early.err
    )

    assert llpkit("fit", "--resume", "--out", "killed", "--quiet").code == 0
    assert llpkit(*options, "--out", "whole").code == 0
    assert same_weights(Path("killed"), Path("whole"))
    assert sorted(path.name for path in Path().iterdir()) == ["killed", "whole"]
    drop = ("seconds", "measure_seconds")
    with Path("killed/metrics.csv").open() as a, Path("whole/metrics.csv").open() as b:
        for one, two in zip(csv.DictReader(a), csv.DictReader(b), strict=True):
            assert {k: v for k, v in one.items() if k not in drop} == {
                k: v for k, v in two.items() if k not in drop
            }

    done = llpkit("fit", "--resume", "--out", "killed")
    assert done == (0, "killed is finished; there is nothing to resume\n", "")


def test_data_that_changed_is_not_resumed(survey, fit_survey, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("llpkit.runs.train._write_model", _stop)
        with pytest.raises(KeyError):
            fit_survey("--out", "run")
    survey.write_text(survey.read_text().replace(",north,", ",south,"))
    done = fit_survey("--out", "run", "--resume")
    assert done.code == 2
    assert "checkpoint.pt has different inputs; use another run directory" in done.err
    assert fit_survey("--out", "run", "--force").code == 0


def _stop(*_):
    raise KeyError("stopped here")


def test_resume_with_nothing_to_resume_starts(llpkit):
    assert llpkit(*SYNTHETIC, "--epochs", 1, "--out", "run", "--resume").code == 0
    unnamed = (*SYNTHETIC, "--epochs", 1, "--method", "mle", "--resume")
    assert llpkit(*unnamed).code == 0
    nothing = "runs/synthetic-mle-0 is finished; there is nothing to resume\n"
    assert llpkit(*unnamed) == (0, nothing, "")
    nothing = llpkit("fit", "--resume", "--out", "other")
    assert nothing.code == 2
    assert "other holds no run to resume; name the table or data set" in nothing.err


# What is asked for


@pytest.mark.parametrize("method", ["supervised", "direct", "amle", "dllp", "llp-gan"])
def test_every_method_fits_a_table(fit_survey, method):
    network = () if method != "llp-gan" else ("--network", "llp-gan")
    done = fit_survey("--method", method, "--out", "run", *network)
    assert done.code == 0, done.err


def test_two_tables_and_bounds(llpkit, survey):
    with survey.open() as file:
        rows = list(csv.DictReader(file))
    with Path("counts.csv").open("w") as file:
        file.write("district,least,most\n")
        for district in dict.fromkeys(row["district"] for row in rows):
            n = int(next(row["n_yes"] for row in rows if row["district"] == district))
            file.write(f"{district},{max(0, n - 1)},\n")
    done = llpkit(
        *("fit", survey, "--bag", "district", "--counts-table", "counts.csv"),
        *("--count-low", "least", "--count-high", "most"),
        *("--features", "age", "--features", "region"),
        *("--network", "linear", "--epochs", 1, "--out", "run"),
    )
    assert done.code == 0, done.err


def test_many_classes(llpkit):
    done = llpkit(
        *("fit", "--dataset", "synthetic", "--data-option", "classes=3", "--bag-size", 4),
        *("--data-option", "rows=200", "--network", "linear", "--epochs", 1),
        *("--test-fraction", 0.3, "--out", "run"),
    )
    assert done.code == 0, done.err
    assert "AUC" not in done.out


def images(folder: Path, bags: int = 8) -> Path:
    """A table of small grey images, bright ones positive."""
    draw = np.random.default_rng(0)
    lines = ["slide,file,n_bright,bright"]
    for bag in range(bags):
        labels = draw.integers(0, 2, 3)
        for i, label in enumerate(labels):
            pixels = draw.integers(0, 100, (8, 8)) + 150 * label
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{bag}-{i}.png")
            lines.append(f"s{bag},{bag}-{i}.png,{labels.sum()},{label}")
    table = folder / "cells.csv"
    table.write_text("\n".join(lines) + "\n")
    return table


CELLS = ("--bag", "slide", "--count", "n_bright", "--image", "file", "--grey", "--epochs", 2)


def test_images_from_a_table(llpkit, tmp_path):
    table = images(tmp_path)
    done = llpkit("fit", table, *CELLS, "--label", "bright", "--augment", "paper", "--out", "run")
    assert done.code == 0, done.err
    there = llpkit("predict", "run", table, "--out", "p.csv")
    assert there.code == 0, there.err
    assert len(Path("p.csv").read_text().splitlines()) == 25
    assert llpkit("evaluate", "run", table).code == 0


@pytest.mark.parametrize("resident", ["true", "false"])
def test_a_bad_image_is_named_or_skipped(llpkit, tmp_path, resident):
    table = images(tmp_path)
    (tmp_path / "3-1.png").write_bytes(b"not an image")
    done = llpkit("fit", table, *CELLS, "--out", "run", "--resident", resident)
    assert done.code == 2
    assert "row 11: " in done.err
    assert "3-1.png" in done.err
    assert "Traceback" not in done.err
    assert not Path(".run.llpkit").exists()
    skipped = llpkit("fit", table, *CELLS, "--out", "run", "--skip-bad", "--resident", resident)
    assert skipped.code == 0, skipped.err
    assert "bag 's3' (3 rows) is left out" in skipped.err
    predicted = llpkit("predict", "run", table, "--out", "p.csv")
    assert predicted.code == 0, predicted.err
    assert "no prediction: row 11" in predicted.err
    with Path("p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["probability"] == "" for row in rows].count(True) == 1


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bag", "distrikt"], "has no column 'distrikt'; did you mean 'district'?"),
        (["--count", "age"], "column 'age'"),
        (["--count", "region"], "is not a number"),
        (["--proportion", "n_yes"], "counts and proportions were given; name"),
        (["--features", "salary"], "has no column 'salary'"),
        (["--label", "region"], "is not a class; give negative, positive or 0 to 1"),
        (["--class-name", "a"], "--class-name = "),
        (["--method", "mlee"], "--method = 'mlee'; did you mean 'mle'?"),
        (["--method-option", "step"], "'step' is not KEY=VALUE"),
        (["--method", "mle", "--method-option", "step=now"], "step = 'now'; give a number"),
        (
            ["--method", "mle", "--method-option", "speed=3"],
            "has no option 'speed'; available: step, ",
        ),
        (["--network", "small-cnn"], "takes images"),
        (["--epochs", "ten"], "--epochs = 'ten'; give a whole number from 1"),
        (["--device", "cuda:77"], "cuda"),
        (["--device", "abacus"], "device = 'abacus'"),
        (["--held-out", "0.001"], "leaves a part without bags"),
        (["--image", "region"], "there is no file"),
        (["--table", "other.csv"], "two tables"),
        (["--bag-size", "3"], "--bag-size goes with a data set"),
    ],
)
def test_errors_of_a_table(fit_survey, options, message):
    done = fit_survey("--out", "run", *options)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert not Path("run").exists()
    assert not Path(".run.llpkit").exists()


def test_supervised_without_labels(llpkit, survey):
    done = llpkit(
        *("fit", survey, "--bag", "district", "--count", "n_yes", "--method", "supervised"),
    )
    assert done.code == 2
    assert "name their column with --label" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv", "--bag", "b", "--count", "c"], "none.csv does not exist"),
        (["none.yaml"], "none.yaml does not exist"),
        ([], "name a table or a data set"),
        (["digits"], "digits is a data set, not a table; give --dataset digits"),
        (["--dataset", "cifar"], "did you mean 'cifar10'?"),
        (["--dataset", "cifar10"], "cifar10 is not in "),
        (["--dataset", "group-photos"], "Put it there: "),
        (["--dataset", "digits", "--data-option", "classes=7"], "classes = 7; give 2, or 10"),
        (["--dataset", "digits", "--data-option", "colour=3"], "has no option 'colour'"),
        (["--dataset", "digits", "--bag-size", "0"], "--bag-size = '0'; give a number, or a"),
    ],
)
def test_errors_of_sources(llpkit, arguments, message):
    done = llpkit("fit", *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_everything_wrong_with_a_configuration_is_listed(llpkit, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    Path("c.yaml").write_text("data: {dataset: digits}\nepoch: 3\nmethode: mle\n")
    done = llpkit("fit", "c.yaml")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "2 settings are wrong:",
        "  epoch is unknown; did you mean 'epochs'?",
        "  methode is unknown; did you mean 'method'?",
    ]


def test_shares_that_leave_no_bags_are_named_as_typed(llpkit):
    for option, share in (("--held-out", 0.0001), ("--test-fraction", 0.9999)):
        done = llpkit("fit", "--dataset", "digits", option, share, "--epochs", 1, "--out", "run")
        assert done.code == 2
        assert f"{option} = {share:g}" in done.err


def test_the_share_held_out_is_kept_with_the_model(llpkit):
    how = ("--dataset", "synthetic", "--held-out", 0.2, "--epochs", 1, "--quiet", "--out", "run")
    assert llpkit("fit", *how).code == 0
    about = json.loads(Path("run/model.json").read_text())
    assert about["details"]["settings"]["held_out"] == 0.2
