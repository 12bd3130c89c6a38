"""The tables of shares.md, statistics.md and planning.md."""

from math import exp, log
from statistics import fmean

from interval_coverage import DESIGNS
from records import Row
from table_kit import Rows, recorded, table


@table
def precincts() -> Rows:
    """Shares of groups by several methods: errors and intervals in points, and times."""
    rows = [["data", "method", "error", "inside", "width", "CPU s", "seconds"]]
    for row in recorded("precincts/precincts.parquet"):
        cells = [f"{100 * row['error']:.2f}", f"{row['inside']} of {row['cells']}"]
        cells += [f"{100 * row['width']:.2f}", f"{row['cpu_seconds']:.1f}", f"{row['seconds']:.1f}"]
        rows.append([row["data"], row["method"], *cells])
    return rows


@table
def coverage() -> Rows:
    """Coverage in per cent, smallest and largest of the quantities of a kind."""
    chunks: dict[str, list[Row]] = {}
    for row in recorded("coverage/chunks.parquet"):
        if "hits" in row:
            chunks.setdefault(row["design"], []).append(row)
    whats = ("coefficients", "shares", "probabilities")
    rows = [["design", "model, covariance", "replicates", *whats]]
    for name, design in DESIGNS.items():
        own = chunks.get(name, [])
        number = sum(chunk["replicates"] - chunk["failed"] for chunk in own)
        names = dict.fromkeys(what for chunk in own for what in chunk["hits"])
        hits = {
            what: list(map(sum, zip(*(c["hits"][what] for c in own if c["hits"]), strict=True)))
            for what in names
        }
        for kind in dict.fromkeys(what.partition(":")[0] for what in hits):
            cells = [span(hits.get(f"{kind}: {what}", []), number) for what in whats]
            shown = kind if "mixed" in kind or not design.effect else f"plain, {kind}"
            rows.append([design.about, shown, str(number), *cells])
    return rows


def span(hits: list[int], number: int) -> str:
    """The smallest and the largest share in per cent."""
    if not hits:
        return ""
    low, high = 100 * min(hits) / number, 100 * max(hits) / number
    return f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"


@table
def planned_errors() -> Rows:
    """Predicted against simulated standard errors."""
    rows = [["bag size", "efficiency", "standard errors, predicted", "simulated", "ratio"]]
    rows[0] += ["accuracy, predicted", "simulated"]
    for row in recorded("planning/standard_errors.parquet"):
        made, seen = ([row[f"{kind}_{i}"] for i in (0, 1)] for kind in ("predicted", "simulated"))
        ratio = exp(fmean(log(s / p) for s, p in zip(seen, made, strict=True)))
        cells = [str(row["size"]), f"{row['efficiency']:.3f}"]
        cells += [", ".join(f"{error:.3f}" for error in errors) for errors in (made, seen)]
        accuracy = (row["predicted_accuracy"], row["simulated_accuracy"])
        rows.append([*cells, f"{ratio:.2f}", *(f"{100 * value:.1f}" for value in accuracy)])
    return rows
