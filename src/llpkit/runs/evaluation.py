"""Metrics of a finished run, on its own or on other data."""

from typing import NamedTuple

import torch
from torch import Tensor

from llpkit import evaluation
from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.config import Data, Values
from llpkit.datasets import Inputs
from llpkit.errors import LLPError
from llpkit.runs.data import divide, load_data
from llpkit.runs.measures import measure
from llpkit.runs.opening import Run
from llpkit.runs.reading import NoCounts, read_table, table_bags, table_images
from llpkit.tables import Table
from llpkit.tables.counts import contradictions


class Evaluated(NamedTuple):
    """The metrics of every part of the data, with notes about them."""

    parts: dict[str, Values]
    notes: tuple[str, ...]
    verdict: Values | None
    """See :class:`llpkit.evaluation.Verdict`; ``None`` if there are no bags."""


class _EvaluationData(NamedTuple):
    """What a model is compared with: bags, labels, or both."""

    inputs: Inputs
    bags: Bags | None
    truth: Tensor | None
    notes: list[str]


def evaluate(run: Run, data: Data, threshold: float = 0.5, *, by_part: bool = False) -> Evaluated:
    """Metrics of a run on other data, or on each part of its own data."""
    inputs, bags, truth, notes = _evaluation_data(run, data)
    parts: dict[str, Bags | None] = {"all": bags}
    if by_part and bags is not None:
        parts = {**divide(bags, run.config)}
    measured = {
        name: measure(run.model, inputs, part, truth, threshold) for name, part in parts.items()
    }
    verdict = run.model.details.get("verdict")
    if not by_part:
        gain = measured["all"].gain
        verdict = None if gain is None else evaluation.verdict(None, gain, "")._asdict()
    return Evaluated({name: part.values for name, part in measured.items()}, tuple(notes), verdict)


def _evaluation_data(run: Run, data: Data) -> _EvaluationData:
    if data.table is None or (run.encoder is None and data.label is None):
        return _loaded(run, data)
    table, truth = read_table(data), None
    bags: Bags | None = None
    notes: list[str] = []
    try:
        bags, notes = table_bags(run, data, table)
    except NoCounts as error:
        if data.label is None:
            raise LLPError(
                f"nothing to evaluate against: {error}; give the counts, or labels with "
                f"{option('label')}"
            ) from error
    if data.label is not None:
        names = data.class_names or run.class_names
        if len(names) != len(run.class_names):
            raise LLPError(
                f"{option('class_names')} is given {len(names)} times, but the run has "
                f"{len(run.class_names)} classes; give it once per class"
            )
        truth = torch.from_numpy(table.labels(data.label, names))
    if run.encoder is None and bags is not None:  # loading leaves out bags with a bad image
        return _loaded(run, data)
    if bags is not None and truth is not None:
        assert data.label is not None
        notes += contradictions(bags, truth, data.label)
    elif truth is not None and data.bag in table.names:
        bags = _bags_of_labels(run, table, data.bag, truth)
        notes = [f"the counts of bags are computed from the labels in column {data.label!r}"]
    if run.encoder is None:
        return _EvaluationData(table_images(run, data, table), bags, truth, notes)
    return _EvaluationData(run.encoder.apply(table), bags, truth, run.encoder.notes(table) + notes)


def _loaded(run: Run, data: Data) -> _EvaluationData:
    loaded = load_data(data, run.config.recipe.seed)
    return _EvaluationData(loaded.inputs, loaded.bags, loaded.truth, list(loaded.notes))


def _bags_of_labels(run: Run, table: Table, bag: str, truth: Tensor) -> Bags:
    """The bags of a table without counts, which follow from the labels."""
    codes, ids = table.groups(bag)
    bags = Bags.from_labels(truth, codes, run.model.num_classes)  # in the order of the codes
    return Bags(bags.offsets, bags.evidence, rows=bags.rows, ids=ids, num_rows=len(table))
