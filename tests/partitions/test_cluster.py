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


def fill(dask_worker):
    """Let Dask find that almost no memory is left to this worker."""
    dask_worker.memory_manager.memory_pause_fraction = 1e-6


@pytest.mark.slow
def test_a_worker_that_dask_has_paused_is_named(tmp_path):
    from xgboost import XGBClassifier

    from large import write
    from llpkit import LLPError, distributed
    from llpkit.distributed.cluster import connected
    from llpkit.distributed.ranks import Workers
    from llpkit.estimators import LLPClassifier

    write(tmp_path, 2, rows=1000)
    with connected(workers=1, memory_limit="2GB") as client:

        def log(event):
            if event["step"] == "start":
                client.run(fill)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Workers.__init__, "__defaults__", (5, 1.0))
            with pytest.raises(LLPError, match=r"of 2\.00 GB in use, and Dask has paused it"):
                distributed.fit(
                    LLPClassifier(XGBClassifier(n_estimators=3, max_depth=2), max_iter=1),
                    tmp_path,
                    bag="bag",
                    count="n",
                    log=log,
                )
