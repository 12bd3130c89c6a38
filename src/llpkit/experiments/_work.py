"""Carrying out one run: data, training, what is measured, the record. Runs in any process."""

import contextlib
import functools
import hashlib
import inspect
import json
import math
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import llpkit
from llpkit import datasets, evaluation, plugins
from llpkit._files import atomic
from llpkit.bags import Bags
from llpkit.datasets import DataSet
from llpkit.errors import BaselineWarning, Diverged, LLPError
from llpkit.experiments._run import Record, Run, Store
from llpkit.methods import METHODS
from llpkit.runs import checksum, environment
from llpkit.training import Callback, Feed, fit

# Parts of the package that no result depends on: they plan, draw, print or learn otherwise.
_ASIDE = {"experiments", "report", "runs", "cli", "estimators"}
_ASIDE |= {"config.py", "demo.py", "plugins.py"}
_EXAMPLE = range(4, 9)
_STATUS_EVERY = 0.5


@dataclass(frozen=True)
class Place:
    """Where runs are carried out, beside what determines their results.

    Args:
        folders: Of the records; the first is written to.
        device: As :func:`llpkit.fit` takes it.
        compile: As :func:`llpkit.fit` takes it: slower to begin, faster on a card.
        jobs: How many runs share the machine; a record tells, because its times depend on it.
        data_dir: Where data sets are.
        deadline: A time (as of ``time.time``) after which no run begins.
        status: A folder for notes on runs that are under way.
        command: What the user typed, for the record.
        chosen_by: For each method by name, where its hyper-parameters come from, for the record.
        quick: Whether the runs are part of a quick look, for the record.
        plugins: Files that make methods known, as :func:`llpkit.plugins.load` takes them.
    """

    folders: tuple[Path, ...]
    device: str = "auto"
    compile: bool = False
    jobs: int = 1
    data_dir: str | None = None
    deadline: float = math.inf
    status: Path | None = None
    command: str = ""
    chosen_by: dict[str, str] | None = None
    quick: bool = False
    plugins: tuple[str, ...] = ()


def carry_out(run: Run, place: Place) -> str:
    """Train, measure and write the record; how it ended: ``done``, ``failed`` or ``left``.

    A run that another call has under way in the same folder is left to it.
    """
    store = Store(place.folders)
    if store.done(run):
        return "done"
    if time.time() > place.deadline:
        return "left"
    with store.claimed(run) as mine:
        if not mine:
            return "left"  # another call is at it
        return "done" if store.done(run) else _carry_out(run, place, store)


def _carry_out(run: Run, place: Place, store: Store) -> str:
    plugins.load(place.plugins)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    about: Record = {"started": started, "command": place.command, "jobs": place.jobs}
    about |= {"quick": place.quick, "compiled": place.compile, "code": _code(run)}
    about["chosen_by"] = (place.chosen_by or {}).get(run.name, "defaults")
    try:
        with _threads(run, place), _noted(run, place.status) as note:
            store.write(run, {**about, **_record(run, place, note)})
        return "done"
    except Exception as error:
        about["error"] = f"{type(error).__name__}: {error}"
        if isinstance(error, LLPError):
            about["diverged"] = isinstance(error, Diverged)
        else:
            about["traceback"] = traceback.format_exc()
        store.write_error(run, about)
        return "failed"


def again(run: Run, place: Place) -> Record:
    """The record of a run without its circumstances, not written anywhere."""
    with _threads(run, place):
        return {"code": _code(run), **_record(run, place, Callback())}


@contextmanager
def _threads(run: Run, place: Place) -> Iterator[None]:
    """One thread where runs share the cores, or are so small that threads wait for each other."""
    before = torch.get_num_threads()
    if place.jobs > 1 or run.dataset == "digits":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@functools.lru_cache(maxsize=8)  # once a process and size of bags, not once a run
def _loaded(name: str, data_dir: str | None, bag_size: Any, seed: int, options: str) -> Any:
    data = datasets.load(
        name, data_dir=data_dir, bag_size=bag_size, seed=seed, **json.loads(options)
    )
    return data, checksum(data)


