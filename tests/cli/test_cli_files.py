"""What a run leaves on the disk: nothing damaged in silence, nothing lost, nothing of others."""

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

import llpkit as package
from llpkit import runs
from llpkit.files import Checksums
from llpkit.training import Callback

KILLS = Path(__file__).parents[2] / "benchmarks" / "kills.py"
SYNTHETIC = (
    *("fit", "--dataset", "synthetic", "--data-option", "rows=60", "--network", "linear"),
    *("--epochs", "3", "--threads", "1", "--quiet"),
)


@pytest.fixture
def run(fitted, tmp_path):
    """A copy of the session's run."""
    shutil.copytree(fitted, tmp_path / "run")
    return Path("run")


@pytest.fixture
def watched(monkeypatch):
    """Give the next fits of the command line a callback."""

    right = runs.fit

    def watch(callback):
        def fit(*arguments, **options):
            return right(*arguments, **{**options, "callbacks": [callback]})

        monkeypatch.setattr(runs, "fit", fit)

    return watch


class At(Callback):
    """Do something at the end of an epoch, or before the first; once."""

    def __init__(self, epoch, action):
        self.epoch, self.action = epoch, action

    def on_start(self, session):  # noqa: ARG002
        self._do(0)

    def on_epoch(self, session, row):  # noqa: ARG002
        self._do(row["epoch"])

    def _do(self, epoch):
        if epoch == self.epoch:
            self.epoch = None
            self.action()


def names(folder="."):
    return sorted(path.name for path in Path(folder).iterdir())


def flips(path, number, seed=0):
    """The content of a file with one bit flipped, at some places from its start to its end."""
    whole, draw = path.read_bytes(), random.Random(seed)
    for i in range(number):
        where = i * (len(whole) - 1) // (number - 1)
        yield whole[:where] + bytes([whole[where] ^ 1 << draw.randrange(8)]) + whole[where + 1 :]
    path.write_bytes(whole)


# Damage


@pytest.mark.parametrize(
    "name", ["weights.safetensors", "model.json", "encoder.json", "config.yaml", "checksums.json"]
)
def test_a_flipped_bit_of_a_run_is_told(llpkit, run, survey, name):
    for content in flips(run / name, 25):
        (run / name).write_bytes(content)
        done = llpkit("predict", run, survey, "--out", "p.csv")
        assert done.code == 2, content
        assert f"run is damaged: {name}" in done.err or name == "checksums.json"
        assert not Path("p.csv").exists()
    assert llpkit("predict", run, survey, "--out", "p.csv").code == 0


def test_a_flipped_bit_of_an_estimator_is_told(llpkit, survey):
    columns = ("--bag", "district", "--count", "n_yes", "--label", "answer", "--quiet")
    assert llpkit("fit", survey, *columns, "--estimator", "logistic", "--out", "run").code == 0
    for content in flips(Path("run/estimator.skops"), 40):
        Path("run/estimator.skops").write_bytes(content)
        done = llpkit("evaluate", "run")
        assert done.code == 2
        assert "run is damaged: estimator.skops has changed since it was written" in done.err
    assert llpkit("evaluate", "run").code == 0


@pytest.mark.parametrize("name", ["weights.safetensors", "encoder.json", "checksums.json"])
def test_a_missing_file_is_named(llpkit, run, survey, name):
    (run / name).unlink()
    done = llpkit("predict", run, survey, "--out", "p.csv")
    assert done.code == 2
    assert f"run is damaged: {name} is missing" in done.err
    with pytest.raises(package.LLPError):
        package.load(run if name != "encoder.json" else "nothing")


def test_a_flipped_bit_of_a_stopped_run_is_told(llpkit, watched):
    watched(At(2, _interrupt))
    assert llpkit(*SYNTHETIC, "--out", "run").code == 130
    files = [path for path in Path(".run.llpkit/work").iterdir() if path.is_file()]
    assert {path.name for path in files} >= {"checkpoint.pt", "config.yaml"}
    for path in files:
        for content in flips(path, 12):
            path.write_bytes(content)
            done = llpkit("fit", "--resume", "--out", "run", "--quiet")
            assert done.code == 2, (path, done)
            assert "Traceback" not in done.err


