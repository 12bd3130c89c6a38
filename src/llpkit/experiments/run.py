"""One run: its data, training, measures and record. Works in any process."""

import contextlib
import functools
import json
import math
import shutil
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llpkit import datasets, plugins
from llpkit._device import device_of
from llpkit.bags import Bags, random_bags
from llpkit.datasets import DataSet
from llpkit.errors import ApproximationWarning, BaselineWarning, Diverged, LLPError
from llpkit.experiments.measure import Watch, at_epoch, columns
from llpkit.experiments.protocol import Protocol
from llpkit.experiments.records import Data, Record, run_id, write_run
from llpkit.files import write_text
from llpkit.methods import METHODS
from llpkit.recipe import Recipe
from llpkit.runs import checksum, environment
from llpkit.training import Callback, fit

UNFINISHED = "unfinished"
"""Folder of the checkpoints of runs that a time limit has stopped."""
_STATUS_EVERY = 0.5
_CHECKPOINT_EVERY = 60.0


@dataclass(frozen=True)
class Run:
    """One training run; the data are in the protocol of its folder."""

    experiment: str
    recipe: Recipe
    fold: int
    bag_size: int | None = None
    variant: str = ""

    @property
    def id(self) -> str:
        """The same as :attr:`Record.id`."""
        return run_id(self.experiment, self.recipe.to_dict(), self.fold, self.bag_size)

    @property
    def method(self) -> str:
        """The same as :attr:`Record.method`."""
        return self.variant or str(self.recipe.method)

    @property
    def title(self) -> str:
        """A short description that distinguishes it from other runs."""
        parts = [self.method]
        if self.bag_size is not None:
            parts.append(f"bags of {self.bag_size}")
        if self.experiment == "grid":
            own = {"lr": self.recipe.lr, "weight decay": self.recipe.weight_decay}
            parts += [f"{k} {v:g}" for k, v in own.items()]
            parts += [f"{k} {v}" for k, v in (self.recipe.method_options or {}).items()]
        turn = "turn" if self.experiment == "epoch-time" else "fold"
        return ", ".join([*parts, f"{turn} {self.fold}"])

    @classmethod
    def of(cls, record: Record) -> "Run":
        """The run of a record."""
        recipe = Recipe.from_dict(record.recipe)
        return cls(record.experiment, recipe, record.fold, record.bag_size, record.variant)


@dataclass(frozen=True)
class Worker:
    """Settings of a process that performs runs; they do not affect results.

    Args:
        folder: Where to write records.
        protocol: The protocol of that folder.
        device, compile: As in :func:`llpkit.fit`.
        jobs: How many runs share the machine.
        data_dir: The folder of data sets.
        deadline: A time (as from ``time.time``) after which no run is started and current ones
            stop after their epoch; a later call continues them.
        status: A folder for notes on the progress of runs.
        command: What the user typed, for the record.
        plugins: Files that register methods, for :func:`llpkit.plugins.load`.
    """

    folder: Path
    protocol: Protocol
    device: str = "auto"
    compile: bool = False
    jobs: int = 1
    data_dir: str | None = None
    deadline: float = math.inf
    status: Path | None = None
    command: str = ""
    plugins: tuple[str, ...] = ()


def carry_out(run: Run, worker: Worker) -> None:
    """Train, measure and write the record, also of a failure; nothing after the deadline."""
    if time.time() > worker.deadline:
        return
    plugins.load(worker.plugins)
    state = worker.folder / UNFINISHED / run.id
    with _noted(run, worker.status) as note:
        try:
            record = train(run, worker, [note], state)
        except _Unfinished:
            return
        except Exception as error:
            # One failed run must not stop the others; the traceback is for bugs only.
            about = {"command": worker.command}
            if not isinstance(error, LLPError):
                about["traceback"] = traceback.format_exc()
            record = Record(
                run.experiment,
                run.recipe.to_dict(),
                run.fold,
                run.bag_size,
                error=f"{type(error).__name__}: {error}",
                diverged=isinstance(error, Diverged),
                environment=about,
                variant=run.variant,
            )
        write_run(worker.folder, record)
    shutil.rmtree(state, ignore_errors=True)
    with contextlib.suppress(OSError):  # other runs may be unfinished
        state.parent.rmdir()


class _Unfinished(Exception):
    """The time limit of a call ended within a run."""