def load(run: Run, data_dir: str | None = None) -> tuple[DataSet, str]:
    """The data set of a run, its labels counted into bags, and its checksum."""
    options = json.dumps(run.data_options, sort_keys=True)
    return _loaded(run.dataset, data_dir, run.bag_size, run.seed, options)  # type: ignore[no-any-return]


def divide(run: Run, bags: Bags) -> tuple[Bags, Bags]:
    """The bags to train on and those of the run's fold; always whole bags."""
    pairs = list(bags.kfold(run.folds, run.seed))
    return pairs[run.fold]


def _record(run: Run, place: Place, note: Callback) -> Record:
    start = time.perf_counter()
    data, sha256 = load(run, place.data_dir)
    if data.truth is None:
        raise LLPError(f"{run.dataset} has no labels to test by; choose another data set")
    inputs: Any = data.inputs
    if run.flat:
        inputs = inputs.flatten(1).float() / 255
    train, test = divide(run, data.bags)
    watch = Watch(inputs, data.truth, test, every_epoch=run.experiment != "epoch-time")
    blind = run.experiment == "grid"  # what chooses hyper-parameters never sees the test fold
    method = METHODS[run.method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BaselineWarning)  # methods are compared by their accuracy
        model = fit(
            None if method.network_name else run.network,
            train,
            inputs,
            run.method,
            epochs=run.epochs,
            batch_size=run.batch_size,
            lr=run.lr,
            weight_decay=run.weight_decay,
            schedule=run.schedule,
            augment=None if run.augment == "none" else run.augment,
            held_out=run.held_out,
            labels=data.truth if method.needs_labels else None,
            method_options=run.method_options,
            precision=run.precision,
            device=place.device,
            compile=place.compile,
            seed=int(np.random.SeedSequence([run.seed, run.fold]).generate_state(1)[0]),
            callbacks=[note] if blind else [watch, note],
            progress=False,
        )
    seconds = [row["seconds"] for row in model.history]
    record: Record = {
        "data": {
            "sha256": sha256,
            "class_names": list(data.class_names),
            "bags": [len(train), len(test)],
            "instances": [train.num_instances, test.num_instances],
        },
        "network": model.network_name,
        "own_network": method.network_name is not None,
        "parameters": sum(p.numel() for p in model.network.parameters()),
        "device": next(model.network.parameters()).device.type,
        "final": _at(model.history[-1]),
        "selected": None,
    }
    if run.held_out is not None:
        record["selected"] = _at(model.history[(model.chosen_epoch or 0) - 1])
    if not blind:
        record |= {"calibration": _calibration(watch), "example": _example(watch)}
    record["history"] = _columns(model.history)
    record["seconds"] = {
        "total": round(time.perf_counter() - start, 3),
        "training": round(math.fsum(seconds), 3),
    }
    return record | environment()


@functools.cache
def code(package: Path = Path(llpkit.__file__).parent) -> str:
    """Twelve digits of a checksum of the source that makes results, not that which draws them."""
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if name.parts[0] not in _ASIDE or name == Path("experiments", "_work.py"):
            total.update(repr((name.as_posix(), path.read_bytes())).encode())
    return total.hexdigest()[:12]


def _code(run: Run) -> str:
    """The same with the file of a method that is not part of the package."""
    module = METHODS[run.method].__module__
    if module.partition(".")[0] == "llpkit":
        return code()
    source = Path(inspect.getfile(METHODS[run.method])).read_bytes()
    return hashlib.sha256(code().encode() + source).hexdigest()[:12]


