"""The page of a network's run."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from llpkit import evaluation
from llpkit.bags import Bags
from llpkit.config import Config, Values
from llpkit.datasets import DataSet
from llpkit.likelihood.budget import best_posterior
from llpkit.methods import METHODS
from llpkit.report import (
    Calibration,
    Figures,
    Opening,
    Page,
    Section,
    Series,
    Wall,
    present,
    run_curves,
    styles,
    wall_bags,
)
from llpkit.runs.data import take
from llpkit.runs.importances import importances
from llpkit.runs.measures import how_measured, probability_of
from llpkit.runs.page_checks import (
    fit_section,
    goodness,
    importance_section,
    part_of,
    tables,
    with_captions,
    worst_section,
)
from llpkit.runs.page_parts import calibration, closing, facts, result, title
from llpkit.training import Fitted

_WALL = 12  # most bags on the wall, and most instances in each


def network_page(
    config: Config, data: DataSet, parts: Mapping[str, Bags], model: Fitted, record: Values
) -> tuple[Page, dict[str, str]]:
    """The page, and the CSV tables of importances and worst bags by file name.

    An example bag, the result, learning curves, calibration, the fit to the counts, importances of
    the columns of a table, the worst bags, and a wall of training bags.
    """
    method = config.recipe.method
    look = styles([method])
    kept = None if config.recipe.held_out is None else model.chosen_epoch
    run = Series(method, config.recipe.seed, model.history, kept)
    curve = None
    if "test" in parts and data.truth is not None:
        rows = parts["test"].rows
        p = probability_of(model.logits(take(data.inputs, rows)))
        curve = Calibration(method, *evaluation.calibration(p, data.truth[rows]))
    part = part_of(parts)
    bags = parts[part]
    found = goodness(model, data.inputs, bags, config.recipe.seed)
    worth = []
    if isinstance(data.inputs, Tensor) and data.inputs.dim() == 2:
        worth = importances(model, data.inputs, bags, data.encoder, config.recipe.seed)
    wall = _wall(method, model, data, parts["training"], [one.column for one in worth])
    measured, prefix = ("held-out", "held_out_") if "held-out" in parts else ("training", "")
    page = Page(
        title=title(config, method),
        lead=(f"{METHODS[method].summary}.",),
        look=look,
        blocks=[
            Opening(wall),
            facts(data, parts, model, network=model.network_name, epochs=len(model.history)),
            result(
                method,
                f"Measured at the {'epoch whose weights were kept' if kept else 'last epoch'}.",
                measured,
                _how(model, parts),
                accuracy=run.value("test_accuracy"),
                epoch_seconds=run.epoch_seconds(),
                log_likelihood=run.value(f"{prefix}log_likelihood"),
                baseline_log_likelihood=run.value(f"{prefix}baseline_log_likelihood"),
                proportion_error=run.value(f"{prefix}proportion_error"),
                calibration_error=None if curve is None else curve.error,
            ),
            Section(
                "Learning curves",
                [Figures(present(run_curves(run, look[method])))],
                "The vertical axis is fitted to where the curves settle.",
            ),
            *([] if curve is None else [calibration(curve, look[method])]),
            fit_section(method, look[method], part, found, bags),
            *([importance_section(worth, look[method], part)] if worth else []),
            worst_section(method, model, data, part, bags, found, worth),
            Section("A wall of bags", [wall]),
            *closing(data, model, record),
        ],
    )
    return page, tables(worth, found, bags, data)


def _how(model: Fitted, parts: Mapping[str, Bags]) -> str:
    """How the log-likelihood was measured, on held-out bags if there are any."""
    if "held-out" in parts:
        return how_measured(parts["held-out"])
    return how_measured(parts["training"], "measured_bags" in model.history[-1])


def _wall(method: str, model: Fitted, data: DataSet, bags: Bags, columns: Sequence[str]) -> Wall:
    """The first training bags that are not too large, rows described by these columns first."""
    small = torch.where((bags.sizes >= 1) & (bags.sizes <= _WALL))[0][:_WALL]
    shown = bags[small] if len(small) else bags[:1]
    logits = model.logits(take(data.inputs, shown.rows))
    posterior = best_posterior(logits, shown.evidence, shown.offsets, validate=True)
    sizes = shown.sizes.tolist()
    drawn = wall_bags(shown, data.inputs, class_names=data.class_names, truth=data.truth)
    return Wall(
        with_captions(drawn, shown, data, columns),
        data.class_names,
        {method: probability_of(logits).split(sizes)},
        {method: posterior.split(sizes)},
        "The first bags the model was trained on.",
    )
