"""Small experiments on digits, and the command line that runs them."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from llpkit.cli import main
from llpkit.experiments import Place, Run, Settings, Store


@pytest.fixture(autouse=True)
def _quiet_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every test works in folders of its own, on one thread, with no data sets at hand."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    Path(tempfile.tempdir).mkdir()
    monkeypatch.setenv("LLPKIT_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("COLUMNS", "200")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def llpkit(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process: exit code, output, errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store([tmp_path / "results"])


@pytest.fixture
def place(store: Store) -> Place:
    return Place(tuple(store.folders), device="cpu")


def small(**changes) -> Settings:
    """Two methods, two folds, two epochs."""
    given = {"dataset": "digits", "methods": ["mle", "dllp"], "folds": [0, 1], "epochs": 2}
    return Settings(**given | changes)


def written(store: Store, run: Run, accuracy: list[float], **changes) -> Run:
    """Write a record with this learning curve, as a run would have."""
    epochs = len(accuracy)
    run = replace(run, epochs=epochs)
    flat = [0.5] * epochs
    record = {
        "started": "2026-01-01T00:00:00+00:00",
        "command": "llpkit reproduce convergence",
        "jobs": 1,
        "quick": False,
        "compiled": False,
        "code": "0" * 12,
        "chosen_by": "defaults",
        "data": {
            "sha256": "0" * 64,
            "class_names": ["male", "female"],
            "bags": [9, 1],
            "instances": [90, 10],
        },
        "device": "cpu",
        "final": {"epoch": epochs, "accuracy": accuracy[-1], "log_loss": 0.4, "brier": 0.1}
        | {"log_likelihood": -1.0, "proportion_error": 0.1},
        "selected": None,
        "calibration": {
            "mean_predicted": [0.02, 0.97],
            "fraction_positive": [0.1, 0.9],
            "number": [6, 4],
        },
        "example": {
            "bag": "3",
            "count": 1,
            "size": 3,
            "rows": [4, 5, 6],
            "probability": [0.9, 0.2, 0.6],
            "truth": [1, 0, 0],
        },
        "history": {
            "epoch": list(range(1, epochs + 1)),
            "seconds": [1.0] * epochs,
            "log_likelihood": flat,
            "test_accuracy": accuracy,
            "test_log_likelihood": flat,
            "test_proportion_error": flat,
        },
        "seconds": {"total": 10.0, "training": 9.0},
        "versions": {"llpkit": "0", "torch": "2"},
        "hardware": {"processor": "a processor", "threads": 1, "cores": 2},
    }
    for key, value in changes.items():
        record[key] = {**record[key], **value} if isinstance(record[key], dict) else value
    store.write(run, record)
    return run