class Watch(Callback):
    """Measures the instances and the bags of the test fold; nothing is selected by them."""

    def __init__(self, inputs: Tensor, truth: Tensor, bags: Bags, every_epoch: bool = True) -> None:
        self.bags, self.truth = bags, truth[bags.rows]
        self.inputs, self.every_epoch = inputs[bags.rows], every_epoch
        self.feed: Feed | None = None

    def on_epoch(self, session: Any, row: dict[str, Any]) -> None:
        """Add the measures to the epoch's row."""
        if not self.every_epoch and row["epoch"] < session.epochs:
            return
        if self.feed is None:
            self.feed = Feed(self.inputs, session.task.device)
        z = session.logits(self.feed).double().cpu()
        self.logits, p = z, z.sigmoid()
        row["test_accuracy"] = evaluation.accuracy(p, self.truth)
        row["test_log_loss"] = float(F.binary_cross_entropy_with_logits(z, self.truth.double()))
        row["test_brier"] = evaluation.brier(p, self.truth)
        row["test_log_likelihood"] = float(evaluation.bag_log_likelihood(z, self.bags).mean())
        row["test_proportion_error"] = evaluation.proportion_error(p, self.bags)


def _at(row: dict[str, Any]) -> Record:
    """An epoch's line, by the names of a record."""
    told = [name for name in row if name.startswith(("test_", "held_out_"))]
    return {name.removeprefix("test_"): _plain(name, row[name]) for name in ("epoch", *told)}


def _columns(history: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The per-epoch table, a list a column."""
    names = dict.fromkeys(name for row in history for name in row)
    return {name: [_plain(name, row.get(name)) for row in history] for name in names}


def _plain(name: str, value: Any) -> Any:
    """A number for JSON: accuracies in full, the rest to seven figures; finite or nothing."""
    if value is None or isinstance(value, int):
        return value
    if not math.isfinite(value):
        return None
    return value if name.endswith("accuracy") else float(f"{value:.7g}")


def _calibration(watch: Watch) -> dict[str, list[float]]:
    found = evaluation.calibration(watch.logits.sigmoid(), watch.truth, bins=20)
    return {
        "mean_predicted": [round(p, 6) for p in found.mean_predicted.tolist()],
        "fraction_positive": [round(p, 6) for p in found.fraction_positive.tolist()],
        "number": found.number.tolist(),
    }


def _example(watch: Watch) -> Record:
    """What the last epoch says of one test bag: the first of mixed labels and easy size."""
    bags, y = watch.bags, watch.bags.counts
    mixed = (y > 0) & (y < bags.sizes)
    easy = mixed & (bags.sizes >= _EXAMPLE.start) & (bags.sizes < _EXAMPLE.stop)
    places = [*torch.where(easy)[0].tolist(), *torch.where(mixed)[0].tolist(), 0]
    bag = bags[places[:1]]
    start = int(bags.offsets[places[0]])
    part = slice(start, start + min(bag.num_instances, 12))
    return {
        "bag": str(bag.ids[0]),
        "count": int(bag.counts[0]),
        "size": bag.num_instances,
        "rows": bags.rows[part].tolist(),
        "probability": [round(p, 5) for p in watch.logits[part].sigmoid().tolist()],
        "truth": watch.truth[part].tolist(),
    }


class _Note(Callback):
    """Keeps a small file on how a run is going, for whoever shows progress."""

    def __init__(self, run: Run, path: Path | None) -> None:
        self.run, self.path, self.last = run, path, 0.0

    def on_epoch(self, session: Any, row: dict[str, Any]) -> None:
        now = time.monotonic()
        if self.path is None or now < self.last + _STATUS_EVERY:
            return
        self.last = now
        told = {
            "method": self.run.name,
            "title": self.run.title,
            "epoch": row["epoch"],
            "epochs": session.epochs,
            "accuracy": row.get("test_accuracy"),
        }
        with contextlib.suppress(LLPError), atomic(self.path) as draft:  # on another machine, say
            draft.write_text(json.dumps(told))


@contextlib.contextmanager
def _noted(run: Run, folder: Path | None) -> Any:
    path = None if folder is None else folder / f"{run.id}.json"
    try:
        yield _Note(run, path)
    finally:
        if path is not None:
            path.unlink(missing_ok=True)
