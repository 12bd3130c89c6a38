"""A short run of every fuzzed area, and that each would see what it looks for."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fuzzing import bags, engine, estimators, tables
from fuzzing.scoring import Failure, Score, attempt
from llpkit import Bags, likelihood
from llpkit.estimators import LLPLogisticRegression
from llpkit.tables import Table

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

# Rounds that take some seconds, and the cases that they must hold at least.
SHORT = {
    "engine": (25, 3000),
    "bags": (15, 300),
    "estimators": (8, 12),
    "tables": (60, 150),
    "runs": (8, 25),
    "cli": (8, 40),
}


@pytest.fixture
def fuzz(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    import fuzz

    yield fuzz
    torch.set_num_threads(threads)


@pytest.mark.parametrize("area", SHORT)
def test_a_short_run(fuzz, area):
    rounds, least = SHORT[area]
    cases = 0
    for number in range(rounds):
        confirmed, refused, message = fuzz.one_round(area, 0, number)
        assert message is None, f"--replay {area} 0/{number}\n{message}"
        cases += confirmed + refused
    assert cases >= least


# Each area sees what it looks for


def first_failure(case, rounds=40) -> str:
    for number in range(rounds):
        try:
            case(np.random.default_rng([0, number]), Score())
        except Failure as failure:
            return str(failure)
    raise AssertionError("nothing was noticed")


def wrong(function, change):
    return lambda *args, **options: change(function(*args, **options))


@pytest.mark.parametrize("place", [0, 1], ids=["log_prob", "posterior"])
def test_a_small_error_of_the_engine_is_noticed(monkeypatch, place):
    def change(pair):
        return tuple(x + 1e-9 * (i == place) for i, x in enumerate(pair))

    right = likelihood.log_prob_and_posterior
    monkeypatch.setattr(likelihood, "log_prob_and_posterior", wrong(right, change))
    assert ["log_prob[", "posterior["][place] in first_failure(engine.case)


@pytest.mark.parametrize("name", ["sample", "mode"])
def test_labels_that_contradict_the_counts_are_noticed(monkeypatch, name):
    right = getattr(likelihood, name)
    monkeypatch.setattr(likelihood, name, wrong(right, torch.zeros_like))
    assert "bag" in first_failure(engine.case)


def test_other_exceptions_refusals_and_answers_to_junk_are_noticed(monkeypatch):
    with pytest.raises(Failure, match="KeyError in place of an LLPError"):
        attempt(lambda: {}["x"])
    right = likelihood.pmf
    monkeypatch.setattr(likelihood, "pmf", lambda *_: Bags([0], []))
    assert "valid input was refused" in first_failure(engine.case)
    monkeypatch.setattr(likelihood, "pmf", right)
    monkeypatch.setattr(likelihood, "log_prob", lambda *_, **__: torch.zeros(3))
    junk = engine.junk
    assert "invalid input was answered" in first_failure(junk)


def test_counts_of_another_bag_are_noticed(monkeypatch):
    def change(found):
        order = torch.arange(len(found)).roll(1)
        evidence = found.evidence[order]
        return found.replace(evidence=evidence)

    right = Bags.from_labels.__func__
    monkeypatch.setattr(
        Bags, "from_labels", classmethod(lambda cls, *a, **o: change(right(cls, *a, **o)))
    )
    assert "count of bag" in first_failure(bags.case)


@pytest.mark.filterwarnings("ignore::llpkit.errors.IdentifiabilityWarning")
def test_probabilities_that_are_none_are_noticed(monkeypatch):
    monkeypatch.setattr(
        LLPLogisticRegression, "predict_proba", lambda _, X: np.full((len(X), 2), 0.6)
    )
    assert "sum to one" in first_failure(lambda r, s: estimators._fit(r, "logistic", s))


def test_a_cell_that_is_written_otherwise_is_noticed(monkeypatch):
    right = Table.write
    monkeypatch.setattr(
        Table,
        "write",
        lambda self, path, columns: right(
            self, path, {name: np.asarray(values) + 1 for name, values in columns.items()}
        ),
    )
    assert "the new column" in first_failure(tables.case)


# The driver

AREA = """
import os, time

def case(rng, score):
    score.confirm()
    if rng.random() < 0.5:
        {act}
"""


@pytest.mark.parametrize(
    ("act", "message", "patience"),
    [
        ("os._exit(11)", "ended with status 11", 600),
        ("time.sleep(600)", "no end after", 1),
        ("raise KeyError('x')", "KeyError", 600),
    ],
    ids=["crash", "hang", "exception"],
)
def test_the_driver_survives_and_tells(fuzz, act, message, patience, tmp_path, monkeypatch, capsys):
    (tmp_path / "fuzzing").mkdir()
    (tmp_path / "fuzzing" / "sick.py").write_text(AREA.format(act=act))
    monkeypatch.syspath_prepend(tmp_path)
    tally = fuzz.fuzz("sick", seed=0, seconds=0.5, jobs=1, patience=patience)
    assert message in tally.failures[0][1]
    assert tally.failures[0][0].startswith("--replay sick 0/")
    assert "FAILED --replay sick 0/" in capsys.readouterr().out
    assert f"| {len(tally.failures):,} |" in fuzz.table([tally])
