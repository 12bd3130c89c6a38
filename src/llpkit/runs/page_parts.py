"""Parts that the pages of all runs share."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from llpkit.auto import PICKED
from llpkit.bags import Bags
from llpkit.config import Config, Values
from llpkit.datasets import DataSet
from llpkit.report import (
    Block,
    Calibration,
    Cell,
    Column,
    Facts,
    Figures,
    Notes,
    Section,
    Style,
    Table,
    decimals,
    present,
    reliability,
)
from llpkit.runs.machine import flat
from llpkit.training import Fitted


def title(config: Config, name: str) -> str:
    """The title: what was trained on which data."""
    return f"{name} on {config.data.dataset or Path(config.data.table or '').name}"


def facts(data: DataSet, parts: Mapping[str, Bags], model: Fitted, **more: object) -> Facts:
    """The data, the bags of every part, why the method was picked, and anything else."""
    pairs: dict[str, object] = {"data": data.describe().splitlines()[0]}
    for name, bags in parts.items():
        pairs[f"{name} bags"] = f"{len(bags):,} with {bags.num_instances:,} instances"
    if PICKED in model.details:
        more["picked"] = model.details[PICKED]
    return Facts(pairs | more)


def result(name: str, text: str, part: str, how: str, **values: float | None) -> Section:
    """The table of measures; those that are not known have no column.

    Args:
        name: The method or estimator.
        text: When it was measured.
        part: The bags whose counts were predicted, such as ``"held-out"``.
        how: How their log-likelihood was measured, such as ``"exact"``.
        values: The measures, by the keys of the columns.
    """
    far = "mean distance of predicted from"
    seconds = decimals([values.get("epoch_seconds") or 0.0])
    baseline = f"log-likelihood of the same {part} bags if every instance had one probability"
    columns = [
        Column("accuracy", "Accuracy", "of test instances", ".1%"),
        Column("epoch_seconds", "Epoch", "time it takes", f".{seconds}f", " s"),
        Column(
            "log_likelihood",
            "Bag log-likelihood",
            f"{how}, mean of {part} bags; higher is better",
            ".2f",
        ),
        Column("baseline_log_likelihood", "Constant rate", baseline, ".2f"),
        Column("proportion_error", "Proportion error", f"{far} true, {part} bags", ".3f"),
        Column("calibration_error", "Calibration error", f"{far} observed frequency", ".3f"),
    ]
    known = [column for column in columns if values.get(column.key) is not None]
    cells: list[Cell] = [values[column.key] for column in known]
    return Section("The result", [Table(known, [(name, cells)], of="Model")], text)


def calibration(curve: Calibration, style: Style) -> Section:
    """The reliability curve of test instances."""
    return Section(
        "Calibration",
        [Figures(present([reliability(curve, style, "calibration")]), narrow=True)],
        "Of the instances given a probability near 0.8, about 80 % should be positive: on the "
        "dashed line. Below, how many instances got each probability.",
    )


def closing(data: DataSet, model: Fitted, record: Values) -> list[Block]:
    """Notes, versions and hardware."""
    notes: Sequence[str] = (*data.notes, *model.details.get("warnings", ()))
    made = Section("How it was made", [Facts(flat(record))])
    return [*([Section("Notes", [Notes(notes)])] if notes else []), made]
