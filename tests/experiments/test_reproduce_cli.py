"""The commands ``reproduce`` and ``report``: what they say and how they end."""

import json
import os
import pty
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from llpkit.cli._experiments import _command
from llpkit.experiments import Run, Store

OUT = Path("llpkit-results")
SMALL = ("--dataset", "digits", "--methods", "mle,dllp", "--folds", 2, "--epochs", 2)


def test_runs_are_told_line_by_line_and_kept(llpkit):
    code, out, err = llpkit("reproduce", "convergence", *SMALL)
    assert code == 0, err
    assert out == "convergence on digits: 4 runs done\n"
    lines = err.splitlines()
    assert lines[:2] == ["hyper-parameters: defaults", "4 runs"]
    assert lines[2].startswith("1/4 digits, mle, fold 0: accuracy ")
    records = list(Store([Path("llpkit-results")]).read())
    assert len(records) == 4
    assert {r["command"] for r in records} == {
        "llpkit reproduce convergence --dataset digits --methods mle,dllp --folds 2 --epochs 2"
    }
    code, out, _ = llpkit("reproduce", "convergence", *SMALL)
    assert (code, out) == (0, "convergence on digits: 0 runs done, 4 before\n")
    code, out, err = llpkit("reproduce", "convergence", *SMALL, "--folds", "0-2", "--quiet")
    assert (code, out, err) == (0, "", "")
    assert len(list(Store([Path("llpkit-results")]).read())) == 6


def test_a_dry_run_lists_what_is_done(llpkit):
    llpkit("reproduce", "convergence", *SMALL, "--folds", 1)
    code, out, _ = llpkit("reproduce", "convergence", *SMALL, "--dry-run")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "convergence on digits: 4 runs, 2 done"
    assert [line.split()[0] == "done" for line in lines[1:]] == [True, True, False, False]
    assert len(list(Store([Path("llpkit-results")]).read())) == 2


def test_a_time_limit_leaves_the_rest_for_the_next_call(llpkit):
    code, out, _ = llpkit("reproduce", "convergence", *SMALL, "--time-limit", 0)
    assert (code, out) == (0, "convergence on digits: 0 runs done, 4 left for the next call\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("convergence --bag-sizes 2,4", "--bag-sizes is of bag-size, and convergence has bags of"),
        ("grid --held-out 0.1", "grid always holds out a tenth: leave out --held-out"),
        ("epoch-time --held-out 0.1", "epoch-time selects no epoch: leave out --held-out"),
        ("epoch-time --backend dask", "epoch-time runs alone, in this process: leave out"),
    ],
)
def test_options_that_would_change_nothing(llpkit, words, told):
    code, _, err = llpkit("reproduce", *words.split(), "--dataset", "digits", "--quick")
    assert code == 2
    assert told in err.replace("\n", " ")


def test_a_missing_data_set_is_told_before_the_work_on_the_others(llpkit, tmp_path):
    two = ("--dataset", "digits", "--dataset", "cifar10", "--data-dir", tmp_path / "nothing")
    options = ("--methods", "mle", "--folds", 1, "--epochs", 1)
    code, _, err = llpkit("reproduce", "convergence", *two, *options)
    assert code == 2
    assert "cifar10" in err
    assert not list(Store([OUT]).read())


def test_all_data_sets_at_once(llpkit):
    code, out, err = llpkit("reproduce", "all", "--size", "half", "--folds", 2, "--dry-run")
    assert code == 0, err
    heads = [line for line in out.splitlines() if not line.startswith(" ")]
    assert heads == [
        "grid on cifar10: 42 runs, 0 done",
        "epoch-time on cifar10: 21 runs, 0 done",
        "convergence on cifar10: 14 runs, 0 done",
        "bag-size on cifar10: 84 runs, 0 done",
        "grid on group-photos: 42 runs, 0 done",
        "epoch-time on group-photos: 21 runs, 0 done",
        "convergence on group-photos: 14 runs, 0 done",
    ]


def test_folders_that_are_only_read(llpkit):
    llpkit("reproduce", "convergence", *SMALL, "--folds", 1, "--out", "old")
    code, out, _ = llpkit("reproduce", "convergence", *SMALL, "--out", "new", "--out", "old")
    assert (code, out) == (0, "convergence on digits: 2 runs done, 2 before\n")
    assert len(list(Store([Path("new")]).read())) == 2
    assert len(list(Store([Path("old")]).read())) == 2


def test_a_failed_run_is_told_and_ends_in_an_error(llpkit):
    wrong = ("reproduce", "convergence", "--dataset", "digits", "--methods", "supervised")
    code, out, err = llpkit(*wrong, "--folds", 1, "--epochs", 1, "--lr", "1e30")
    assert code == 1
    assert out == "convergence on digits: 0 runs done, 1 failed\n"
    assert "failed: digits, supervised, fold 0: Diverged: epoch 1: the loss is" in err
    [error] = Store([Path("llpkit-results")]).errors()
    assert error["run"]["lr"] == 1e30


