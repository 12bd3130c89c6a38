"""Does it pay to count, and in which order? Simulated people on real data.

Each seed divides the data into items to count and test items, makes new bags, and draws new
weights. The person counts without mistakes. After every training the accuracy on the test items is
recorded, for

- bags in random order, and in the order of expected information,
- bags made by the model's scores, in the order of expected information,
- single items labelled in random order, for the same number of keystrokes.

    python benchmarks/counting.py --data digits --data bird-cat --data photos --seeds 5

A stopped run goes on where it was: rows are added to OUT/runs.jsonl.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from llpkit import datasets
from llpkit.label.items import LEARNED_SIDE, ArrayItems
from llpkit.label.opening import trainer
from llpkit.label.simulation import Demo, counting, digits, fresh, labelling

WAYS = {
    "random order": ("random", "random"),
    "information order": ("random", "information"),
    "bags by score": ("score", "information"),
}


def divided(images: torch.Tensor, truth: torch.Tensor, seed: int, items: int, test: int) -> Demo:
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(images)))
    some, rest = order[:items], order[items : items + test]
    return Demo(ArrayItems(images[some]), truth[some], images[rest], truth[rest])


def load(name: str, seed: int, items: int, test: int) -> Demo:
    if name == "digits":
        return digits(seed, items)
    data = datasets.load({"bird-cat": "cifar10", "photos": "group-photos"}[name])
    inputs = data.inputs if isinstance(data.inputs, torch.Tensor) else data.inputs.to_tensor()
    assert data.truth is not None
    if inputs.shape[-1] != LEARNED_SIDE:
        shape = (LEARNED_SIDE, LEARNED_SIDE)
        small = torch.nn.functional.interpolate(inputs.float(), shape, mode="area")
        inputs = small.round().to(torch.uint8)
    return divided(inputs, data.truth, seed, items, test)


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


def summary(records: list[dict[str, object]]) -> str:
    """Mean accuracy over seeds, by the number of bags that were counted."""
    lines = []
    for data in dict.fromkeys(r["data"] for r in records):
        own = [r for r in records if r["data"] == data]
        seeds = sorted({r["seed"] for r in own})
        marks = sorted({r["answers"] for r in own if r["way"] == "random order"})
        chosen = [m for m in marks if m in marks[:: max(1, len(marks) // 5)] or m == marks[-1]]
        lines += [f"\n{data}, {len(seeds)} seeds: accuracy after so many bags", ""]
        head = "| |" + "".join(f" {m} |" for m in chosen)
        lines += [head, "|---|" + "---:|" * len(chosen)]
        for way in [*WAYS, "labels"]:
            cells = []
            for mark in chosen:
                place = marks.index(mark)
                found = []
                for seed in seeds:
                    steps = [r for r in own if r["way"] == way and r["seed"] == seed]
                    if place < len(steps):
                        found.append(100 * float(steps[place]["accuracy"]))
                cells.append(
                    f"{np.mean(found):.1f} ± {np.std(found, ddof=1):.1f}" if len(found) > 1 else "–"
                )
            name = "labels, same keystrokes" if way == "labels" else way
            lines.append(f"| {name} |" + "".join(f" {cell} |" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", action="append", choices=["digits", "bird-cat", "photos"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--bags", type=int, default=60)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--items", type=int, default=1200)
    parser.add_argument("--test", type=int, default=600)
    parser.add_argument("--out", type=Path, default=Path("results/counting"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "runs.jsonl"
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(r["data"], r["seed"]) for r in known}
    for seed in range(given.seeds):
        for data in given.data or ["digits"]:
            if (data, seed) in done:
                continue
            demo = load(data, seed, given.items, given.test)
            found = [
                {"data": data, "seed": seed, "size": given.size, **row}
                for row in rows(demo, given.bags, given.size, seed)
            ]
            # One write per seed, so that a stopped run leaves whole seeds only.
            with file.open("a") as out:
                out.write("".join(json.dumps(row) + "\n" for row in found))
            known += found
    text = summary(known)
    (given.out / "counting.md").write_text(text.strip() + "\n")
    print(text)


if __name__ == "__main__":
    main()
