"""Helpers for the tests of the command line."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from markupsafe import Markup

from llpkit.cli import main


@pytest.fixture(autouse=True)
def _quiet_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every test works in a folder of its own, on one thread, with no data sets at hand."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLPKIT_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("COLUMNS", "120")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def figures() -> None:
    """For tests that want real figures."""


@pytest.fixture(autouse=True)
def _no_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take nine tenths of a short run's time, and few tests look at them."""
    if "figures" not in request.fixturenames:
        monkeypatch.setattr("llpkit.report.Figure.contents", lambda *_: b"a figure" * 500)
        monkeypatch.setattr("llpkit.report.Figure.svg", lambda _: Markup("<svg></svg>"))


def write_survey(path: Path, bags: int = 30, seed: int = 0) -> Path:
    """Bags of people, the number of yes in each, a number and a category of everyone."""
    draw = random.Random(seed)
    lines = ["district,n_yes,age,region,answer"]
    for bag in range(bags):
        people = [
            (draw.randint(18, 90), draw.choice(["north", "south"]))
            for _ in range(draw.randint(1, 7))
        ]
        answers = [int(age > 50) for age, _ in people]
        for (age, region), answer in zip(people, answers, strict=True):
            lines.append(f"d{bag},{sum(answers)},{age},{region},{answer}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    return write_survey(tmp_path / "survey.csv")


@pytest.fixture
def fit_survey(llpkit: Callable[..., Any], survey: Path) -> Callable[..., Any]:
    """Fit a linear model to the survey, with further options."""
    columns = ("--bag", "district", "--count", "n_yes", "--label", "answer")

    def fit(*options: object) -> Any:
        return llpkit("fit", survey, *columns, "--network", "linear", "--epochs", 3, *options)

    return fit


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a survey, made once; copy it before changing it."""
    folder = tmp_path_factory.mktemp("fitted")
    table = write_survey(folder / "survey.csv")
    columns = ["--bag", "district", "--count", "n_yes", "--label", "answer"]
    options = ["--network", "linear", "--lr", "0.3", "--epochs", "20", "--quiet"]
    assert main(["fit", str(table), *columns, *options, "--out", str(folder / "run")]) == 0
    return folder / "run"
