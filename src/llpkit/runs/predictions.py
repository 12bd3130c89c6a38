"""Using finished runs: predictions for tables, and measures on other data."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from llpkit import datasets, evaluation
from llpkit import training as train
from llpkit._device import device_of
from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.config import Config, Data, Values, check, merge, read
from llpkit.datasets import DataSet, ImageFiles, Inputs
from llpkit.errors import LLPError
from llpkit.files import CHECKSUMS, Checksums, check_apart
from llpkit.runs.data import divide, load_data
from llpkit.runs.estimator import ESTIMATOR
from llpkit.runs.estimator import load as load_table_model
from llpkit.runs.folder import RunFolder
from llpkit.runs.measures import measure, posterior_of, probability_of
from llpkit.runs.resume import CONFIG
from llpkit.tables import CountColumns, FeatureEncoder, Table, listed
from llpkit.tables.counts import contradictions
from llpkit.tables.files import TABLES
from llpkit.training import Fitted
from llpkit.training.model import DESCRIPTION


@dataclass(frozen=True)
class Run:
    """A finished run, read from its directory. The files cannot run code."""

    folder: Path
    config: Config
    model: Fitted
    encoder: FeatureEncoder | None

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes 0, 1 and so on."""
        return self.model.class_names


def open_run(folder: Path, device: str = "auto", *, trust_model: bool = False) -> Run:
    """Read a run directory; ``trust_model`` also reads models that could crash the process."""
    place = device_of(device)
    if is_saved_model(folder):
        raise LLPError(
            f"{folder} is a model saved by model.save, not a run of llpkit fit; open it with "
            "llpkit.load"
        )
    model = open_model(folder, trust_model=trust_model)
    config = check(read(Checksums.need(folder).check(CONFIG)))
    model.network.to(place)
    model.preprocess.to(place)
    return Run(folder, config, model, model.encoder)


def is_saved_model(folder: Path) -> bool:
    """Whether a folder holds a model alone, without the configuration of a run."""
    found = Checksums.read(folder)
    if found is None or (folder / CONFIG).exists():
        return False
    return DESCRIPTION in found.files and CONFIG not in found.files


def open_model(folder: Path, *, trust_model: bool = False) -> Fitted:
    """The model of a run directory, a network or an estimator, with its encoder."""
    if not (folder / CONFIG).exists() and not (folder / CHECKSUMS).exists():
        if RunFolder(folder).kept:
            raise LLPError(
                f"the run {folder} was stopped before its end; continue it with: "
                f"llpkit fit --resume --out {shlex.quote(str(folder))}"
            )
        raise LLPError(f"{folder} is not a run directory; give a folder that llpkit fit wrote")
    if ESTIMATOR in Checksums.need(folder).files:
        return load_table_model(folder, trust_model)
    return train.load(folder)


def is_table(source: str) -> bool:
    """Whether a source is a file rather than the name of a data set."""
    path = Path(source).expanduser()
    return path.suffix.lower() in TABLES or (path.exists() and source not in datasets.DATASETS)


def data_of(run: Run, source: str | None, options: Values) -> Data:
    """The run's own data, or another table or data set read in the same way.

    Args:
        run: The run.
        source: A table or the name of a data set; ``None`` for the run's own data.
        options: Settings that differ, by paths such as ``data.label``.
    """
    own = run.config.data
    settings = {key: value for key, value in own.to_dict().items() if value}
    if source is not None and is_table(source):
        if own.table is None:
            raise LLPError(
                f"the run {run.folder} learned from the data set {own.dataset}, not from a table; "
                "give the name of a data set"
            )
        settings |= {"table": source}
        settings.pop("counts_table", None)  # it belongs to the bags of the other table
    elif source is not None and source != own.dataset:
        settings = {"dataset": source}
    names = {path: option(path.removeprefix("data.")) for path in options}
    names["data.dataset"] = "data set"  # an argument, not an option
    return check(merge({"data": settings}, options), options=names).data


@dataclass(frozen=True)
class Predictions:
    """Predictions for every row, with notes about them."""

    table: Table
    columns: dict[str, Any]
    notes: tuple[str, ...]
    inputs: tuple[Path, ...] = ()
    """The files that were read, which must not be overwritten."""


