"""What the commands do: runs in directories, predictions, measurements. Nothing here prints.

A run directory is whole or not there. While a run works, its files are in a sibling whose name ends
in ``.partial``; when all of them are written it is renamed. A run that was killed leaves its
checkpoint there, and goes on from it.
"""

import csv
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llpkit import datasets, evaluation
from llpkit import training as train
from llpkit.bags import Bags
from llpkit.config import Config, Data, Settings, absolute, check, merge, read, to_yaml
from llpkit.datasets import CountColumns, DataSet, FeatureEncoder, ImageFiles, Inputs, Table
from llpkit.datasets._files import data_folder
from llpkit.errors import LLPError
from llpkit.likelihood import posterior
from llpkit.methods import METHODS
from llpkit.table_model import ESTIMATOR, TableModel
from llpkit.table_model import load as load_table_model
from llpkit.table_model import train as train_table
from llpkit.training import Callback, Fitted, TestMetrics

CONFIG, ENVIRONMENT, METRICS = "config.yaml", "environment.json", "metrics.csv"
ENCODER, REPORT, FIGURES = "encoder.json", "report.html", "figures"
CHECKPOINT = "checkpoint.pt"
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".gz", ".bz2", ".zst")
_PACKAGES = ("torch", "numpy", "lightning-fabric", "numba", "scikit-learn", "pyarrow", "pillow")
_WALL = 12


# Data


def load_data(data: Data, seed: int) -> DataSet:
    """The data set that a configuration names."""
    name, options = data.arguments()
    return datasets.load(name, seed=seed, **options)


def divide(bags: Bags, config: Config) -> dict[str, Bags]:
    """The bags to train on, and those held out and kept for testing, by name; always whole bags."""
    generator = torch.Generator().manual_seed(config.seed)
    parts = {}
    for name, share in (("test", config.test_fraction), ("held-out", config.held_out)):
        if share is not None:
            bags, parts[name] = bags.split(1 - share, generator)
    parts["training"] = bags
    return {name: parts[name] for name in ("training", "held-out", "test") if name in parts}


def take(inputs: Inputs, rows: Tensor) -> Inputs:
    """Some rows of the inputs."""
    return inputs.select(rows) if isinstance(inputs, ImageFiles) else inputs[rows]


def checksum(data: DataSet) -> str:
    """SHA-256 of inputs and bags; of image files, of their names and sizes."""
    total = hashlib.sha256()
    if isinstance(data.inputs, ImageFiles):
        for path in data.inputs.paths:
            total.update(repr((path.name, path.stat().st_size)).encode())
    else:
        total.update(data.inputs.contiguous().numpy().data)
    bags = data.bags
    for part in (bags.offsets, bags.rows, bags.evidence.low, bags.evidence.high):
        total.update(part.contiguous().numpy().data)
    return total.hexdigest()


# Fit


@dataclass(frozen=True)
class Finished:
    """A run that has ended: where it lies, its model, what was measured, what to know of it."""

    folder: Path
    model: Fitted
    measures: dict[str, Settings]
    notes: tuple[str, ...]


def partial_of(out: Path) -> Path:
    """Where a run works until it is finished."""
    return out.with_name(f"{out.name}.partial")


