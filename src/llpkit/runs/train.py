"""Training from a configuration into a run directory, which is either complete or absent.

Until a run is finished, its files are in a hidden folder next to the run directory; see
:mod:`llpkit.runs.folder`. A killed run leaves its checkpoint there and can resume from it. Only one
process at a time can work on a run directory.
"""

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from llpkit import evaluation, training
from llpkit._text import csv_text
from llpkit._validation import option
from llpkit.auto import PICKED, Pick, pick_estimator, pick_method
from llpkit.bags import Bags
from llpkit.config import Config, Values, absolute, to_yaml
from llpkit.datasets import DataSet
from llpkit.errors import (
    ApproximationWarning,
    BaselineWarning,
    IdentifiabilityWarning,
    TooManyStates,
)
from llpkit.files import Checksums, add_checksums, check_apart, locked, write_text
from llpkit.integrations import loggers
from llpkit.likelihood.choice import choice_note
from llpkit.runs import estimator, network
from llpkit.runs.assessment import assess
from llpkit.runs.data import checksum, divide, load_data
from llpkit.runs.folder import RunFolder
from llpkit.runs.machine import record_of
from llpkit.runs.measures import Measured, measure
from llpkit.runs.opening import open_model
from llpkit.runs.resume import CONFIG, check_folder, differing
from llpkit.statistics.identifiability import features_named
from llpkit.training import Callback, Fitted

if TYPE_CHECKING:
    from llpkit.runs.large import LargeTable

