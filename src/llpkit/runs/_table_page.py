"""The page of an estimator's run: calibration, what the columns are worth, the worst bags."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llpkit import evaluation
from llpkit._files import write_text
from llpkit.bags import Bags
from llpkit.config import Config
from llpkit.datasets import DataSet
from llpkit.likelihood.budget import tractability
from llpkit.report import (
    Calibration,
    Page,
    PageSection,
    Series,
    WallBag,
    WallInstance,
    importance_bars,
    reliability,
    styles,
    summarise,
    wall_bags,
    write_page,
)
from llpkit.runs.estimator import (
    BagCheck,
    FittedEstimator,
    Importance,
    bag_calibration,
    check_bags,
    importances,
)
from llpkit.runs.measures import how_measured, mean_baseline, probability_of
from llpkit.tables import FeatureEncoder
from llpkit.tables.columns import NumberColumn

IMPORTANCES, WORST = "importances.csv", "worst_bags.csv"
_SHOWN = 8
_COLUMNS = 5
_LISTED = 100


def write_table_page(
    path: Path,
    figures: Path,
    config: Config,
    data: DataSet,
    parts: Mapping[str, Bags],
    model: FittedEstimator,
    environment: Mapping[str, object],
) -> None:
    """Write the page, its figures, and the numbers of two of them as CSV beside it."""
    assert isinstance(data.inputs, Tensor)
    name = model.details["estimator"]
    part = next(p for p in ("test", "held-out", "training") if p in parts)
    bags = parts[part]
    logits = model.logits(data.inputs[bags.rows])
    check = check_bags(logits, bags)
    worth = importances(model, data.inputs, bags, data.encoder, config.recipe.seed)
    _write(path.with_name(IMPORTANCES), ("column", "fall", "sd"), worth)
    worst = check.distance.argsort(descending=True)
    _write(path.with_name(WORST), *_listed(worst[:_LISTED], check, bags, data.class_names))

    look = styles([name])[name]
    about = (
        f"How much lower the log-likelihood of a {part} bag is when the column is shuffled over "
        "all rows; whiskers are one standard deviation over shuffles. Columns that say the same "
        "share their worth."
    )
    sections = [PageSection("What the columns are worth", about, [importance_bars(worth, look)])]
    curves = []
    if data.truth is not None:
        p = probability_of(logits)
        found = evaluation.calibration(p, data.truth[bags.rows])
        curves = [Calibration(name, *found)]
    else:
        curve = reliability(Calibration(name, *bag_calibration(check, bags)), look)
        about = (
            f"Predicted against known proportion of the {part} bags, in bins; below, how many "
            "instances are in them. Without labels this is all that can be checked: a model may "
            "be right on average in every bag and wrong about each instance."
        )
        plots = [] if curve is None else [curve]
        sections.insert(0, PageSection("Calibration of bags", about, plots, narrow=True))
    end = Series(name, config.recipe.seed, [_end(model, data, parts)])
    write_page(
        Page(
            title=f"{name} on {config.data.dataset or Path(config.data.table or '').name}",
            class_names=data.class_names,
            facts=_facts(data, parts, model),
            summary=summarise([end], curves),
            measured=how_measured(parts.get("held-out", parts.get("test", parts["training"]))),
            calibrations=curves,
            sections=sections,
            wall={name: _worst(worst[:_SHOWN], check, bags, logits, data, worth)},
            example=False,
            wall_note=(
                f"The {part} bags that the model explains worst: their counts are the furthest "
                "from what it expects, in standard deviations. Look for wrong counts, for rows in "
                "the wrong bag, and for what the columns do not tell."
            ),
            notes=(*data.notes, *model.details.get("warnings", ())),
            environment=environment,
        ),
        path,
        figures_dir=figures,
    )


def _facts(data: DataSet, parts: Mapping[str, Bags], model: FittedEstimator) -> dict[str, object]:
    facts: dict[str, object] = {"data": data.describe().splitlines()[0]}
    for name, bags in parts.items():
        facts[f"{name} bags"] = f"{len(bags):,} with {bags.num_instances:,} instances"
    return facts | {"estimator": repr(model.estimator)}


def _end(model: FittedEstimator, data: DataSet, parts: Mapping[str, Bags]) -> dict[str, Any]:
    """The measures of the summary table."""
    assert isinstance(data.inputs, Tensor)
    end: dict[str, Any] = {"epoch": 1}
    unseen = parts.get("held-out", parts.get("test"))
    for bags, prefix in ((parts["training"], ""), (unseen, "held_out_")):
        if bags is not None:
            logits = model.logits(data.inputs[bags.rows])
            p = probability_of(logits)
            end[f"{prefix}log_likelihood"] = evaluation.mean_log_likelihood(logits, bags)
            rate = model.details["baseline"]["rate"]
            end[f"{prefix}baseline_log_likelihood"] = mean_baseline(bags, rate)
            end[f"{prefix}proportion_error"] = evaluation.proportion_error(p, bags)
    if "test" in parts and data.truth is not None:
        rows = parts["test"].rows
        p = probability_of(model.logits(data.inputs[rows]))
        end["test_accuracy"] = evaluation.accuracy(p, data.truth[rows])
    return end


def _worst(
    places: Tensor,
    check: BagCheck,
    bags: Bags,
    logits: Tensor,
    data: DataSet,
    worth: Sequence[Importance],
) -> list[WallBag]:
    """The bags of the wall, each with what was expected of it, rows by their weightiest columns."""
    assert isinstance(data.inputs, Tensor)
    whole = torch.zeros((len(data.inputs), *logits.shape[1:]), dtype=logits.dtype)
    whole[bags.rows] = logits
    p = probability_of(whole)
    shown = bags[places]
    walls = wall_bags(shown, data.inputs, p, class_names=data.class_names, truth=data.truth)
    found = []
    for wall, bag, place in zip(walls, shown, places.tolist(), strict=True):
        far = float(check.distance[place])
        instances: Sequence[WallInstance] = wall.instances
        if data.encoder is not None:
            captions = _captions(data.encoder, data.inputs[bag.rows], [w.column for w in worth])
            pairs = zip(instances, captions, strict=True)
            instances = [replace(one, caption=caption) for one, caption in pairs]
        known = f"{wall.known}; {far:.1f} standard deviations away from what is expected"
        found.append(replace(wall, known=known, instances=instances))
    return found


def _captions(encoder: FeatureEncoder, rows: Tensor, order: Sequence[str]) -> list[str]:
    """A few columns of every row as the table has them."""
    texts: dict[str, list[str]] = {}
    start = 0
    for column in encoder.columns:
        width = len(column.feature_names)
        values = rows[:, start : start + width].double()
        if isinstance(column, NumberColumn):
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
    """A number that has been standardised in float32 and back, as a person would write it."""
    if abs(value) < 1e-5 * scale:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _listed(
    places: Tensor, check: BagCheck, bags: Bags, class_names: tuple[str, ...]
) -> tuple[list[str], list[list[object]]]:
    """The worst bags as a table."""
    classes = class_names if bags.num_classes else class_names[1:]
    heads = ["bag", "size", *(f"low_{c}" for c in classes), *(f"high_{c}" for c in classes)]
    heads += [*(f"expected_{c}" for c in classes), "standard_deviations", "log_likelihood"]
    exact, bound = tractability(bags.evidence, bags.sizes)
    kinds = [] if bool(exact.all()) else ["log_likelihood_is"]  # said where it is not always exact
    heads += kinds
    n = bags.sizes if bags.num_classes is None else bags.sizes[:, None]
    low, high = bags.evidence.low, torch.minimum(bags.evidence.high, n)
    rows: list[list[object]] = []
    for b in places.tolist():
        row: list[object] = [bags.ids[b], int(bags.sizes[b])]
        for values in (low, high, check.expected):
            row += values[b].reshape(-1).tolist()
        row += [float(check.distance[b]), float(check.log_likelihood[b])]
        how = "exact" if exact[b] else "upper bound" if bound[b] else "not known"
        rows.append([*row, *(how for _ in kinds)])
    return heads, rows


def _write(path: Path, heads: Any, rows: Any) -> None:
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(heads)
    writer.writerows(rows)
    write_text(path, table.getvalue())