def fit(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    force: bool = False,
    command: str = "",
    callbacks: Sequence[Callback] = (),
) -> Finished:
    """Train as configured and write the run directory ``out``.

    Args:
        config: What to do.
        out: The run directory. One that is there is an error, unless ``force``.
        resume: Go on where a run was stopped, if one was.
        force: Replace a finished run once this one is, and drop an unfinished one.
        command: What the user typed, for the record.
        callbacks: Look on; see :class:`llpkit.training.Callback`.
    """
    config = absolute(config)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    work = _workplace(config, out, resume, force)
    try:
        data = load_data(config.data, config.seed)
        record = _record(config, data, command)
        if (work / ENVIRONMENT).exists():
            _same_data(work / ENVIRONMENT, record)
        else:
            _write(work / ENVIRONMENT, json.dumps(record, indent=1))
        start = time.perf_counter()
        parts = divide(data.bags, config)
        model = _train(config, data, parts, work, callbacks)
    except BaseException:
        if not (work / CHECKPOINT).exists():  # nothing was learnt that could be resumed
            shutil.rmtree(work, ignore_errors=True)
        raise
    record["seconds"] = round(time.perf_counter() - start, 3)
    model.details |= {"class_names": list(data.class_names), "method": config.method}
    measures = {name: measure(model, data.inputs, bags, data.truth) for name, bags in parts.items()}
    _write_run(work, config, data, parts, model, record)
    publish(work, out)
    notes = (*data.notes, *model.details.get("warnings", ()))
    return Finished(out, model, measures, notes)


def _workplace(config: Config, out: Path, resume: bool, force: bool) -> Path:
    """The partial directory, made or taken up."""
    work = partial_of(out)
    if out.exists() and not force:
        if not (out / CONFIG).exists():
            raise LLPError(f"{out} exists and is not a run; choose another directory with --out")
        if resume:
            raise LLPError(f"{out} is finished; there is nothing to resume")
        raise LLPError(f"{out} exists; choose another directory with --out, or replace it: --force")
    if out.exists() and not (out / CONFIG).exists():
        raise LLPError(f"{out} exists and is not a run, so --force does not replace it")
    if work.exists() and not resume:
        if not force:
            raise LLPError(
                f"{work} holds a run that was stopped; go on with --resume, or start it afresh "
                "with --force"
            )
        shutil.rmtree(work)
    if (work / CONFIG).exists():
        _same_settings(work / CONFIG, config)
        return work
    try:
        work.mkdir(parents=True, exist_ok=True)
        _write(work / CONFIG, to_yaml(config))
    except OSError as error:
        raise LLPError(f"{work} cannot be written: {error.strerror}") from error
    return work


def unfinished(out: Path) -> Settings | None:
    """The settings of a run that was stopped, where there is one."""
    file = partial_of(out) / CONFIG
    return read(file) if file.exists() else None


def _same_settings(file: Path, config: Config) -> None:
    free = {"device", "threads", "workers", "resident"}
    old, new = check(read(file)).model_dump(), config.model_dump()
    pairs = {key: (old[key], new[key]) for key in old if key not in free | {"data"}}
    pairs |= {f"data.{key}": (old["data"][key], new["data"][key]) for key in old["data"]}
    for key, (before, now) in pairs.items():
        if before != now:
            raise LLPError(
                f"the run in {file.parent} has {key} = {before!r}, this one {now!r}; resume it "
                "with its own settings, or start afresh with --force"
            )


def _same_data(file: Path, record: Settings) -> None:
    before, now = json.loads(file.read_text())["data"]["sha256"], record["data"]["sha256"]
    if before != now:
        raise LLPError(
            f"the data changed since the run in {file.parent} began (checksum {before[:12]}, now "
            f"{now[:12]}); start afresh with --force"
        )


def _train(
    config: Config,
    data: DataSet,
    parts: Mapping[str, Bags],
    work: Path,
    callbacks: Sequence[Callback],
) -> Fitted:
    if config.estimator is not None:
        options = config.estimator_options
        return train_table(config.estimator, options, data, parts["training"], config.seed)
    labels = None
    if METHODS[config.method].needs_labels:
        if data.truth is None:
            raise LLPError(
                f'method "{config.method}" learns from instance labels, and this table has none; '
                "name their column with --label, or choose another method"
            )
        labels = data.truth
    watch: list[Callback] = []
    if "test" in parts and data.truth is not None:
        rows = parts["test"].rows
        watch = [TestMetrics(take(data.inputs, rows), data.truth[rows])]
    return train.fit(
        config.network,
        parts["training"],
        data.inputs,
        config.method,
        method_options=config.method_options,
        epochs=config.epochs,
        batch_size=config.batch_size,
        optimizer=config.optimizer,
        lr=config.lr,
        weight_decay=config.weight_decay,
        schedule=config.schedule,
        augment=config.augment,
        held_out=parts.get("held-out"),
        patience=config.patience,
        labels=labels,
        precision=config.precision,
        device=config.device,
        seed=config.seed,
        callbacks=[*watch, *callbacks],
        run_dir=work,
        resume=True,
        resident=config.resident,
        workers=config.workers,
        progress=False,
    )


