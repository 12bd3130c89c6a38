"""Training from a configuration into a run directory, which is either complete or absent.

Until a run is finished, its files are in a hidden folder next to the run directory; see
:mod:`llpkit.runs.folder`. A killed run leaves its checkpoint there and can resume from it. Only one
process at a time can work on a run directory.
"""

import csv
import io
import json
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llpkit import evaluation
from llpkit import training as train
from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.config import Config, Values, absolute, to_yaml
from llpkit.datasets import DataSet
from llpkit.errors import (
    ApproximationWarning,
    BaselineWarning,
    IdentifiabilityWarning,
    LLPError,
    TooManyStates,
)
from llpkit.files import Checksums, add_checksums, check_apart, locked, write_text
from llpkit.integrations import loggers
from llpkit.likelihood.choice import choice_note
from llpkit.methods import METHODS
from llpkit.runs.choice import settled
from llpkit.runs.data import checksum, divide, load_data, take
from llpkit.runs.estimator import ESTIMATOR
from llpkit.runs.estimator import load as load_table_model
from llpkit.runs.estimator import train as train_table
from llpkit.runs.folder import RunFolder
from llpkit.runs.judgement import judge
from llpkit.runs.machine import record_of
from llpkit.runs.measures import Measured, measure
from llpkit.runs.resume import CONFIG, check_place, data_checksum, differing, same_data
from llpkit.runs.search import settled as searched
from llpkit.tables import FeatureEncoder
from llpkit.training import Callback, Fitted, TestMetrics

if TYPE_CHECKING:
    from llpkit.runs.large import Large

Log = Callable[[dict[str, Any]], None]
ENVIRONMENT, METRICS = "environment.json", "metrics.csv"


@dataclass(frozen=True)
class Finished:
    """A finished run: its directory, model, measures and notes."""

    folder: Path
    model: Fitted
    measures: dict[str, Values]
    notes: tuple[str, ...]


class Stopped(KeyboardInterrupt):
    """An interrupt, with what is left of the run.

    Args:
        kept: ``"finished"``, ``"checkpoint"``, or ``""`` if nothing is left.
    """

    def __init__(self, kept: str) -> None:
        super().__init__()
        self.kept = kept


def fit(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    force: bool = False,
    command: str = "",
    callbacks: Sequence[Callback] = (),
    announce: Callable[[str], None] | None = None,
    log: Log = lambda _: None,
) -> Finished:
    """Train as configured and write the run directory ``out``.

    If a killed process had already finished the run, it is only moved into place.

    Args:
        config: The configuration.
        out: The run directory. It must not exist unless ``force``, and no other process may be
            using it.
        resume: Continue a stopped run, if there is one.
        force: Replace a finished run once this one is finished, and drop an unfinished one.
        command: What the user typed, for the record.
        callbacks: See :class:`llpkit.training.Callback`.
        announce: Called with the method and the reason for it, if the configuration names none.
        log: Called with a dictionary after every step on a table larger than memory.

    Raises:
        Stopped: On an interrupt.
    """
    config = absolute(config)
    tables = (config.data.table, config.data.counts_table)
    check_apart(out, [Path(table) for table in tables if table is not None])
    data: DataSet | None = None
    picked: Values = {}
    with train.together(config.execution) as processes, _Start(processes) as go, locked(out):
        place = RunFolder(out)
        finished = place.finished
        try:
            if config.is_open:  # settled before it is compared with the settings of a stopped run
                data = load_data(config.data, config.recipe.seed)
                config, pick = settled(config, data)
                picked = pick.about()
                if announce is not None:
                    announce(str(pick))
            # A published run counts only if it is the one asked for; else training starts anew.
            if place.recover(force) and (done := _found(config, place)):
                return done
            finished = False
            with _engine(config):
                done = _fit(config, place, resume, force, command, callbacks, data, picked, go, log)
            finished = True
            place.publish()
            return done
        except KeyboardInterrupt as stop:
            # publish renames the working folder, so its absence means that the run is in place.
            named = finished and not place.work.exists()
            raise Stopped("finished" if named else "checkpoint" * place.kept) from stop
        finally:
            if not place.kept:  # nothing to resume from: clean up
                place.recover(force=False)