Log = Callable[[dict[str, Any]], None]
ENVIRONMENT, METRICS = "environment.json", "metrics.csv"


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: its model, metrics and notes."""

    model: Fitted
    measures: dict[str, Values]
    notes: tuple[str, ...]


class Stopped(KeyboardInterrupt):
    """An interrupt of :func:`fit`, with what it left behind."""

    def __init__(self, kept: Literal["run", "checkpoint", "nothing"]) -> None:
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
) -> FinishedRun:
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
    with (
        training.together(config.execution) as processes,
        _Followers(processes) as followers,
        locked(out),
    ):
        folder = RunFolder(out)
        complete = folder.finished
        try:
            if config.is_open:  # first, because a stopped run must have the same method
                data = load_data(config.data, config.recipe.seed)
                config, chosen = _pick(config, data)
                picked = chosen.about()
                if announce is not None:
                    announce(str(chosen))
            # A run that was only moved into place counts if it is the one asked for.
            if folder.recover(force) and (done := _published(config, folder)):
                return done
            complete = False
            check_folder(config, folder, resume, force)
            with _cluster(config):
                setup = _set_up(config, folder, data, {"command": command, **picked}, log)
                done = _write(setup, _train(setup, callbacks, followers))
            complete = True
            folder.publish()
            return done
        except KeyboardInterrupt as stop:
            # publish renames the working folder, so its absence means that the run is in place.
            if complete and not folder.work.exists():
                raise Stopped("run") from stop
            raise Stopped("checkpoint" if folder.kept else "nothing") from stop
        finally:
            if not folder.kept:  # nothing to resume from: clean up
                folder.recover(force=False)


def _pick(config: Config, data: DataSet) -> tuple[Config, Pick]:
    """The configuration with a method or an estimator, and why it was picked.

    A table of features gets an estimator, unless the configuration has settings for networks.
    """
    several = config.execution.devices != 1 or config.execution.nodes > 1
    bags = divide(data.bags, config)["training"]
    table = isinstance(data.inputs, Tensor) and data.inputs.dim() == 2
    if table and not config.of_networks():
        picked = pick_estimator(bags)
        return replace(config, estimator=config.estimator.replace(estimator=picked.name)), picked
    picked = pick_method(bags, config.recipe, of_images=not table, many_processes=several)
    return replace(config, recipe=config.recipe.replace(method=picked.name)), picked


def leads(config: Config) -> bool:
    """Whether this process writes the run; the others of torchrun or Slurm :func:`follow` it."""
    return training.placement(config.execution).first


def follow(config: Config, out: Path) -> None:
    """Train as one of several processes, when and if the first one does; writes nothing."""
    config = absolute(config)
    with training.together(config.execution) as processes:
        # On machines without torchrun, the first process cannot be asked before training.
        if not processes.alone and not processes.broadcast(None):
            return
        data = load_data(config.data, config.recipe.seed)
        if config.is_open:
            config, _ = _pick(config, data)
        if config.estimator.estimator is not None:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first process notes them
            network.train(config, data, divide(data.bags, config), RunFolder(out).work, ())


class _Followers:
    """The processes that :func:`follow`; they wait until they are started or dismissed."""

    def __init__(self, processes: training.Processes) -> None:
        self.processes, self.waiting = processes, True

    def start(self) -> None:
        self.waiting = False
        self.processes.broadcast(True)

    def __enter__(self) -> "_Followers":
        return self

    def __exit__(self, *_: object) -> None:
        if self.waiting:
            self.processes.broadcast(False)


def _published(config: Config, folder: RunFolder) -> FinishedRun | None:
    """The run that was just published, if it has these settings and data."""
    checked = Checksums.need(folder.out)
    if differing(checked.check(CONFIG), config) or config.cluster.engine == "dask":
        return None
    data = load_data(config.data, config.recipe.seed)
    record = json.loads(checked.check(ENVIRONMENT).read_text(encoding="utf-8"))
    if record["data"]["sha256"] != checksum(data):
        return None
    # This machine trained the model with the same settings, so it can be trusted.
    model = open_model(folder.out, trust_model=True)
    return _finished(model, data, _measured(model, data, divide(data.bags, config)))


@dataclass(frozen=True)
class _Setup:
    """A run that is ready to be trained."""

    config: Config
    folder: RunFolder
    data: DataSet
    """For a table larger than memory, a sample of it."""
    parts: dict[str, Bags]
    record: Values
    large: "LargeTable | None"
    trackers: list[loggers.Logger]


def _cluster(config: Config) -> AbstractContextManager[Any]:
    """The Dask cluster, if there is one."""
    if config.cluster.engine == "memory":
        return nullcontext()
    from llpkit.distributed.cluster import connected

    cluster = config.cluster
    return connected(cluster.scheduler, config.execution.workers, cluster.memory_limit)


def _set_up(
    config: Config, folder: RunFolder, data: DataSet | None, about: Values, log: Log
) -> _Setup:
    """Load the data, unless they are loaded, and begin or continue the working folder."""
    trackers = loggers.make(config.tracking.log, config.flat())
    if not folder.work.exists():  # else it is resumed; its checkpoint refuses other data
        folder.begin()
        write_text(folder.work / CONFIG, to_yaml(config))
        # A resumed run verifies its settings by this checksum.
        add_checksums(folder.work, [CONFIG])
    large = None
    if config.cluster.engine == "dask":
        from llpkit.runs.large import LargeTable

        large = LargeTable(config, log)
        data = large.sample
    elif data is None:
        data = load_data(config.data, config.recipe.seed)
    record = {**about, **record_of(config, data)}
    return _Setup(config, folder, data, divide(data.bags, config), record, large, trackers)


def _train(setup: _Setup, callbacks: Sequence[Callback], followers: _Followers) -> Fitted:
    """Train the network or the estimator."""
    config, parts, encoder = setup.config, setup.parts, setup.data.encoder
    start = time.perf_counter()
    try:
        names = () if encoder is None else encoder.feature_names
        with warnings.catch_warnings(), features_named(names):
            # The notes of the run cover them, once for all parts of the data.
            for kind in (ApproximationWarning, BaselineWarning, IdentifiabilityWarning):
                warnings.simplefilter("ignore", kind)
            if setup.large is not None:
                model: Fitted = setup.large.train()
            elif config.estimator.estimator is not None:
                model = estimator.train(config, setup.data, parts["training"])
            else:
                followers.start()
                # Trackers come last: other callbacks add metrics.
                watchers = [*callbacks, *setup.trackers]
                model = network.train(config, setup.data, parts, setup.folder.work, watchers)
    # The engine names a Python argument as the remedy; here it is an option.
    except TooManyStates as error:
        kind_of_option = "method" if config.estimator.estimator is None else "estimator"
        raise error.choosing(f"--{kind_of_option}-option approximation=auto") from error
    setup.record["seconds"] = round(time.perf_counter() - start, 3)
    return model


def _write(setup: _Setup, model: Fitted) -> FinishedRun:
    """Measure the model, and write everything that a finished run has into the working folder."""
    config, data, parts, work = setup.config, setup.data, setup.parts, setup.folder.work
    model.encoder = data.encoder
    model.details["class_names"] = list(data.class_names)
    if PICKED in setup.record:
        model.details[PICKED] = setup.record[PICKED]
    if config.data.image is not None:
        model.details["image_column"] = config.data.image
    model.details["warnings"] = _model_notes(model, parts)
    model.details.setdefault("baseline", {"rate": evaluation.constant_rate(parts["training"])})
    measured = _measured(model, data, parts)
    assessed = assess(model, data.inputs, parts, measured, config.recipe.seed)
    done = _finished(model, data, measured)
    for tracker in setup.trackers:
        tracker.log_run(model.history, done.measures, config.flat(), work)
    # Matplotlib is slow to import, and other commands draw nothing.
    from llpkit.runs.page import TrainedRun, write_report

    config = estimator.with_chosen_options(config, model)
    _write_model(work, config, model, setup.record)
    write_report(work, TrainedRun(config, data, parts, model, measured, assessed, setup.record))
    setup.folder.finish()
    return done


def _model_notes(model: Fitted, parts: Mapping[str, Bags]) -> list[str]:
    """The warnings of the fit, and approximations in training and in the metrics."""
    approximation = model.details.get("settings", {}).get("chosen_approximation")
    notes = list(model.details.get("warnings", ()))
    if parts_of := getattr(getattr(model, "estimator", None), "parts_", None):
        shares = (f"{name} {share:.0%}" for name, share in parts_of.items())
        notes.append(f"weights within the ensemble: {', '.join(shares)}")
    if approximation is not None:
        notes.append(choice_note(approximation))
    if approximated := evaluation.approximation_note(*parts.values()):
        notes.append(approximated)
    measured = model.history[-1].get("measured_bags") if model.history else None
    if measured is not None:
        notes.append(
            f"after every epoch, the log-likelihood was computed on {measured:,} of "
            f"{len(parts['training']):,} training bags, because computing it on all of them would "
            f"be slow; {option('measure', 'all')} uses all"
        )
    return notes


def _measured(model: Fitted, data: DataSet, parts: dict[str, Bags]) -> dict[str, Measured]:
    return {name: measure(model, data.inputs, bags, data.truth) for name, bags in parts.items()}


def _finished(model: Fitted, data: DataSet, measured: dict[str, Measured]) -> FinishedRun:
    measures = {name: part.values for name, part in measured.items()}
    return FinishedRun(model, measures, (*data.notes, *model.details.get("warnings", ())))


def _write_model(work: Path, config: Config, model: Fitted, record: Values) -> None:
    model.save(work)
    write_text(work / CONFIG, to_yaml(config))
    add_checksums(work, [CONFIG])
    write_text(work / ENVIRONMENT, json.dumps(record, indent=1))
    if model.history:
        write_text(work / METRICS, csv_text(model.history))
