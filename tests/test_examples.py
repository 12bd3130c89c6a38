"""The examples are tests: each runs, stays short, and finds what it says."""

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_they_are_numbered():
    assert [name[:2] for name in EXAMPLES] == [f"{i + 1:02}" for i in range(len(EXAMPLES))]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_says_what_it_shows(name):
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 100
    assert load(name).__doc__


def test_count_likelihood():
    found = load("01_count_likelihood").main()
    assert found["log_prob"].item() == pytest.approx(found["enumerated"].item())
    assert found["posterior"].sum().item() == pytest.approx(1)


def test_train_a_network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert load("02_train_a_network").main(epochs=6) > 0.85


def test_from_a_table():
    header, *rows = (line.split(",") for line in load("03_from_a_table").main(epochs=10))
    assert header[-3:] == ["probability", "label", "posterior"]
    sums: dict[str, float] = {}
    for row in rows:
        sums[row[0]] = sums.get(row[0], 0) + float(row[-1])
    assert all(math.isclose(sums[row[0]], int(row[1]), abs_tol=1e-4) for row in rows)


def test_imprecise_counts():
    found = load("04_imprecise_counts").main(epochs=12)
    assert found["the count"] > 0.9
    assert min(found.values()) > 0.8


@pytest.mark.usefixtures("registries")
def test_your_own_method():
    found = load("05_your_own_method").main(epochs=3, seeds=1)
    assert set(found) == {"squared-error", "mle"}
    assert min(found.values()) > 0.6


def test_tables_sklearn():
    pytest.importorskip("pandas")
    found = load("06_tables_sklearn").main(rows=2000, trees=20)
    assert found["boosting"] > found["linear"] + 0.02
    assert found["boosting on answers"] - found["boosting"] < 0.06
