"""Small experiments on digits, and the command line that runs them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from llpkit.cli import main
from llpkit.experiments import Place, Settings, Store


@pytest.fixture(autouse=True)
def _quiet_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every test works in a folder of its own, on one thread, with no data sets at hand."""
    monkeypatch.chdir(tmp_path)
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