def _interrupt():
    raise KeyboardInterrupt


# What others wrote


def test_folders_with_other_names_are_left_alone(llpkit):
    for folder in ("run.replaced", "run.partial"):
        Path(folder).mkdir()
        Path(folder, "thesis.tex").touch()
    for options in ([], ["--force"], ["--force", "--resume"]):
        assert llpkit(*SYNTHETIC, "--out", "run", *options).code == 0
    assert names() == ["run", "run.partial", "run.replaced"]
    assert names("run.partial") == names("run.replaced") == ["thesis.tex"]


@pytest.mark.parametrize("options", [[], ["--resume"], ["--force"]])
def test_a_folder_without_our_mark_is_left_alone(llpkit, options):
    Path(".run.llpkit/work").mkdir(parents=True)
    Path(".run.llpkit/work/checkpoint.pt").write_text("mine")
    done = llpkit(*SYNTHETIC, "--out", "run", *options)
    assert done.code == 2
    assert ".run.llpkit was not made by llpkit" in done.err
    assert Path(".run.llpkit/work/checkpoint.pt").read_text() == "mine"


def test_a_run_with_other_files_in_it_is_not_replaced(llpkit):
    assert llpkit(*SYNTHETIC, "--out", "run").code == 0
    Path("run/figures").mkdir(exist_ok=True)
    Path("run/figures/notes.txt").write_text("mine")
    done = llpkit(*SYNTHETIC, "--out", "run", "--force", "--seed", 1)
    assert done.code == 2
    assert "run/figures/notes.txt was not written by the run" in done.err
    assert Path("run/figures/notes.txt").read_text() == "mine"
    Path("run/figures/notes.txt").unlink()
    assert llpkit(*SYNTHETIC, "--out", "run", "--force", "--seed", 1).code == 0


@pytest.mark.filterwarnings("ignore::UserWarning")  # a model this small learns little
def test_temporary_files_of_the_killed_are_removed_and_no_others(tmp_path):
    model = package.fit("linear", *_toy(), epochs=1, progress=False)
    stale = tmp_path / ".model.json.0a1b2c3d.llpkit-part"
    others = [tmp_path / ".model.json.part", tmp_path / ".other.json.0a1b2c3d.llpkit-part"]
    for path in (stale, *others):
        path.touch()
    model.save(tmp_path)
    assert names(tmp_path) == sorted(
        [*(p.name for p in others), "checksums.json", "model.json", "weights.safetensors"]
    )


def _toy():
    import torch

    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    return package.random_bags((x[:, 0] > 0).long(), 4, generator=0), x


# An output is never an input


@pytest.mark.parametrize("link", ["itself", "symbolic", "hard"])
def test_predictions_do_not_overwrite_what_is_read(llpkit, run, survey, link):
    lines = [line.split(",")[:2] for line in survey.read_text().splitlines()]
    counts = Path("counts.csv")
    counts.write_text("\n".join(dict.fromkeys(",".join(line) for line in lines)) + "\n")
    for source in (counts, survey, run / "metrics.csv"):
        before, out = source.read_bytes(), Path(source)
        if link == "symbolic":
            out = Path(f"{source.stem}-link.csv")
            out.symlink_to(source.resolve())
        elif link == "hard":
            out = Path(f"{source.stem}-link.csv")
            os.link(source, out)
        done = llpkit("predict", run, survey, "--counts-table", counts, "--out", out)
        assert done.code == 2
        assert "would overwrite the input" in done.err
        assert source.read_bytes() == before


def test_a_run_does_not_replace_its_own_settings(llpkit):
    assert llpkit(*SYNTHETIC, "--out", "run").code == 0
    before = Path("run/config.yaml").read_bytes()
    done = llpkit("fit", "run/config.yaml", "--seed", 1, "--out", "run", "--force")
    assert done.code == 2
    assert "would overwrite the input run/config.yaml" in done.err
    assert Path("run/config.yaml").read_bytes() == before


