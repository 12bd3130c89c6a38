"""The part of a page on time: seconds per epoch, and time to accuracy."""

from collections.abc import Mapping

from llpkit.experiments.protocol import WARM_UP
from llpkit.experiments.results import Results
from llpkit.experiments.statistics import (
    BOUND,
    FEWEST,
    Runs,
    histories,
    most_folds,
    references,
    with_interval,
)
from llpkit.experiments.times import BELOW, epoch_times, times_to_accuracy
from llpkit.report import (
    Block,
    Cell,
    Column,
    Details,
    Figures,
    PageTable,
    Section,
    Style,
    decimals,
    present,
    time_curves,
)
from llpkit.report import epoch_times as epoch_time_bars


def epoch_time_section(results: Results, label: str, look: Mapping[str, Style]) -> list[Block]:
    """Seconds per epoch of the timed runs."""
    rows = epoch_times(results.by_method("epoch-time"))
    if not rows:
        return []
    machine = results.records["epoch-time"][0].machine  # the same in all
    digits = 1 + decimals(row.seconds.mean for row in rows)
    seconds = {row.method: row.seconds for row in rows}
    ratios = {row.method: row.ratio.mean for row in rows if row.ratio is not None}
    columns = [
        Column("seconds", "Seconds per epoch", "± one SD over epochs", f".{digits}f"),
        Column("ratio", "Ratio", f"to {BOUND} in the same turn", ".2f"),
        Column("turns", "Turns", spec="d"),
    ]
    cells: list[tuple[str, list[Cell]]] = [
        (row.method, [row.seconds, row.ratio, row.turns]) for row in rows
    ]
    return [
        Section(
            "Epoch time",
            [
                Figures(present([epoch_time_bars(seconds, ratios, look, f"{label}-epoch-time")])),
                Details(
                    "The same as a table",
                    [PageTable(columns, cells, name="epoch-time", apart=[BOUND])],
                ),
            ],
            f"Methods take turns, each alone on the machine ({machine}). The first "
            f"{WARM_UP} epochs of each turn are left out.",
        )
    ]


def time_to_accuracy_section(
    results: Results, label: str, look: Mapping[str, Style]
) -> list[Block]:
    """The time each method takes to nearly its own last accuracy, and the reference to the same."""
    runs = results.by_method("convergence")
    timed = epoch_times(results.by_method("epoch-time"))
    seconds = {row.method: row.seconds.mean for row in timed if row.method in runs}
    tables = [_table(runs, seconds, reference) for reference in references(runs)]
    if not tables or len(runs) < 2:
        return []
    more = ""
    if any(r.recipe["schedule"] == "tail" for records in runs.values() for r in records):
        more += (
            " Learning rates fall over the second half of a run; numbers of epochs in that tail "
            "reflect the schedule more than the method."
        )
    if most_folds(runs) >= FEWEST:
        more += " Intervals are bootstrapped over folds and lean towards few epochs."
    figure = time_curves(histories(runs), seconds, look, f"{label}-accuracy-time")
    return [
        Section(
            "Time to accuracy",
            [*([Figures([figure])] if figure else []), Details("Tables", tables)],
            f"How many epochs the mean curve of a method needs to come within "
            f"{100 * BELOW:.0f} point of its own last accuracy. The ratios divide these epochs by "
            "those that the reference needs to reach the same accuracy, or to come within one "
            f"point of its own.{more}"
            + (" Seconds are epochs times the time per epoch, measured alone." if seconds else ""),
        )
    ]


def _table(runs: Runs, seconds: Mapping[str, float], reference: str) -> PageTable:
    level = with_interval("of epochs", runs)
    columns = [
        Column("target_percent", "Target", "%, one point below its last accuracy", ".1f"),
        Column("epochs", "Epochs", with_interval("to its target", runs), "d"),
        Column("reference_epochs", f"Epochs of {reference}", "to the same target", "d"),
        Column("ratio", "Ratio, same accuracy", level, ".2f"),
        Column("own_ratio", "Ratio, each to its own", level, ".2f"),
    ]
    if seconds:
        columns += [
            Column("seconds", "Seconds", "to its target", ".1f"),
            Column("reference_seconds", f"Seconds of {reference}", "to the same", ".1f"),
        ]
    rows: list[tuple[str, list[Cell]]] = []
    for row in times_to_accuracy(runs, reference):
        compared = row.method not in (reference, BOUND)
        never = compared and row.reference_epochs is None
        cells: list[Cell] = [
            100 * row.target,
            row.epochs,
            "never" if never else row.reference_epochs,
            row.ratio,
            row.own_ratio,
            _product(row.epochs.mean, seconds.get(row.method)),
            _product(row.reference_epochs, seconds.get(reference)),
        ]
        rows.append((row.method, cells[: len(columns)]))
    return PageTable(
        columns, rows, f"Each against {reference}.", name=f"time-to-accuracy-{reference}"
    )


def _product(epochs: float | None, seconds: float | None) -> float | None:
    return None if epochs is None or seconds is None else epochs * seconds
