"""The part of a page on time: seconds per epoch, and time to accuracy."""

from collections.abc import Mapping

from llpkit.experiments.page_cells import mean, series
from llpkit.experiments.protocol import WARM_UP
from llpkit.experiments.results import Results
from llpkit.experiments.statistics import (
    BOUND,
    FEWEST,
    Runs,
    most_folds,
    references,
    with_interval,
)
from llpkit.experiments.times import (
    BELOW,
    EpochTime,
    TimeToAccuracy,
    epoch_times,
    times_to_accuracy,
)
from llpkit.report import (
    Block,
    Cell,
    Column,
    Details,
    Figures,
    Section,
    Style,
    Table,
    decimals,
    present,
    time_curves,
)
from llpkit.report import EpochTime as Bar
from llpkit.report import epoch_times as epoch_time_bars


def epoch_time_section(results: Results, label: str, look: Mapping[str, Style]) -> list[Block]:
    """Seconds per epoch of the timed runs."""
    rows = epoch_times(results.by_method("epoch-time"))
    if not rows:
        return []
    digits = 1 + decimals(row.seconds.mean for row in rows)
    bars = [Bar(row.method, row.seconds.mean, row.seconds.sd, mean(row.ratio)) for row in rows]
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
                Figures(present([epoch_time_bars(bars, look, f"{label}-epoch-time")])),
                Details(
                    "The same as a table",
                    [Table(columns, cells, name="epoch-time", apart=[BOUND])],
                ),
            ],
            f"Each method alone on the machine ({rows[0].machine}), the methods taking turns; the "
            f"first {WARM_UP} epochs of each turn are left out.",
        )
    ]


def time_to_accuracy_section(
    results: Results, label: str, look: Mapping[str, Style]
) -> list[Block]:
    """The time each method takes to nearly its own last accuracy, and the reference to the same."""
    runs = results.by_method("convergence")
    if any("test_accuracy" not in r.history for records in runs.values() for r in records):
        return []
    timed = epoch_times(results.by_method("epoch-time"))
    tables = [_table(runs, timed, reference) for reference in references(runs)]
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
    seconds = {row.method: row.seconds.mean for row in timed if row.method in runs}
    figure = time_curves(series(runs, seconds), look, f"{label}-accuracy-time")
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


def _table(runs: Runs, timed: list[EpochTime], reference: str) -> Table:
    rows = times_to_accuracy(runs, timed, reference)
    level = with_interval("of epochs", runs)
    columns = [
        Column(
            "target_percent",
            "Target",
            "%, one point below its last accuracy",
            ".1f",
        ),
        Column("epochs", "Epochs", with_interval("to its target", runs), "d"),
        Column("median_epochs", "Median", "over folds, each to its own target", "g"),
        Column("reference_epochs", f"Epochs of {reference}", "to the same target", "d"),
        Column("ratio", "Ratio, same accuracy", level, ".2f"),
        Column("own_ratio", "Ratio, each to its own", level, ".2f"),
    ]
    if any(row.seconds is not None for row in rows):
        columns += [
            Column("seconds", "Seconds", "to its target", ".1f"),
            Column("reference_seconds", f"Seconds of {reference}", "to the same", ".1f"),
        ]
    cells = [(row.method, _cells(row, reference)[: len(columns)]) for row in rows]
    return Table(columns, cells, f"Each against {reference}.", name=f"time-to-accuracy-{reference}")


def _cells(row: TimeToAccuracy, reference: str) -> list[Cell]:
    """One row; the method itself and the upper bound are not compared."""
    compared = row.method not in (reference, BOUND)
    reached = "never" if row.reference_epochs is None else str(row.reference_epochs)
    return [
        100 * row.target,
        row.epochs,
        row.median_epochs,
        reached if compared else None,
        row.ratio,
        row.own_ratio,
        row.seconds,
        row.reference_seconds,
    ]
