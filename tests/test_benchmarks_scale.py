"""The small versions of the benchmarks of several processes and of streamed images."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

pytestmark = pytest.mark.slow


def run(name, *arguments):
    # In a process of its own: training processes import the script.
    command = [sys.executable, BENCHMARKS / name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_processes_agree_and_send_what_the_model_says(tmp_path):
    run("processes.py", "--quick", "--processes", 1, 2, "--out", tmp_path)
    found = pq.read_table(tmp_path / "processes.parquet").to_pylist()
    assert max(row["difference"] for row in found if row["part"] == "weights") < 1e-6
    [two] = [r for r in found if r["part"] == "communication" and r["processes"] == 2]
    assert two["bytes per epoch, counted"] == pytest.approx(two["bytes per epoch"], rel=0.05)


def test_streaming_is_measured(tmp_path):
    run("streaming.py", "--images", 600, "--processes", 1, "--out", tmp_path)
    [row] = pq.read_table(tmp_path / "streaming.parquet").to_pylist()
    assert row["images"] == 600
