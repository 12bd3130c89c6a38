"""The tables of speed.md, table-results.md and classical.md.

Benchmarks write their tables as Markdown to results/; pages show some of the rows and columns.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev

from table_kit import Rows, code, table

from llpkit.report.spread import Spread, true_minus

RESULTS = Path(__file__).parents[1] / "results"


def written(file: str, heading: str = "") -> list[dict[str, str]]:
    """The first table below a heading of a results file: its rows by column."""
    lines = (RESULTS / file).read_text(encoding="utf-8").split("\n")
    start = next(i for i, line in enumerate(lines) if heading in line)
    first = next(i for i in range(start, len(lines)) if lines[i].startswith("|"))
    found: Rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    head, _, *rows = found
    return [dict(zip(head, row, strict=True)) for row in rows]


def by_first(rows: list[dict[str, str]]) -> dict[str, dict[str, str]]:
    """Rows by their first cell."""
    return {next(iter(row.values())): row for row in rows}


# Classical estimators and tables


@table
def classical() -> Rows:
    """Accuracy of the classical estimators."""
    sets = {"breast cancer": "### breast cancer", "digits 3 or 8": "### digits, 3 or 8"}
    found = [by_first(written("classical/classical.md", head)) for head in sets.values()]
    sizes = ("n = 2", "n = 8", "n = 32", "n = 64")
    rows = [[""]]
    for name in sets:
        rows[0] += [f"{name}, {sizes[0]}", *(size.removeprefix("n = ") for size in sizes[1:])]
    for name in (
        "`LLPLogisticRegression` (exact likelihood)",
        "`DLLPClassifier`",
        "`MeanMapClassifier`",
        "`InvCalClassifier`",
        "`AlterSVMClassifier`",
        "supervised logistic regression",
    ):
        short = name.removesuffix(" (exact likelihood)").removesuffix(" logistic regression")
        rows.append([short, *(each[name][size] for each in found for size in sizes)])
    return rows


def adult_auc() -> dict[tuple[str, str], Spread]:
    """AUC on Adult over seeds, by estimator and bags."""
    found: dict[tuple[str, str], list[float]] = {}
    for line in (RESULTS / "adult/runs.jsonl").read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        found.setdefault((run["estimator"], run["bags"]), []).append(run["auc"])
    return {key: Spread(fmean(values), stdev(values)) for key, values in found.items()}


@table
def adult() -> Rows:
    """AUC on Adult by bag size."""
    found = adult_auc()
    bags = ["2", "4", "8", "16", "32", "64", "128", "occupation, education"]
    names = ["EM, boosting", "EM, forest", "EM, logistic", "exact logistic"]
    names += ["DLLP", "mean map", "InvCal", "alter-∝SVM"]
    rows = [["estimator", "n = 2", *bags[1:-1], "by key"]]
    return [*rows, *([n, *(f"{found[n, each].mean:.3f}" for each in bags)] for n in names)]


@table
def adult_out_of_fold() -> Rows:
    """AUC with and without out-of-fold predictions at n = 8."""
    found = adult_auc()
    rows = [["classifier inside EM", "out of fold", "in-sample"]]
    for title, name in (
        ("forest, fully grown, started from the proportions", "EM, whole trees, from proportions"),
        ("forest, fully grown", "EM, whole trees"),
        ("forest, five rows per leaf", "EM, forest"),
        ("boosting, 100 trees", "EM, boosting"),
        ("boosting, 100 trees, from 2,000 rows of the table", "EM, boosting, 2,000 rows"),
    ):
        rows.append([title, *(f"{found[each, '8']:.3f}" for each in (name, f"{name}, in-sample"))])
    return rows


@table
def selection() -> Rows:
    """Selection without labels."""
    rows = [["data", "n", "bags", "proportions", "labels", "best", "average", "rank"]]
    last = ""
    for row in written("selection/selection.md"):
        name, *cells = row.values()
        rows.append(["" if name == last else name, *cells])
        last = name
    return rows


@table
def table_scale() -> Rows:
    """Seconds of EM around boosting by number of rows."""
    rows = [["rows", "bags", "M-step", "predictions", "engine and bookkeeping", "start"]]
    rows[0] += ["all but the M-step, relative to it", "peak memory, GB"]
    for row in written("table-scale/table_scale.md"):
        share = float(row["with predictions"].rstrip("%"))
        rows.append([*list(row.values())[:6], f"{share:.0f} %", row["peak memory, GB"]])
    return rows


# Speed


@table
def speed_e_step() -> Rows:
    """The E-step against enumeration."""
    found = by_first(written("speed-cpu/speed.md", "## Bags of 1 to 12"))
    column = "speed against enumeration, as published"
    rows = [["1,913 bags of 1 to 12 instances", "time"]]
    rows[0].append("speed relative to the published enumeration")
    for title, name in (
        ("enumeration of label combinations, as published", "enumeration, as published"),
        ("the same, vectorised over bags of the same size and count", "enumeration, vectorised"),
        ("engine, torch backend", "engine, torch path"),
        ("engine, compiled backend", "engine, numba path"),
    ):
        row = found[name]
        rows.append([title, row["median"], row[column].rstrip("×")])
    return rows


@table
def speed_methods() -> Rows:
    """Epochs relative to a supervised one, on one H200."""
    found = by_first(written("speed-gpu/speed.md", "### conv-large, cifar10"))
    rows = [["method", "epoch relative to supervised, bird/cat"]]
    names = ("mle", "direct", "amle", "dllp", "llp-gan")
    return [*rows, *([code(name), found[name]["against supervised"]] for name in names)]


@table
def speed_by_size() -> Rows:
    """Instances per second of the kernels by bag size."""
    found = by_first(written("speed-gpu/speed.md", "## Bags of 1 to 12"))
    found |= by_first(written("speed-gpu/speed.md", "## Bags of one size"))
    rows = [["n", "billion instances per second, float32", "float64"]]
    for size in ("1 to 12", "1", "2", "4", "8", "16", "32", "64", "128", "16,384"):
        each = (found[size][f"triton, {kind}"] for kind in ("float32", "float64"))
        rows.append([size, *(f"{float(cell) / 1e9:.3g}" for cell in each)])
    return rows


@table
def speed_accuracy() -> Rows:
    """Accuracy with each speed-up undone."""
    ways: Mapping[str, str] = {
        "float32": "float32",
        "no graph": "no graph",
        "no graph, batches of any shape": "no graph, batches of any shape",
        "compiled": "compiled",
        "`mle-pass`": "E-step by a pass",
    }
    found: dict[str, dict[str, dict[str, str]]] = {}
    for row in written("speed-gpu/accuracy.md"):
        found.setdefault(row["method"], {})[row["way"]] = row
    rows = [["method", "fast, % (sd over folds)", *ways]]
    for name, its in found.items():
        fast = its["fast"]
        cells = [its.get(way, {}).get("less the fast way, points", "") for way in ways.values()]
        told = f"{fast['accuracy, %']} ({fast['sd over folds']})"
        rows.append([code(name), told, *map(true_minus, cells)])
    return rows
