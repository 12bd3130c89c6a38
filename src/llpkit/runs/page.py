"""The page of a run: what was trained, the result and the verdict, and where the model fails."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from llpkit import evaluation
from llpkit.auto import PICKED
from llpkit.bags import Bags
from llpkit.config import Config, Values
from llpkit.datasets import DataSet
from llpkit.files import write_text
from llpkit.likelihood.budget import best_posterior
from llpkit.methods import METHODS
from llpkit.probability import probability_of
from llpkit.report import (
    Block,
    Cell,
    Column,
    Example,
    Facts,
    Figures,
    Interval,
    Notes,
    Page,
    PageTable,
    Paragraph,
    Section,
    Spread,
    Style,
    Wall,
    decimals,
    present,
    reliability,
    run_curves,
    styles,
    write_page,
)
from llpkit.runs.assessment import Assessment
from llpkit.runs.data import take
from llpkit.runs.estimator import FOLDS, SEARCH, FittedEstimator
from llpkit.runs.folder import FIGURES, REPORT
from llpkit.runs.importances import importances
from llpkit.runs.inference import is_likelihood_model, summarise
from llpkit.runs.measures import Measured, how_measured
from llpkit.runs.page_checks import (
    described_bags,
    fit_section,
    importance_section,
    tables,
    worst_section,
)
from llpkit.statistics.summary import LOG_SD
from llpkit.training import Fitted

_WALL = 12  # most bags on the wall, and most instances in each
_LISTED = 100  # most coefficients
_RULE = (
    f"The candidate with the highest mean log-likelihood of held-out training bags, in {FOLDS} "
    "folds of whole bags, was fitted to all training bags. ± is the standard error over the folds; "
    "the last column compares a candidate with the best one fold by fold."
)


@dataclass(frozen=True)
class TrainedRun:
    """Everything that a page shows."""

    config: Config
    data: DataSet
    parts: Mapping[str, Bags]
    model: Fitted
    measured: Mapping[str, Measured]
    assessed: Assessment
    record: Values

    @property
    def name(self) -> str:
        """The method or the estimator."""
        return str(self.model.details.get("estimator") or self.config.recipe.method)

    @property
    def values(self) -> dict[str, Any]:
        """The metrics of the bags that assess the model, by name."""
        values = self.measured[self.assessed.part].values
        return {**values["bags"], **values.get("instances", {})}


def write_report(work: Path, run: TrainedRun) -> None:
    """Write the page of a run, its figures and its tables into its folder."""
    page, texts = run_page(run)
    for name, text in texts.items():
        write_text(work / name, text)
    write_page(page, work / REPORT, figures_dir=work / FIGURES)


def run_page(run: TrainedRun) -> tuple[Page, dict[str, str]]:
    """The page, and the CSV tables of importances and worst bags by file name."""
    config, data, model, name = run.config, run.data, run.model, run.name
    assessed, look = run.assessed, styles([run.name])
    style = look[name]
    ranking = []
    if isinstance(data.inputs, Tensor) and data.inputs.dim() == 2:
        ranking = importances(model, data.inputs, assessed.bags, data.encoder, config.recipe.seed)
    # An estimator has no epochs, and its rows are best seen where it fails.
    is_network = not isinstance(model, FittedEstimator)
    wall = _wall(run, [one.column for one in ranking]) if is_network else None
    blocks: list[Block] = [
        *([] if wall is None else [Example(wall)]),
        _facts(run),
        _result(run),
        *([] if wall is None else [_curves(run, style)]),
        *_calibration(run, style),
        *_search(model),
        fit_section(style, assessed),
        *_coefficients(run),
        *([importance_section(ranking, style, assessed.part)] if ranking else []),
        worst_section(name, model, data, assessed, ranking),
        *([] if wall is None else [Section("Example bags", [wall])]),
        *_closing(run),
    ]
    source = config.data.dataset or Path(config.data.table or "").name
    lead = [f"{_sentence(METHODS[name].summary)}."] if is_network else []
    page = Page(f"{name} on {source}", lead, blocks, look)
    return page, tables(ranking, assessed, data.class_names)


def _facts(run: TrainedRun) -> Block:
    """The data, the bags of every part, what was trained, and why it was picked."""
    model = run.model
    pairs: dict[str, object] = {"data": run.data.title}
    for name, bags in run.parts.items():
        pairs[f"{name} bags"] = f"{len(bags):,} with {bags.num_instances:,} instances"
    if isinstance(model, FittedEstimator):
        pairs["estimator"] = repr(model.estimator)
    else:
        pairs |= {"network": model.network_name, "epochs": len(model.history)}
    if PICKED in model.details:
        pairs["picked"] = model.details[PICKED]
    return Facts(pairs)


def _result(run: TrainedRun) -> Section:
    """The verdict, and the table of metrics."""
    part, name = run.assessed.part, run.name
    values = run.values
    seconds = [row["seconds"] for row in run.model.history if "seconds" in row]
    # The first epoch also warms up.
    values["epoch_seconds"] = median(seconds[1:] or seconds) if seconds else None
    distance = "mean distance between predicted and"
    digits = decimals([values["epoch_seconds"] or 0.0])
    columns = {
        "accuracy": Column("Accuracy", f"of {part} instances", ".1%"),
        "epoch_seconds": Column("Epoch", "seconds", f".{digits}f"),
        "log_likelihood": Column(
            "Bag log-likelihood",
            f"{how_measured(run.assessed.bags)}, mean of {part} bags; higher is better",
            ".2f",
        ),
        "baseline_log_likelihood": Column(
            "Constant rate",
            f"log-likelihood of the same {part} bags if every instance had the same probability",
            ".2f",
        ),
        "proportion_error": Column(
            "Proportion error", f"{distance} known proportions, {part} bags", ".3f"
        ),
        "calibration_error": Column("Calibration error", f"{distance} observed frequencies", ".3f"),
    }
    row = (name, [values.get(key) for key in columns])
    table = PageTable(list(columns.values()), [row], of="Model")
    selected = ""
    if run.config.recipe.held_out is not None and run.model.selected_epoch is not None:
        epoch = run.model.selected_epoch
        selected = f" The weights are from epoch {epoch}, the best on held-out bags."
    verdict = Paragraph(f"{_sentence(run.assessed.verdict.text)}.{selected}")
    return Section("The result", [verdict, table])


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _curves(run: TrainedRun, style: Style) -> Section:
    selected = None if run.config.recipe.held_out is None else run.model.selected_epoch
    figures = present(run_curves(run.name, run.model.history, style, selected))
    text = "The vertical axis is fitted to where the curves settle."
    return Section("Learning curves", [Figures(figures)], text)


def _calibration(run: TrainedRun, style: Style) -> list[Section]:
    """The reliability curve of instances whose labels are known."""
    data, rows = run.data, run.assessed.bags.rows
    if data.truth is None:
        return []
    p = probability_of(run.model.logits(take(data.inputs, rows)))
    curve = evaluation.calibration(p, data.truth[rows])
    return [
        Section(
            "Calibration",
            [
                Figures(
                    present([reliability("instances", curve, style, "calibration")]), narrow=True
                )
            ],
            "Of the instances given a probability near 0.8, about 80% should be positive, as "
            "on the dashed line. The bars show how many instances got each probability.",
        )
    ]


def _search(model: Fitted) -> list[Section]:
    """The candidates of a search, if there was one."""
    if SEARCH not in model.details:
        return []
    tried = model.details[SEARCH]["tried"]
    names = list(tried[0]["settings"])
    columns = [
        *(Column(name) for name in names),
        Column("Log-likelihood", "mean per held-out bag ± standard error", ".4f"),
        Column("Behind the best", "± standard error of the difference", ".4f"),
    ]
    rows: list[tuple[str, list[Cell]]] = []
    for rank, one in enumerate(tried, 1):
        cells: list[Cell] = [str(one["settings"][name]) for name in names]
        for key, error in (("mean", "standard_error"), ("behind", "behind_error")):
            known = one[key] is not None and (rank > 1 or key == "mean")
            cells.append(Spread(one[key], one[error]) if known else None)
        rows.append((str(rank), cells))
    return [Section("Search", [PageTable(columns, rows, of="Place")], _RULE)]


def _coefficients(run: TrainedRun) -> list[Section]:
    """The coefficients of a logistic regression, with standard errors."""
    model, inputs = run.model, run.data.inputs
    if not isinstance(model, FittedEstimator) or not is_likelihood_model(model):
        return []
    assert isinstance(inputs, Tensor)
    found = summarise(model, inputs, run.parts["training"], run.data.encoder)
    columns = [
        Column("Coefficient", "logits per unit, with 95% interval", ".3g"),
        Column("Standard error", "", ".2g"),
        Column("p", "of the hypothesis of no effect", ".3f"),
        Column("Odds ratio", "factor on the odds, per unit", ".3g"),
    ]
    rows: list[tuple[str, list[Cell]]] = []
    for row in found.records():
        name, se = row["name"], row["standard_error"]
        if name == LOG_SD:
            ends = [math.exp(row[key]) for key in ("estimate", "low", "high")]
            rows.append(("deviation of bags", [Interval(*ends), ends[0] * se, None, None]))
        elif not math.isfinite(se):
            rows.append((name, [Interval(row["estimate"]), None, None, None]))
        else:
            known = Interval(row["estimate"], row["low"], row["high"])
            p = "< 0.001" if row["p_value"] < 0.001 else row["p_value"]
            rows.append((name, [known, se, p, row["odds_ratio"]]))
    table = PageTable(columns, rows[:_LISTED], of="Term")
    return [Section("Coefficients", [table, *([Notes(found.notes)] if found.notes else [])])]


def _wall(run: TrainedRun, columns: Sequence[str]) -> Wall:
    """The first training bags that are not too large; captions begin with these columns."""
    data, bags, model = run.data, run.parts["training"], run.model
    small = torch.where((bags.sizes >= 1) & (bags.sizes <= _WALL))[0][:_WALL]
    shown = bags[small] if len(small) else bags[:1]
    logits = model.logits(take(data.inputs, shown.rows))
    posterior = best_posterior(logits, shown.evidence, shown.offsets, validate=True)
    sizes = shown.sizes.tolist()
    return Wall(
        described_bags(shown, data, columns),
        data.class_names,
        {run.name: probability_of(logits).split(sizes)},
        {run.name: posterior.split(sizes)},
        "The first bags the model was trained on.",
        bounds=[run.name] if METHODS[run.name].needs_labels else [],
    )


def _closing(run: TrainedRun) -> list[Block]:
    """Notes, versions and hardware."""
    notes = (*run.data.notes, *run.model.details.get("warnings", ()))
    made = Section("How it was made", [Facts(_flat(run.record))])
    return [*([Section("Notes", [Notes(notes)])] if notes else []), made]


def _flat(record: Values) -> dict[str, object]:
    """A record without nesting."""
    flat: dict[str, object] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat |= {f"data {k}" if key == "data" else k: v for k, v in value.items()}
        elif value != "":
            flat[key] = value
    return flat
