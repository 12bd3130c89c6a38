"""The part of a page on the experiment ``bag-size``."""

from collections.abc import Mapping, Sequence

from llpkit.experiments.page_cells import folds, series
from llpkit.experiments.results import Results
from llpkit.experiments.sizes import (
    SizeAccuracy,
    by_size,
    doublings,
    size_accuracies,
    size_differences,
    slopes,
)
from llpkit.experiments.statistics import BOUND, FEWEST, LEVEL, Runs, most_folds, references
from llpkit.experiments.times import BELOW, seconds_to_accuracy
from llpkit.report import (
    Block,
    Cell,
    Column,
    Details,
    Figure,
    Figures,
    Section,
    SizePoint,
    Style,
    Table,
    epoch_curves,
    present,
    size_curves,
)


def size_sections(results: Results, label: str, look: Mapping[str, Style]) -> list[Block]:
    """Accuracy against bag size, and the learning curves at every size."""
    runs = results.by_method("bag-size")
    if not runs:
        return []
    rows = size_accuracies(runs)
    sizes = sorted({row.size for row in rows})
    kinds = [("last epoch", False)]
    if all(row.selected is not None for row in rows):
        kinds.append(("selected epoch", True))
    figures, tables = [], list[Table]()
    for kind, selected in kinds:
        figures.append(_figure(rows, label, look, kind, selected))
        tables += _tables(runs, rows, sizes, kind, selected)
    tables.insert(1, _times(runs, sizes))
    if len(kinds) > 1:
        tables += _selection(rows, sizes)
    return [
        Section(
            "Accuracy against bag size",
            [
                Figures(present(figures)),
                *tables[:2],
                Details("More tables", tables[2:]),
                Details("Learning curves at every size", [_curves(runs, sizes, label, look)]),
            ],
            _how_measured(runs, sizes),
        ),
    ]


def _how_measured(runs: Runs, sizes: Sequence[int]) -> str:
    number = folds([its for own in runs.values() for its in by_size(own).values()])
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


def _figure(
    rows: Sequence[SizeAccuracy],
    label: str,
    look: Mapping[str, Style],
    kind: str,
    selected: bool,
) -> Figure | None:
    points = []
    for row in rows:
        found = row.selected if selected else row.accuracy
        assert found is not None
        sd = None if found.sd is None else found.sd / 100
        points.append(SizePoint(row.method, row.size, found.mean / 100, sd))
    name = f"{label}-bag-size-{kind.split()[0]}"
    return size_curves(points, look, name, f"Accuracy on test instances, {kind}")


def _tables(
    runs: Runs, rows: Sequence[SizeAccuracy], sizes: Sequence[int], kind: str, selected: bool
) -> list[Table]:
    short = kind.split()[0]
    slope = {row.method: row.change for row in slopes(runs, selected)}
    extra = [Column("slope", "Slope", "points per doubling", "+.1f")] if slope else []
    accuracy = {(row.method, row.size): row.selected if selected else row.accuracy for row in rows}
    tables = [
        Table(
            [*_columns(sizes, ".1f", "higher"), *extra],
            [
                (
                    name,
                    [*(accuracy.get((name, n)) for n in sizes), *([slope.get(name)] * len(extra))],
                )
                for name in runs
            ],
            f"Accuracy in percent by bag size, {kind}.",
            name=f"bag-size-{short}",
            apart=[BOUND],
        )
    ]
    steps = {(row.method, *row.sizes): row.change for row in doublings(runs, selected)}
    pairs = list(dict.fromkeys(key[1:] for key in steps))
    if len(pairs) > 1:  # a single step equals the slope
        columns = [Column(f"from_{a}_to_{b}", f"{a} to {b}", spec="+.1f") for a, b in pairs]
        cells = [(name, [steps.get((name, *pair)) for pair in pairs]) for name in runs]
        about = f"Points per doubling from one size to the next, {kind}."
        tables.append(Table(columns, cells, about, name=f"bag-size-steps-{short}"))
    reference = next(iter(references(runs)), "")
    apart = {
        (row.rival, row.size): row.selected if selected else row.last
        for row in size_differences(runs, reference)
    }
    rivals = list(dict.fromkeys(name for name, _ in apart))
    if rivals:
        cells = [(name, [apart.get((name, n)) for n in sizes]) for name in rivals]
        about = f"Lead of {reference} in points, {kind}."
        tables.append(
            Table(_columns(sizes, "+.1f"), cells, about, name=f"bag-size-differences-{short}")
        )
    return tables


def _times(runs: Runs, sizes: Sequence[int]) -> Table:
    """Time to accuracy at every size."""
    cells: list[tuple[str, list[Cell]]] = []
    for name, records in runs.items():
        own = by_size(records)
        cells.append((name, [seconds_to_accuracy(own[n])[1] if n in own else None for n in sizes]))
    about = (
        f"Seconds of training until the mean curve is {100 * BELOW:.0f} point below its own last "
        "accuracy, as the runs took them: comparable on one machine only."
    )
    return Table(_columns(sizes, ".3g"), cells, about, name="bag-size-time", apart=[BOUND])


def _selection(rows: Sequence[SizeAccuracy], sizes: Sequence[int]) -> list[Table]:
    """The gain from selecting an epoch by held-out bags, and the selected epoch."""
    at = {(row.method, row.size): row for row in rows}
    gains: list[tuple[str, list[Cell]]] = []
    epochs: list[tuple[str, list[Cell]]] = []
    for name in dict.fromkeys(row.method for row in rows):
        own = [at.get((name, n)) for n in sizes]
        gains.append((name, [row.gain if row else None for row in own]))
        epochs.append((name, [_epochs(row) if row else None for row in own]))
    return [
        Table(
            _columns(sizes, "+.1f"),
            gains,
            "Selected minus last epoch, points, by fold.",
            name="bag-size-selection",
        ),
        Table(
            _columns(sizes, ""),
            epochs,
            "The selected epoch: median over folds (first to last).",
            name="bag-size-epochs",
        ),
    ]


def _epochs(row: SizeAccuracy) -> str | None:
    if row.selected_epoch is None:
        return None
    median, first, last = row.selected_epoch
    return f"{median:g}" + (f" ({first} to {last})" if first < last else "")


def _columns(sizes: Sequence[int], spec: str, better: str = "") -> list[Column]:
    return [Column(f"n_{n}", f"n = {n}", spec=spec, better=better) for n in sizes]  # type: ignore[arg-type]


def _curves(runs: Runs, sizes: Sequence[int], label: str, look: Mapping[str, Style]) -> Figures:
    figures = []
    for size in sizes:
        own = {name: by_size(records).get(size, []) for name, records in runs.items()}
        every = series(own)
        for what, key, short in (
            ("Accuracy on test instances", "test_accuracy", "accuracy"),
            ("Log-likelihood, held-out bags", "held_out_log_likelihood", "held-out"),
        ):
            name, title = f"{label}-bags-of-{size}-{short}", f"{what}, n = {size}"
            percent = key == "test_accuracy"
            figures.append(epoch_curves(every, look, name, title, key, percent=percent))
    return Figures(present(figures))
