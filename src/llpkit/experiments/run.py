"""Performing one run: its data, training, metrics and record. Works in any process."""

import contextlib
import functools
import json
import math
import shutil
import time
import traceback
import warnings
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from llpkit import datasets
from llpkit._device import device_of
from llpkit._threads import torch_threads
from llpkit.bags import Bags, random_bags
from llpkit.datasets import DataSet
from llpkit.errors import ApproximationWarning, BaselineWarning, Diverged, LLPError
from llpkit.experiments.measure import TestFoldMeasures, at_epoch, columns
from llpkit.experiments.protocol import Protocol
from llpkit.experiments.records import ExperimentRun, FoldData, Record, write_run
from llpkit.methods import METHODS
from llpkit.progress import TaskProgress, task
from llpkit.recipe import Recipe
from llpkit.runs import checksum, environment
from llpkit.training import Callback, fit

UNFINISHED = "unfinished"
"""Folder of checkpoints of runs that a time limit stopped."""
_CHECKPOINT_EVERY = 60.0


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of a process that performs runs; they do not affect results.

    Args:
        folder: Where to write records.
        protocol: The protocol of that folder.
        device, compile: As in :func:`llpkit.fit`.
        jobs: How many runs share the machine.
        data_dir: The folder of data sets.
        deadline: A time, as from ``time.time``. After it, no run is started, and current ones stop
            at the end of their epoch; a later call continues them.
        command: What the user typed, for the record.
    """

    folder: Path
    protocol: Protocol
    device: str = "auto"
    compile: bool = False
    jobs: int = 1
    data_dir: str | None = None
    deadline: float = math.inf
    command: str = ""

    @property
    def threads(self) -> int | None:
        """One if runs share the cores or batches are too small to gain from more; else no limit."""
        return 1 if self.jobs > 1 or self.protocol.flat else None


def train_and_record(run: ExperimentRun, settings: WorkerSettings) -> Record | None:
    """Train, measure and write the record, also of a failure; ``None`` if the time was up."""
    if time.time() > settings.deadline:
        return None
    state = settings.folder / UNFINISHED / run.id
    try:
        record = train(run, settings, state)
    except _Unfinished:
        return None
    except Exception as error:
        # One failed run must not stop the others. Tracebacks are for bugs only.
        about = {"command": settings.command}
        if not isinstance(error, LLPError):
            about["traceback"] = traceback.format_exc()
        record = Record(
            **_fields(run),
            error=f"{type(error).__name__}: {error}",
            diverged=isinstance(error, Diverged),
            environment=about,
        )
    write_run(settings.folder, record)
    shutil.rmtree(state, ignore_errors=True)
    with contextlib.suppress(OSError):  # other runs may be unfinished
        state.parent.rmdir()
    return record


def _fields(run: ExperimentRun) -> dict[str, Any]:
    """The fields of a run, without those that a record adds."""
    return {each.name: getattr(run, each.name) for each in fields(ExperimentRun)}


class _Unfinished(Exception):
    """The time limit ended a run early."""


class _Epochs(Callback):
    """Counts epochs, and pauses the run at the time limit.

    ``before`` is the time that earlier calls spent on the run.
    """

    def __init__(self, progress: TaskProgress, deadline: float) -> None:
        self.progress, self.deadline, self.before = progress, deadline, 0.0

    def on_start(self, session: Any) -> None:
        self.progress.begin(done=len(session.history))
        self.before = sum(r["seconds"] + r["measure_seconds"] for r in session.history)

    def on_epoch(self, session: Any, row: dict[str, Any]) -> None:  # noqa: ARG002
        self.progress.step()
        session.paused = time.time() > self.deadline


def train(run: ExperimentRun, settings: WorkerSettings, state: Path | None = None) -> Record:
    """Train and return the record, without writing it.

    With a time limit, checkpoints go to the folder ``state``, and a run paused there is resumed.
    """
    started, start = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    protocol, recipe = settings.protocol, Recipe.from_dict(run.recipe)
    data, sha256 = load(protocol, settings.data_dir, run.bag_size)
    assert data.truth is not None  # load() checks it
    inputs: Any = data.inputs
    if protocol.flat:
        inputs = inputs.flatten(1).float() / 255
    train_bags, test_bags = divide(protocol, data, run.fold, run.bag_size)
    # A timed run must not spend time on the test fold.
    every_epoch = run.experiment != "epoch-time"
    measures = TestFoldMeasures(inputs, data.truth, test_bags, train_bags, every_epoch)
    blind = run.experiment == "grid"  # must not see the test fold
    run_dir = state if math.isfinite(settings.deadline) else None
    # A separate seed per fold, the same for all methods.
    seed = int(np.random.SeedSequence([recipe.seed, run.fold]).generate_state(1)[0])
    with (
        warnings.catch_warnings(),
        torch_threads(settings.threads),
        task(f"{run.title}: epoch", recipe.epochs) as progress,
    ):
        # Methods are compared by their accuracy, and many bags are too large for exact values.
        for kind in (BaselineWarning, ApproximationWarning):
            warnings.simplefilter("ignore", kind)
        epochs = _Epochs(progress, settings.deadline)
        model = fit(
            None,
            train_bags,
            inputs,
            recipe=recipe.replace(seed=seed),
            labels=data.truth if METHODS[recipe.method].needs_labels else None,
            device=settings.device,
            compile=settings.compile,
            callbacks=[epochs] if blind else [measures, epochs],
            progress=False,
            run_dir=run_dir,
            resume=run_dir is not None,
            checkpoint_every=_CHECKPOINT_EVERY,
        )
    if len(model.history) < recipe.epochs:
        raise _Unfinished
    selected = None
    if recipe.held_out is not None:
        selected = at_epoch(model.history[(model.selected_epoch or 0) - 1])
    return Record(
        **_fields(run),
        data=FoldData(
            sha256,
            tuple(data.class_names),
            len(train_bags),
            len(test_bags),
            train_bags.num_instances,
            test_bags.num_instances,
            protocol.official,
        ),
        final=at_epoch(model.history[-1]),
        selected=selected,
        history=columns(model.history),
        seconds=round(epochs.before + time.perf_counter() - start, 3),
        examples=measures.examples() if run.experiment == "convergence" and run.fold == 0 else (),
        environment={**environment_of(settings), "started": started},
    )


def environment_of(settings: WorkerSettings) -> dict[str, Any]:
    """Versions, hardware, device and jobs, for the record."""
    with torch_threads(settings.threads):
        about = environment()
    about |= {"device": device_of(settings.device).type, "compiled": settings.compile}
    return about | {"jobs": settings.jobs, "command": settings.command}


def load(
    protocol: Protocol, data_dir: str | None = None, bag_size: int | None = None
) -> tuple[DataSet, str]:
    """The data set of a protocol, optionally in bags of another size, and its checksum."""
    size = protocol.bag_size if bag_size is None else bag_size
    # As text, because the cache needs hashable arguments.
    options = json.dumps(dict(protocol.data_options), sort_keys=True)
    return _loaded(protocol.dataset, data_dir, size, protocol.seed, options)  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=8)  # load once per process and bag size, not once per run
def _loaded(name: str, data_dir: str | None, bag_size: Any, seed: int, options: str) -> Any:
    data = datasets.load(
        name, data_dir=data_dir, bag_size=bag_size, seed=seed, **json.loads(options)
    )
    if data.truth is None:
        raise LLPError(f"{name} has no labels to test on; choose another data set")
    return data, checksum(data)


def divide(
    protocol: Protocol, data: DataSet, fold: int, bag_size: int | None = None
) -> tuple[Bags, Bags]:
    """The training bags and the test bags of a fold; bags are never split.

    With the official split a fold is a seed, which draws the bags of both splits.
    """
    if not protocol.official:
        return list(data.bags.kfold(protocol.folds, protocol.seed))[fold % protocol.folds]
    if data.test is None or data.truth is None or not 0 < int(data.test.sum()) < len(data.test):
        raise LLPError(
            f"{data.name} has no test split of its own here; use data_options with both splits, or "
            "remove official"
        )
    size = protocol.bag_size if bag_size is None else bag_size
    found = []
    for part, test in enumerate((False, True)):
        rows = (data.test == test).nonzero()[:, 0]
        seed = np.random.SeedSequence([protocol.seed, fold, part]).generate_state(1)[0]
        drawn = random_bags(
            data.truth[rows],
            size,  # type: ignore[arg-type]
            generator=int(seed),
            num_classes=data.bags.num_classes,
            concentration=protocol.concentration,
        )
        found.append(
            Bags(drawn.offsets, drawn.evidence, rows=rows[drawn.rows], num_rows=len(data.truth))
        )
    return found[0], found[1]
