"""Epoch time against the number of instances per step, and with one bag per step.

    python benchmarks/steps.py [--turns 5] [--epochs 6] [--out results/digits-batches]

The paper explains its speed by EM's batches, which may be larger than a bag. This trains every
method on digits with batches of several sizes, and whole-bag methods also with one bag per step, on
one thread. Times are those of the processor, so that other work on the machine matters little; the
methods take turns, and the first epoch of each turn is not counted.
"""

import argparse
import platform
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

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
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path, help="write steps.md here")
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
    columns: list[int | str] = [*SIZES, ONE]
    lines = [f"| method | {' | '.join(map(str, columns))} |", "|---|" + "---:|" * len(columns)]
    for name in NAMES:
        cells = [_cell(ratios.get((name, size), [])) for size in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    about = (
        f"`python benchmarks/steps.py --turns {options.turns} --epochs {options.epochs}`: "
        f"processor time of an epoch on digits ({data.bags.num_instances:,} instances in "
        f"{len(data.bags):,} bags), relative to supervised training in batches of {SIZES[0]} in "
        f"the same turn, mean ± SD; one thread of {platform.machine()}, torch {torch.__version__}."
    )
    text = "\n".join([*lines, "", about, ""])
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "steps.md").write_text(text, encoding="utf-8")
    return 0


def _cell(values: list[float]) -> str:
    if not values:
        return ""
    around = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{fmean(values):.2f}{around}"


if __name__ == "__main__":
    raise SystemExit(main())