def _engine(config: Config) -> AbstractContextManager[Any]:
    """The Dask cluster, if there is one."""
    if config.cluster.engine == "memory":
        return nullcontext()
    from llpkit.distributed.cluster import connected

    chosen = config.cluster
    return connected(chosen.scheduler, config.execution.workers, chosen.memory_limit)


def _large(config: Config, log: Log) -> "Large | None":
    """The table in partitions, if Dask fits it."""
    if config.cluster.engine == "memory":
        return None
    from llpkit.runs.large import Large

    return Large(config, log)


def leads(config: Config) -> bool:
    """Whether this process writes the run; the others of torchrun or Slurm :func:`follow` it."""
    return train.placement(config.execution).first


def follow(config: Config, out: Path) -> None:
    """Train as one of several processes, when and if the first one does; writes nothing."""
    config = absolute(config)
    with train.together(config.execution) as processes:
        # On machines without torchrun, the first process cannot be asked before training.
        if not processes.alone and not processes.tell(None):
            return
        data = load_data(config.data, config.recipe.seed)
        if config.is_open:
            config, _ = settled(config, data)
        if config.choice.estimator is not None:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first process notes them
            _train(config, data, divide(data.bags, config), RunFolder(out).work, ())


class _Start:
    """Tells the processes that follow to train, or at the end of the block not to."""

    def __init__(self, processes: train.Processes) -> None:
        self.processes, self.told = processes, False

    def __call__(self) -> None:
        self.told = True
        self.processes.tell(True)

    def __enter__(self) -> "_Start":
        return self

    def __exit__(self, *_: object) -> None:
        if not self.told:
            self.processes.tell(False)


def _found(config: Config, place: RunFolder) -> Finished | None:
    """The run that was just published, if it has these settings and data."""
    checked = Checksums.need(place.out)
    if differing(checked.check(CONFIG), config) or config.cluster.engine == "dask":
        return None
    data = load_data(config.data, config.recipe.seed)
    if data_checksum(checked.check(ENVIRONMENT)) != checksum(data):
        return None
    table = ESTIMATOR in checked.files
    # This machine trained the model with the same settings, so it can be trusted.
    model = load_table_model(place.out, trust=True) if table else train.load(place.out)
    return _finished(place.out, model, data, _measured(model, data, divide(data.bags, config)))


def _measured(model: Fitted, data: DataSet, parts: Mapping[str, Bags]) -> dict[str, Measured]:
    return {name: measure(model, data.inputs, bags, data.truth) for name, bags in parts.items()}


def _finished(
    out: Path, model: Fitted, data: DataSet, measured: Mapping[str, Measured]
) -> Finished:
    measures = {name: found.values for name, found in measured.items()}
    return Finished(out, model, measures, (*data.notes, *model.details.get("warnings", ())))


def _fit(
    config: Config,
    place: RunFolder,
    resume: bool,
    force: bool,
    command: str,
    callbacks: Sequence[Callback],
    data: DataSet | None,
    picked: Values,
    go: "_Start",
    log: Log,
) -> Finished:
    """Train and write everything, up to a finished run in the working folder."""
    check_place(config, place, resume, force)
    tracked = loggers.make(config.tracking.log, config.flat())
    work = place.work
    resumed = work.exists()
    if not resumed:
        place.begin()
        write_text(work / CONFIG, to_yaml(config))
        # A resumed run verifies its settings by this checksum.
        add_checksums(work, [CONFIG])
    large = _large(config, log)
    if large is not None:
        data = large.sample
    data = data or load_data(config.data, config.recipe.seed)
    record = {**record_of(config, data, command), **picked}
    if resumed:
        same_data(work / ENVIRONMENT, record)
    else:
        write_text(work / ENVIRONMENT, json.dumps(record, indent=1))
    start = time.perf_counter()
    parts = divide(data.bags, config)
    try:
        with warnings.catch_warnings():
            # The notes of the run cover them, once for all parts of the data.
            for kind in (ApproximationWarning, BaselineWarning, IdentifiabilityWarning):
                warnings.simplefilter("ignore", kind)
            if config.choice.estimator is None:
                go()
            if large is not None:
                model: Fitted = large.train()
            else:
                # Loggers come last: other callbacks add metrics.
                model = _train(config, data, parts, work, [*callbacks, *tracked])
    # The engine names a Python argument as the remedy; here it is an option.
    except TooManyStates as error:
        option = "--method-option approximation=auto"
        if config.choice.estimator is not None:
            option = "--estimator-option approximation=auto"
        raise error.choosing(option) from error
    record["seconds"] = round(time.perf_counter() - start, 3)
    model.details |= {"class_names": list(data.class_names), "method": config.recipe.method}
    model.details |= picked
    if config.data.image is not None:
        model.details["image_column"] = config.data.image
    about = (
        _choice(model),
        evaluation.approximation_note(*parts.values()),
        _measured_note(model, parts["training"]),
    )
    found = [_named(text, data.encoder) for text in model.details.get("warnings", ())]
    model.details["warnings"] = [*found, *filter(None, about)]
    model.details.setdefault("baseline", {"rate": evaluation.constant_rate(parts["training"])})
    measured = _measured(model, data, parts)
    judged = judge(model, data.inputs, parts, measured, config.recipe.seed)
    done = _finished(place.out, model, data, measured)
    for logger in tracked:
        logger.record(model.history, done.measures, config.flat(), work)
    # Matplotlib is slow to import, and other commands draw nothing.
    from llpkit.runs.page import Trained, write_report

    config = searched(config, model)
    _write_model(work, config, data, model, record)
    write_report(work, Trained(config, data, parts, model, measured, judged, record))
    place.finish()
    return done


