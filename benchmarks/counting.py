"""Does it pay to count, and in which order? Simulated people on real data.

Each seed divides the data into items to count and test items, makes new bags, and draws new
weights. The person counts without mistakes. After every training the accuracy on the test items is
recorded, for

- random bags in random order, and in the order of expected information,
- bags of items that look alike, in both orders,
- bags made by the model's scores, in the order of expected information,
- single items labelled in random order, for the same number of keystrokes.

    python benchmarks/counting.py --data digits --data bird-cat --data photos --seeds 7

A stopped run goes on where it was: rows are added to OUT/runs.parquet. Then `make tables` writes
the tables of docs/how-to/label.md, and `--draw docs/figures/counting.png` its figure.
"""

import argparse
import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import records
import torch

from llpkit import datasets
from llpkit.label.items import LEARNED_SIDE, ArrayItems
from llpkit.label.opening import trainer
from llpkit.label.simulation import Demo, counting, digits, fresh, labelling

FIRST_SEED = 100
"""The draws of lower seeds chose the features and the default way to make bags."""
WAYS = {
    "random bags, random order": ("random", "random"),
    "random bags, information order": ("random", "information"),
    "alike, random order": ("alike", "random"),
    "alike, information order": ("alike", "information"),
    "by score, information order": ("score", "information"),
}


def divided(images: torch.Tensor, truth: torch.Tensor, seed: int, items: int, test: int) -> Demo:
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(images)))
    some, rest = order[:items], order[items : items + test]
    return Demo(ArrayItems(images[some]), truth[some], images[rest], truth[rest])


@functools.cache
def small(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """All images of a data set in the size that the counting page learns from, and the labels."""
    data = datasets.load(name)
    inputs = data.inputs
    if not isinstance(inputs, torch.Tensor):
        inputs = inputs.load(range(len(inputs)))
    assert data.truth is not None
    if inputs.shape[2:] != (LEARNED_SIDE, LEARNED_SIDE):
        shape = (LEARNED_SIDE, LEARNED_SIDE)
        reduced = torch.nn.functional.interpolate(inputs.float(), shape, mode="area")
        inputs = reduced.round().to(torch.uint8)
    return inputs, data.truth


def load(name: str, seed: int, items: int, test: int) -> Demo:
    if name == "digits":
        return digits(seed, items)
    images, truth = small({"bird-cat": "cifar10", "photos": "group-photos"}[name])
    return divided(images, truth, seed, items, test)


def rows(demo: Demo, bags: int, size: int, seed: int) -> Iterator[dict[str, object]]:
    with trainer() as pool:
        assert pool is not None
        random = []
        for name, (way, order) in WAYS.items():
            project = fresh(demo, pool, size=size, order=order, way=way, seed=seed)
            steps = list(counting(project, demo.truth, demo.test_truth, bags))
            random = random or steps
            yield from ({"way": name, **step._asdict()} for step in steps)
        inputs = demo.items.inputs()
        single = labelling(
            inputs,
            demo.truth,
            demo.test,
            demo.test_truth,
            random,
            pool,
            same="keystrokes",
            seed=seed,
        )
        yield from ({"way": "labels", **step._asdict()} for step in single)


DRAWN = {
    "random bags, random order": ("tab:blue", "-"),
    "alike, random order": ("tab:orange", "--"),
    "alike, information order": ("tab:orange", "-"),
    "labels": ("tab:gray", "-"),
}


def draw(known: list[dict[str, object]], path: Path) -> None:
    """Accuracy against keystrokes, mean over seeds, one panel per data set."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["data"] for row in known))
    figure = Figure((4 * len(names), 3.4), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, data in zip(panels, names, strict=True):
        for way, (colour, style) in DRAWN.items():
            seeds: dict[object, list[tuple[float, float]]] = {}
            for row in known:
                if row["data"] == data and row["way"] == way:
                    point = (float(row["keystrokes"]), 100 * float(row["accuracy"]))
                    seeds.setdefault(row["seed"], []).append(point)
            x, y = np.mean(list(seeds.values()), 0).T
            name = "single labels" if way == "labels" else way
            axes.plot(x, y, color=colour, linestyle=style, label=name)
        axes.set(title=data, xlabel="keystrokes")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("test accuracy, %")
    panels[0].legend(fontsize="small")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", action="append", choices=["digits", "bird-cat", "photos"])
    parser.add_argument("--seeds", type=int, default=7)
    parser.add_argument("--bags", type=int, default=60)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--items", type=int, default=1200)
    parser.add_argument("--test", type=int, default=600)
    parser.add_argument("--out", type=Path, default=Path("results/counting"))
    parser.add_argument("--draw", type=Path, help="draw the records to this file, and run nothing")
    given = parser.parse_args()
    file = given.out / "runs.parquet"
    known = records.read(file)
    if given.draw:
        draw(known, given.draw)
        return
    done = {(r["data"], r["seed"]) for r in known}
    for seed in range(FIRST_SEED, FIRST_SEED + given.seeds):
        for data in given.data or ["digits"]:
            if (data, seed) in done:
                continue
            demo = load(data, seed, given.items, given.test)
            found = [
                {"data": data, "seed": seed, "size": given.size, **row}
                for row in rows(demo, given.bags, given.size, seed)
            ]
            # One write per seed, so that a stopped run leaves whole seeds only.
            records.add(file, found)
            print(f"{data}, seed {seed}: {len(found)} rows", flush=True)


if __name__ == "__main__":
    main()
