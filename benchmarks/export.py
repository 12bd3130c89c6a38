"""ONNX files against their models: the largest difference of a probability.

    python benchmarks/export.py [NAME ...] [--rows 10000]

Networks for images are fitted to random 16 x 16 images and compared on others. Everything else is
fitted to a table by `llpkit fit`, with numbers, categories, gaps and rare and new values, and
compared on a table whose raw columns go into the file.
"""

import argparse
import csv
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import llpkit
from llpkit import Bags, estimators, export, networks
from llpkit.cli import main as command_line
from llpkit.runs import open_run

ON_TABLES = ("mlp", "linear", "llp-gan")
BINARY = ("alter-svm", "inv-cal")
COUNTS = {2: ["n_1"], 3: ["n_0", "n_1", "n_2"]}


def write_table(path: Path, rows: int, classes: int, seed: int, new: bool = False) -> Path:
    """Rows in bags of 5; with ``new``, also values that the other table does not have."""
    rng = np.random.default_rng(seed)
    age, seconds = rng.normal(50, 15, rows), 1.7e9 + 60 * rng.normal(size=rows)
    town = rng.choice([f"town {i}" for i in range(80 + 10 * new)], rows)
    kind = rng.choice(["Ä", "b", "c"], rows)
    score = (age - 50) / 15 + (kind == "b") + (seconds - 1.7e9) / 120
    labels = (score > 0.3).astype(int) if classes == 2 else np.digitize(score, [-0.3, 0.9])
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["bag", *COUNTS[classes], "age", "seconds", "town", "kind"])
        for i in range(rows):
            inside = labels[i - i % 5 : i - i % 5 + 5]
            counts = [int((inside == int(name[2:])).sum()) for name in COUNTS[classes]]
            gone = rng.random(4) < 0.05
            values = [f"{age[i]:.3f}", f"{seconds[i]:.3f}", town[i], kind[i]]
            shown = ["" if missing else v for missing, v in zip(gone, values, strict=True)]
            writer.writerow([i // 5, *counts, *shown])
    return path


def fitted_runs(folder: Path, names: list[str]) -> Iterator[tuple[str, int, Any]]:
    """Runs of all networks for tables, and of all estimators."""
    kinds = [("--network", name) for name in ON_TABLES]
    kinds += [("--estimator", name) for name in estimators.ESTIMATORS]
    for classes in (2, 3):
        small = write_table(folder / f"training-{classes}.csv", 1500, classes, seed=0)
        for option, name in kinds:
            if (names and name not in names) or (classes > 2 and name in BINARY):
                continue
            out = folder / f"{option[2:]}-{name}-{classes}"
            counts = [word for count in COUNTS[classes] for word in ("--count", count)]
            more = ["--epochs", "5"] if option == "--network" else []
            if name == "llp-gan":
                more += ["--method", "llp-gan"]
            arguments = ["fit", small, "--bag", "bag", *counts, option, name, *more, "-q"]
            if command_line([*map(str, arguments), "--out", str(out)]):
                raise RuntimeError(f"{name} was not fitted")
            yield f"{option[2:]} {name}", classes, open_run(out, "cpu", trust_model=True)


def fitted_to_images(names: list[str]) -> Iterator[tuple[str, int, Any]]:
    """All networks, after an epoch on random images of two classes."""
    draw = torch.Generator().manual_seed(2)
    images = torch.randint(256, (120, 3, 16, 16), generator=draw, dtype=torch.uint8)
    labels = torch.randint(2, (120,), generator=draw)
    bags = Bags.from_labels(labels, (torch.arange(120) // 4).tolist())
    for name in networks.NETWORKS:
        if not names or name in names:
            method = "llp-gan" if name == "llp-gan" else "mle"
            options: dict[str, Any] = {"epochs": 1, "progress": False, "method": method}
            yield f"network {name}, images", 2, llpkit.fit(name, bags, images, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks and estimators (all)")
    parser.add_argument("--rows", type=int, default=10_000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # some fits do not converge, which does not matter here
    print("| model | classes | rows | largest difference | seconds |")
    print("|---|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        tables = {
            k: write_table(folder / f"new-{k}.csv", given.rows, k, seed=1, new=True) for k in COUNTS
        }
        draw = torch.Generator().manual_seed(9)
        images = torch.randint(
            256, (given.rows, 3, 16, 16), generator=draw, dtype=torch.uint8
        ).numpy()
        on_tables = ((*one, tables[one[1]]) for one in fitted_runs(folder, given.names))
        on_images = ((*one, images) for one in fitted_to_images(given.names))
        for source in (on_tables, on_images):
            for name, classes, model, rows in source:
                start = time.perf_counter()
                done = export.onnx(model, folder / "model.onnx", rows=rows, force=True).compared
                seconds = time.perf_counter() - start
                figures = f"{done.rows:,} | {done.difference:.1e} | {seconds:.1f}"
                print(f"| {name} | {classes} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
