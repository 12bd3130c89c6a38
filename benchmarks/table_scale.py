"""What EM costs on top of the fits of its classifier, from 10,000 rows to 10,000,000.

    python benchmarks/table_scale.py [--quick] [--out results/table-scale]

Tables of 20 numbers (float32) per row in random bags of 6.7 rows on average, 1.5 million bags at
ten million rows. `LLPClassifier` fits histogram boosting with its own defaults, one iteration of
EM. The classifier times its own fits (the M-step) and predictions, and the start is timed
separately; the rest of an EM fit is the engine, the calibration and the bookkeeping: reading the
bags, the copies of rows with their weights. All times are CPU seconds on one thread, so that other
load on the machine does not count. Every size runs in a separate process, which reports its peak
memory. `make tables` then writes the table of docs/measurements/table-results.md.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import records
from sklearn.ensemble import HistGradientBoostingClassifier

from llpkit.estimators import LLPClassifier, em
from llpkit.estimators._additive_start import additive_start

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
FEATURES, BAGS_A_ROW = 20, 0.15
SECONDS = {"fit": 0.0, "predict": 0.0, "start": 0.0}


class Timed(HistGradientBoostingClassifier):
    """The classifier, with a stopwatch."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Timed":
        with watch("fit"):
            super().fit(X, y, sample_weight)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        with watch("predict"):
            return super().predict_proba(X)


@contextmanager
def watch(name: str) -> Iterator[None]:
    begin = time.process_time()
    yield
    SECONDS[name] += time.process_time() - begin


def timed_start(*arguments: Any) -> Any:
    with watch("start"):
        return additive_start(*arguments)


def table(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, FEATURES), dtype=np.float32)
    score = X[:, 0] - X[:, 1] + X[:, 2] * X[:, 3]
    label = score + rng.standard_normal(rows, dtype=np.float32) > 0.5
    bags = int(rows * BAGS_A_ROW)
    groups = rng.integers(0, bags, rows)
    return X, np.bincount(groups, label, bags).astype(np.int64)[groups], groups


def measure(rows: int) -> dict[str, float]:
    """One size, in this process."""
    X, y, groups = table(1000)
    model = LLPClassifier(Timed(early_stopping=False), max_iter=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one iteration does not converge
        model.fit(X, y, groups)
        SECONDS.update(dict.fromkeys(SECONDS, 0.0))  # that was to compile
        X, y, groups = table(rows)
        begin = time.process_time()
        em.additive_start = timed_start
        try:
            model.fit(X, y, groups)
        finally:
            em.additive_start = additive_start
        total = time.process_time() - begin
    return {
        "rows": rows,
        "bags": len(np.unique(groups)),
        "m_step": SECONDS["fit"],
        "prediction": SECONDS["predict"],
        "start": SECONDS["start"],
        "rest": total - sum(SECONDS.values()),
        "total": total,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def demands(found: list[dict[str, float]]) -> list[str]:
    """What is demanded at the most rows, and whether it is met."""
    rows, total = (np.log([f[key] for f in found]) for key in ("rows", "total"))
    steep, share = float(np.polyfit(rows, total, 1)[0]), added(found[-1])
    peak = found[-1]["peak_gb"]
    return [
        "| at the most rows | measured | demanded | met |",
        "|---|---|---|---|",
        f"| engine, bookkeeping and start, of the M-step | {share:.1%} | ≤ 10 % | "
        f"{'yes' if share <= 0.1 else 'NO'} |",
        f"| peak memory, GB | {peak:.1f} | < 16 | {'yes' if peak < 16 else 'NO'} |",
        f"| exponent of all in the rows, over all sizes | {steep:.2f} | ≤ 1.05 | "
        f"{'yes' if steep <= 1.05 else 'NO'} |",
    ]


def added(found: dict[str, float]) -> float:
    """What EM adds to the classifier's own fits and predictions, as a share of the fits."""
    return (found["rest"] + found["start"]) / found["m_step"]


def figure(found: list[dict[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panel, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    rows = [f["rows"] for f in found]
    for key, name in (
        ("m_step", "M-step: the classifier's fits"),
        ("prediction", "the classifier's predictions"),
        ("start", "start, from at most 200,000 rows"),
        ("rest", "engine and bookkeeping"),
    ):
        axis.loglog(rows, [f[key] for f in found], marker="o", label=name)
    for key in ("m_step", "rest"):
        unit = found[-1][key] / rows[-1]
        axis.loglog(rows, [unit * n for n in rows], "k:", linewidth=1)
    axis.set(xlabel="rows", ylabel="seconds of the processor", title="One iteration of EM")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    panel.savefig(path, dpi=140)
    plt.close(panel)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="up to 100,000 rows")
    parser.add_argument("--rows", type=int, help="measure one size in this process, print JSON")
    parser.add_argument("--out", type=Path, help="folder for the record and the figure")
    options = parser.parse_args(argv)
    if options.rows is not None:
        print(json.dumps(measure(options.rows)))
        return
    found = []
    for rows in SIZES[:2] if options.quick else SIZES:
        command = [sys.executable, os.path.abspath(__file__), "--rows", str(rows)]
        one = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=one)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"{rows:,} rows: {found[-1]}", file=sys.stderr, flush=True)
    print("\n".join(demands(found)))
    if options.out is not None:
        rows = [row | {"machine": records.machine()} for row in found]
        records.write(options.out / "table_scale.parquet", rows)
        figure(found, options.out / "table_scale.png")


if __name__ == "__main__":
    main()
