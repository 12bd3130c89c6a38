"""Every example runs and shows what it promises."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "examples"


def example(name: str) -> Callable[..., Any]:
    return runpy.run_path(str(FOLDER / f"{name}.py"))["main"]


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_count_likelihood():
    found = example("01_count_likelihood")()
    assert found["log_prob"].item() == pytest.approx(found["enumerated"].item())
    assert found["posterior"].sum().item() == pytest.approx(1)


def test_train_a_network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert example("02_train_a_network")(epochs=6) > 0.85


def test_from_a_table():
    pytest.importorskip("pandas")
    table = example("03_from_a_table")(epochs=10)
    sums = table.groupby("district").agg({"posterior": "sum", "n_yes": "first"})
    assert sums["posterior"].to_numpy() == pytest.approx(sums["n_yes"].to_numpy(), abs=1e-4)


def test_imprecise_counts():
    found = example("04_imprecise_counts")(epochs=12)
    assert found["the count"] > 0.9
    assert min(found.values()) > 0.8


@pytest.mark.usefixtures("registries")
def test_your_own_method():
    found = example("05_your_own_method")(epochs=3, seeds=1)
    assert set(found) == {"squared-error", "mle"}
    assert min(found.values()) > 0.6


def test_tables_sklearn():
    pytest.importorskip("pandas")
    found = example("06_tables_sklearn")(rows=2000, trees=20)
    assert found["boosting"] > found["linear"] + 0.02
    assert found["boosting on answers"] - found["boosting"] < 0.06
