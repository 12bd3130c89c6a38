"""The examples of other frameworks run, stay short, and learn."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "integrations"
EXAMPLES = sorted(FOLDER.glob("*.py"))
# The frameworks warn of what they will change.
pytestmark = pytest.mark.filterwarnings("ignore::Warning")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _kept(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        yield


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60


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
    assert load("lightning_trainer").main(epochs=8) > 0.85


def test_skorch():
    assert load("skorch_net").main(epochs=10) > 0.85


def test_hugging_face():
    assert load("hugging_face_trainer").main() > 0.95


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
    assert load("trackers").main(name, epochs=6) > 0.8
    assert len(list(tmp_path.rglob(written))) == (1 if name == "mlflow" else 2)
