"""The part of a page on the experiment ``bag-size``."""

from collections.abc import Mapping, Sequence

from llpkit.experiments.results import Results
from llpkit.experiments.statistics import (
    BOUND,
    FEWEST,
    LEVEL,
    Runs,
    difference,
    folds_in_words,
    histories,
    most_folds,
    references,
)
from llpkit.experiments.summary import by_size, size_accuracies, slopes
from llpkit.experiments.times import BELOW, seconds_to_accuracy
from llpkit.report import (
    Block,
    Cell,
    Column,
    Details,
    Figures,
    PageTable,
    Section,
    Style,
    epoch_curves,
    present,
    size_curves,
)
from llpkit.report.spread import Spread


def size_sections(results: Results, label: str, look: Mapping[str, Style]) -> list[Block]:
    """Accuracy against bag size, and the learning curves at every size."""
    runs = results.by_method("bag-size")
    if not runs:
        return []
    kinds = {"last": size_accuracies(runs)}
    if all(record.selected for records in runs.values() for record in records):
        kinds["selected"] = size_accuracies(runs, selected=True)
    sizes = sorted({size for own in kinds["last"].values() for size in own})
    title = "Accuracy on test instances"
    figures = [
        size_curves(found, look, f"{label}-bag-size-{kind}", f"{title}, {kind} epoch")
        for kind, found in kinds.items()
    ]
    tables = [table for kind in kinds for table in _tables(runs, kinds[kind], sizes, kind)]
    return [
        Section(
            "Accuracy against bag size",
            [
                Figures(present(figures)),
                tables[0],
                _seconds(runs, sizes),
                *([Details("More tables", tables[1:])] if tables[1:] else []),
                Details("Learning curves at every size", [_curves(runs, sizes, label, look)]),
            ],
            _how_measured(runs, sizes),
        ),
    ]


def _how_measured(runs: Runs, sizes: Sequence[int]) -> str:
    number = folds_in_words([its for own in runs.values() for its in by_size(own).values()])
    text = "One fold." if most_folds(runs) == 1 else f"Means over {number}."
    if most_folds(runs) >= FEWEST:
        text += f" Intervals are {LEVEL:.0%} and allow for overlapping training sets."
    if len(runs) > 1:
        text += " At one size, methods are paired by fold."
    if len(sizes) > 1:
        text += (
            " Different sizes have different bags, so nothing is paired across sizes. The slope is "
            "that of a line through all runs against the logarithm of the size."
        )
    return text


def _tables(
    runs: Runs, found: Mapping[str, Mapping[int, Spread]], sizes: Sequence[int], kind: str
) -> list[PageTable]:
    """Accuracies with their slopes, and the lead of the reference over the others."""
    slope = slopes(runs, kind == "selected")
    more = [Column("slope", "Slope", "points per doubling", "+.1f")] if slope else []
    columns = [*_columns(sizes, ".1f", "higher"), *more]
    cells: list[tuple[str, list[Cell]]] = [
        (name, [*(its.get(n) for n in sizes), *([slope.get(name)] if slope else [])])
        for name, its in found.items()
    ]
    about = f"Accuracy in percent by bag size, {kind} epoch."
    tables = [PageTable(columns, cells, about, name=f"bag-size-{kind}", apart=[BOUND])]
    for reference in references(runs)[:1]:
        ours = by_size(runs[reference])
        rivals = {name: by_size(its) for name, its in runs.items() if name != reference}
        cells = [
            (name, [difference(ours.get(n, ()), its.get(n, ()), kind == "selected") for n in sizes])
            for name, its in rivals.items()
        ]
        if rivals:
            about = f"Lead of {reference} in points, {kind} epoch."
            name = f"bag-size-differences-{kind}"
            tables.append(PageTable(_columns(sizes, "+.1f"), cells, about, name=name))
    return tables


def _seconds(runs: Runs, sizes: Sequence[int]) -> PageTable:
    """Time to accuracy at every size."""
    cells: list[tuple[str, list[Cell]]] = []
    for name, records in runs.items():
        own = by_size(records)
        cells.append((name, [seconds_to_accuracy(own[n]) if n in own else None for n in sizes]))
    about = (
        f"Seconds of training until the mean curve is {100 * BELOW:.0f} point below its own last "
        "accuracy, measured during the runs and so comparable on one machine only."
    )
    return PageTable(_columns(sizes, ".3g"), cells, about, name="bag-size-time", apart=[BOUND])


def _columns(sizes: Sequence[int], spec: str, better: str = "") -> list[Column]:
    return [Column(f"n_{n}", f"n = {n}", spec=spec, better=better) for n in sizes]  # type: ignore[arg-type]


def _curves(runs: Runs, sizes: Sequence[int], label: str, look: Mapping[str, Style]) -> Figures:
    figures = []
    for size in sizes:
        every = histories({name: by_size(its).get(size, []) for name, its in runs.items()})
        for what, key, short in (
            ("Accuracy on test instances", "test_accuracy", "accuracy"),
            ("Log-likelihood, held-out bags", "held_out_log_likelihood", "held-out"),
        ):
            name, title = f"{label}-bags-of-{size}-{short}", f"{what}, n = {size}"
            percent = key == "test_accuracy"
            figures.append(epoch_curves(every, look, name, title, key, percent=percent))
    return Figures(present(figures))
