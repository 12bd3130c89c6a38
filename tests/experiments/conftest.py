"""Small experiments on digits, and records as runs would have written them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from llpkit.experiments import Protocol, Record, WorkerSettings
from llpkit.experiments.protocol_file import parse
from llpkit.experiments.records import FoldData
from llpkit.report import Figure

HARDWARE = {"processor": "a processor", "threads": 1}


@pytest.fixture(autouse=True)
def _quiet_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every test works in a folder of its own, on one thread, without data sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLPKIT_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("COLUMNS", "200")
    # Figures take most of a page's time, and tests of the report look at them.
    monkeypatch.setattr(Figure, "contents", lambda *_: b"a figure")
    monkeypatch.setattr(Figure, "svg", lambda _: "")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small(**changes: Any) -> Protocol:
    """Two methods, two folds of two epochs."""
    given = {
        "title": "Small",
        "dataset": "digits",
        "bag_size": [1, 12],
        "folds": 2,
        "flat": True,
        "recipe": {"network": "mlp", "epochs": 2, "batch_size": 256, "precision": "32-true"},
        "methods": {"mle": {}, "dllp": {}},
    }
    return parse(given | changes)


@pytest.fixture
def settings(tmp_path: Path) -> WorkerSettings:
    return WorkerSettings(tmp_path / "results", small(), device="cpu")


def record(
    method: str,
    fold: int,
    accuracy: list[float],
    protocol: Protocol | None = None,
    experiment: str = "convergence",
    **changes: Any,
) -> Record:
    """A record with this learning curve; 90 instances to learn from for 10 to test."""
    recipe = (protocol or small()).recipe_of(method, experiment).to_dict()
    recipe |= changes.pop("recipe", {})
    flat = [0.5] * len(accuracy)
    history = {"epoch": list(range(1, len(accuracy) + 1)), "seconds": flat, "log_likelihood": flat}
    made = Record(
        experiment,
        recipe,
        fold,
        data=FoldData("0" * 64, ("even", "odd"), 9, 1, 90, 10),
        final={"epoch": len(accuracy), "accuracy": accuracy[-1], "log_likelihood": -1.0},
        history={**history, "test_accuracy": accuracy, **changes.pop("history", {})},
        seconds=1.0,
        environment={"device": "cpu", "hardware": HARDWARE, "jobs": 1},
    )
    return replace(made, **changes)


def by_method(*records: Record) -> dict[str, list[Record]]:
    """Records as :meth:`Results.by_method` gives them."""
    found: dict[str, list[Record]] = {}
    for each in records:
        found.setdefault(each.method, []).append(each)
    return found


def runs(**curves_of: list[list[float]]) -> dict[str, list[Record]]:
    """Runs by method from a learning curve per fold; underscores in names are dashes."""
    return by_method(
        *(
            record(name.replace("_", "-"), fold, curve)
            for name, folds in curves_of.items()
            for fold, curve in enumerate(folds)
        )
    )
