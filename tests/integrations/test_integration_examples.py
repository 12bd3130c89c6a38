"""The examples of other frameworks run, stay short, and learn."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples" / "integrations"
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


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60


def test_lightning():
    pytest.importorskip("pytorch_lightning")
    assert load("lightning_trainer").main(epochs=8) > 0.85


def test_skorch():
    pytest.importorskip("skorch")
    assert load("skorch_net").main(epochs=10) > 0.85


def test_hugging_face():
    pytest.importorskip("transformers")
    pytest.importorskip("datasets")
    assert load("hugging_face_trainer").main() > 0.95


def test_trackers(tmp_path):
    pytest.importorskip("tensorboard")
    assert load("trackers").main("tensorboard", str(tmp_path), epochs=6) > 0.8
    assert {path.parent.parent.name for path in tmp_path.glob("*/tensorboard/*")} == {
        "network",
        "estimator",
    }
