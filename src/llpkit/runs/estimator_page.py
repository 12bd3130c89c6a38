"""The page of an estimator's run: its fit to the counts, importance of the columns, worst bags."""

import math
from collections.abc import Mapping

from torch import Tensor

from llpkit import evaluation
from llpkit.bags import Bags
from llpkit.config import Config, Values
from llpkit.datasets import DataSet
from llpkit.report import (
    Calibration,
    Cell,
    Column,
    Interval,
    Notes,
    Page,
    Section,
    Table,
    styles,
)
from llpkit.runs.estimator import FittedEstimator
from llpkit.runs.importances import importances
from llpkit.runs.inference import is_likelihood_model, summarise
from llpkit.runs.measures import how_measured, mean_baseline, probability_of
from llpkit.runs.page_checks import (
    fit_section,
    goodness,
    importance_section,
    part_of,
    tables,
    worst_section,
)
from llpkit.runs.page_parts import calibration, closing, facts, result, title
from llpkit.runs.search import search_section
from llpkit.statistics.summary import LOG_SD

_LISTED = 100  # most coefficients


def estimator_page(
    config: Config,
    data: DataSet,
    parts: Mapping[str, Bags],
    model: FittedEstimator,
    record: Values,
) -> tuple[Page, dict[str, str]]:
    """The page, and the CSV tables of importances and worst bags by file name."""
    assert isinstance(data.inputs, Tensor)
    name, seed = model.details["estimator"], config.recipe.seed
    look = styles([name])
    part = part_of(parts)
    bags = parts[part]
    found = goodness(model, data.inputs, bags, seed)
    worth = importances(model, data.inputs, bags, data.encoder, seed)
    curve = None
    if data.truth is not None:
        p = probability_of(model.logits(data.inputs[bags.rows]))
        curve = Calibration(name, *evaluation.calibration(p, data.truth[bags.rows]))
    page = Page(
        title=title(config, name),
        look=look,
        blocks=[
            facts(data, parts, model, estimator=repr(model.estimator)),
            _result(name, model, data, parts, None if curve is None else curve.error),
            *([] if curve is None else [calibration(curve, look[name])]),
            *search_section(model),
            fit_section(name, look[name], part, found, bags),
            *_coefficients(model, data, parts["training"]),
            importance_section(worth, look[name], part),
            worst_section(name, model, data, part, bags, found, worth),
            *closing(data, model, record),
        ],
    )
    return page, tables(worth, found, bags, data)


def _coefficients(model: FittedEstimator, data: DataSet, bags: Bags) -> list[Section]:
    """The coefficients of a logistic regression, with standard errors."""
    if not is_likelihood_model(model):
        return []
    assert isinstance(data.inputs, Tensor)
    found = summarise(model, data.inputs, bags, data.encoder)
    columns = [
        Column("coefficient", "Coefficient", "logits per unit, with 95 % interval", ".3g"),
        Column("standard_error", "Standard error", "", ".2g"),
        Column("p_value", "p", "of the hypothesis of no influence", ".3f"),
        Column("odds_ratio", "Odds ratio", "factor on the odds, per unit", ".3g"),
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
            rows.append((name, [known, se, row["p_value"], row["odds_ratio"]]))
    table = Table(columns, rows[:_LISTED], of="Term", name="coefficients")
    return [Section("Coefficients", [table, *([Notes(found.notes)] if found.notes else [])])]


def _result(
    name: str,
    model: FittedEstimator,
    data: DataSet,
    parts: Mapping[str, Bags],
    calibration_error: float | None,
) -> Section:
    assert isinstance(data.inputs, Tensor)
    part = next(p for p in ("held-out", "test", "training") if p in parts)
    bags = parts[part]
    logits = model.logits(data.inputs[bags.rows])
    accuracy = None
    if "test" in parts and data.truth is not None:
        rows = parts["test"].rows
        accuracy = evaluation.accuracy(
            probability_of(model.logits(data.inputs[rows])), data.truth[rows]
        )
    return result(
        name,
        "",
        part,
        how_measured(bags),
        accuracy=accuracy,
        log_likelihood=evaluation.mean_log_likelihood(logits, bags),
        baseline_log_likelihood=mean_baseline(bags, model.details["baseline"]["rate"]),
        proportion_error=evaluation.proportion_error(probability_of(logits), bags),
        calibration_error=calibration_error,
    )
