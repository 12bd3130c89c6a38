"""The part of a page on the experiment ``convergence``: accuracies, curves, differences."""

from collections.abc import Mapping, Sequence

from llpkit.experiments.page_times import time_to_accuracy_section
from llpkit.experiments.results import Results
from llpkit.experiments.statistics import (
    BOUND,
    FEWEST,
    Runs,
    folds_in_words,
    histories,
    most_folds,
    references,
    with_interval,
)
from llpkit.experiments.summary import (
    Accuracy,
    accuracies,
    calibration,
    differences,
)
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
    intervals,
    present,
    reliability,
)

_PANELS = (
    ("accuracy", "Accuracy on test instances", "test_accuracy"),
    ("log-likelihood", "Log-likelihood, mean of test bags", "test_log_likelihood"),
    ("proportion-error", "Proportion error, test bags", "test_proportion_error"),
    ("log-likelihood-training", "Log-likelihood in the training pass", "log_likelihood"),
)


def accuracy_sections(results: Results, label: str, look: Mapping[str, Style]) -> list[Block]:
    """Accuracies, learning curves, paired differences, time to accuracy, calibration."""
    runs = results.by_method("convergence")
    if not runs:
        return []
    rows = accuracies(runs)
    return [
        Section(
            "Accuracy",
            [
                _accuracy_table(rows, runs),
                Details(
                    "More measures, and the settings of each method",
                    [_spread_table(rows), _measure_table(rows), _settings_table(rows)],
                ),
            ],
        ),
        _curves(runs, label, look),
        *_differences(runs, label, look),
        *time_to_accuracy_section(results, label, look),
        _calibration(runs, label, look),
    ]


def _accuracy_table(rows: Sequence[Accuracy], runs: Runs) -> PageTable:
    reference = next(iter(references(runs)), "")
    leads = {row.rival: row.last for row in differences(runs, reference)}
    columns = [
        Column("accuracy_percent", "Accuracy", "%, last epoch", ".1f", better="higher"),
        Column("difference", f"lead of {reference}", with_interval("points", runs), "+.1f"),
    ]
    about = f"Mean ± one standard deviation over {folds_in_words(list(runs.values()))}."
    if most_folds(runs) == 1:
        about = "One fold, so the spread is not known."
    if len([name for name in runs if name != BOUND]) > 1:
        about += " Bold: the best of the methods that learn from counts."
    cells: list[tuple[str, list[Cell]]] = [
        (row.method, [row.accuracy, leads.get(row.method)]) for row in rows
    ]
    return table(columns, cells, about, "accuracy")


def _spread_table(rows: Sequence[Accuracy]) -> PageTable:
    columns = [
        Column("folds", "Folds", spec="d"),
        Column("selected_percent", "Selected", "%, epoch chosen by held-out bags", ".1f"),
        Column("gap", "Gap", f"points from {BOUND}, same folds", "+.1f"),
        Column("sampling_sd", "Sampling SD", "points, from sampling the test instances", ".1f"),
        Column("band", "Band", "SD over folds, mean of all epochs", ".1f"),
    ]
    cells: list[tuple[str, list[Cell]]] = [
        (row.method, [row.accuracy.number, row.selected, row.gap, row.sampling_sd, row.band])
        for row in rows
    ]
    about = "Spread."
    if any(row.accuracy.number > 1 for row in rows):
        about += " A standard deviation close to the sampling SD is not due to the method."
    return table(columns, cells, about, "spread")


def _measure_table(rows: Sequence[Accuracy]) -> PageTable:
    columns = [
        Column("log_likelihood", "Log-likelihood", "exact, mean of test bags", ".3f", "", "higher"),
        Column("baseline", "Constant rate", "log-likelihood if all instances had one rate", ".3f"),
        Column("proportion_error", "Proportion error", "test bags", ".3f", "", "lower"),
        Column("log_loss", "Log loss", "test instances", ".3f", "", "lower"),
        Column("brier", "Brier score", "test instances", ".3f", "", "lower"),
        Column("calibration_error", "Calibration error", "test instances", ".3f", "", "lower"),
    ]
    cells: list[tuple[str, list[Cell]]] = [
        (row.method, [*row.measures.values(), row.calibration_error]) for row in rows
    ]
    return table(columns, cells, "Bags and probabilities at the last epoch.", "measures")


