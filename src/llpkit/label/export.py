"""The counts as a table, and the commands that train on it."""

import shlex
from pathlib import Path

from llpkit.errors import LLPError
from llpkit.label import learning
from llpkit.label.counts import TrainingBag
from llpkit.label.items import Items

TABLE = "counts.csv"
_ALL = "images.csv"  # counted or not


def write_counts(path: Path, items: Items, parts: list[TrainingBag]) -> None:
    """Write the table that ``llpkit fit`` reads: one row per item of every part."""
    if not parts:
        raise LLPError("nothing was counted yet; count a bag first")
    chosen = [item for part in parts for item in part.items]
    bag, low, high = _columns(items)
    columns: dict[str, list[object]] = {
        bag: [part.name for part in parts for _ in part.items],
        low: [part.low for part in parts for _ in part.items],
        high: [part.high for part in parts for _ in part.items],
    }
    items.export(path, chosen, columns)


def write_tables(folder: Path, items: Items, parts: list[TrainingBag]) -> None:
    """Write the tables that :func:`commands` name to a folder."""
    write_counts(folder / TABLE, items, parts)
    if items.path is None:
        items.export(folder / _ALL, range(len(items)), {})


def commands(folder: Path, items: Items, parts: list[TrainingBag]) -> list[str]:
    """What to type to train on the exported counts and to predict all items."""
    bag, low, high = _columns(items)
    run, number = folder / "run", 1
    while run.exists():
        run, number = folder / f"run-{number + 1}", number + 1
    held_out = ["--held-out", "0.2"] if len(parts) >= learning.LEAST else []
    fit = ["fit", folder / TABLE, "--bag", bag, "--count-low", low, "--count-high", high]
    fit += [*items.fit_options(), *held_out, "--out", run]
    predict = ["predict", run, items.path or folder / _ALL, "--out", folder / "predicted.csv"]
    return [shlex.join(["llpkit", *map(str, words)]) for words in (fit, predict)]


def _columns(items: Items) -> list[str]:
    """The names of the added columns; none is a column of the user's table."""
    names = ["bag", "count_low", "count_high"]
    while any(name in items.columns for name in names):
        names = [f"counted_{name}" for name in names]
    return names
