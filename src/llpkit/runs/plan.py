"""Planning from a table, before anything is counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from llpkit._text import csv_text
from llpkit._validation import option
from llpkit.errors import LLPError
from llpkit.files import write_text
from llpkit.report import Figure, present
from llpkit.runs.opening import Run
from llpkit.statistics import Information, Model, Plan, assume, compare, plan
from llpkit.statistics.assumptions import model_of
from llpkit.tables import FeatureEncoder, Table
from llpkit.tables.selection import choose_features

TABLE = "plan.csv"
_ROWS = 20_000
"""Rows of the table that bags are drawn from; more would not change the plan."""
_BUDGETS = (50, 200, 1000)
"""Numbers of bags in the figure, unless the user gives one."""


@dataclass(frozen=True)
class Planned:
    """The plan of a table, by bag size and for existing groups."""

    plan: Plan
    groupings: dict[str, tuple[Information, int]]
    """By column: the information of its groups as bags, and their number."""
    notes: tuple[str, ...]

    def rows(
        self, bags: int | None = None, error: float | None = None, accuracy: float | None = None
    ) -> list[dict[str, Any]]:
        """One row per bag size: what a count is worth, what ``bags`` give, what a goal needs."""
        rows = []
        for size, information in self.plan.sizes.items():
            row: dict[str, Any] = {
                "size": size,
                "labels_per_count": information.labels_per_bag,
                "efficiency": information.efficiency,
            }
            if bags is not None:
                row |= _expected(information, bags)
            if error is not None:
                row["bags_for_standard_error"] = information.bags_for_standard_error(error)
            if accuracy is not None:
                row["bags_for_accuracy"] = information.bags_for_accuracy(accuracy)
            rows.append(row)
        return rows

    def grouping_rows(self) -> list[dict[str, Any]]:
        """One row per column that groups the rows: what its groups give as bags."""
        return [
            {
                "by": name,
                "bags": bags,
                "mean_size": information.size,
                "labels_per_count": information.labels_per_bag,
                **_expected(information, bags),
            }
            for name, (information, bags) in self.groupings.items()
        ]

    @property
    def worst(self) -> tuple[int, str]:
        """The largest bag size, and the column whose weight it determines least precisely."""
        size = max(self.plan.sizes)
        errors = self.plan.sizes[size].standard_errors(1)[:-1]
        return size, self.plan.model.names[int(errors.argmax())]

    def figures(self, bags: int | None = None) -> list[Figure]:
        """What one count is worth, and the expected accuracy, by bag size."""
        from llpkit.report import plan_curves

        budgets = _BUDGETS if bags is None else (max(1, bags // 4), bags, 4 * bags)
        sizes = self.plan.sizes
        labels_per_count = {size: sizes[size].labels_per_bag for size in sizes}
        accuracy = {
            f"{budget:,} bags": {size: sizes[size].accuracy(budget) for size in sizes}
            for budget in budgets
        }
        return present(plan_curves(labels_per_count, accuracy, self.plan.best_accuracy))

    def write(self, folder: Path, rows: list[dict[str, Any]], bags: int | None = None) -> None:
        """Write the table as CSV and the figures into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / TABLE, csv_text(rows))
        for figure in self.figures(bags):
            figure.write(folder)


def _expected(information: Information, bags: int) -> dict[str, float]:
    """What this many bags give; the standard error is the largest, without the intercept's."""
    return {
        "standard_error": float(information.standard_errors(bags)[:-1].max()),
        "expected_accuracy": information.accuracy(bags),
    }


def plan_table(
    path: str,
    sizes: Sequence[int],
    *,
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    by: Sequence[str] = (),
    rate: float = 0.5,
    accuracy: float = 0.8,
    run: Run | None = None,
    seed: int = 0,
) -> Planned:
    """Plan for instances like the rows of a table.

    Args:
        path: The table.
        sizes: Bag sizes to compare.
        features: The columns that a model will learn from; by default all others that can be used.
        drop: Columns to leave out.
        by: Columns that group the rows, to be compared as bags.
        rate: The assumed share of positives.
        accuracy: The assumed accuracy of the best classifier.
        run: A finished run, whose model and columns are used instead of the assumptions.
        seed: Seed for the bags.
    """
    if run is not None and (features or drop):
        raise LLPError(
            f"{option('features')} and {option('drop')} choose columns, but the run has its own"
        )
    table = Table.read(path)
    notes: list[str] = []
    if run is None:
        taken = dict.fromkeys(by, "the groups")
        chosen, notes = choose_features(table, features or None, drop, taken=taken)
        encoder = FeatureEncoder.fit(table, chosen)
    elif run.encoder is None:
        raise LLPError(f"the run {run.folder} learned from images; plan with {option('features')}")
    else:
        encoder = run.encoder
    x = encoder.apply(table).double().numpy()
    if run is None:
        model = assume(x, rate=rate, accuracy=accuracy, feature_names=encoder.feature_names)
    else:
        model = _model_of(run, x, encoder)
    kept = np.random.default_rng(seed).permutation(len(x))[:_ROWS]
    sample = Model(model.design[kept], model.weights, model.names)
    groups = {name: table.groups(name)[0] for name in by}
    return Planned(
        plan(x, sizes, model=sample, seed=seed), compare(x, groups, model=model), tuple(notes)
    )


def _model_of(run: Run, x: Any, encoder: FeatureEncoder) -> Model:
    """The linear model of a run, or its logit as the only feature."""
    if run.model.num_classes is not None:
        raise LLPError(f"the run {run.folder} has several classes; planning is for two")
    fitted: Any = getattr(run.model, "estimator", None)
    if fitted is None:  # a network
        logits = run.model.logits
        fitted = SimpleNamespace(decision_function=lambda x: logits(torch.from_numpy(x).float()))
    return model_of(fitted, x, feature_names=encoder.feature_names)
