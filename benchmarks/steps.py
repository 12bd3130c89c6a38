"""Epoch time against the number of instances per step, and with one bag per step.

    python benchmarks/steps.py [--turns 5] [--epochs 6] [--out results/digits-batches]

The paper explains its speed by EM's batches, which may be larger than a bag. This trains every
method on digits with batches of several sizes, and whole-bag methods also with one bag per step, on
one thread. Times are those of the processor, so that other work on the machine matters little; the
methods take turns, and the first epoch of each turn is not counted. `make tables` then writes the
table of docs/measurements/reproduce.md.
"""

import argparse
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import records
import torch

import llpkit
from llpkit import datasets
from llpkit.methods import METHODS
from llpkit.training import Callback

SIZES = (32, 128, 512)
NAMES = ("supervised", "mle", "mle-pass", "direct", "amle", "dllp")
ONE = "one bag"


class Clock(Callback):
    """Seconds of the processor per epoch."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def on_epoch(self, session: Any, row: dict[str, Any]) -> None:  # noqa: ARG002
        self.marks.append(time.process_time())


def epoch(data: Any, method: str, batch: int | str, epochs: int) -> float:
    """Mean seconds per epoch after the first."""
    clock = Clock()
    # 12 is the largest bag, so that no bag is split.
    steps = {"batch_size": 12, "max_bags": 1} if batch == ONE else {"batch_size": batch}
    llpkit.fit(
        "mlp",
        data.bags,
        data.inputs.flatten(1).float() / 255,
        method=method,
        labels=data.truth if METHODS[method].needs_labels else None,
        epochs=epochs,
        measure="off",
        callbacks=clock,
        progress=False,
        device="cpu",
        **steps,
    )
    return (clock.marks[-1] - clock.marks[0]) / (epochs - 1)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and record, relative to supervised training in the smallest batches."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path, help="write steps.parquet here")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    data = datasets.load("digits", bag_size=(1, 12), seed=0)
    ways: list[tuple[str, int | str]] = [(name, size) for name in NAMES for size in SIZES]
    ways += [(name, ONE) for name in NAMES if METHODS[name].batches == "bags"]
    ratios: dict[tuple[str, int | str], list[float]] = {way: [] for way in ways}
    for turn in range(options.turns):
        order = ways[turn % len(ways) :] + ways[: turn % len(ways)]
        found = {way: epoch(data, *way, options.epochs) for way in order}
        for way in ways:
            ratios[way].append(found[way] / found["supervised", SIZES[0]])
    found = []
    for (method, size), values in ratios.items():
        row = {"method": method, "batch": str(size), "turns": options.turns}
        row |= {"epochs": options.epochs, "ratio": fmean(values)}
        if len(values) > 1:
            row["sd"] = stdev(values)
        print(row, flush=True)
        found.append(row | {"machine": records.machine()})
    if options.out is not None:
        records.write(options.out / "steps.parquet", found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
