"""Help, version, lists and usage errors."""

import os
import subprocess
import sys

import pytest
import torch

import llpkit as package
from llpkit.augment import AUGMENTATIONS
from llpkit.cli.options import OPTIONS
from llpkit.datasets import DATASETS
from llpkit.estimators import ESTIMATORS
from llpkit.methods import METHODS
from llpkit.networks import NETWORKS

LISTS = {
    "datasets": DATASETS,
    "methods": METHODS,
    "networks": NETWORKS,
    "augmentations": AUGMENTATIONS,
    "estimators": ESTIMATORS,
}
COMMANDS = ("demo", "fit", "predict", "evaluate", *LISTS)


def test_version(llpkit):
    assert llpkit("--version") == (0, f"llpkit {package.__version__}\n", "")


def test_help_lists_the_commands(llpkit):
    done = llpkit("--help")
    assert done.code == 0
    assert all(command in done.out for command in COMMANDS)


def test_every_option_is_named_in_the_help(llpkit):
    done = llpkit("fit", "--help")
    assert [option.name for option in OPTIONS if option.name not in done.out] == []


def test_no_arguments_show_the_help(llpkit):
    assert "Usage" in "".join(llpkit()[1:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fitt"], "No such command 'fitt'. Did you mean 'fit'?"),
        (["fit", "--epoch", "3"], "No such option: --epoch"),
        (["predict"], "Missing argument 'RUN_DIR'"),
        (["predict", "run", "t.csv"], "Missing option '--out'"),
        (["evaluate", "run", "--threshold", "high"], "--threshold"),
    ],
)
def test_usage_errors(llpkit, arguments, message):
    done = llpkit(*arguments)
    assert done.code == 2
    assert message in " ".join(done.err.replace("│", " ").split())
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", list(LISTS))
def test_names_are_listed(llpkit, command):
    done = llpkit(command)
    assert done.code == 0
    assert [name for name in LISTS[command] if name not in done.out] == []


def test_datasets_are_listed_with_where_to_get_them(llpkit):
    done = llpkit("datasets")
    assert done.code == 0
    words = " ".join(done.out.split())
    assert "no-data" in words
    assert "cifar" in words
    for name, answer in (("digits", "yes"), ("cifar10", "no"), ("group-photos", "no")):
        line = next(line for line in done.out.splitlines() if line.startswith(name))
        assert f" {answer} " in line


def test_a_data_set_that_is_there_is_found(llpkit, tmp_path):
    (tmp_path / "cifar-10-python.tar.gz").touch()
    done = llpkit("datasets", "--data-dir", tmp_path)
    line = next(line for line in done.out.splitlines() if line.startswith("cifar10"))
    assert " yes " in line


def test_the_command_line_imports_nothing_heavy():
    code = """
import sys, llpkit
before = set(sys.modules)
import llpkit.cli
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new & {"torch", "numpy", "matplotlib", "sklearn", "pyarrow", "pydantic", "yaml"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


SCRIPT = [os.path.join(os.path.dirname(sys.executable), "llpkit")]


@pytest.mark.parametrize(
    "program", [SCRIPT, [sys.executable, "-m", "llpkit"]], ids=["script", "-m"]
)
def test_the_installed_program_runs(program):
    done = subprocess.run([*program, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("llpkit ")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device", "x.csv"), "No space left on device (x.csv)"),
        (MemoryError(), "not enough memory"),
        (torch.OutOfMemoryError("a card"), "not enough memory"),
    ],
)
def test_what_a_machine_lacks_is_told_in_a_line(llpkit, monkeypatch, error, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("llpkit.runs.fit", fail)
    done = llpkit("fit", "--dataset", "digits")
    assert done.code == 2
    assert message in done.err


@pytest.mark.parametrize("message", ["a bug", "index out of range"])
def test_a_bug_is_not_hidden(llpkit, monkeypatch, message):
    def fail(*_, **__):
        raise RuntimeError(message)

    monkeypatch.setattr("llpkit.runs.fit", fail)
    with pytest.raises(RuntimeError, match=message):
        llpkit("fit", "--dataset", "digits")
