"""The sections of a page with figures and tables, one function per experiment."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from llpkit._text import several
from llpkit.experiments.protocol import WARM_UP
from llpkit.experiments.records import Record
from llpkit.experiments.results import Results
from llpkit.experiments.search import Search, searches
from llpkit.experiments.summary import (
    FEWEST,
    LEVEL,
    Runs,
    accuracies,
    bounds,
    by_size,
    difference,
    epoch_times,
    final_mean,
    reference,
    size_accuracies,
    slopes,
)
from llpkit.report import (
    Block,
    Cell,
    Column,
    Details,
    Figures,
    PageTable,
    Section,
    Spread,
    Style,
    Wall,
    decimals,
    epoch_curves,
    present,
    size_curves,
)
from llpkit.report.curves import History

Look = Mapping[str, Style]


def sections(results: Results, wall: Wall | None, label: str, look: Look) -> Iterator[Block]:
    """What was measured; the names of figures start with ``label``."""
    if runs := results.by_method("convergence"):
        yield Section("Accuracy", [_accuracy_table(runs)])
        yield _curves(runs, label, look)
    if wall is not None:
        yield Section("Example bags", [wall])
    if runs := results.by_method("bag-size"):
        yield _sizes(runs, label, look)
    if runs := results.by_method("epoch-time"):
        yield _times(runs, results.records["epoch-time"][0].machine)
    if found := searches(results) if results.protocol.grid else []:
        yield _grid(results, found)


# Accuracy


def _accuracy_table(runs: Runs) -> PageTable:
    first = reference(runs)
    columns = [
        Column("Accuracy", "%, last epoch", ".1f", "higher"),
        Column(f"Lead of {first}", _with_interval("points", runs), "+.1f"),
        Column("Log-likelihood", "exact, mean of test bags", ".3f", "higher"),
    ]
    rows: list[tuple[str, list[Cell]]] = [
        (
            name,
            [
                accuracy,
                None if first in (None, name) else difference(runs[first], runs[name]),
                final_mean(runs[name], "log_likelihood"),
            ],
        )
        for name, accuracy in accuracies(runs).items()
    ]
    about = "One fold, so the spread is not known."
    if most_folds(runs) > 1:
        about = f"Mean ± one standard deviation over {_folds(runs.values())}."
    constant = final_mean(runs[first or next(iter(runs))], "baseline_log_likelihood")
    if constant is not None:
        about += (
            f" The log-likelihood would be {Spread(constant):.3f} if every instance had the same "
            "probability."
        )
    if len(runs) - len(bounds(runs)) > 1:
        about += " Bold: the best of the methods that learn from counts."
    return PageTable(columns, rows, about, apart=bounds(runs))


def _curves(runs: Runs, label: str, look: Look) -> Section:
    histories = _histories(runs)
    figures = [
        epoch_curves(histories, look, f"{label}-{name}", title, key, percent=name == "accuracy")
        for name, title, key in (
            ("accuracy", "Accuracy on test instances", "test_accuracy"),
            ("log-likelihood", "Log-likelihood, mean of test bags", "test_log_likelihood"),
        )
    ]
    text = "The vertical axis is fitted to where the curves settle."
    if most_folds(runs) > 1:
        text = f"Means over {_folds(runs.values())}; bands are one standard deviation. {text}"
    return Section("Learning curves", [Figures(present(figures))], text)


# Accuracy against bag size


def _sizes(runs: Runs, label: str, look: Look) -> Section:
    found, slope = size_accuracies(runs), slopes(runs)
    sizes = sorted({size for own in found.values() for size in own})
    columns = [Column(f"n = {n}", "", ".1f", "higher") for n in sizes]
    columns.append(Column("Slope", _with_interval("points per doubling", runs), "+.1f"))
    rows: list[tuple[str, list[Cell]]] = [
        (name, [*map(own.get, sizes), slope.get(name)]) for name, own in found.items()
    ]
    curves = []
    for size in sizes:
        histories = _histories({name: by_size(its).get(size, []) for name, its in runs.items()})
        name, title = f"{label}-bags-of-{size}", f"Accuracy on test instances, n = {size}"
        curves.append(epoch_curves(histories, look, name, title, "test_accuracy", percent=True))
    figure = size_curves(found, look, f"{label}-bag-size", "Accuracy on test instances")
    text = "Accuracy in percent at the last epoch, for bags of n instances."
    if most_folds(runs) > 1:
        groups = [its for records in runs.values() for its in by_size(records).values()]
        text += f" Mean ± one standard deviation over {_folds(groups)}."
    if slope:
        text += (
            " The slope is that of a line through all runs against the logarithm of the size: "
            "different sizes have different bags."
        )
    return Section(
        "Accuracy against bag size",
        [
            Figures(present([figure])),
            PageTable(columns, rows, apart=bounds(runs)),
            Details("Learning curves at every size", [Figures(present(curves))]),
        ],
        text,
    )


# Epoch time


def _times(runs: Runs, machine: str) -> Section:
    times = epoch_times(runs)
    digits = 1 + decimals(time.seconds.mean for time in times.values())
    columns = [
        Column("Seconds per epoch", "± one standard deviation over epochs", f".{digits}f"),
        Column("Ratio", f"to {next(iter(bounds(runs)), '')} in the same turn", ".2f"),
        Column("Turns", spec="d"),
    ]
    rows: list[tuple[str, list[Cell]]] = [
        (name, [time.seconds, time.ratio, time.turns]) for name, time in times.items()
    ]
    return Section(
        "Epoch time",
        [PageTable(columns, rows)],
        f"Methods take turns, each alone on the machine ({machine}). The first {WARM_UP} epochs "
        "of each turn are left out.",
    )


# Choice of hyper-parameters


def _grid(results: Results, found: Sequence[Search]) -> Section:
    grid = results.protocol.grid
    assert grid is not None
    columns = [
        Column("Chosen"),
        Column("Score", spec=".3f"),
        Column("Candidates", spec="d"),
        Column("Diverged", "runs", "d"),
        Column("Runs", spec="d"),
        Column("Seconds", spec=".0f"),
    ]
    rows: list[tuple[str, list[Cell]]] = []
    for search in found:
        scores = [c.score for c in search.candidates if c.score is not None]
        diverged = sum(candidate.diverged for candidate in search.candidates)
        numbers = [len(search.candidates), diverged, search.number, search.seconds]
        rows.append((search.method, [_choice(search), max(scores, default=None), *numbers]))
    return Section(
        "Choice of hyper-parameters",
        [PageTable(columns, rows)],
        f"The score is the mean log-likelihood of held-out bags ({grid.held_out:.0%} of the "
        f"training bags) after {grid.epochs} epochs over {grid.folds} folds; no label is used. "
        "(end): the best value is the last one tried on its axis.",
    )


def _choice(search: Search) -> str:
    if search.choice is None:
        return "not finished"
    return ", ".join(
        f"{'learning rate' if axis == 'lr' else axis.replace('_', ' ')} {_written(value)}"
        + (" (end)" if axis in search.edges else "")
        for axis, value in search.choice.items()
    )


def _written(value: Any) -> str:
    """Numbers and names as they are; none, true and false as words."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else f"{value:g}"


# Words


def most_folds(runs: Runs) -> int:
    """The most folds of a method: one has no spread, and less than three no interval."""
    return max((len({record.fold for record in records}) for records in runs.values()), default=0)


def _folds(groups: Collection[Sequence[Record]]) -> str:
    """The number of folds, or of seeds that redraw bags, in some groups of records."""
    numbers = sorted({len(group) for group in groups})
    few = f"{numbers[0]} to " if len(numbers) > 1 else ""
    redrawn = all(record.data and record.data.redrawn for group in groups for record in group)
    return few + several(numbers[-1], "seed" if redrawn else "fold")


def _with_interval(text: str, runs: Runs) -> str:
    """The meaning of a column that has intervals, if there are enough folds."""
    return f"{text}, {LEVEL:.0%} interval" if most_folds(runs) >= FEWEST else text


def _histories(runs: Runs) -> dict[str, list[History]]:
    """The runs as figures take them."""
    return {name: [_rows(record) for record in records] for name, records in runs.items()}


def _rows(record: Record) -> History:
    columns = record.history
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