def _named(text: str, encoder: FeatureEncoder | None) -> str:
    """A warning about features, which models number, with the names that they have in the table."""
    names = [] if encoder is None else encoder.feature_names

    def name(found: re.Match[str]) -> str:
        return repr(names[int(found[1])]) if int(found[1]) < len(names) else found[0]

    return re.sub(r"'x(\d+)'", name, text)


def _choice(model: Fitted) -> str | None:
    """A note if a network was trained with an approximation of the likelihood."""
    chosen = model.details.get("settings", {}).get("chosen_approximation")
    return None if chosen is None else choice_note(chosen)


def _measured_note(model: Fitted, training: Bags) -> str | None:
    """A note if the history covers only a sample of the training bags."""
    measured = model.history[-1].get("measured_bags") if model.history else None
    if measured is None:
        return None
    return (
        f"after every epoch the log-likelihood of {measured:,} of {len(training):,} training bags "
        f"was measured, because measuring all would be slow; {option('measure', 'all')} "
        "measures all"
    )


def _train(
    config: Config,
    data: DataSet,
    parts: Mapping[str, Bags],
    work: Path,
    callbacks: Sequence[Callback],
) -> Fitted:
    recipe, choice, execution = config.recipe, config.choice, config.execution
    if choice.estimator is not None:
        return train_table(
            choice.estimator,
            choice.estimator_options,
            data,
            parts["training"],
            recipe.seed,
            execution.threads,
            choice.search,
        )
    labels = None
    if METHODS[recipe.method].needs_labels:
        if data.truth is None:
            raise LLPError(
                f'method "{recipe.method}" learns from instance labels, and this table has none; '
                f"name their column with {option('label')}, or choose another method"
            )
        labels = data.truth
    watch: list[Callback] = []
    if "test" in parts and data.truth is not None:
        rows = parts["test"].rows
        watch = [TestMetrics(take(data.inputs, rows), data.truth[rows])]
    return train.fit(
        None,
        parts["training"],
        data.inputs,
        # The bags are split already; resume=True also starts a run that has no checkpoint.
        recipe=recipe,
        held_out=parts.get("held-out"),
        labels=labels,
        callbacks=[*watch, *callbacks],
        run_dir=work,
        resume=True,
        progress=False,
        **execution.to_dict(),
    )


def _write_model(work: Path, config: Config, data: DataSet, model: Fitted, record: Values) -> None:
    model.encoder = data.encoder
    model.save(work)
    write_text(work / CONFIG, to_yaml(config))
    add_checksums(work, [CONFIG])
    write_text(work / ENVIRONMENT, json.dumps(record, indent=1))
    if not model.history:
        return
    # Epochs may differ in their measures, so the columns are the union of all rows.
    names = list(dict.fromkeys(key for row in model.history for key in row))
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, ["epoch", *(name for name in names if name != "epoch")])
    writer.writeheader()
    writer.writerows(model.history)
    write_text(work / METRICS, table.getvalue())
