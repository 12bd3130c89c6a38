"""Tables larger than memory: EM with boosting and logistic regression on two Dask workers of 1 GB.

    python benchmarks/large_tables.py --data FOLDER [--rows 100000 ...] [--out results/large-tables]
    python benchmarks/large_tables.py --data FOLDER --kill
    python benchmarks/large_tables.py --data FOLDER --predict 10000000 100000000

The table has 20 columns of float32 and bags of 6.7 rows on average, 4.5 million bags at 30 million
rows; it is written chunk by chunk into FOLDER and found there again. Labels are drawn from a known
logit, so that models can be compared with the truth on new rows. Every size and every experiment
writes one JSON file to --out and is not measured again while that file exists; `--report` turns the
files into a table and a figure. Processor seconds are those of all workers and of this process, so
that other load on the machine does not count; elapsed seconds are given too.
"""

import argparse
import json
import os
import platform
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

SIZES = (100_000, 1_000_000, 10_000_000, 30_000_000)
FEATURES, MEAN_SIZE, CHUNK = 20, 20 / 3, 500_000
WORKERS, MEMORY = 2, "1GB"
SAMPLE = 100_000
TREES, ITERATIONS = 50, 2


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
    """Peak memory and processor seconds of the workers, by name: a restarted one keeps it."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.peak, self.before = cluster, {}, {}
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def pids(self) -> dict[Any, int]:
        return {name: nanny.pid for name, nanny in self.cluster.workers.items() if nanny.pid}

    def _run(self) -> None:
        import psutil

        while not self.stop.wait(0.05):
            for name, pid in self.pids().items():
                try:
                    used = psutil.Process(pid).memory_info().rss
                except psutil.Error:
                    continue
                self.peak[name] = max(self.peak.get(name, 0), used)

    def cpu(self) -> float:
        import psutil

        total = time.process_time()
        for pid in self.pids().values():
            used = psutil.Process(pid).cpu_times()
            total += used.user + used.system
        return total


@contextmanager
def cluster() -> Iterator[tuple[Any, Watch]]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            memory_limit=MEMORY,
            dashboard_address=":0",
            silence_logs="ERROR",
        ) as local,
        Client(local) as client,
    ):
        client.run(warm)
        watch = Watch(local)
        try:
            yield client, watch
        finally:
            watch.stop.set()
            watch.thread.join()


def warm() -> None:
    """Import and compile, once per worker."""
    import torch
    import xgboost  # noqa: F401

    from llpkit import distributed  # noqa: F401
    from llpkit.likelihood import log_prob_and_posterior

    log_prob_and_posterior(torch.zeros(3).double(), torch.tensor([1]), torch.tensor([0, 3]))


def boosting(trees: int) -> Any:
    from xgboost import XGBClassifier

    from llpkit.estimators import LLPClassifier

    inner = XGBClassifier(n_estimators=trees, max_depth=6, n_jobs=1)
    return LLPClassifier(inner, max_iter=ITERATIONS, tol=1e-12, random_state=0)


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


def measure(rows: int, folder: Path, trees: int) -> dict[str, Any]:
    """Both fits at one size."""
    from llpkit import distributed
    from llpkit.estimators import LLPLogisticRegression

    home = write(folder, rows)
    found: dict[str, Any] = {"rows": rows, "trees": trees, "iterations": ITERATIONS}
    found["bytes"] = sum(path.stat().st_size for path in home.iterdir())
    for name, estimator in (
        ("logistic", LLPLogisticRegression()),
        ("boosting", boosting(trees)),
    ):
        events: list[dict[str, Any]] = []
        with cluster() as (_, watch), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # two iterations do not converge

            def log(
                event: dict[str, Any], events: list[Any] = events, watch: Watch = watch
            ) -> None:
                events.append(event | {"total_cpu": watch.cpu(), "at": time.perf_counter()})
                print(f"{rows:,}: {events[-1]}", file=sys.stderr, flush=True)

            begin, cpu = time.perf_counter(), watch.cpu()
            model = distributed.fit(
                estimator, str(home), bag="bag", count="count", sample_rows=SAMPLE, log=log
            )
            found[name] = {
                "elapsed": time.perf_counter() - begin,
                "cpu": watch.cpu() - cpu,
                "peak": sorted(watch.peak.values(), reverse=True),
                "start_cpu": cpu,
                "events": events,
                "quality": quality(model),
            }
        if name == "logistic":
            found[name]["coef"] = [*model.coef_[0].tolist(), float(model.intercept_[0])]
    bags = [e["bags"] for e in found["logistic"]["events"] if e["step"] == "check"]
    return found | {"bags": bags[0]}


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
    from llpkit import distributed

    home = write(folder, rows)
    models, pids, seconds = [], [], []
    steps: list[dict[str, Any]] = []
    with cluster() as (client, watch), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        homes = client.run(lambda dask_worker: dask_worker.local_directory)

        def shoot(pid: int) -> None:
            # XGBoost's file is there once the M-step has read its rows, until it has all its trees.
            while not any(file for home in homes.values() for file in Path(home).glob("*/*.page")):
                time.sleep(0.005)
            os.kill(pid, signal.SIGKILL)

        def log(event: dict[str, Any]) -> None:
            print(f"fit {len(models) + 1}: {event}", file=sys.stderr, flush=True)
            steps.append(event)
            if models and event["step"] == "E" and event["iteration"] == 1:
                pids.append(watch.pids()[1])
                threading.Thread(target=shoot, args=(pids[0],), daemon=True).start()

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
    llpkit = [sys.executable, "-m", "llpkit.cli"]
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
        "peak": int(peak),
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
    """Processor seconds of EM: check and binning, start, M-step, everything else."""
    events = fit["events"]
    m_step = sum(e["cpu"] for e in events if e["step"] == "M")
    marks = {e["step"]: e["total_cpu"] for e in events if e["step"] in ("check", "start")}
    check, start = marks["check"] - fit["start_cpu"], marks["start"] - marks["check"]
    return {
        "check": check,
        "start": start,
        "m_step": m_step,
        "rest": fit["cpu"] - check - start - m_step,
    }


def report(out: Path) -> list[str]:
    found = [json.loads(path.read_text()) for path in out.glob("rows-*.json")]
    found.sort(key=lambda f: f["rows"])
    lines = [
        "| rows | bags | Parquet, GB | peak of a worker, GB: EM, logistic | EM: s of the processor "
        "per million rows | of these M-step | E-step and bookkeeping, of the M-step | logistic: s "
        "per million rows (passes) | elapsed, s: EM, logistic |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for f in found:
        em, linear, millions = f["boosting"], f["logistic"], f["rows"] / 1e6
        parts = split(em)
        passes = next(e["passes"] for e in linear["events"] if e["step"] == "logistic")
        lines.append(
            f"| {f['rows']:,} | {f['bags']:,} | {f['bytes'] / 1e9:.2f} | "
            f"{em['peak'][0] / 1e9:.2f}, {linear['peak'][0] / 1e9:.2f} | "
            f"{(em['cpu'] - parts['start']) / millions:.1f} | {parts['m_step'] / millions:.1f} | "
            f"{parts['rest'] / parts['m_step']:.1%} | {linear['cpu'] / millions:.1f} ({passes}) | "
            f"{em['elapsed']:.0f}, {linear['elapsed']:.0f} |"
        )
    lines += ["", *_qualities(out, found)]
    large = [f for f in found if f["rows"] >= 1_000_000]
    if len(large) > 1:
        for name in ("boosting", "logistic"):
            times = [
                f[name]["cpu"] - (split(f[name])["start"] if name == "boosting" else 0)
                for f in large
            ]
            steep = np.polyfit(np.log([f["rows"] for f in large]), np.log(times), 1)[0]
            lines.append(f"Exponent of the time in the rows, from a million, {name}: {steep:.2f}.")
    for path in sorted(out.glob("kill-*.json")):
        lines.append(f"Killed worker: {json.loads(path.read_text())}")
    for path in sorted(out.glob("predict-*.json"), key=lambda path: len(path.name)):
        lines.append(f"Predict: {json.loads(path.read_text())}")
    return lines


def _qualities(out: Path, found: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| fit | rows | AUC: EM | cross-entropy: EM | AUC: logistic | cross-entropy: logistic |"
    ]
    lines += ["|---|---:|---:|---:|---:|---:|"]
    if (path := out / "memory.json").exists():
        known = json.loads(path.read_text())
        lines.append(_quality("in memory, sample", known))
        truth = known["best"]
        cells = f"{truth['auc']:.4f} | {truth['cross_entropy']:.4f}"
        lines.append(f"| the truth itself | | {cells} | {cells} |")
    return [*lines, *(_quality("Dask, two workers", f) for f in found), ""]


def _quality(name: str, found: dict[str, Any]) -> str:
    cells = [
        f"{found[kind]['quality'][key]:.4f}"
        for kind in ("boosting", "logistic")
        for key in ("auc", "cross_entropy")
    ]
    return f"| {name} | {found['rows']:,} | {' | '.join(cells)} |"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder for the generated tables")
    parser.add_argument("--out", type=Path, default=Path("results/large-tables"))
    parser.add_argument("--rows", type=int, nargs="*", default=[], help=f"sizes, such as {SIZES}")
    parser.add_argument("--trees", type=int, default=TREES)
    parser.add_argument("--memory", action="store_true", help="fit a sample in memory")
    parser.add_argument("--kill", type=int, metavar="ROWS", help="kill a worker at this size")
    parser.add_argument("--predict", type=int, nargs="*", default=[], metavar="ROWS")
    parser.add_argument("--clean", action="store_true", help="remove each table after its use")
    parser.add_argument("--report", action="store_true", help="write the table from the records")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    jobs: list[tuple[str, Any, tuple[Any, ...]]] = []
    if options.memory:
        jobs.append(("memory", in_memory, (options.trees,)))
    jobs += [(f"rows-{n}", measure, (n, options.data, options.trees)) for n in options.rows]
    if options.kill:
        jobs.append((f"kill-{options.kill}", kill, (options.kill, options.data, options.trees)))
    jobs += [(f"predict-{n}", predict, (n, options.data)) for n in options.predict]
    for name, job, arguments in jobs:
        path = options.out / f"{name}.json"
        if not path.exists():
            found = job(*arguments)
            path.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{name}: {path}", flush=True)
        if options.clean:
            shutil.rmtree(options.data / name, ignore_errors=True)
            (options.data / f"{name}.parquet").unlink(missing_ok=True)
    lines = report(options.out)
    print("\n".join(lines))
    if options.report:
        about = f"{WORKERS} workers of {MEMORY} each, one thread each, {platform.machine()}"
        (options.out / "large_tables.md").write_text("\n".join([*lines, "", about]) + "\n")


if __name__ == "__main__":
    main()
