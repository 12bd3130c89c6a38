"""Small tables in partitions, for the tests of tables that need not fit into memory."""

from pathlib import Path

import numpy as np
import pandas as pd


def frames(parts: int, rows: int = 300, seed: int = 0) -> list[pd.DataFrame]:
    """Partitions of whole bags, with a column of true labels in none of them."""
    rng = np.random.default_rng(seed)
    found, first = [], 0
    for _ in range(parts):
        X = rng.standard_normal((rows, 3)).astype(np.float32)
        label = X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(rows) > 0.3
        bag = np.repeat(np.arange(rows), rng.integers(1, 8, rows))[:rows]
        count = np.bincount(bag, label).astype(np.int64)[bag]
        columns = {f"x{j}": X[:, j] for j in range(3)}
        found.append(pd.DataFrame(columns | {"bag": bag + first, "n": count}))
        first += rows
    return found


def write(folder: Path, parts: int, rows: int = 300) -> list[Path]:
    """The same as Parquet files."""
    paths = [folder / f"part-{i:03d}.parquet" for i in range(parts)]
    for path, frame in zip(paths, frames(parts, rows), strict=True):
        frame.to_parquet(path, index=False)
    return paths
