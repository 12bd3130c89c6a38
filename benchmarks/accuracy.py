"""What the speed-ups cost in accuracy: each one switched off separately, fold by fold.

    python benchmarks/accuracy.py [--epochs 12] [--jobs 4] [--out results/speed-gpu]

ConvLarge on CIFAR-10's birds and cats, ten folds over bags of 1 to 12, test accuracy after the last
epoch. For every method the fast way (bfloat16, batches of one shape, a replayed CUDA graph) is
compared with others that differ in one thing; differences are taken fold by fold, with a 95 %
interval of their mean. A run that has a record is not repeated. `--dataset digits --device cpu`
only tests the script itself.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from estep import Report, machine
from joblib import Parallel, delayed
from scipy import stats

import llpkit
from llpkit import methods
from llpkit.datasets import DataSet, load
from llpkit.evaluation import accuracy
from llpkit.training import job

FOLDS = 10
ARMS: dict[str, dict[str, Any]] = {
    "fast": {},
    "float32": {"precision": "32-true"},
    "no graph": {"cuda_graph": False},
    "no graph, batches of any shape": {"ragged": True},
    "compiled": {"compile": True},
    "E-step by a pass": {"method": "mle-pass"},
}
METHODS = {
    "supervised": ("float32", "no graph, batches of any shape"),
    "mle": ("float32", "no graph, batches of any shape", "compiled", "E-step by a pass"),
    "direct": ("no graph", "no graph, batches of any shape"),
    "amle": ("no graph, batches of any shape",),
    "dllp": ("float32", "no graph, batches of any shape"),
    "llp-gan": ("float32", "no graph, batches of any shape"),
}


@cache
def data(name: str) -> DataSet:
    return load(name)


@contextmanager
def shapes(ragged: bool) -> Iterator[None]:
    """Optionally, batches without padding."""
    usual: Callable[..., bool] = job.paddable
    if ragged:
        job.paddable = lambda *_: False  # type: ignore[assignment]
    try:
        yield
    finally:
        job.paddable = usual  # type: ignore[assignment]


def one(key: dict[str, Any]) -> dict[str, Any]:
    """The test accuracy of one run, and its seconds per epoch."""
    dataset, network, device, epochs, method, arm, fold, seed = key.values()
    if device == "cpu":
        torch.set_num_threads(1)
    source = data(dataset)
    assert source.truth is not None
    train, test = list(source.bags.kfold(FOLDS, 0))[fold]
    options = dict(ARMS[arm])
    with shapes(options.pop("ragged", False)):
        model = llpkit.fit(
            methods.METHODS[method].network_name or network,
            train,
            source.inputs,
            options.pop("method", method),
            epochs=epochs,
            labels=source.truth if method == "supervised" else None,
            augment="paper" if device == "cuda" else None,
            device=device,
            seed=seed,
            progress=False,
            **options,
        )
    rows = test.rows
    probability = model.predict_proba(source.inputs[rows]).cpu()
    return {
        **key,
        "accuracy": accuracy(probability, source.truth[rows]),
        "seconds": statistics.median(row["seconds"] for row in model.history[-5:]),
    }


def tell(report: Report, records: list[dict[str, Any]]) -> None:
    """Means, and differences from the fast way in the same folds and seeds, in points."""
    found = {(r["method"], r["arm"], (r["fold"], r["seed"])): 100 * r["accuracy"] for r in records}
    pairs = sorted({pair for _, _, pair in found})
    rows = []
    for method, arms in METHODS.items():
        base = {f: found[method, "fast", f] for f in pairs if (method, "fast", f) in found}
        if len(base) < 2:
            continue
        mean, spread = statistics.mean(base.values()), statistics.stdev(base.values())
        rows.append([method, "fast", f"{mean:.2f}", f"{spread:.2f}", "", ""])
        for arm in arms:
            both = [f for f in base if (method, arm, f) in found]
            if len(both) < 2:
                continue
            gaps = [found[method, arm, f] - base[f] for f in both]
            gap, error = statistics.mean(gaps), stats.sem(gaps)
            reach = float(stats.t.ppf(0.975, len(gaps) - 1) * error)
            value = statistics.mean(found[method, arm, f] for f in both)
            rows.append([method, arm, f"{value:.2f}", "", f"{gap:+.2f} ± {reach:.2f}"])
            rows[-1].append("yes" if abs(gap) <= max(reach, 1e-9) else "NO")
    header = ["method", "way", "accuracy, %", "sd over folds", "less the fast way, points"]
    report.table([*header, "zero inside"], rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--network", default="conv-large")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=1, help="runs of every fold (default: 1)")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("results/speed-gpu"), metavar="DIR")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "accuracy.jsonl"
    records = (
        [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    )
    setting = {
        "dataset": options.dataset,
        "network": options.network,
        "device": options.device,
        "epochs": options.epochs,
    }
    records = [r for r in records if setting.items() <= r.items()]
    names = ("method", "arm", "fold", "seed")
    done = {tuple(r[name] for name in names) for r in records}
    wanted = [
        setting | dict(zip(names, key, strict=True))
        for seed in range(options.seeds)
        for fold in range(FOLDS)
        for method, arms in METHODS.items()
        for arm in ("fast", *arms)
        if (key := (method, arm, fold, seed)) not in done
    ]
    from accuracy import one as work  # by its name, so that a worker loads the data once

    runs = (delayed(work)(key) for key in wanted)
    made_by = (
        f"python benchmarks/accuracy.py --epochs {options.epochs} --seeds {options.seeds} --jobs "
        f"{options.jobs}\n{machine()}"
    )
    if options.device == "cuda":
        made_by += f"\n{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    parallel = Parallel(n_jobs=options.jobs, return_as="generator_unordered", batch_size=1)
    with store.open("a") as lines:
        for record in parallel(runs):
            records.append(record)
            lines.write(json.dumps(record) + "\n")
            lines.flush()
            print(json.dumps(record), flush=True)
    report = Report()
    report.say("# Accuracy with each speed-up taken back\n")
    report.say(f"```text\n{made_by}\n```\n")
    tell(report, records)
    (options.out / "accuracy.md").write_text(report.text)


if __name__ == "__main__":
    main()
