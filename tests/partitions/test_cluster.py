"""Two real worker processes, one of which is killed."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    # Workers start as new processes and import the benchmark by its name.
    monkeypatch.setenv("PYTHONPATH", f"{BENCHMARKS}:{':'.join(filter(None, sys.path))}")


@pytest.mark.slow
def test_a_killed_worker_does_not_change_the_model(tmp_path):
    import large_tables

    found = large_tables.kill(24_000, tmp_path, trees=60)
    assert found["killed"]
    assert found["m_steps_begun_again"] >= 1
    assert found["same_bytes"]
    assert found["same_scale"]


@pytest.mark.slow
def test_benchmark(tmp_path):
    import large_tables

    out = tmp_path / "out"
    options = ["--data", str(tmp_path), "--out", str(out), "--trees", "5", "--memory"]
    large_tables.main([*options, "--rows", "20000", "40000", "--predict", "600000", "--report"])
    text = (out / "large_tables.md").read_text()
    assert "| 40,000 |" in text
    assert "'written': 600000" in text