@pytest.mark.parametrize("name", ["weights.safetensors", "model.json", "checksums.json"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_is_not_saved_over_files_of_others(tmp_path, name):
    model = package.fit("linear", *_toy(), epochs=1, progress=False)
    (tmp_path / name).write_text("mine")
    with pytest.raises(package.LLPError, match=f"{name} was not written by llpkit"):
        model.save(tmp_path)
    assert names(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "mine"
    for _ in range(2):  # its own files may be replaced
        model.save(tmp_path / "other")
    package.load(tmp_path / "other")


@pytest.mark.parametrize("call", [1, 2, 3, 4])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_whose_saving_was_killed_is_saved_again(tmp_path, monkeypatch, call):
    model = package.fit("linear", *_toy(), epochs=1, progress=False)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", _ends_at(call, os.replace))
        with pytest.raises(_Killed):
            model.save(tmp_path)
    model.save(tmp_path)
    package.load(tmp_path)


@pytest.mark.parametrize("bad", [3, 1.5, ["run"], b"run", "a\0b"])
def test_a_path_that_is_none_is_an_error(bad):
    from llpkit import estimators

    with pytest.raises(package.LLPError, match="run_dir = "):
        package.fit("linear", *_toy(), epochs=1, progress=False, run_dir=bad)
    model = package.fit("linear", *_toy(), epochs=1, progress=False)
    for call in (model.save, package.load):
        with pytest.raises(package.LLPError, match="directory = "):
            call(bad)
    for call in (lambda path: estimators.save(model, path), estimators.load):
        with pytest.raises(package.LLPError, match="path = "):
            call(bad)


def test_no_folder_is_made_on_the_way_up(llpkit, tmp_path):
    Path("in").mkdir()
    os.chdir("in")
    assert llpkit(*SYNTHETIC, "--out", "a/../../run").code == 0
    assert llpkit("evaluate", "../run").code == 0
    package.fit("linear", *_toy(), epochs=1, progress=False, run_dir="b/../../dir").save("c/../m")
    assert names() == ["m"]
    assert names(tmp_path) == ["dir", "in", "run"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_place_where_no_file_can_be_made_is_not_in_use(llpkit):
    done = llpkit(*SYNTHETIC, "--out", "/proc/x")
    assert done.code == 2
    assert "/proc/x cannot be written" in done.err
    assert "in use" not in done.err


# One process at a time


def test_a_run_that_is_alive_is_refused(llpkit, watched, capsys):
    from llpkit.cli import main

    refused = []

    def others():
        for mode in ([], ["--resume"], ["--force"], ["--force", "--seed", "9"]):
            refused.append((main([*SYNTHETIC, "--out", "run", *mode]), capsys.readouterr().err))

    watched(At(2, others))
    assert llpkit(*SYNTHETIC, "--out", "run").code == 0
    assert [code for code, _ in refused] == [2] * 4
    holder = f"run is in use by process {os.getpid()} on {socket.gethostname()}"
    assert all(holder in err for _, err in refused)
    assert names() == ["run"]
    assert "seed: 0" in Path("run/config.yaml").read_text()


@pytest.mark.filterwarnings("ignore::UserWarning")  # a model this small learns little
def test_a_run_dir_that_is_in_use_is_refused(tmp_path):
    bags, x = _toy()
    options = {"epochs": 3, "run_dir": tmp_path / "run", "progress": False}

    def other():
        with pytest.raises(package.LLPError, match=f"in use by process {os.getpid()} on"):
            package.fit("linear", bags, x, **options, resume=True)

    package.fit("linear", bags, x, callbacks=At(2, other), **options)
    assert names(tmp_path / "run") == ["checkpoint.pt"]


# Kills


@pytest.mark.slow
def test_killed_at_any_operation_and_beside_each_other():
    """Some kills spread over file operations and time, and every two modes in two processes."""
    command = [sys.executable, str(KILLS), "--fits", "10", "--reproduces", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" passed, 0 failed") == 2


@pytest.mark.parametrize("rename", [1, 2])
@pytest.mark.parametrize("mode", [["--resume"], ["--force"], ["--resume", "--force"], []])
def test_a_finished_run_only_gets_its_name(llpkit, monkeypatch, rename, mode):
    """Stopped at one of the last two renames, with a run that is to be replaced."""
    assert llpkit(*SYNTHETIC, "--seed", 9, "--out", "run").code == 0
    assert llpkit(*SYNTHETIC, "--out", "wanted").code == 0
    wanted = Path("wanted/weights.safetensors").read_bytes()
    before = Path("run/weights.safetensors").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", _ends_at(rename, os.rename))
        with pytest.raises(_Killed):
            llpkit(*SYNTHETIC, "--out", "run", "--force")
    monkeypatch.setattr("llpkit.training.fit", _no_training)
    done = llpkit(*SYNTHETIC, "--out", "run", *mode)
    there = Path("run/weights.safetensors").read_bytes()
    if rename == 1 and "--force" not in mode:  # the old run is in its place, and not to be lost
        assert (done.code, there) == (2, before)
        assert "the run to replace it was stopped; continue with --resume --force" in done.err
        return
    assert (done.code, there) == (0, wanted), done.err
    assert names() == ["run", "wanted"]


class _Killed(BaseException):
    pass


def _ends_at(call, function):
    """The function until its call of this number; from there on it only raises, like the dead."""
    made = []

    def counted(*arguments):
        made.append(arguments)
        if len(made) >= call:
            raise _Killed
        return function(*arguments)

    return counted


def _no_training(*_, **__):
    raise AssertionError("it trained again")


# Stopped


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("moment", ["data", "start", "epoch", "page"])
def test_a_signal_at_any_moment_names_the_command(
    llpkit, watched, monkeypatch, number, code, moment
):
    def stop(*_, **__):
        signal.raise_signal(number)

    if moment in ("start", "epoch"):
        watched(At(0 if moment == "start" else 2, stop))
    place = {"data": "llpkit.runs.train.load_data", "page": "llpkit.runs.page.write_report"}
    with monkeypatch.context() as patch:
        if moment in place:
            patch.setattr(place[moment], stop)
        done = llpkit(*SYNTHETIC, "--out", "my run")
    assert done.code == code
    command = f"llpkit {' '.join(SYNTHETIC)} --out 'my run' --resume"
    assert f"with: {command}\n" in done.err
    assert ("nothing was kept" in done.err) == (moment in ("data", "start"))
    assert names() == ([] if moment in ("data", "start") else [".my run.llpkit"])
    assert llpkit(*SYNTHETIC, "--out", "my run", "--resume").code == 0
    assert names() == ["my run"]


def test_a_full_disk_is_told_and_the_checkpoint_before_it_kept(llpkit, watched):
    assert llpkit(*SYNTHETIC, "--out", "whole").code == 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))

    watched(At(2, fill))
    try:
        done = llpkit(*SYNTHETIC, "--out", "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.code == 2
    assert "checkpoint.pt cannot be written: File too large" in done.err
    assert "Traceback" not in done.err
    assert not [name for name in names(".run.llpkit/work") if name.startswith(".")]
    seen = []
    watched(At(2, lambda: seen.append(2)))
    assert llpkit(*SYNTHETIC, "--out", "run", "--resume").code == 0
    assert seen == [2]  # it went on after the first epoch
    one, two = (load_file(f"{name}/weights.safetensors") for name in ("run", "whole"))
    assert all((one[key] == two[key]).all() for key in two)
    assert json.loads(Path("run/checksums.json").read_text())["files"]


@pytest.mark.parametrize("name", ["../victim.txt", "{outside}", "figures/../../victim.txt", "."])
def test_a_list_that_names_files_elsewhere_is_nobody_s(name, tmp_path):
    """Anybody can write such a list, and files on it may be removed."""
    folder = tmp_path / "report"
    folder.mkdir()
    victim = tmp_path / "victim.txt"
    victim.write_text("kept")
    files = {name.format(outside=victim): hashlib.sha256(b"kept").hexdigest()}
    Checksums(folder, files).write()
    assert Checksums.read(folder) is None


@pytest.mark.parametrize("files", [None, 7, ["config.yaml"], "config.yaml", {"config.yaml": 3}])
def test_a_list_that_is_none_is_nobody_s(files, tmp_path):
    Checksums(tmp_path, files).write()
    assert Checksums.read(tmp_path) is None
