"""The small forms of the benchmarks of intervals and of precincts."""

import math
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import interval_coverage

    return interval_coverage


def test_coverage_is_counted_and_resumed(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "CHUNK", 4)
    script.run(["few-25", "calibration-posterior"], 8, tmp_path)
    lines = script.records.read(tmp_path / "chunks.parquet")
    assert [(line["design"], line["chunk"]) for line in lines] == [
        ("few-25", 0),
        ("few-25", 1),
        ("calibration-posterior", 0),
        ("calibration-posterior", 1),
    ]
    script.run(["few-25"], 8, tmp_path)  # nothing is run again
    assert script.records.read(tmp_path / "chunks.parquet") == lines
    assert "rank of the group's total | 8 |" in script.ranks_table(lines)[-1]
    hits = lines[0]["hits"]["observed: coefficients"]
    assert len(hits) == 4
    assert all(0 <= hit <= 4 for hit in hits)


def test_ranks_that_are_not_uniform_are_found(script):
    ranks = {"a share": np.random.default_rng(0).beta(3, 3, 300).tolist()}
    line = {"design": "calibration-shares", "ranks": ranks}
    assert "| no |" in script.ranks_table([line])[-1]


def test_recorded_coverage_is_within_its_target(script):
    file = BENCHMARKS.parent / "results" / "coverage" / "chunks.parquet"
    judged = {name for name, design in script.DESIGNS.items() if design.judged}
    total: dict[tuple[str, str], list] = {}
    for line in script.records.read(file):
        if line["design"] not in judged or "hits" not in line:
            continue
        number = line["replicates"] - line["failed"]
        for what, hits in line["hits"].items():
            wanted = "mixed, observed" if line["design"] == "effect" else "observed"
            if what.partition(":")[0] == wanted:
                known = total.setdefault((line["design"], what), [0, 0])
                known[0], known[1] = known[0] + np.array(hits), known[1] + number
    assert total
    low, high = script.TARGET
    for key, (hits, number) in total.items():
        # Fewer replicates than 1,000 cannot show it this closely.
        slack = 0 if number >= 1000 else 3 * math.sqrt(0.05 * 0.95 / number)
        found = hits / number
        assert ((low - slack <= found) & (found <= high + slack)).all(), (key, found)


def test_precincts_run_in_small(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import precincts

    precincts.main(["--quick", "--out", str(tmp_path)])
    methods = {row["method"]: row for row in precincts.records.read(tmp_path / "precincts.parquet")}
    assert "Goodman" in capsys.readouterr().out
    long, short = (methods[f"llpkit, {name}"] for name in ("one row per voter", "aggregated rows"))
    assert long["error"] == pytest.approx(short["error"], abs=1e-4)
    assert short["inside"] >= 8