def predict(run: Run, data: Data, threshold: float = 0.5) -> Predictions:
    """Probability, label and, if counts are given, posterior of every row."""
    if not 0 <= threshold <= 1:
        raise LLPError(f"threshold = {threshold}; give a probability from 0 to 1")
    bags: Bags | None
    if data.table is None:
        loaded = load_data(data, run.config.recipe.seed)
        table = _as_table(loaded)
        logits, bags, notes = run.model.logits(loaded.inputs), loaded.bags, list(loaded.notes)
        good = torch.arange(len(logits))
    else:
        table = _table(data)
        inputs, good, notes = _table_inputs(run, data, table)
        part = run.model.logits(inputs)
        # Rows without a readable image keep zeros here and are masked in the output.
        logits = part.new_zeros((len(table), *part.shape[1:]))
        logits[good] = part
        try:
            bags, missing = table_bags(run, data, table)
            if bags is None:
                missing = [f"no posterior column, as there are no counts: {missing[0]}"]
        except LLPError as error:
            # Without counts there are still probabilities; but a table that was named must work.
            if data.counts_table is not None:
                raise
            bags = None
            missing = [f"no posterior column: {error}; it needs whole bags and their counts"]
        notes += missing
    probability = probability_of(logits)
    known = np.zeros(len(table), bool)
    known[good] = True
    columns = named("probability", probability, run.class_names, known)
    columns["label"] = labels(probability, run.class_names, threshold, known)
    if bags is not None:
        notes += filter(None, [evaluation.approximation_note(bags)])
        columns |= named("posterior", posterior_of(logits, bags), run.class_names, known)
    tables = [Path(file) for file in (data.table, data.counts_table) if file is not None]
    own = [run.folder / name for name in (CHECKSUMS, *Checksums.need(run.folder).files)]
    return Predictions(table, columns, tuple(notes), (*tables, *own))


def _as_table(data: DataSet) -> Table:
    import pyarrow as pa

    bag = np.full(len(data.inputs), "", dtype=object)
    ids = np.array([str(name) for name in data.bags.ids], dtype=object)
    bag[data.bags.rows.numpy()] = ids[data.bags.bag_index.numpy()]
    return Table(Path(data.name), pa.table({"row": np.arange(len(bag)), "bag": bag}))


def _table_inputs(run: Run, data: Data, table: Table) -> tuple[Inputs, Tensor, list[str]]:
    """Inputs of the readable rows, the numbers of these rows, and notes."""
    if run.encoder is not None:
        features = run.encoder.apply(table)
        return features, torch.arange(len(table)), run.encoder.notes(table)
    files = _images(run, data, table)
    bad = files.bad_rows() if data.skip_bad else {}
    good = torch.tensor([row for row in range(len(table)) if row not in bad], dtype=torch.int64)
    if not len(good):
        raise LLPError(f"no image can be read; the first: {next(iter(bad.values()))}")
    return files.select(good), good, [f"no prediction: {reason}" for reason in bad.values()]


def _table(data: Data) -> Table:
    assert data.table is not None
    if data.image is None:
        return Table.read(data.table)
    return datasets.table_without_images(data.table, data.image)


def _images(run: Run, data: Data, table: Table) -> ImageFiles:
    assert data.image is not None  # a run on a table has an encoder or an image column
    channels, height, width = run.model.input_shape
    files = datasets.image_files(
        table,
        data.image,
        root=data.image_root,
        size=data.image_size,
        channels=channels,
        check=not data.skip_bad,
    )
    if files.size != (height, width):
        raise LLPError(
            f"the images of {table.path} have {files.size[0]} x {files.size[1]} pixels, but the "
            f"run learned from {height} x {width}; resize them with --image-size {height}x{width}"
        )
    return files


def table_bags(run: Run, data: Data, table: Table) -> tuple[Bags | None, list[str]]:
    """The bags of a table with counts, or ``None`` and the reason."""
    known_label = data.known_label if data.known_label in table.names else None
    count, low, high, proportion = data.count, data.count_low, data.count_high, data.proportion
    if (count or proportion) and (low or high) and not data.counts_table:
        # Of counts and bounds together, one is enough.
        if not set(listed(low) + listed(high)) <= set(table.names):
            low = high = None
        elif not set(listed(count) + listed(proportion)) <= set(table.names):
            count = proportion = None
    counts = CountColumns(
        count,
        low,
        high,
        proportion,
        data.decimals if proportion else None,
        data.counts_table,
        data.count_noise if count else None,
        known_label,
        data.class_names or run.class_names,
        data.ignore_empty,
    )
    if not counts.names:  # the run learned from known labels alone, and here there are none
        return None, [f"{table.path} has no column {data.known_label!r}"]
    assert data.bag is not None  # checked with the configuration
    wanted = [data.bag, *([] if data.counts_table else counts.names)]
    missing = [name for name in wanted if name not in table.names]
    if missing:
        names = ", ".join(repr(name) for name in missing)
        remedy = "; name the table that has it with --counts-table"
        if run.config.data.counts_table is None or missing[0] == data.bag:
            remedy = ""
        return None, [f"{table.path} has no column {names}{remedy}"]
    return counts.read(table, data.bag)


