"""Predictions of a finished run for every row of a table or data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llpkit import evaluation
from llpkit._validation import number, option
from llpkit.bags import Bags
from llpkit.config import Data
from llpkit.datasets import DataSet
from llpkit.errors import LLPError
from llpkit.evaluation.bags import posterior_of
from llpkit.files import check_apart
from llpkit.probability import probability_of
from llpkit.runs.data import load_data
from llpkit.runs.opening import Run
from llpkit.runs.reading import NoCounts, read_table, table_bags, table_inputs
from llpkit.tables import Table


@dataclass(frozen=True)
class Predictions:
    """Predictions for every row, with notes about them."""

    table: Table
    columns: dict[str, Any]
    notes: tuple[str, ...]
    inputs: tuple[Path, ...]
    """The files that were read, which must not be overwritten."""


def predict(run: Run, data: Data, threshold: float = 0.5) -> Predictions:
    """Probability, label and, if counts are given, posterior of every row."""
    number("threshold", threshold, 0, 1)
    bags: Bags | None
    if data.table is None:
        loaded = load_data(data, run.config.recipe.seed)
        table = _as_table(loaded)
        logits, bags, notes = run.model.logits(loaded.inputs), loaded.bags, list(loaded.notes)
        predicted = torch.arange(len(logits))
    else:
        table = read_table(data)
        inputs, predicted, notes = table_inputs(run, data, table)
        some = run.model.logits(inputs)
        # Rows without a readable image keep zeros here and are masked in the output.
        logits = some.new_zeros((len(table), *some.shape[1:]))
        logits[predicted] = some
        bags, more = _bags_for_posteriors(run, data, table)
        notes += more
    probability = probability_of(logits)
    valid = np.zeros(len(table), bool)
    valid[predicted] = True
    columns = prediction_columns(run, probability, threshold, valid)
    if bags is not None:
        notes += filter(None, [evaluation.approximation_note(bags)])
        posterior = posterior_of(logits, bags)
        columns |= named_columns("posterior", posterior, run.class_names, valid)
    tables = [Path(file) for file in (data.table, data.counts_table) if file is not None]
    return Predictions(table, columns, tuple(notes), (*tables, *run.files))


def check_output(out: Path, inputs: Sequence[Path]) -> None:
    """Refuse a file that is one of the inputs, or whose folder does not exist."""
    check_apart(out, inputs)
    if not out.parent.is_dir():
        raise LLPError(f"{out} cannot be written: there is no folder {out.parent}; create it first")


def check_new_columns(path: Path | str, existing: Sequence[str], new: Sequence[str]) -> None:
    """Refuse predictions under names that the table has already."""
    taken = [name for name in new if name in existing]
    if taken:
        raise LLPError(
            f"{path} already has a column {taken[0]!r}; choose other names for the predictions "
            f"with {option('prefix')}, such as {option('prefix', 'llp_')}"
        )


def _bags_for_posteriors(run: Run, data: Data, table: Table) -> tuple[Bags | None, list[str]]:
    """The bags of the table, with notes; or ``None`` and why there are no posteriors."""
    try:
        return table_bags(run, data, table)
    except NoCounts as error:
        return None, [f"no posterior column, as there are no counts: {error}"]
    except LLPError as error:
        # Without counts there are still probabilities; but a table that was named must work.
        if data.counts_table is not None:
            raise
        return None, [f"no posterior column: {error}; it needs whole bags and their counts"]


def _as_table(data: DataSet) -> Table:
    import pyarrow as pa

    bag = np.full(len(data.inputs), "", dtype=object)
    ids = np.array([str(name) for name in data.bags.ids], dtype=object)
    bag[data.bags.rows.numpy()] = ids[data.bags.bag_index.numpy()]
    return Table(Path(data.name), pa.table({"row": np.arange(len(bag)), "bag": bag}))


def prediction_columns(
    run: Run, probability: Tensor, threshold: float, valid: Any
) -> dict[str, Any]:
    """The columns of probabilities and labels; null in rows that are not ``valid``.

    Labels are numbers for two classes, and names for more.
    """
    import pyarrow as pa

    columns = named_columns("probability", probability, run.class_names, valid)
    label = evaluation.labels_of(probability, threshold).numpy()
    if probability.dim() == 2:
        label = np.array(run.class_names, dtype=object)[label]
    return columns | {"label": pa.array(label, mask=~valid)}


def named_columns(
    name: str, probability: Tensor, class_names: Sequence[str], valid: Any
) -> dict[str, Any]:
    """One column, or one per class; null in rows that are not ``valid``."""
    import pyarrow as pa

    values = probability.float().numpy()
    if values.ndim == 1:
        return {name: pa.array(values, mask=~valid)}
    pairs = zip(class_names, values.T, strict=True)
    return {f"{name}_{each}": pa.array(column, mask=~valid) for each, column in pairs}


def write_predictions(predictions: Predictions, out: Path, prefix: str = "") -> None:
    """Write the table with the predictions as new columns on the right."""
    columns = {f"{prefix}{name}": column for name, column in predictions.columns.items()}
    table = predictions.table
    check_new_columns(table.path, table.names, list(columns))
    check_output(out, predictions.inputs)
    table.write(out, columns)
