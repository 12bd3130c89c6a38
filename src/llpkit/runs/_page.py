"""The page of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from llpkit import evaluation
from llpkit.bags import Bags
from llpkit.config import Config, Values
from llpkit.datasets import DataSet, Inputs
from llpkit.methods import METHODS
from llpkit.runs.data import take
from llpkit.runs.estimator import FittedEstimator
from llpkit.runs.folder import REPORT
from llpkit.runs.machine import flat
from llpkit.runs.measures import how_measured, posterior_of, probability_of
from llpkit.training import Fitted

FIGURES = "figures"
_WALL = 12


def write_report(
    work: Path,
    config: Config,
    data: DataSet,
    parts: Mapping[str, Bags],
    model: Fitted,
    record: Values,
) -> None:
    """Write the page of a run and its figures into its folder."""
    from llpkit.report import Calibration, Page, Series, summarise, write_page

    if isinstance(model, FittedEstimator):
        from llpkit.runs._table_page import write_table_page

        pages = work / REPORT, work / FIGURES
        write_table_page(*pages, config, data, parts, model, flat(record))
        return
    chosen = None if config.recipe.held_out is None else model.chosen_epoch
    series = [Series(config.recipe.method, config.recipe.seed, model.history, chosen)]
    curves = []
    if "test" in parts and data.truth is not None:
        rows = parts["test"].rows
        p = probability_of(model.logits(take(data.inputs, rows)))
        curves = [Calibration(config.recipe.method, *evaluation.calibration(p, data.truth[rows]))]
    what = config.data.dataset or Path(config.data.table or "").name
    facts = {
        "data": data.describe().splitlines()[0],
        **{
            f"{name} bags": f"{len(b):,} with {b.num_instances:,} instances"
            for name, b in parts.items()
        },
        "network": model.network_name,
        "epochs": len(model.history),
    }
    page = Page(
        title=f"{config.recipe.method} on {what}",
        lead=(f"{METHODS[config.recipe.method].summary}.",),
        class_names=data.class_names,
        facts=facts,
        summary=summarise(series, curves),
        measured=_measured(model, parts),
        series=series,
        calibrations=curves,
        wall={config.recipe.method: wall(model, data, parts["training"])},
        wall_note="The first bags that the model was trained on.",
        notes=(*data.notes, *model.details.get("warnings", ())),
        environment=flat(record),
    )
    write_page(page, work / REPORT, figures_dir=work / FIGURES)


def _measured(model: Fitted, parts: Mapping[str, Bags]) -> str:
    """How the log-likelihood of the table was measured: of held-out bags if there are any."""
    if "held-out" in parts:
        return how_measured(parts["held-out"])
    return how_measured(parts["training"], "measured_bags" in model.history[-1])


def wall(model: Fitted, data: DataSet, bags: Bags, inputs: Inputs | None = None) -> list[Any]:
    """Some bags to look at: the first that are not too large.

    ``inputs`` are what the model takes, where that differs from what is to be looked at.
    """
    from llpkit.report import wall_bags

    small = torch.where((bags.sizes >= 1) & (bags.sizes <= _WALL))[0][:_WALL]
    shown = bags[small] if len(small) else bags[:1]
    every = data.inputs if inputs is None else inputs
    part = model.logits(take(every, shown.rows))
    logits = part.new_zeros((len(every), *part.shape[1:]))
    logits[shown.rows] = part
    return wall_bags(
        shown,
        data.inputs,
        probability_of(logits),
        class_names=data.class_names,
        posterior=posterior_of(logits, shown),
        truth=data.truth,
        feature_names=data.encoder.feature_names if data.encoder else None,
    )
