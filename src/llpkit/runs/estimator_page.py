"""The page of an estimator's run: calibration, importance of the columns, the worst bags."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from llpkit import evaluation
from llpkit.bags import Bags
from llpkit.config import Config, Values
from llpkit.datasets import DataSet
from llpkit.likelihood.budget import tractability
from llpkit.report import (
    Calibration,
    Cell,
    Column,
    Figures,
    Interval,
    Notes,
    Page,
    Section,
    Style,
    Table,
    Wall,
    WallBag,
    csv_text,
    importance_bars,
    present,
    reliability,
    styles,
    wall_bags,
)
from llpkit.runs.estimator import (
    BagCheck,
    FittedEstimator,
    Importance,
    bag_calibration,
    check_bags,
    importances,
)
from llpkit.runs.inference import is_likelihood_model, summarise
from llpkit.runs.measures import how_measured, mean_baseline, probability_of
from llpkit.runs.page_parts import calibration, closing, facts, result, title
from llpkit.statistics.summary import LOG_SD
from llpkit.tables import FeatureEncoder
from llpkit.tables.columns import NumberColumn

IMPORTANCES, WORST = "importances.csv", "worst_bags.csv"
_SHOWN = 8  # bags on the wall
_COLUMNS = 5  # columns shown for each of their rows
_LISTED = 100  # bags in the CSV file


def estimator_page(
    config: Config,
    data: DataSet,
    parts: Mapping[str, Bags],
    model: FittedEstimator,
    record: Values,
) -> tuple[Page, dict[str, str]]:
    """The page, and the CSV tables of importances and worst bags by file name."""
    assert isinstance(data.inputs, Tensor)
    name = model.details["estimator"]
    look = styles([name])
    part = next(p for p in ("test", "held-out", "training") if p in parts)
    bags = parts[part]
    logits = model.logits(data.inputs[bags.rows])
    check = check_bags(logits, bags)
    worth = importances(model, data.inputs, bags, data.encoder, config.recipe.seed)
    worst = check.distance.argsort(descending=True)
    checked, error = _calibration(name, look[name], part, data, bags, logits, check)
    shown = bags[worst[:_SHOWN]]
    page = Page(
        title=title(config, name),
        look=look,
        blocks=[
            facts(data, parts, model, estimator=repr(model.estimator)),
            _result(name, model, data, parts, error),
            checked,
            *_coefficients(model, data, parts["training"]),
            Section(
                "Importance of the columns",
                [Figures([importance_bars(worth, look[name])])],
                f"How much lower the log-likelihood of a {part} bag is when the column is shuffled "
                "over all rows; whiskers are one standard deviation over shuffles. Columns that "
                "carry the same information share their importance.",
            ),
            Section(
                "The worst bags",
                [
                    Wall(
                        _wall_bags(shown, check.distance[worst], data, worth),
                        data.class_names,
                        {name: [probability_of(model.logits(data.inputs[b.rows])) for b in shown]},
                        note=f"The {part} bags that the model explains worst: their counts are "
                        "furthest from the expected ones, in standard deviations. Look for wrong "
                        "counts, for rows in the wrong bag, and for missing columns.",
                    )
                ],
            ),
            *closing(data, model, record),
        ],
    )
    tables = {
        IMPORTANCES: csv_text({"column": w.column, "fall": w.mean, "sd": w.sd} for w in worth),
        WORST: csv_text(_listed(worst[:_LISTED], check, bags, data.class_names)),
    }
    return page, tables


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


def _calibration(
    name: str,
    style: Style,
    part: str,
    data: DataSet,
    bags: Bags,
    logits: Tensor,
    check: BagCheck,
) -> tuple[Section, float | None]:
    """Calibration of instances with its error if labels are known, otherwise of bags."""
    if data.truth is not None:
        found = evaluation.calibration(probability_of(logits), data.truth[bags.rows])
        curve = Calibration(name, *found)
        return calibration(curve, style), curve.error
    figure = reliability(Calibration(name, *bag_calibration(check, bags)), style, "calibration")
    section = Section(
        "Calibration of bags",
        [Figures(present([figure]), narrow=True)],
        f"Predicted against known proportions of the {part} bags, in bins; below, how many "
        "instances are in them. Without labels nothing more can be checked: a model may be right "
        "on average in every bag and wrong about each instance.",
    )
    return section, None


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


def _wall_bags(
    bags: Bags, distance: Tensor, data: DataSet, worth: Sequence[Importance]
) -> list[WallBag]:
    """Bags with their distance, rows described by the most important columns."""
    assert isinstance(data.inputs, Tensor)
    found = wall_bags(bags, data.inputs, class_names=data.class_names, truth=data.truth)
    for b, (wall, bag) in enumerate(zip(found, bags, strict=True)):
        instances = wall.instances
        if data.encoder is not None:
            captions = _captions(data.encoder, data.inputs[bag.rows], [w.column for w in worth])
            pairs = zip(instances, captions, strict=True)
            instances = [replace(one, caption=caption) for one, caption in pairs]
        known = f"{wall.known}; {distance[b]:.1f} standard deviations from the expected count"
        found[b] = replace(wall, known=known, instances=instances)
    return found


def _captions(encoder: FeatureEncoder, rows: Tensor, order: Sequence[str]) -> list[str]:
    """A few columns of every row, with the values of the original table."""
    texts: dict[str, list[str]] = {}
    start = 0
    for column in encoder.columns:
        width = len(column.feature_names)
        values = rows[:, start : start + width].double()
        if isinstance(column, NumberColumn):
            # Undo the encoder's standardisation to show the values of the table.
            plain = (values[:, 0] * column.scale + column.mean).tolist()
            gone = (values[:, 1] > 0).tolist() if column.missing else [False] * len(rows)
            pairs = zip(plain, gone, strict=True)
            texts[column.name] = [
                "missing" if no else _number(value, column.scale) for value, no in pairs
            ]
        else:
            more = ["other"] * column.other + ["missing"] * column.missing
            names = [*column.levels, *more]
            texts[column.name] = [names[k] for k in values.argmax(1).tolist()]
        start += width
    chosen = [name for name in order if name in texts][:_COLUMNS]
    return ["\n".join(f"{name} {texts[name][i]}" for name in chosen) for i in range(len(rows))]


def _number(value: float, scale: float) -> str:
    """A number as a person would write it, after standardising in float32 and back."""
    # Rounding leaves about 1e-7 of the scale, where the table had a zero.
    if abs(value) < 1e-5 * scale:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _listed(
    places: Tensor, check: BagCheck, bags: Bags, class_names: tuple[str, ...]
) -> list[dict[str, object]]:
    """The worst bags as rows of a table."""
    classes = class_names if bags.num_classes else class_names[1:]
    exact, near = tractability(bags.evidence, bags.sizes)
    n = bags.sizes if bags.num_classes is None else bags.sizes[:, None]
    low, high = bags.evidence.low, torch.minimum(bags.evidence.high, n)
    rows = []
    for b in places.tolist():
        row: dict[str, object] = {"bag": bags.ids[b], "size": int(bags.sizes[b])}
        for key, values in (("low", low), ("high", high), ("expected", check.expected)):
            numbers = values[b].reshape(-1).tolist()
            row |= {f"{key}_{c}": x for c, x in zip(classes, numbers, strict=True)}
        row["standard_deviations"] = float(check.distance[b])
        row["log_likelihood"] = float(check.log_likelihood[b])
        if not exact.all():
            how = "exact" if exact[b] else "approximate" if near[b] else "not known"
            row["log_likelihood_is"] = how
        rows.append(row)
    return rows
