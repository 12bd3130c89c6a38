"""What EM costs beside the fits of its classifier, from 10,000 rows to 10,000,000.

    python benchmarks/table_scale.py [--quick] [--out results/table-scale]

Tables of 20 numbers (float32) a row in random bags of 6.7 rows on average, 1.5 million bags at ten
million rows. `LLPClassifier` fits histogram boosting of 20 trees, with its own defaults but for one
iteration of EM. The classifier times its own fits and predictions; what else the fit of EM takes is
the E-step and the bookkeeping: reading the bags, the start, the engine, the calibration, the copies
of rows with their weights. Every size runs in a process of its own, which tells its peak memory.
"""

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.ensemble import HistGradientBoostingClassifier

from llpkit.estimators import LLPClassifier

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
FEATURES, BAGS_A_ROW, TREES = 20, 0.15, 20


class Timed(HistGradientBoostingClassifier):
    """The classifier, with a watch."""

    seconds: dict[str, float] = {"fit": 0.0, "predict": 0.0}  # noqa: RUF012

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Timed":
        start = time.perf_counter()
        super().fit(X, y, sample_weight)
        Timed.seconds["fit"] += time.perf_counter() - start
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        start = time.perf_counter()
        p = super().predict_proba(X)
        Timed.seconds["predict"] += time.perf_counter() - start
        return p


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
    X, y, groups = table(1000)  # compile first
    inner = Timed(max_iter=TREES, early_stopping=False)
    model = LLPClassifier(inner, max_iter=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one iteration does not converge
        model.fit(X, y, groups)
        Timed.seconds.update(fit=0.0, predict=0.0)
        X, y, groups = table(rows)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        model.fit(X, y, groups)
        total = time.perf_counter() - start
    return {
        "rows": rows,
        "bags": len(np.unique(groups)),
        "m_step": Timed.seconds["fit"],
        "prediction": Timed.seconds["predict"],
        "rest": total - sum(Timed.seconds.values()),
        "table_gb": before / 2**20,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def report(found: list[dict[str, float]]) -> list[str]:
    lines = [
        "| rows | bags | M-step, s | predictions, s | E-step and bookkeeping, s | of the M-step | "
        "µs a row, all | peak memory, GB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for f in found:
        total = f["m_step"] + f["prediction"] + f["rest"]
        lines.append(
            f"| {f['rows']:,} | {f['bags']:,} | {f['m_step']:.2f} | {f['prediction']:.2f} | "
            f"{f['rest']:.2f} | {f['rest'] / f['m_step']:.1%} | {1e6 * total / f['rows']:.1f} | "
            f"{f['peak_gb']:.1f} |"
        )
    first, last = found[-2], found[-1]
    steep = math.log(last["rest"] / first["rest"]) / math.log(last["rows"] / first["rows"])
    share, peak = last["rest"] / last["m_step"], last["peak_gb"]
    lines += [
        "",
        "| at the most rows | measured | demanded | met |",
        "|---|---|---|---|",
        f"| E-step and bookkeeping, of the M-step | {share:.1%} | ≤ 10 % | "
        f"{'yes' if share <= 0.1 else 'NO'} |",
        f"| peak memory, GB | {peak:.1f} | < 16 | {'yes' if peak < 16 else 'NO'} |",
        f"| its exponent in the rows, over the last step | {steep:.2f} | about 1 | "
        f"{'yes' if steep < 1.15 else 'NO'} |",
    ]
    return lines


def figure(found: list[dict[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panel, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    rows = [f["rows"] for f in found]
    for key, name in (
        ("m_step", "M-step: the classifier's fits"),
        ("prediction", "the classifier's predictions"),
        ("rest", "E-step and bookkeeping"),
    ):
        axis.loglog(rows, [f[key] for f in found], marker="o", label=name)
    unit = found[-1]["rest"] / rows[-1]
    axis.loglog(rows, [unit * n for n in rows], "k:", linewidth=1, label="linear")
    axis.set(xlabel="rows", ylabel="seconds of one iteration of EM")
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
    parser.add_argument("--out", type=Path, help="folder for the table and the figure")
    options = parser.parse_args(argv)
    if options.rows is not None:
        print(json.dumps(measure(options.rows)))
        return
    found = []
    for rows in SIZES[:2] if options.quick else SIZES:
        command = [sys.executable, os.path.abspath(__file__), "--rows", str(rows)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"{rows:,} rows: {found[-1]}", file=sys.stderr, flush=True)
    lines = [
        *report(found),
        "",
        f"`python {' '.join(sys.argv)}`: {TREES} trees, {FEATURES} float32 features, three folds "
        f"and a last fit; {os.environ.get('OMP_NUM_THREADS', os.cpu_count())} threads of "
        f"{platform.processor() or platform.machine()}, scikit-learn {sklearn.__version__}",
    ]
    print("\n".join(lines))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "table_scale.md").write_text("\n".join(lines) + "\n")
        figure(found, options.out / "table_scale.png")


if __name__ == "__main__":
    main()