def test_a_failed_run_of_a_variant_has_its_name(llpkit):
    given = ("--dataset", "digits", "--methods", "mle-pass", "--folds", 1, "--epochs", 1)
    code, _, err = llpkit("reproduce", "convergence", *given, "--lr", "1e30")
    assert code == 1
    assert "failed: digits, mle-pass, fold 0: Diverged: " in err


def test_a_run_of_another_call_is_waited_for(llpkit):
    store = Store([OUT])
    only = ("--dataset", "digits", "--methods", "mle", "--folds", 2, "--epochs", 2)
    llpkit("reproduce", "convergence", *only)
    [first, second] = map(Run.of, store.read())
    for run in (first, second):
        (OUT / "records" / "convergence" / f"{run.id}.json").unlink()
    with ExitStack() as theirs:
        theirs.enter_context(store.claimed(first))
        timer = threading.Timer(1.5, theirs.close)
        timer.start()
        code, out, err = llpkit("reproduce", "convergence", *only)
        timer.join()
    assert (code, out) == (0, "convergence on digits: 2 runs done\n")
    assert "waits for runs that another call has under way: 1\n" in err


def test_a_damaged_record_is_told_and_run_again(llpkit):
    llpkit("reproduce", "grid", "--quick", "--methods", "mle")
    path = sorted((OUT / "records" / "grid").glob("*.json"))[0]
    path.write_text("{")
    code, out, _ = llpkit("reproduce", "grid", "--quick", "--methods", "mle")
    assert (code, out) == (0, "grid on digits: 1 run done, 1 before\n")
    path.write_text("{")
    code, _, err = llpkit("reproduce", "convergence", "--quick", "--methods", "mle")
    assert code == 2
    assert f"a damaged record is now {path}.damaged (JSONDecodeError: " in err
    assert "the grid on digits is not finished" in err


