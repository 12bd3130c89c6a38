"""Parts of a run's page that compare the model with the counts of bags: shared by all models."""

from collections.abc import Sequence

import torch
from torch import Tensor

from llpkit._text import csv_text
from llpkit.bags import Bags
from llpkit.datasets import DataSet
from llpkit.likelihood.budget import tractability
from llpkit.probability import probability_of
from llpkit.report import (
    Block,
    Facts,
    Figures,
    Section,
    Style,
    Wall,
    WallBag,
    importance_bars,
    present,
    reliability,
    transform_histogram,
    wall_bags,
)
from llpkit.runs.assessment import Assessment
from llpkit.runs.data import take
from llpkit.runs.importances import Importance
from llpkit.statistics import Goodness, bag_calibration
from llpkit.tables import FeatureEncoder
from llpkit.tables.columns import CategoryColumn, NumberColumn
from llpkit.training import Fitted

IMPORTANCES, WORST = "importances.csv", "worst_bags.csv"
_SHOWN = 8  # bags on the wall
_COLUMNS = 5  # columns shown for each of their rows
_LISTED = 100  # bags in the CSV file


def fit_section(style: Style, assessed: Assessment) -> Section:
    """Whether the counts look like draws from the model: transform, dispersion, proportions."""
    fit = assessed.fit
    curve = bag_calibration(fit, assessed.bags)
    facts = {
        "dispersion": f"{fit.dispersion:.2f}; 1 if the model is right ({_p(fit.dispersion_p)})",
        "is the histogram flat?": f"{_p(fit.pit_p)}; small if not",
    }
    blocks: list[Block] = [
        Facts(facts),
        Figures(
            present(
                [
                    transform_histogram(fit.pit.ravel().tolist(), style, "count-transform"),
                    reliability("proportions", curve, style, "bag-calibration"),
                ]
            ),
            narrow=True,
        ),
    ]
    return Section("Does the model explain the counts?", blocks, _how_to_read(assessed.part))


def _p(value: float) -> str:
    return "p < 0.0001" if value < 1e-4 else f"p = {value:.2g}"


def _how_to_read(part: str) -> str:
    seen = " The model was fitted to these bags, so a good fit proves little."
    caveat = seen if part == "training" else ""
    return (
        f"The histogram shows where the counts of the {part} bags lie in the distribution that the "
        "model predicts for them: it is flat, within the grey band, if the model is right. The "
        f"curve compares predicted and known proportions of bags, in bins.{caveat} Counts cannot "
        "show more: a model may be right about every bag and wrong about each instance."
    )


def importance_section(ranking: Sequence[Importance], style: Style, part: str) -> Section:
    """Importances of the columns."""
    return Section(
        "Importance of the columns",
        [Figures([importance_bars(ranking, style)])],
        f"How much the log-likelihood per {part} bag falls when the column is shuffled over all "
        "rows; whiskers are one standard deviation over shuffles. Columns that carry the same "
        "information share their importance.",
    )


def worst_section(
    name: str,
    model: Fitted,
    data: DataSet,
    assessed: Assessment,
    ranking: Sequence[Importance] = (),
) -> Section:
    """The bags that the model explains worst."""
    worst = assessed.fit.worst[:_SHOWN]
    shown = assessed.bags[worst]
    far = [f"{x:.1f} standard deviations off" for x in assessed.fit.distance[worst].tolist()]
    wall = Wall(
        described_bags(shown, data, [one.column for one in ranking], far),
        data.class_names,
        {name: [probability_of(model.logits(take(data.inputs, b.rows))) for b in shown]},
        note=f"The {assessed.part} bags that the model explains worst: their counts are furthest "
        "from the expected ones, in standard deviations. Look for wrong counts, for rows in the "
        "wrong bag, and for missing columns.",
    )
    return Section("The worst bags", [wall])


def described_bags(
    bags: Bags, data: DataSet, order: Sequence[str], notes: Sequence[str] | None = None
) -> list[WallBag]:
    """Bags for a wall; rows of a table are described by its columns, in this order."""
    captions = None
    if data.encoder is not None and isinstance(data.inputs, Tensor):
        captions = _captions(data.encoder, data.inputs[bags.rows], order)
    return wall_bags(
        bags,
        data.inputs,
        class_names=data.class_names,
        truth=data.truth,
        captions=captions,
        notes=notes,
    )


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
        elif isinstance(column, CategoryColumn):
            more = ["other"] * bool(column.rare) + ["missing"] * column.missing
            names = [*column.levels, *more]
            texts[column.name] = [names[k] for k in values.argmax(1).tolist()]
        start += width
    chosen = [name for name in (*order, *texts) if name in texts]
    chosen = list(dict.fromkeys(chosen))[:_COLUMNS]
    return ["\n".join(f"{name} {texts[name][i]}" for name in chosen) for i in range(len(rows))]


def _number(value: float, scale: float) -> str:
    """A number as a person would write it, after standardising in float32 and back."""
    # Rounding leaves about 1e-7 of the scale, where the table had a zero.
    if abs(value) < 1e-5 * scale:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def tables(
    ranking: Sequence[Importance], assessed: Assessment, class_names: tuple[str, ...]
) -> dict[str, str]:
    """The CSV tables of importances, if there are any, and of the worst bags, by file name."""
    made = {WORST: csv_text(_worst_rows(assessed.fit, assessed.bags, class_names))}
    if ranking:
        rows = ({"column": r.column, "fall": r.mean, "sd": r.sd} for r in ranking)
        made[IMPORTANCES] = csv_text(rows)
    return made


def _worst_rows(
    found: Goodness, bags: Bags, class_names: tuple[str, ...]
) -> list[dict[str, object]]:
    """The worst bags as rows of a table."""
    classes = class_names if bags.num_classes else class_names[1:]
    exact, near = tractability(bags.evidence, bags.sizes)
    n = bags.sizes if bags.num_classes is None else bags.sizes[:, None]
    low, high = bags.evidence.low, torch.minimum(bags.evidence.high, n)
    rows = []
    for b in found.worst[:_LISTED].tolist():
        row: dict[str, object] = {"bag": bags.ids[b], "size": int(bags.sizes[b])}
        for key, values in (("low", low), ("high", high), ("expected", found.expected)):
            numbers = values[b].reshape(-1).tolist()
            row |= {f"{key}_{c}": x for c, x in zip(classes, numbers, strict=True)}
        row["standard_deviations"] = float(found.distance[b])
        row["log_likelihood"] = float(found.log_likelihood[b])
        if not exact.all():
            how = "exact" if exact[b] else "approximate" if near[b] else "not known"
            row["log_likelihood_is"] = how
        rows.append(row)
    return rows