def _bags_of_labels(run: Run, table: Table, bag: str, truth: Tensor) -> Bags:
    """The bags of a table without counts, which follow from the labels."""
    codes, ids = table.groups(bag)
    bags = Bags.from_labels(truth, codes, run.model.num_classes)  # in the order of the codes
    return Bags(bags.offsets, bags.evidence, rows=bags.rows, ids=ids, num_rows=len(table))


def named(what: str, probability: Tensor, class_names: Sequence[str], known: Any) -> dict[str, Any]:
    """One column, or one per class; null in rows without a prediction."""
    import pyarrow as pa

    values = probability.float().numpy()
    if values.ndim == 1:
        return {what: pa.array(values, mask=~known)}
    pairs = zip(class_names, values.T, strict=True)
    return {f"{what}_{name}": pa.array(column, mask=~known) for name, column in pairs}


def labels(probability: Tensor, class_names: Sequence[str], threshold: float, known: Any) -> Any:
    """Labels as numbers for two classes, as names for more."""
    import pyarrow as pa

    chosen = evaluation.labels_of(probability, threshold).numpy()
    if probability.dim() == 1:
        return pa.array(chosen, mask=~known)
    return pa.array(np.array(class_names, dtype=object)[chosen], mask=~known)


def write_predictions(found: Predictions, out: Path, prefix: str = "") -> None:
    """Write the table with the predictions as new columns on the right."""
    taken = [f"{prefix}{name}" for name in found.columns if f"{prefix}{name}" in found.table.names]
    if taken:
        raise LLPError(
            f"{found.table.path} has a column {taken[0]!r} already; choose other names for the "
            "predictions with --prefix, such as --prefix llp_"
        )
    check_apart(out, found.inputs)
    if not out.parent.is_dir():
        raise LLPError(f"{out} cannot be written: there is no folder {out.parent}; create it first")
    found.table.write(out, {f"{prefix}{name}": c for name, c in found.columns.items()})


class Evaluated(NamedTuple):
    """The measures of every part of the data, with notes about them."""

    parts: dict[str, Values]
    notes: tuple[str, ...]
    verdict: Values | None
    """See :class:`llpkit.evaluation.Verdict`; ``None`` if there are no bags."""


def evaluate(run: Run, data: Data, threshold: float = 0.5, *, by_part: bool = False) -> Evaluated:
    """Measures of a run on other data, or on each part of its own data."""
    bags: Bags | None
    inputs: Inputs
    notes: list[str] = []
    missing: list[str] = []
    if data.table is None or (run.encoder is None and data.label is None):
        loaded = load_data(data, run.config.recipe.seed)
        inputs, bags, truth = loaded.inputs, loaded.bags, loaded.truth
    else:
        table, truth = _table(data), None
        bags, missing = table_bags(run, data, table)
        told = [] if bags is None else missing
        if data.label is not None:
            names = data.class_names or run.class_names
            if len(names) != len(run.class_names):
                raise LLPError(f"--class-name was given {len(names)} times; give one per class")
            truth = torch.from_numpy(table.labels(data.label, names))
            told += [] if bags is None else contradictions(bags, truth, data.label)
        if run.encoder is not None:
            inputs, notes = run.encoder.apply(table), run.encoder.notes(table) + told
        elif bags is None:
            inputs = _images(run, data, table)
        else:  # bags with a bad image may be left out
            loaded = load_data(data, run.config.recipe.seed)
            inputs, bags, truth = loaded.inputs, loaded.bags, loaded.truth
            notes = list(loaded.notes)
        if bags is None and truth is not None and data.bag in table.names:
            bags = _bags_of_labels(run, table, data.bag, truth)
            notes.append(f"the counts of bags are those of the labels in column {data.label!r}")
    if bags is None and truth is None:
        raise LLPError(
            f"nothing to evaluate by: {missing[0]}; give the counts, or labels with --label"
        )
    if by_part and bags is not None:
        parts: Mapping[str, Bags | None] = divide(bags, run.config)
    else:
        parts = {"all": bags}
    found = {
        name: measure(run.model, inputs, part, truth, threshold) for name, part in parts.items()
    }
    verdict = run.model.details.get("verdict")
    if not by_part:
        gain = found["all"].gain
        verdict = None if gain is None else evaluation.verdict(None, gain, "")._asdict()
    return Evaluated({name: one.values for name, one in found.items()}, tuple(notes), verdict)
