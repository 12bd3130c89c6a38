"""The tables of docs/how-to/label.md, from the records of benchmarks/counting.py."""

from statistics import fmean, stdev

from table_kit import Rows, recorded, signed, table

FIRST = "random bags, random order"
NAMES = {
    FIRST: FIRST,
    "random bags, information order": "random bags, information order",
    "by score, information order": "by score, information order",
    "alike, random order": "alike, random order",
    "alike, information order": "alike, information order (the default)",
    "labels": "single labels, same keystrokes",
}
SHOWN = (6, 14, 22, 30, 42, 58)


def curves(data: str) -> dict[str, list[list[float]]]:
    """Accuracy in per cent of every way, by seed and step; and the numbers of bags, as "bags"."""
    found: dict[str, dict[int, list[float]]] = {}
    bags: dict[int, list[float]] = {}
    for run in recorded("counting/runs.parquet", data=data):
        steps = found.setdefault(run["way"], {}).setdefault(run["seed"], [])
        steps.append(100 * run["accuracy"])
        if run["way"] == FIRST:
            bags.setdefault(run["seed"], []).append(run["answers"])
    every = {way: [its[seed] for seed in sorted(its)] for way, its in found.items()}
    return {**every, "bags": list(bags.values())}


def rows(data: str) -> Rows:
    """Mean ± standard deviation over seeds, and the mean advantage with its standard error."""
    found = curves(data)
    marks = found["bags"][0]
    made = [["bags counted", *map(str, SHOWN), "gain over the first row, all steps"]]
    for way, name in NAMES.items():
        cells = []
        for mark in SHOWN:
            values = [steps[marks.index(mark)] for steps in found[way]]
            cells.append(f"{fmean(values):.1f} ± {stdev(values):.1f}")
        gains = [
            fmean(steps) - fmean(first)
            for steps, first in zip(found[way], found[FIRST], strict=True)
        ]
        error = stdev(gains) / len(gains) ** 0.5
        gain = "" if way == FIRST else f"{signed(fmean(gains))} ± {error:.1f}"
        made.append([name, *cells, gain])
    return made


@table
def counting_digits() -> Rows:
    """Counting on digits."""
    return rows("digits")


@table
def counting_bird_cat() -> Rows:
    """Counting on birds and cats of CIFAR-10."""
    return rows("bird-cat")


@table
def counting_photos() -> Rows:
    """Counting on faces of group photos."""
    return rows("photos")
