"""``llpkit reproduce`` and ``llpkit report`` on digits."""

import re
from pathlib import Path

import pytest

from experiments.conftest import small
from llpkit.cli.reproduce import parse_folds
from llpkit.errors import LLPError
from llpkit.experiments import Results
from llpkit.experiments.protocol_file import dumps, read, write

PLUGIN = """
from llpkit import datasets
from llpkit.methods import BagMethod, register
from llpkit.losses import proportion_loss

@register
class Mine(BagMethod):
    key = "mine"
    summary = "a method of my own"
    def bag_loss(self, logits, evidence, offsets):
        return proportion_loss(logits.float(), evidence.counts, offsets)

@datasets.register("my-digits", summary="digits under another name")
def my_digits(bag_size=(1, 12), seed=0):
    return datasets.load("digits", bag_size=bag_size, seed=seed)
"""


@pytest.fixture
def protocol() -> str:
    write(small(), Path("p.yaml"))
    return "p.yaml"


def marks(listed: str) -> list[str]:
    """What a dry run writes in front of every run."""
    return [line[:6].strip() for line in listed.splitlines() if line.startswith("  ")]


def test_a_call_runs_what_is_missing_and_draws_a_page(llpkit, protocol):
    code, listed, _ = llpkit("reproduce", protocol, "convergence", "--dry-run", "--out", "r")
    assert (code, marks(listed)) == (0, [""] * 4)
    assert not Path("r").exists()
    code, _, err = llpkit("reproduce", protocol, "convergence", "--folds", "0-0", "--out", "r")
    assert code == 0
    assert re.search(r"1/2 mle, fold 0: accuracy \d+\.\d% \(", err)
    first = Results.read(Path("r"))
    assert [(r.method, r.fold) for r in first.finished] == [("mle", 0), ("dllp", 0)]
    code, out, _ = llpkit("reproduce", protocol, "--out", "r")
    assert code == 0
    assert Path(out.splitlines()[-1]).is_file()
    found = Results.read(Path("r")).finished
    assert all(record in found for record in first.finished)
    assert len(found) == 4
    assert llpkit("reproduce", protocol, "convergence", "--out", "r", "-q") == (0, "", "")
    assert llpkit("report", "r", "--out", "elsewhere")[0] == 0
    assert Path("elsewhere/report.html").is_file()


def test_a_dry_run_writes_nothing(llpkit, protocol):
    for _ in range(2):
        assert llpkit("reproduce", protocol, "--dry-run", "--out", "r")[0] == 0
        assert not list(Path().glob("r/*"))
        Path("r").mkdir(exist_ok=True)


def test_a_preset_is_shown_to_be_changed(llpkit):
    _, out, _ = llpkit("reproduce", "digits", "--show")
    Path("mine.yaml").write_text(out)
    assert read(Path("mine.yaml")).dataset == "digits"


def test_check_runs_records_again(llpkit, protocol):
    llpkit("reproduce", protocol, "convergence", "--out", "r", "-q", "--device", "cpu")
    found = llpkit(
        "reproduce", "check", "r", "--methods", "mle", "--folds", "0,1", "--device", "cpu"
    )
    assert found[0] == 0
    assert [line.endswith("the same to the last digit") for line in found[1].splitlines()] == [
        True,
        True,
    ]
    assert "no such records" in llpkit("reproduce", "check", "r", "--methods", "amle")[2]


def test_folders_of_machines_merge(llpkit, protocol):
    for fold in ("0-0", "1-1"):
        llpkit("reproduce", protocol, "convergence", "--folds", fold, "--out", f"r{fold}", "-q")
    assert llpkit("reproduce", "merge", "r0-0", "r1-1", "--out", "both")[0] == 0
    listed = llpkit("reproduce", protocol, "convergence", "--dry-run", "--out", "both")
    assert marks(listed[1]) == ["done"] * 4


def test_a_failure_ends_with_status_1(llpkit, protocol, monkeypatch):
    monkeypatch.setattr("llpkit.experiments.run.fit", lambda *_, **__: 1 / 0)
    code, _, err = llpkit("reproduce", protocol, "convergence", "--out", "r", "--folds", "1")
    assert (code, len(Results.read(Path("r")).failures)) == (1, 2)
    assert "failed: mle, fold 0: ZeroDivisionError" in err


@pytest.mark.usefixtures("registries")
def test_plugins_add_methods_and_data_sets(llpkit, monkeypatch, tmp_path):
    Path("mine.py").write_text(PLUGIN)
    text = dumps(small()).replace("dataset: digits", "dataset: my-digits")
    Path("p.yaml").write_text(text.replace("mle: {}", "mine: {}"))
    done = llpkit("--plugin", "mine.py", "reproduce", "p.yaml", "convergence", "--out", "r", "-q")
    assert done == (0, "", "")
    runs = Results.read(Path("r")).by_method("convergence")
    assert list(runs) == ["mine", "dllp"]
    assert [r.history["test_accuracy"] for r in runs["mine"]] == [
        r.history["test_accuracy"] for r in runs["dllp"]
    ]
    monkeypatch.undo()
    assert "--plugin" in llpkit("report", tmp_path / "r")[2]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["digit"], "did you mean 'digits'"),
        (["p.yaml", "--folds", "3"], "folds of convergence = 2; give a whole number from 0 to 1"),
        (["p.yaml", "--time-limit", "-1"], "--time-limit = -1"),
        (["check"], "check takes a results folder"),
        (["merge", "a"], "merge takes folders and --out"),
        (["merge", "a", "--out", "b", "--methods", "mle"], "merge takes no --methods"),
        (["check", "a", "--jobs", "2"], "check takes no --jobs"),
        (["list", "digits"], "list takes no further words"),
        (["check", "nowhere"], "nowhere has no protocol.yaml"),
    ],
)
def test_errors_are_plain(llpkit, protocol, arguments, match):  # noqa: ARG001
    code, _, err = llpkit("reproduce", *arguments)
    assert code == 2
    assert match in err


def test_folds_are_a_count_a_range_or_a_list():
    assert parse_folds("0,4, 8-9") == [0, 4, 8, 9]
    for text in ("a", "", "0", "3-", "0,9-3", "-1", "9" * 5000):
        with pytest.raises(LLPError, match=r"--folds .*; give a count"):
            parse_folds(text)