def test_a_dry_run_leaves_a_damaged_record_alone(llpkit):
    llpkit("reproduce", "convergence", *SMALL, "--folds", 1)
    path = sorted((OUT / "records" / "convergence").glob("*.json"))[0]
    path.write_text("{")
    code, out, _ = llpkit("reproduce", "convergence", *SMALL, "--folds", 1, "--dry-run")
    assert code == 0
    assert out.startswith("convergence on digits: 2 runs, 1 done\n")
    assert path.read_text() == "{"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("converge",), "'converge' is none of grid, epoch-time, convergence, bag-size, all and"),
        (("grid", "some.json", "--quick"), "check takes the files of records, and nothing else"),
        (("check",), "check takes the files of records, and nothing else"),
        (("grid", "--quick", "--lr", "0.1"), "leave out --lr and --method-option"),
        (("convergence", "--quick", "--time-limit", "-1"), "time_limit = -1.0; give seconds from"),
        (("all", "--quick", "--bag-sizes", "4,4"), "bag_sizes: 4 is there twice"),
        (("convergence", "--dataset", "mnist"), "dataset = 'mnist'; known are"),
        (("grid", "--quick", "--methods", "mle,dllp", "--methods", "mle"), "mle is there twice"),
        (("convergence", "--methods", "mle,foo", "--quick"), "method = 'foo'; known are"),
        (("convergence", "--folds", "12", "--quick"), "folds = '12'; give a count such as 5"),
        (("bag-size", "--bag-sizes", "2,x", "--quick"), "--bag-sizes 2,x is no list of numbers"),
        (("bag-size", "--dataset", "group-photos"), "group-photos has bags of its own"),
        (("grid", "--quick", "--method-option", "refresh=pass"), "'refresh' names no method"),
        (("grid", "--quick", "--method-option", "mle.refresh=x"), "refresh = 'x'; known are"),
        (("convergence", "--quick", "--backend", "slurm"), "backend = 'slurm'; known are loky"),
        (("convergence", "--dataset", "cifar10"), "cifar10 is not in"),
        (("convergence", "--quick", "--network", "convlarge"), "network = 'convlarge'; did you"),
        (("grid", "--quick", "--augment", "papre"), "augment = 'papre'; did you mean paper"),
        (("convergence", "--quick", "--size", "half"), "size = 'half' is for group-photos"),
        (("convergence", "--quick", "--epochs", "0"), "epochs = 0; give a number from 1"),
        (("convergence", "--quick", "--jobs", "0"), "jobs = 0; give a number from 1"),
        (("convergence", "--quick", "--held-out", "1.5"), "held_out = 1.5; give a share"),
        (("convergence", "--quick", "--lr", "-1"), "lr = -1.0; give a positive number"),
        (("convergence", "--quick", "--precision", "8"), "precision = '8'; known are"),
        (("bag-size", "--bag-sizes", "0", "--quick"), "bag_sizes = 0; give a number from 1"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(llpkit, arguments, message):
    code, out, err = llpkit("reproduce", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("llpkit-results").exists()


def test_folders_are_no_part_of_the_recorded_command():
    given = ["reproduce", "grid", "--out", "a b", "--quick", "--data-dir=/there", "--out=c"]
    assert _command(given) == "llpkit reproduce grid --quick"
    assert _command(["report", "/home/me/one", "two", "-o", "there"]) == "llpkit report one two"


def test_report_draws_folders_and_says_where(llpkit):
    llpkit("reproduce", "convergence", *SMALL, "--folds", "0-0", "--out", "one")
    llpkit("reproduce", "convergence", *SMALL, "--folds", "1-1", "--out", "two")
    code, out, err = llpkit("report", "one", "two", "--out", "drawn")
    assert (code, out) == (0, "drawn/report.html\n"), err
    text = Path("drawn/report.html").read_text(encoding="utf-8")
    assert "over 2 folds" in text
    assert "llpkit report one two</code>" in text
    code, _, err = llpkit("report", "three")
    assert code == 2
    assert "three holds no records; give a folder of llpkit reproduce" in err


def test_a_method_option_reaches_the_run(llpkit):
    llpkit("reproduce", "convergence", *SMALL, "--method-option", "mle.refresh=pass", "--folds", 1)
    records = list(Store([Path("llpkit-results")]).read())
    options = {r["run"]["method"]: r["run"]["method_options"] for r in records}
    assert options == {"mle": {"refresh": "pass", "step": 1.0}, "dllp": {}}


def test_options_of_a_variant_are_recorded_as_the_users(llpkit):
    given = ("--dataset", "digits", "--methods", "mle", "--methods", "mle-pass", "--folds", 1)
    given += ("--epochs", 2, "--method-option", "mle-pass.step=0.5")
    code, _, err = llpkit("reproduce", "convergence", *given)
    assert code == 0, err
    found = {r["run"]["method_options"]["step"]: r["chosen_by"] for r in Store([OUT]).read()}
    assert found == {1.0: "defaults", 0.5: "options"}
    llpkit("report", OUT)
    text = (OUT / "report" / "report.html").read_text(encoding="utf-8")
    assert "mle-pass, step 0.5" in text
    assert "mle against each, fold by fold" in text


def test_the_rest_waits_for_a_grid_that_is_not_finished(llpkit):
    code, out, err = llpkit("reproduce", "all", "--quick", "--time-limit", 0)
    assert code == 0
    assert out == "grid on digits: 0 runs done, 14 left for the next call\n"
    assert "the other experiments on digits wait for its grid" in err


def test_a_record_is_checked_by_a_second_run(llpkit):
    llpkit("reproduce", "convergence", *SMALL, "--folds", 1, "--device", "cpu")
    files = sorted(Path("llpkit-results/records/convergence").glob("*.json"))
    code, out, err = llpkit("reproduce", "check", *files, "--device", "cpu")
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) == 2
    for path, line in zip(files, lines, strict=True):
        assert line.startswith(f"{path.stem} digits, ")
        assert line.endswith(", cpu: the same to the last digit")
    record = json.loads(files[0].read_text())
    record["history"]["loss"][1] += 0.25
    files[0].write_text(json.dumps(record | {"code": "another"}))
    code, out, _ = llpkit("reproduce", "check", files[0], "--device", "cpu")
    assert code == 1
    assert "largest difference 0.25, in loss of epoch 2; last accuracy " in out
    assert out.endswith("(not as it was: source)\n")


def test_a_check_leaves_out_runs_that_failed(llpkit):
    only = ("--dataset", "digits", "--methods", "mle", "--folds", 1, "--epochs", 1)
    llpkit("reproduce", "convergence", *only)
    llpkit("reproduce", "convergence", *only, "--lr", "1e30")
    files = sorted((OUT / "records" / "convergence").glob("*.json"))
    [failure] = [path for path in files if path.name.endswith(".error.json")]
    code, out, err = llpkit("reproduce", "check", *files, "--device", "cpu")
    assert code == 0, err
    assert len(out.splitlines()) == 1
    assert f"{failure} is left out: it tells of a run that failed" in err
    code, out, err = llpkit("reproduce", "check", failure)
    assert (code, out) == (2, "")
    assert "there is no record to check, only runs that failed" in err


def test_a_terminal_shows_the_grid_as_it_goes(tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "llpkit.cli", "reproduce", "convergence", "--out", "shown"]
    command += [*map(str, SMALL), "--folds", "1", "--epochs", "40", "--device", "cpu"]
    terminal = os.environ | {"TERM": "xterm"}
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=theirs, stdout=subprocess.PIPE, env=terminal
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    out, _ = process.communicate(timeout=60)
    text = seen.decode()
    assert process.returncode == 0, text
    assert out == b"convergence on digits: 2 runs done\n"
    assert "2/2" in text
    assert "accuracy %" in text
    assert "fold 0: " in text
    last = text[text.rindex("accuracy %") :]
    records = list(Store([tmp_path / "shown"]).read())
    for method in ("mle", "dllp"):
        found = [r["final"]["accuracy"] for r in records if r["run"]["method"] == method]
        assert f"{100 * found[0]:.1f}" in last
