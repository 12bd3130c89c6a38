"""What the speed-ups cost in accuracy: each one switched off separately, fold by fold.

    python benchmarks/accuracy.py [--epochs 12] [--jobs 4] [--out results/speed-gpu]

ConvLarge on CIFAR-10's birds and cats, ten folds over bags of 1 to 12, test accuracy after the last
epoch. For every method the fast way (bfloat16, batches of one shape, a replayed CUDA graph) is
compared with others that differ in one thing. A run that has a record is not repeated. Then
`make tables` writes the differences into docs/measurements/speed.md: fold by fold, with a 95 %
interval of their mean. `--dataset digits --device cpu` only tests the script itself.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import records
import torch
from joblib import Parallel, delayed

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
    store = options.out / "accuracy.parquet"
    setting = {
        "dataset": options.dataset,
        "network": options.network,
        "device": options.device,
        "epochs": options.epochs,
    }
    names = ("method", "arm", "fold", "seed")
    known = [row for row in records.read(store) if setting.items() <= row.items()]
    done = {tuple(row[name] for name in names) for row in known}
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
    machine = records.machine()
    if options.device == "cuda":
        machine += f"\n{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    parallel = Parallel(n_jobs=options.jobs, return_as="generator_unordered", batch_size=1)
    for row in parallel(runs):
        records.add(store, [row | {"machine": machine}])
        print(row, flush=True)


if __name__ == "__main__":
    main()