class _Deadline(Callback):
    """Interrupts a run at the time limit; counts the time of earlier calls."""

    def __init__(self, deadline: float) -> None:
        self.deadline, self.before = deadline, 0.0

    def on_start(self, session: Any) -> None:
        self.before = sum(r["seconds"] + r["measure_seconds"] for r in session.history)

    def on_epoch(self, session: Any, row: dict[str, Any]) -> None:  # noqa: ARG002
        session.paused = time.time() > self.deadline


def train(
    run: Run, worker: Worker, callbacks: Sequence[Callback] = (), state: Path | None = None
) -> Record:
    """Train and return the record, without writing it.

    With a time limit, checkpoints go to the folder ``state``, and one found there is continued.
    """
    started, start = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    protocol, recipe = worker.protocol, run.recipe
    data, sha256 = load(protocol, worker.data_dir, run.bag_size)
    if data.truth is None:
        raise LLPError(f"{protocol.dataset} has no labels to test by; choose another data set")
    inputs: Any = data.inputs
    if protocol.flat:
        inputs = inputs.flatten(1).float() / 255
    train_bags, test_bags = divide(protocol, data, run.fold, run.bag_size)
    # A grid must not see the test fold, and a timed run must not spend time on it.
    every_epoch = run.experiment != "epoch-time"
    watch = Watch(inputs, data.truth, test_bags, train_bags, every_epoch)
    blind = run.experiment == "grid"
    method = METHODS[recipe.method]
    # A separate seed per fold, the same for all methods.
    seed = int(np.random.SeedSequence([recipe.seed, run.fold]).generate_state(1)[0])
    limit = _Deadline(worker.deadline)
    kept = state if math.isfinite(worker.deadline) else None
    with warnings.catch_warnings(), _threads(worker):
        # Methods are compared by their accuracy, and many bags are too large for exact values.
        for kind in (BaselineWarning, ApproximationWarning):
            warnings.simplefilter("ignore", kind)
        model = fit(
            None,
            train_bags,
            inputs,
            recipe=recipe.replace(seed=seed),
            labels=data.truth if method.needs_labels else None,
            device=worker.device,
            compile=worker.compile,
            callbacks=[*callbacks, limit] if blind else [watch, *callbacks, limit],
            progress=False,
            run_dir=kept,
            resume=kept is not None,
            checkpoint_every=_CHECKPOINT_EVERY,
        )
    if len(model.history) < recipe.epochs:
        raise _Unfinished
    about = {**circumstances(worker), "started": started}
    about["parameters"] = sum(p.numel() for p in model.network.parameters())
    selected = None
    if recipe.held_out is not None:
        selected = at_epoch(model.history[(model.chosen_epoch or 0) - 1])
    return Record(
        run.experiment,
        recipe.to_dict(),
        run.fold,
        run.bag_size,
        data=Data(
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
        seconds=round(limit.before + time.perf_counter() - start, 3),
        calibration=None if blind else watch.calibration(),
        examples=watch.examples() if run.experiment == "convergence" and run.fold == 0 else (),
        environment=about,
        variant=run.variant,
    )


def circumstances(worker: Worker) -> dict[str, Any]:
    """Versions, hardware, device and jobs, for the record."""
    with _threads(worker):
        found = environment()
    found |= {"device": device_of(worker.device).type, "compiled": worker.compile}
    return found | {"jobs": worker.jobs, "command": worker.command}


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


@contextmanager
def _threads(worker: Worker) -> Iterator[None]:
    """One thread if runs share the cores, or if batches are too small to gain from more."""
    before = torch.get_num_threads()
    if worker.jobs > 1 or worker.protocol.flat:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Note(Callback):
    """Writes the progress of a run to a small file, for the display."""

    def __init__(self, run: Run, path: Path | None) -> None:
        self.run, self.path, self.last = run, path, 0.0

    def on_epoch(self, session: Any, row: dict[str, Any]) -> None:
        now = time.monotonic()
        if self.path is None or now < self.last + _STATUS_EVERY:
            return
        self.last = now
        reached = row.get("test_accuracy")
        about = {"method": self.run.method, "fold": self.run.fold, "accuracy": reached}
        about |= {"epoch": row["epoch"], "epochs": session.epochs}
        with contextlib.suppress(LLPError):  # the folder may be on another machine
            write_text(self.path, json.dumps(about))


@contextmanager
def _noted(run: Run, folder: Path | None) -> Iterator[_Note]:
    path = None if folder is None else folder / f"{run.id}.json"
    try:
        yield _Note(run, path)
    finally:
        if path is not None:
            path.unlink(missing_ok=True)
