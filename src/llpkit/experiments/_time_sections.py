"""What the page shows of time: seconds an epoch, and time to accuracy."""

from collections.abc import Mapping, Sequence

from llpkit.experiments import _summary as summary
from llpkit.experiments import _times as times
from llpkit.experiments._groups import Group
from llpkit.experiments._names import present, renamed
from llpkit.experiments._plan import WARM_UP
from llpkit.experiments._summary import BOUND, LEVEL, PAPERS, REFERENCE
from llpkit.experiments._tables import Tables, cell, commands_of, or_dash, ratio
from llpkit.experiments._times import BELOW, Reach
from llpkit.report._data import Series, decimals
from llpkit.report._figures import epoch_times, time_curves
from llpkit.report._results import Column, Section, Table

_PAPERS_TIME = (
    f" The paper's {REFERENCE} makes a pass over the training data after every epoch, which is "
    f"{PAPERS} here; its time stands beside both."
)
_HALF = " The paper's times are of photos of 72 × 90 pixels."


def epoch_time(group: Group, apart: str, prefix: str, tables: Tables) -> Section:
    """The time of an epoch, ours beside the paper's."""
    found = times.epoch_times(group)
    rows = []
    digits = 1 + decimals([row.epoch_seconds for row in found])
    paper = any(row.paper is not None for row in found)
    for row in found:
        tables.add("epoch-time", group, **vars(row))
        sd = "" if row.epoch_seconds_sd is None else f" ± {row.epoch_seconds_sd:.{digits}f}"
        around = None
        if row.epoch_ratio is not None:
            around = summary.Spread(row.epoch_ratio, row.epoch_ratio_sd, row.turns)
        cells = [f"{row.epoch_seconds:.{digits}f}{sd}", cell(around, ".2f")]
        if paper:
            cells += [or_dash(row.paper, ".2f"), or_dash(row.paper_ratio, ".2f")]
        rows.append((row.method, [*cells, str(row.epochs), str(row.turns)]))
    columns = [
        Column("Seconds an epoch", "± 1σ over epochs"),
        Column("Ratio", f"to {BOUND} in the same turn, ± 1σ over turns"),
    ]
    if paper:
        columns += [Column("Paper", "seconds, its own card"), Column("Paper's ratio")]
    columns += [Column("Epochs", "timed"), Column("Turns")]
    half = paper and group.setting["size"] == "half"
    return Section(
        f"Epoch time, {apart}" if apart else "Epoch time",
        f"Each method alone on the machine, the methods taking turns, the first {WARM_UP} epochs "
        f"of each turn left out. Setting: {group.told}."
        + (_PAPERS_TIME if paper else "")
        + (_HALF if half else ""),
        present([renamed(epoch_times(found, tables.look), prefix)]),
        [Table(columns, rows)] if rows else [],
        commands=commands_of(group.records),
    )


def time_to_accuracy(
    group: Group,
    prefix: str,
    timed: Sequence[Group],
    references: Sequence[str],
    tables: Tables,
) -> Section:
    """How long each method takes to nearly its own last accuracy, and the references to that."""
    seconds = times.alone(group, timed)
    shown = [_table(group, seconds, reference, tables) for reference in references]
    shown = [table for table in shown if len(table.rows) > 1]
    clocked = [
        Series(name, s.seed_or_fold, [{**row, "seconds": seconds[name]} for row in s.history])
        for name, records in group.runs.items()
        for s in summary.series(name, records)
        if name in seconds
    ]
    plot = time_curves(clocked, tables.look) if shown or len(seconds) > 1 else None
    return Section(
        "Time to accuracy",
        f"By the mean curves: the first epoch at which each method is {100 * BELOW:.0f} point "
        "below its own last accuracy, and two ratios of that. To the rival's accuracy: over the "
        "epochs after which the reference is where the rival ends, so that a reference with a "
        "better end gains by it. Each to its own: over the epochs of the reference to one point "
        "below its own last accuracy, whatever the two accuracies are. The rate of learning falls "
        "over the last half of every run, and all epochs to an own accuracy may lie in that tail: "
        "they then tell of the schedule more than of the method. Intervals are bootstrapped over "
        "folds. A mean of redrawn folds is noisier than that of all, and a noisy curve is first "
        "above a target earlier: the intervals lean towards few epochs. The median over folds "
        "takes each fold's curve by itself and leans so too. A ratio of 0 at the end of an "
        f"interval is a draw in which the reference never gets there. {_on_seconds(group, timed)}",
        present([renamed(plot, f"{prefix}-accuracy-time")]),
        shown,
    )


def _on_seconds(group: Group, timed: Sequence[Group]) -> str:
    """What the seconds are, and why some are missing."""
    missing: dict[str, list[str]] = {}
    for name, reason in times.untimed(group, timed).items():
        missing.setdefault(reason, []).append(name)
    told = "; ".join(f"{', '.join(its)}: {reason}" for reason, its in missing.items())
    known = "Seconds are epochs times the time of an epoch measured alone."
    if not told:
        return known
    some = len(group.runs) > sum(map(len, missing.values()))
    return f"{f'{known} There are none for ' if some else 'There are no seconds for '}{told}."


def _table(group: Group, seconds: Mapping[str, float], reference: str, tables: Tables) -> Table:
    rows = []
    for row in times.reaches(group, seconds, reference):
        tables.add("time-to-accuracy", group, reference=reference, **vars(row))
        cells = [f"{100 * row.target:.1f} %"]
        cells += [_spanned(row.epochs, row.epochs_low, row.epochs_high, "d")]
        cells += [f"{row.median_epochs:g}", *_against(row, bool(seconds))]
        rows.append((row.method, cells))
    columns = [
        Column("Target", "one point below its own last accuracy"),
        Column("Epochs", f"it takes, {LEVEL:.0%} interval"),
        Column("Of a fold", "median of its epochs to its own target"),
        Column(f"{reference}", "epochs to the same"),
        Column("Ratio, to the rival's accuracy", f"of epochs, {LEVEL:.0%} interval"),
        Column("Ratio, each to its own", f"of epochs, {LEVEL:.0%} interval"),
    ]
    if seconds:
        columns += [
            Column("Seconds", "it takes"),
            Column(f"{reference}", "seconds to the same"),
            Column("Ratio of seconds", "to the rival's accuracy"),
        ]
    return Table(columns, rows, f"Each against {reference}.")


def _against(row: Reach, seconds: bool) -> list[str]:
    """The cells about the reference: empty for itself and the bound, and where a time is unknown.

    A method always reaches its own target; the reference may never reach it.
    """
    spent = "" if row.seconds is None else f"{row.seconds:.1f}"
    if not row.compared:
        return ["", "", "", *([spent, "", ""] if seconds else [])]
    own = _spanned(row.own_ratio, row.own_ratio_low, row.own_ratio_high, ".2f")
    if row.reference_epochs is None:
        return ["never", "", own, *([spent, "never", ""] if seconds else [])]
    same = _spanned(row.ratio, row.ratio_low, row.ratio_high, ".2f")
    cells = [str(row.reference_epochs), same, own]
    if seconds:
        known = row.reference_seconds is not None
        cells += [spent, f"{row.reference_seconds:.1f}" if known else ""]
        cells += [ratio(row.seconds, row.reference_seconds)]
    return cells


def _spanned(value: float | None, low: float | None, high: float | None, spec: str) -> str:
    if value is None:
        return "never"
    if low is None:
        return f"{value:{spec}}"
    return f"{value:{spec}} ({low:{spec}} to {'never' if high is None else f'{high:{spec}}'})"