def _write_run(
    work: Path,
    config: Config,
    data: DataSet,
    parts: Mapping[str, Bags],
    model: Fitted,
    record: Settings,
) -> None:
    model.save(work)
    _write(work / ENVIRONMENT, json.dumps(record, indent=1))
    if data.encoder is not None:
        _write(work / ENCODER, data.encoder.to_json())
    names = list(dict.fromkeys(key for row in model.history for key in row))
    with (work / METRICS).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["epoch", *(name for name in names if name != "epoch")])
        writer.writeheader()
        writer.writerows(model.history)
    _write_report(work, config, data, parts, model, record)


def publish(work: Path, out: Path) -> None:
    """Give a finished run its name; a run that it replaces goes last."""
    for left in (work / CHECKPOINT, *work.glob(".*")):
        left.unlink(missing_ok=True)
    replaced = out.with_name(f"{out.name}.replaced")
    shutil.rmtree(replaced, ignore_errors=True)
    if out.exists():
        out.rename(replaced)
    work.rename(out)
    shutil.rmtree(replaced, ignore_errors=True)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


# Records


def _record(config: Config, data: DataSet, command: str) -> Settings:
    return {
        "command": command,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": config.seed,
        "data": {
            "name": data.name,
            "rows": len(data.inputs),
            "bags": len(data.bags),
            "sha256": checksum(data),
        },
        **environment(),
    }


