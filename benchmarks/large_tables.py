"""Tables larger than memory: EM with boosting and logistic regression on two Dask workers of 1 GB.

    python benchmarks/large_tables.py --data FOLDER [--rows 100000 ...] [--out results/large-tables]
    python benchmarks/large_tables.py --data FOLDER --kill
    python benchmarks/large_tables.py --data FOLDER --predict 10000000 100000000

The table has 20 columns of float32 and bags of 6.7 rows on average, 4.5 million bags at 30 million
rows; it is written chunk by chunk into FOLDER and found there again. Labels are drawn from a known
logit, so that models can be compared with the truth on new rows. Every fit and every experiment
adds one row to large_tables.parquet in --out and is not measured again while it has one; `--report`
draws their figure, and `make tables` writes the tables of docs/how-to/large-data.md. Processor
seconds are those of all workers and of this process, so that other load on the machine does not
count; elapsed seconds are given too.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from records import add, read

SIZES = (100_000, 1_000_000, 10_000_000, 30_000_000)
FEATURES, MEAN_SIZE, CHUNK = 20, 20 / 3, 500_000
WORKERS, MEMORY = 2, "1GB"
SAMPLE = 100_000
TREES, ITERATIONS = 30, 8
FILE = "large_tables.parquet"


def logit(X: np.ndarray) -> np.ndarray:
    """The truth: two lines and a product."""
    return 2 * (X[:, 0] - X[:, 1] + X[:, 2] * X[:, 3] - 0.5)


def chunk(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and the bag of every row, bags numbered from 0."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, FEATURES), dtype=np.float32)
    label = rng.random(rows) < 1 / (1 + np.exp(-logit(X)))
    sizes = 1 + rng.poisson(MEAN_SIZE - 1, 2 + int(1.1 * rows / MEAN_SIZE))
    bag = np.repeat(np.arange(len(sizes)), sizes)[:rows]
    return X, label, bag


def write(folder: Path, rows: int) -> Path:
    """The table of this size as Parquet files of up to half a million rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    home = folder / f"rows-{rows}"
    home.mkdir(parents=True, exist_ok=True)
    size = min(CHUNK, max(1, rows // 8))
    for i in range(-(-rows // size)):
        path = home / f"part-{i:05d}.parquet"
        if path.exists():
            continue
        X, label, bag = chunk(min(size, rows - i * size), i)
        count = np.bincount(bag, label).astype(np.int32)[bag]
        columns = {f"x{j}": X[:, j] for j in range(FEATURES)}
        columns |= {"bag": bag + i * size, "count": count}
        pq.write_table(pa.table(columns), path.with_suffix(".tmp"), use_dictionary=["bag", "count"])
        path.with_suffix(".tmp").rename(path)
    return home


class Watch:
    """Peak memory and processor seconds of the workers of a cluster."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def pids(self) -> dict[Any, int]:
        """The workers by name: a restarted one keeps it."""
        return {name: nanny.pid for name, nanny in self.cluster.workers.items() if nanny.pid}

    def peaks(self) -> list[int]:
        """Bytes in memory at most, as the system counted them, largest first."""
        found = []
        for pid in self.pids().values():
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            found += [1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
        return sorted(found, reverse=True)

    def cpu(self) -> float:
        """Seconds of all workers and of this process, in which the scheduler runs."""
        import psutil

        total = time.process_time()
        for pid in self.pids().values():
            used = psutil.Process(pid).cpu_times()
            total += used.user + used.system
        return total


@contextmanager
def cluster() -> Iterator[tuple[Any, Watch]]:
    from llpkit.distributed.cluster import connected

    with connected(workers=WORKERS, memory_limit=MEMORY) as client:
        client.run(warm)
        yield client, Watch(client.cluster)


def warm() -> None:
    """Import and compile, once per worker."""
    import torch
    import xgboost  # noqa: F401

    from llpkit import distributed  # noqa: F401
    from llpkit.likelihood import log_prob_and_posterior

    log_prob_and_posterior(torch.zeros(3).double(), torch.tensor([1]), torch.tensor([0, 3]))


def boosting(trees: int, iterations: int = ITERATIONS) -> Any:
    from xgboost import XGBClassifier

    from llpkit.estimators import LLPClassifier

    inner = XGBClassifier(n_estimators=trees, max_depth=6, n_jobs=1)
    return LLPClassifier(inner, max_iter=iterations, tol=1e-12, random_state=0)


def quality(model: Any) -> dict[str, float]:
    """Against the truth, on new rows: area under the curve, cross-entropy of true labels."""
    from sklearn.metrics import log_loss, roc_auc_score

    X, label, _ = chunk(200_000, 10**6)
    p = model.predict_proba(X)[:, 1]
    return {"auc": float(roc_auc_score(label, p)), "cross_entropy": float(log_loss(label, p))}


def best() -> dict[str, float]:
    from sklearn.metrics import log_loss, roc_auc_score

    X, label, _ = chunk(200_000, 10**6)
    p = 1 / (1 + np.exp(-logit(X)))
    return {"auc": float(roc_auc_score(label, p)), "cross_entropy": float(log_loss(label, p))}


def measure(name: str, rows: int, folder: Path, trees: int, iterations: int) -> dict[str, Any]:
    """One fit at one size."""
    from llpkit import distributed
    from llpkit.estimators import LLPLogisticRegression

    home = write(folder, rows)
    found: dict[str, Any] = {"rows": rows, "trees": trees, "iterations": iterations}
    found["bytes"] = sum(path.stat().st_size for path in home.iterdir())
    estimator = LLPLogisticRegression() if name == "logistic" else boosting(trees, iterations)
    events: list[dict[str, Any]] = []
    with cluster() as (_, watch), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few iterations do not converge

        def log(event: dict[str, Any]) -> None:
            events.append(event | {"total_cpu": watch.cpu(), "at": time.perf_counter() - begin})
            print(f"{name}, {rows:,}: {events[-1]}", file=sys.stderr, flush=True)

        begin, cpu = time.perf_counter(), watch.cpu()
        model = distributed.fit(
            estimator, str(home), bag="bag", count="count", sample_rows=SAMPLE, log=log
        )
        found |= {
            "bags": events[0]["bags"],
            "elapsed": time.perf_counter() - begin,
            "cpu": watch.cpu() - cpu,
            "peak": watch.peaks(),
            "start_cpu": cpu,
            "events": events,
            "quality": quality(model),
        }
    if name == "logistic":
        found["coef"] = [*model.coef_[0].tolist(), float(model.intercept_[0])]
    return found


def in_memory(trees: int) -> dict[str, Any]:
    """Ordinary fits to a sample of as many rows as the distributed fits begin with."""
    from llpkit.estimators import LLPLogisticRegression

    X, label, bag = chunk(SAMPLE, 0)
    y = np.bincount(bag, label).astype(np.int64)[bag]
    found: dict[str, Any] = {"rows": SAMPLE, "best": best()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in (
            ("logistic", LLPLogisticRegression()),
            ("boosting", boosting(trees).set_params(max_iter=20, tol=5e-3)),
        ):
            begin = time.process_time()
            model.fit(X, y, bag)
            found[name] = {"cpu": time.process_time() - begin, "quality": quality(model)}
    return found


def kill(rows: int, folder: Path, trees: int) -> dict[str, Any]:
    """The same fit twice; the second time a worker is killed in the middle of an M-step."""
    import psutil

    from llpkit import distributed

    home = write(folder, rows)
    models, pids, seconds = [], [], []
    steps: list[dict[str, Any]] = []
    with cluster() as (_, watch), warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def used(pid: int) -> float:
            times = psutil.Process(pid).cpu_times()
            return float(times.user + times.system)

        def shoot(pid: int, seconds: float) -> None:
            end = used(pid) + seconds
            while used(pid) < end:
                time.sleep(0.002)
            os.kill(pid, signal.SIGKILL)

        def log(event: dict[str, Any]) -> None:
            print(f"fit {len(models) + 1}: {event}", file=sys.stderr, flush=True)
            steps.append(event)
            if models and event["step"] == "E" and event["iteration"] == 1:
                pids.append(watch.pids()[1])
                # Half of what the first M-step took, so in the middle of the second one.
                half = steps[-2]["cpu"] / WORKERS / 2
                threading.Thread(target=shoot, args=(pids[0], half), daemon=True).start()

        for _ in range(2):
            begin = time.perf_counter()
            models.append(
                distributed.fit(
                    boosting(trees),
                    str(home),
                    bag="bag",
                    count="count",
                    sample_rows=min(20_000, rows // 4),
                    log=log,
                )
            )
            seconds.append(time.perf_counter() - begin)
        restarted = pids[0] not in watch.pids().values()
    raw = [bytes(model.estimator_.get_booster().save_raw("ubj")) for model in models]
    X = chunk(10_000, 10**6)[0]
    far = np.abs(np.subtract(*(model.predict_proba(X) for model in models))).max()
    return {
        "rows": rows,
        "seconds": seconds,
        "killed": restarted,
        "m_steps_begun_again": sum(step["step"] == "again" for step in steps),
        "same_bytes": raw[0] == raw[1],
        "same_scale": bool(models[0].slope_ == models[1].slope_),
        "largest_difference": float(far),
    }


def predict(rows: int, folder: Path) -> dict[str, Any]:
    """`llpkit predict` on one file of so many rows, in a process of its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    small = write(folder, 100_000)
    run, big, out = folder / "run", folder / f"predict-{rows}.parquet", folder / "predicted.parquet"
    llpkit = [sys.executable, "-m", "llpkit"]
    if not run.exists():
        table = folder / "small.parquet"
        pq.write_table(pa.concat_tables(pq.read_table(p) for p in sorted(small.iterdir())), table)
        options = ["--bag", "bag", "--count", "count", "--estimator", "logistic", "--quiet"]
        subprocess.run([*llpkit, "fit", table, *options, "--out", run], check=True)
    if not big.exists():
        kept = {"use_dictionary": ["bag", "count"]}
        with pq.ParquetWriter(big.with_suffix(".tmp"), _schema(), **kept) as writer:
            for i in range(-(-rows // CHUNK)):
                X, label, bag = chunk(min(CHUNK, rows - i * CHUNK), i)
                count = np.bincount(bag, label).astype(np.int32)[bag]
                columns = {f"x{j}": X[:, j] for j in range(FEATURES)}
                writer.write_table(pa.table(columns | {"bag": bag + i * CHUNK, "count": count}))
        big.with_suffix(".tmp").rename(big)
    code = (
        "import resource, sys; from llpkit.cli import main; code = main(sys.argv[1:]);"
        "r = resource.getrusage(resource.RUSAGE_SELF);"
        "print(code, r.ru_maxrss * 1024, r.ru_utime + r.ru_stime)"
    )
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, "predict", run, big, "--out", out, "--quiet"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
    )
    elapsed = time.perf_counter() - begin
    status, peak, cpu = done.stdout.split()[-3:]
    if status != "0":
        raise SystemExit(done.stderr)
    with pq.ParquetFile(out) as file:
        written, names = file.metadata.num_rows, file.schema_arrow.names[-3:]
    out.unlink()
    return {
        "rows": rows,
        "written": written,
        "columns": names,
        "peak": [int(peak)],
        "cpu": float(cpu),
        "elapsed": elapsed,
        "rows_per_second": rows / elapsed,
        "rows_per_cpu_second": rows / float(cpu),
    }


def _schema() -> Any:
    import pyarrow as pa

    numbers = [(f"x{j}", pa.float32()) for j in range(FEATURES)]
    return pa.schema([*numbers, ("bag", pa.int64()), ("count", pa.int32())])


def split(fit: dict[str, Any]) -> dict[str, float]:
    """Processor seconds of a fit by what they were spent on.

    ``once`` is what happens once per fit: checking, the start on a sample, reading and binning.
    ``learning`` is XGBoost's trees alone, or the likelihoods and gradients of logistic regression;
    ``reading`` is what logistic regression reads in every pass if the table does not fit. ``rest``
    is everything else: E-steps, scores, scheduling, waiting, the scheduler itself.
    """
    events = fit["events"]
    start = next(e["total_cpu"] for e in events if e["step"] == "start") - fit["start_cpu"]
    reading = sum(e.get("reading_cpu", 0.0) for e in events)
    again = any(e["step"] == "logistic" and not e["persisted"] for e in events)
    learning = sum(e["cpu"] for e in events if e["step"] in ("M", "logistic"))
    return {
        "once": start + (0.0 if again else reading),
        "reading": reading if again else 0.0,
        "learning": learning,
        "rest": fit["cpu"] - start - reading - learning,
    }


def records(out: Path, kind: str) -> list[dict[str, Any]]:
    """The records of one kind, by size."""
    found = [row for row in read(out / FILE) if row["kind"] == kind]
    return sorted(found, key=lambda record: record["rows"])


def draw(out: Path) -> None:
    """Processor seconds and peak memory against rows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for kind, label in (("boosting", "EM, boosting"), ("logistic", "logistic regression")):
        fits = records(out, kind)
        rows = [fit["rows"] for fit in fits]
        left.loglog(rows, [fit["cpu"] for fit in fits], "o-", label=label)
        right.semilogx(rows, [fit["peak"][0] / 1e9 for fit in fits], "o-", label=label)
    predicted = records(out, "predict")
    rows = [record["rows"] for record in predicted]
    left.loglog(rows, [record["cpu"] for record in predicted], "s--", label="predict")
    right.semilogx(rows, [record["peak"][0] / 1e9 for record in predicted], "s--", label="predict")
    left.set(xlabel="rows", ylabel="CPU seconds")
    right.set(xlabel="rows", ylabel="peak memory of a process, GB", ylim=(0, 1.05))
    right.axhline(1, color="gray", lw=0.8)
    left.legend()
    figure.savefig(out / "large_tables.png", dpi=120)
    plt.close(figure)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder for the generated tables")
    parser.add_argument("--out", type=Path, default=Path("results/large-tables"))
    parser.add_argument("--rows", type=int, nargs="*", default=[], help=f"sizes, such as {SIZES}")
    parser.add_argument("--trees", type=int, default=TREES)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--memory", action="store_true", help="fit a sample in memory")
    parser.add_argument("--kill", type=int, metavar="ROWS", help="kill a worker at this size")
    parser.add_argument("--predict", type=int, nargs="*", default=[], metavar="ROWS")
    parser.add_argument("--clean", action="store_true", help="remove the tables in the end")
    parser.add_argument("--report", action="store_true", help="draw the figure of the records")
    options = parser.parse_args(argv)
    jobs: list[tuple[str, int, Any, tuple[Any, ...]]] = []
    if options.memory:
        jobs.append(("memory", SAMPLE, in_memory, (options.trees,)))
    jobs += [
        (name, n, measure, (name, n, options.data, options.trees, options.iterations))
        for n in options.rows
        for name in ("boosting", "logistic")
    ]
    if options.kill:
        jobs.append(("kill", options.kill, kill, (options.kill, options.data, options.trees)))
    jobs += [("predict", n, predict, (n, options.data)) for n in options.predict]
    for kind, rows, job, arguments in jobs:
        if not any(row["rows"] == rows for row in records(options.out, kind)):
            add(options.out / FILE, [{"kind": kind} | job(*arguments)])
        print(f"{kind}, {rows:,} rows: done", flush=True)
    if options.clean:
        shutil.rmtree(options.data)
    if options.report:
        draw(options.out)


if __name__ == "__main__":
    main()
