"""Training as configured, into a run directory that is whole or not there.

While a run works, its files are in a sibling whose name ends in ``.partial``; when all of them are
written it is renamed. A run that was killed leaves its checkpoint there, and goes on from it.
"""

import csv
import json
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from llpkit import evaluation
from llpkit import training as train
from llpkit.bags import Bags
from llpkit.config import Config, Settings, absolute, check, read, to_yaml
from llpkit.datasets import DataSet
from llpkit.errors import ApproximationWarning, LLPError, TooManyStates
from llpkit.methods import METHODS
from llpkit.runs._data import divide, load_data, take
from llpkit.runs._measure import measure
from llpkit.runs._page import write_report
from llpkit.runs._record import record_of
from llpkit.runs._table_model import train as train_table
from llpkit.training import Callback, Fitted, TestMetrics

CONFIG, ENVIRONMENT, METRICS = "config.yaml", "environment.json", "metrics.csv"
ENCODER, CHECKPOINT = "encoder.json", "checkpoint.pt"


@dataclass(frozen=True)
class Finished:
    """A run that has ended: where it lies, its model, what was measured, what to know of it."""

    folder: Path
    model: Fitted
    measures: dict[str, Settings]
    notes: tuple[str, ...]


def partial_of(out: Path) -> Path:
    """Where a run works until it is finished."""
    if not out.name:  # '', '.' and '/': there is no sibling to work in
        raise LLPError(f"'{out}' cannot be a run directory; name one, runs/first say")
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
        record = record_of(config, data, command)
        if (work / ENVIRONMENT).exists():
            _same_data(work / ENVIRONMENT, record)
        else:
            _write(work / ENVIRONMENT, json.dumps(record, indent=1))
        start = time.perf_counter()
        parts = divide(data.bags, config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ApproximationWarning)  # a note says it, of all parts
            model = _train(config, data, parts, work, callbacks)
    except BaseException as error:
        if not (work / CHECKPOINT).exists():  # nothing was learnt that could be resumed
            shutil.rmtree(work, ignore_errors=True)
        if isinstance(error, TooManyStates):
            option = "--method-option likelihood=sinkhorn"
            if config.estimator is not None:
                option = "--estimator-option method=sinkhorn"
            raise error.choosing(option) from error
        raise
    record["seconds"] = round(time.perf_counter() - start, 3)
    model.details |= {"class_names": list(data.class_names), "method": config.method}
    about = evaluation.approximation_note(*parts.values())
    if about is not None:
        model.details["warnings"] = [*model.details.get("warnings", ()), about]
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
    free = {"device", "threads", "workers", "resident", "cuda_graph", "compile"}
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
        return train_table(
            config.estimator,
            config.estimator_options,
            data,
            parts["training"],
            config.seed,
            config.threads,
        )
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
        cuda_graph=config.cuda_graph,
        compile=config.compile,
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
    write_report(work, config, data, parts, model, record)


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