def environment() -> Settings:
    """Versions and hardware."""
    from llpkit import __version__

    found = {"llpkit": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    hardware: Settings = {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if torch.cuda.is_available():
        hardware["gpu"] = torch.cuda.get_device_name()
    return {"versions": found, "hardware": hardware}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return (
                next(line for line in lines if line.startswith("model name")).split(":")[1].strip()
            )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def flat(record: Settings) -> dict[str, object]:
    """A record for a page: one line a name."""
    flat: dict[str, object] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat |= {f"data {k}" if key == "data" else k: v for k, v in value.items()}
        elif value != "":
            flat[key] = value
    return flat


def _write_report(
    work: Path,
    config: Config,
    data: DataSet,
    parts: Mapping[str, Bags],
    model: Fitted,
    record: Settings,
) -> None:
    from llpkit.report import Calibration, Page, Series, summarise, write_page

    if isinstance(model, TableModel):
        from llpkit.table_page import write_table_page

        pages = work / REPORT, work / FIGURES
        write_table_page(*pages, config, data, parts, model, flat(record))
        return
    chosen = None if config.held_out is None else model.chosen_epoch
    series = [Series(config.method, config.seed, model.history, chosen)]
    curves = []
    if "test" in parts and data.truth is not None:
        rows = parts["test"].rows
        p = model.predict_proba(take(data.inputs, rows))
        curves = [Calibration(config.method, *evaluation.calibration(p, data.truth[rows]))]
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
        title=f"{config.method} on {what}",
        lead=(f"{METHODS[config.method].summary}.",),
        class_names=data.class_names,
        facts=facts,
        summary=summarise(series, curves),
        series=series,
        calibrations=curves,
        wall={config.method: wall(model, data, parts["training"])},
        wall_note="The first bags that the model was trained on.",
        notes=data.notes,
        environment=flat(record),
    )
    write_page(page, work / REPORT, figures_dir=work / FIGURES)


def wall(model: Fitted, data: DataSet, bags: Bags, inputs: Inputs | None = None) -> list[Any]:
    """Some bags to look at: the first that are not too large.

    ``inputs`` are what the model takes, where that differs from what is to be looked at.
    """
    from llpkit.report import wall_bags

    small = torch.where((bags.sizes >= 1) & (bags.sizes <= _WALL))[0][:_WALL]
    shown = bags[small] if len(small) else bags[:1]
    logits = _logits_of_rows(model, data.inputs if inputs is None else inputs, shown.rows)
    return wall_bags(
        shown,
        data.inputs,
        _probability(logits),
        class_names=data.class_names,
        posterior=_posterior(logits, shown),
        truth=data.truth,
        feature_names=data.encoder.feature_names if data.encoder else None,
    )


def _logits_of_rows(model: Fitted, inputs: Inputs, rows: Tensor) -> Tensor:
    """Logits of all rows, of which only these are computed; the others are zero."""
    part = model.logits(take(inputs, rows))
    logits = part.new_zeros((len(inputs), *part.shape[1:]))
    logits[rows] = part
    return logits


def _probability(logits: Tensor) -> Tensor:
    return logits.sigmoid() if logits.dim() == 1 else logits.softmax(1)


def _posterior(logits: Tensor, bags: Bags) -> Tensor:
    """Label probabilities given the counts, one row a row of the table."""
    phi = _probability(logits)
    phi[bags.rows] = posterior(logits[bags.rows], bags.evidence, bags.offsets)
    return phi


# Predict and evaluate


@dataclass(frozen=True)
class Run:
    """A finished run, read back. Nothing that is read can run code."""

    folder: Path
    config: Config
    model: Fitted
    encoder: FeatureEncoder | None

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the label values 0, 1, … stand for."""
        classes = self.model.num_classes or 2
        names = self.model.details.get("class_names") or range(classes)
        return tuple(map(str, names))


def open_run(folder: Path, device: str = "auto") -> Run:
    """Read a run directory."""
    if not (folder / CONFIG).exists():
        if partial_of(folder).exists():
            raise LLPError(
                f"the run {folder} was stopped before its end; go on: "
                f"llpkit fit --resume --out {folder}"
            )
        raise LLPError(f"{folder} is not a run directory; give one that llpkit fit wrote")
    config = check(read(folder / CONFIG))
    is_estimator = (folder / ESTIMATOR).exists()
    model = load_table_model(folder) if is_estimator else train.load(folder)
    encoder = None
    if (folder / ENCODER).exists():
        text = (folder / ENCODER).read_text(encoding="utf-8", errors="replace")
        encoder = FeatureEncoder.from_json(text)
    where = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(where if device == "auto" else device)
        model.network.to(place)
        model.preprocess.to(place)
    except (RuntimeError, AssertionError) as error:
        raise LLPError(f"device = {device!r} cannot be used; give auto or cpu") from error
    return Run(folder, config, model, encoder)


def is_table(source: str) -> bool:
    """Whether a source is a file rather than the name of a data set."""
    path = Path(source).expanduser()
    return path.suffix.lower() in TABLES or (path.exists() and source not in datasets.DATASETS)


def data_of(run: Run, source: str | None, options: Settings) -> Data:
    """The run's own data, or another table or data set read in the same way.

    Args:
        run: The run.
        source: A table or the name of a data set; ``None`` for the run's own.
        options: What differs, by paths such as ``data.label``.
    """
    own = run.config.data
    settings = {key: value for key, value in own.model_dump().items() if value}
    if source is not None and is_table(source):
        if own.table is None:
            raise LLPError(
                f"the run {run.folder} learnt from the data set {own.dataset}, not from a table; "
                "give the name of a data set"
            )
        settings |= {"table": source}
        settings.pop("counts_table", None)
    elif source is not None and source != own.dataset:
        settings = {"dataset": source}
    return check(merge({"data": settings}, options)).data


@dataclass(frozen=True)
class Predictions:
    """Predictions row by row, and what to know of them."""

    table: Table
    columns: dict[str, Any]
    notes: tuple[str, ...]


def predict(run: Run, data: Data, threshold: float = 0.5) -> Predictions:
    """Probability, label and, where counts are given, posterior of every row."""
    if not 0 <= threshold <= 1:
        raise LLPError(f"threshold = {threshold}; give a probability from 0 to 1")
    bags: Bags | None
    if data.table is None:
        loaded = load_data(data, run.config.seed)
        table = _as_table(loaded)
        logits, bags, notes = run.model.logits(loaded.inputs), loaded.bags, list(loaded.notes)
        good = torch.arange(len(logits))
    else:
        table = Table.read(data.table)
        inputs, good, notes = _table_inputs(run, data, table)
        part = run.model.logits(inputs)
        logits = part.new_zeros((len(table), *part.shape[1:]))
        logits[good] = part
        bags, missing = _table_bags(data, table)
        notes += missing
    probability = _probability(logits)
    known = np.zeros(len(table), bool)
    known[good] = True
    columns = _named("probability", probability, run.class_names, known)
    columns["label"] = _labels(probability, run.class_names, threshold, known)
    if bags is not None:
        columns |= _named("posterior", _posterior(logits, bags), run.class_names, known)
    return Predictions(table, columns, tuple(notes))


def _as_table(data: DataSet) -> Table:
    import pyarrow as pa

    bag = np.full(len(data.inputs), "", dtype=object)
    ids = np.array([str(name) for name in data.bags.ids], dtype=object)
    bag[data.bags.rows.numpy()] = ids[data.bags.bag_index.numpy()]
    return Table(Path(data.name), pa.table({"row": np.arange(len(bag)), "bag": bag}))


def _table_inputs(run: Run, data: Data, table: Table) -> tuple[Inputs, Tensor, list[str]]:
    """Inputs of the rows that can be read, which rows these are, and what to know."""
    if run.encoder is not None:
        return run.encoder.apply(table), torch.arange(len(table)), []
    files = _images(run, data, table)
    bad = files.bad_rows() if data.skip_bad else {}
    good = torch.tensor([row for row in range(len(table)) if row not in bad], dtype=torch.int64)
    if not len(good):
        raise LLPError(f"no image can be read; the first: {next(iter(bad.values()))}")
    return files.select(good), good, [f"no prediction: {reason}" for reason in bad.values()]


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
            f"the images of {table.path} have {files.size[1]} x {files.size[0]} pixels, but the "
            f"run learnt from {width} x {height}; resize them with --image-size {width}x{height}"
        )
    return files


def _table_bags(data: Data, table: Table) -> tuple[Bags | None, list[str]]:
    """The bags of a table whose counts are given, or why there are none."""
    counts = CountColumns(
        data.count,
        data.count_low,
        data.count_high,
        data.proportion,
        data.decimals,
        data.counts_table,
    )
    assert data.bag is not None  # checked with the configuration
    wanted = [data.bag, *([] if data.counts_table else counts.names)]
    missing = [name for name in wanted if name not in table.names]
    if missing:
        names = ", ".join(repr(name) for name in missing)
        return None, [f"no posterior: {table.path} has no column {names}"]
    return counts.bags(table, data.bag), []


def _named(
    what: str, probability: Tensor, class_names: Sequence[str], known: Any
) -> dict[str, Any]:
    """One column, or one a class; null where nothing is known."""
    import pyarrow as pa

    values = probability.float().numpy()
    if values.ndim == 1:
        return {what: pa.array(values, mask=~known)}
    pairs = zip(class_names, values.T, strict=True)
    return {f"{what}_{name}": pa.array(column, mask=~known) for name, column in pairs}


def _labels(probability: Tensor, class_names: Sequence[str], threshold: float, known: Any) -> Any:
    """Labels as numbers for two classes, as names for more."""
    import pyarrow as pa

    labels = evaluation.labels_of(probability, threshold).numpy()
    if probability.dim() == 1:
        return pa.array(labels, mask=~known)
    return pa.array(np.array(class_names, dtype=object)[labels], mask=~known)


def write_predictions(found: Predictions, out: Path, prefix: str = "") -> None:
    """The table with the predictions to the right of its columns."""
    taken = [f"{prefix}{name}" for name in found.columns if f"{prefix}{name}" in found.table.names]
    if taken:
        raise LLPError(
            f"{found.table.path} has a column {taken[0]!r} already; choose other names for the "
            "predictions with --prefix, such as --prefix llp_"
        )
    if out.exists() and found.table.path.exists() and out.samefile(found.table.path):
        raise LLPError(f"{out} is the table itself; write the predictions to another file")
    if not out.parent.is_dir():
        raise LLPError(f"there is no folder {out.parent} to write {out.name} to")
    found.table.write(out, {f"{prefix}{name}": c for name, c in found.columns.items()})


def evaluate(
    run: Run, data: Data, threshold: float = 0.5, *, by_part: bool = False
) -> dict[str, Settings]:
    """Measures of a run on some data, or on each part that the run divided its own data into."""
    bags: Bags | None
    notes: list[str] = []
    if data.table is None or run.encoder is None:
        loaded = load_data(data, run.config.seed)
        inputs, bags, truth = loaded.inputs, loaded.bags, loaded.truth
    else:
        table = Table.read(data.table)
        inputs, truth = run.encoder.apply(table), None
        bags, notes = _table_bags(data, table)
        if data.label is not None:
            truth = torch.from_numpy(table.labels(data.label, run.class_names))
    if bags is None and truth is None:
        raise LLPError(f"{notes[0]}; give the counts, or a column of labels with --label")
    if by_part and bags is not None:
        parts: Mapping[str, Bags | None] = divide(bags, run.config)
    else:
        parts = {"all": bags}
    return {
        name: measure(run.model, inputs, part, truth, threshold) for name, part in parts.items()
    }


def measure(
    model: Fitted,
    inputs: Inputs,
    bags: Bags | None,
    truth: Tensor | None,
    threshold: float = 0.5,
) -> Settings:
    """Measures of bags, and of their instances (of all, without bags) where the truth is known."""
    rows = torch.arange(len(inputs)) if bags is None else bags.rows
    logits = model.logits(take(inputs, rows))
    found: Settings = {}
    if bags is not None:
        found["bags"] = {
            "number": len(bags),
            "log_likelihood": float(evaluation.bag_log_likelihood(logits, bags).mean()),
            "proportion_error": evaluation.proportion_error(_probability(logits), bags),
        }
    if truth is not None:
        p, y = _probability(logits.double()), truth[rows]
        found["instances"] = {
            "number": len(y),
            "accuracy": evaluation.accuracy(p, y, threshold),
            "log_loss": evaluation.log_loss(p, y),
            "brier": evaluation.brier(p, y),
            "calibration_error": evaluation.calibration(p, y).error,
        }
        if p.dim() == 1:
            found["instances"]["auc"] = evaluation.auc(p, y)
    return found


# Data sets


@dataclass(frozen=True)
class Known:
    """A data set for a list: whether it can be loaded now and, if not, what to do."""

    name: str
    summary: str
    found: bool
    remedy: str


def known_datasets(data_dir: str | None = None) -> list[Known]:
    """All data sets by name."""
    folder = data_folder(data_dir)
    known = []
    for name, entry in datasets.DATASETS.items():
        found = not entry.place or any((folder / part).exists() for part in _files(entry.place))
        remedy = "" if found else f"{entry.source}; put it there as {entry.place}"
        if name.endswith("-table"):
            remedy = "llpkit fit TABLE --bag COLUMN --count COLUMN"
            remedy += " --image COLUMN" if name == "image-table" else ""
        known.append(Known(name, entry.summary, found, remedy))
    return known


def _files(place: str) -> list[str]:
    """The names of files and folders in a description of where a data set goes."""
    words = [word.strip(",;:()").partition("/")[0] for word in place.split()]
    return [word for word in words if any(mark in word for mark in "-.0123456789")]
