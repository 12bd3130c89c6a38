"""Junk options end with one message and a status, whatever the terminal; the API agrees."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import llpkit as package
from llpkit.errors import LLPError


@pytest.mark.parametrize("out", [".", "/", "", "./.", "//"])
@pytest.mark.parametrize("more", [(), ("--force",), ("--resume",)])
def test_a_folder_that_cannot_be_a_run_is_refused(fit_survey, tmp_path, out, more):
    done = fit_survey("--out", out, *more)
    assert done.code == 2
    assert done.err.strip()
    assert [path.name for path in tmp_path.iterdir()] == ["survey.csv"]


@pytest.mark.parametrize("device", ["mps", "cpu:7", "cuda:99", "meta", "abc", "", "cuda:-1", "xpu"])
def test_a_device_that_is_not_there(fit_survey, llpkit, fitted, device):
    for done in (
        fit_survey("--out", "run", "--device", device),
        llpkit("evaluate", fitted, "--device", device),
        llpkit("reproduce", "digits", "convergence", "--device", device) if device else None,
    ):
        if done is not None:
            assert done.code == 2
            assert "device = " in done.err.replace("--device", "device")
            assert "cpu" in done.err
    x, bags = _tiny()
    with pytest.raises(LLPError, match=r"device = .*cpu"):
        package.fit("linear", bags, x, device=device, progress=False)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "step = ''"),
        ("2020-01-31", "step = '2020-01-31'"),
        ("9" * 5000, "step = inf"),
        ("[a, b]", "step=[a, b]' is not JSON"),
        ("[" * 900 + "]" * 900, "more than 15 levels"),
    ],
    ids=["empty", "date", "digits", "no JSON", "deep"],
)
def test_an_option_that_is_no_number_is_refused(fit_survey, value, problem):
    done = fit_survey("--method", "mle", "--method-option", f"step={value}")
    assert done.code == 2
    assert problem in done.err


@pytest.mark.parametrize("option", ["threads", "workers", "epochs", "seed"])
@pytest.mark.parametrize("value", [100_000, 10**30])
def test_numbers_beyond_what_a_machine_can_take(fit_survey, option, value):
    if value == 100_000 and option in ("epochs", "seed"):
        return
    done = fit_survey("--out", "run", f"--{option}", value)
    assert done.code == 2
    assert f"--{option}" in done.err
    if option != "threads":
        x, bags = _tiny()
        with pytest.raises(LLPError, match=f"{option} = {value}"):
            package.fit("linear", bags, x, progress=False, **{option: value})


def test_a_batch_is_never_larger_than_the_data(fit_survey):
    for size in (10**4, 10**30):
        assert fit_survey("--out", size, "--method", "dllp", "--batch-size", size).code == 0
    a, b = (Path(str(size), "weights.safetensors").read_bytes() for size in (10**4, 10**30))
    assert a == b


@pytest.mark.parametrize("method", ["mle", "direct", "llp-gan"])
def test_a_batch_of_the_api_is_never_larger_than_the_data(method):
    _, bags = _tiny()
    x = torch.rand(24, 1, 16, 16)
    a, b = (
        package.fit(None, bags, x, method, epochs=1, batch_size=size, device="cpu", progress=False)
        for size in (len(x), 10**30)
    )
    assert torch.equal(a.logits(x), b.logits(x))


ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"}


COMMANDS = """
import shlex, sys
from llpkit.cli import main
from llpkit.report import Figure
Figure.contents = lambda *_: b"a figure"  # drawing takes most of the time of a small run
for line in sys.argv[1:]:
    assert main(shlex.split(line)) == 0, line
"""


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False])
def test_ascii_is_enough(terminal):
    """Help, lists, a bar that moves, names that are not ASCII, and a table of measures."""
    rows = "".join(f"{i // 3},1,{i % 7},{'éß'[i % 2]}\n" for i in range(24))
    Path("t.csv").write_text("b,y,größe,k\n" + rows, encoding="utf-8")
    fit = "fit t.csv --bag b --count y --network linear --epochs 2 --out run"
    ours, theirs = pytest.importorskip("pty").openpty() if terminal else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMANDS, "--help", "methods", "datasets", fit, "evaluate run"],
        stdout=theirs,
        stderr=theirs,
        env=os.environ | ASCII | {"TERM": "xterm"},
    )
    os.close(theirs)
    output = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(ours, 2**16):
            output += part
    os.close(ours)
    assert process.wait() == 0, output.decode()
    assert "accuracy" not in output.decode("ascii")  # there are no labels
    assert "proportion error" in output.decode("ascii")


def test_an_argument_that_is_not_utf_8(llpkit, fitted):
    done = llpkit("predict", fitted, "--out", "p.csv", "--prefix", "\udcff")
    assert done.code == 2
    assert not Path("p.csv").exists()


@pytest.mark.parametrize("folds", ["9" * 30, "0-" + "9" * 30, "-1", "0-99999999999", "11", ""])
def test_folds_that_are_not_there(llpkit, folds):
    words = ("digits", "convergence", "--folds", folds, "--dry-run")
    assert llpkit("reproduce", *words).code == 2


def _tiny():
    x = torch.linspace(-1, 1, 24).reshape(-1, 1)
    bags = package.random_bags(labels=(x[:, 0] > 0).long(), size=4, generator=0)
    return x, bags
