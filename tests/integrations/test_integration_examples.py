"""The examples of other frameworks run and learn."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "integrations"
EXAMPLES = sorted(FOLDER.glob("*.py"))
# The frameworks warn of what they will change.
pytestmark = pytest.mark.filterwarnings("ignore::Warning")


def example(name: str) -> Callable[..., Any]:
    return runpy.run_path(str(FOLDER / f"{name}.py"))["main"]


@pytest.fixture(autouse=True)
def _kept(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        yield


@pytest.mark.parametrize(
    "path", [*EXAMPLES, ROOT / "docs" / "how-to" / "integrations.md"], ids=lambda path: path.stem
)
def test_the_versions_it_names_are_those_it_is_tested_with(path):
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    text = path.read_text(encoding="utf-8")
    named = dict(re.findall(r"\b([a-z-]+) (\d+\.\d+\.\d+)\b", text))
    assert named
    assert named == {name: pins.get(name) for name in named}


def test_lightning():
    assert example("lightning_trainer")(epochs=8) > 0.85


def test_skorch():
    assert example("skorch_net")(epochs=10) > 0.85


def test_hugging_face():
    assert example("hugging_face_trainer")() > 0.95


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("tensorboard", "*/tensorboard/events*"),
        ("mlflow", "mlflow.db"),
        ("wandb", "wandb/offline-run-*/*.wandb"),
    ],
)
@pytest.mark.usefixtures("trackers_here")
def test_trackers(name, written, tmp_path):
    assert example("trackers")(name, epochs=6) > 0.8
    assert len(list(tmp_path.rglob(written))) == (1 if name == "mlflow" else 2)