def _settings_table(rows: Sequence[Accuracy]) -> PageTable:
    """The settings of every method."""
    columns = [
        Column("epochs", "Epochs", spec="d"),
        Column("lr", "Learning rate", spec="g"),
        Column("weight_decay", "Weight decay", spec="g"),
        Column("options", "Options"),
        Column("network", "Network"),
    ]
    cells: list[tuple[str, list[Cell]]] = []
    for row in rows:
        own = row.recipe
        options = ", ".join(f"{k} {v}" for k, v in (own["method_options"] or {}).items())
        numbers = [own["epochs"], own["lr"], own["weight_decay"]]
        cells.append((row.method, [*numbers, options or None, own["network"]]))
    return table(columns, cells, "Settings.", "settings")


def table(
    columns: Sequence[Column],
    rows: Sequence[tuple[str, Sequence[Cell]]],
    about: str,
    name: str,
) -> PageTable:
    """A table of methods, without columns that are empty for all of them."""
    used = [i for i in range(len(columns)) if any(cells[i] is not None for _, cells in rows)]
    kept = [(head, [cells[i] for i in used]) for head, cells in rows]
    return PageTable([columns[i] for i in used], kept, about, name=name, apart=[BOUND])


def _curves(runs: Runs, label: str, look: Mapping[str, Style]) -> Section:
    every = histories(runs)
    figures = [
        epoch_curves(every, look, f"{label}-{name}", title, key, percent=name == "accuracy")
        for name, title, key in _PANELS
    ]
    text = "The vertical axis is fitted to where the curves settle."
    if most_folds(runs) > 1:
        means = f"Means over {folds_in_words(list(runs.values()))}"
        text = f"{means}; bands are one standard deviation on either side. {text}"
    if figures[-1] is not None:
        text += " The training pass has dropout and augmentation, if the settings do."
    return Section("Learning curves", [Figures(present(figures))], text)


def _differences(runs: Runs, label: str, look: Mapping[str, Style]) -> list[Block]:
    blocks: list[Block] = []
    figures = []
    for reference in references(runs):
        rows = differences(runs, reference)
        figures.append(
            intervals(
                [(row.rival, row.last) for row in rows],
                look,
                f"{label}-differences-{reference}",
                f"lead of {reference}, points",
            )
        )
        columns = [
            Column("folds", "Folds", spec="d"),
            Column("difference", "Difference", with_interval("last epoch, points", runs), "+.1f"),
            Column("along", "During training", with_interval("mean of all epochs", runs), "+.1f"),
            Column("ahead", "Ahead", "epochs, by the mean over folds"),
            Column("equal_spread", "p", "of equal SD", ".2f"),
        ]
        cells: list[tuple[str, list[Cell]]] = [
            (
                row.rival,
                [
                    row.folds,
                    row.last,
                    row.along,
                    None if row.ahead is None else f"{row.ahead} of {row.epochs}",
                    row.equal_spread,
                ],
            )
            for row in rows
        ]
        if cells:
            about = f"{reference} minus each other method."
            blocks.append(table(columns, cells, about, f"differences-{reference}"))
    if not blocks:
        return []
    return [
        Section(
            "Differences, fold by fold",
            [Figures(present(figures)), Details("The same as tables", blocks)],
            _how_compared(runs),
        )
    ]


def _how_compared(runs: Runs) -> str:
    if most_folds(runs) < FEWEST:
        return f"Intervals need at least {FEWEST} folds."
    spread = (
        "Training sets of different folds overlap; the intervals use the variance of Nadeau and "
        "Bengio, which allows for that."
    )
    if any(r.data is not None and r.data.redrawn for records in runs.values() for r in records):
        spread = "Each seed redraws the bags from the same instances."
    return (
        f"{spread} p is from the paired test of Pitman and Morgan; with few folds, the deviations "
        "of two equally variable methods may well differ by a factor of two. No p-value is "
        "corrected for multiple comparisons."
    )


def _calibration(runs: Runs, label: str, look: Mapping[str, Style]) -> Section:
    figures = []
    pooled = "The instances of all folds are pooled. " if most_folds(runs) > 1 else ""
    for name, records in runs.items():
        curve = calibration(records)
        figures.append(reliability(name, curve, look[name], f"{label}-calibration-{name}"))
    return Section(
        "Calibration",
        [Figures(present(figures), narrow=True)],
        "Of the instances given a probability near 0.8, about 80% should be positive, as on "
        f"the dashed line. {pooled}The bars show how many instances got each probability.",
    )
