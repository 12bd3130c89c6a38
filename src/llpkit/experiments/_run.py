"""What a run is, and the folders that hold the records of runs."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any

from llpkit._files import write_text
from llpkit._limits import check_regular, read_regular
from llpkit.errors import LLPError
from llpkit.experiments._machine import locked
from llpkit.experiments._record import wrong_with

FORMAT = 2
"""Of a record; part of every id, so that records of two formats never pass for each other."""

EXPERIMENTS = ("grid", "epoch-time", "convergence", "bag-size")
"""In the order in which ``all`` runs them: what is chosen by a grid, the others take."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mle-pass": ("mle", {"refresh": "pass", "step": 1.0})
}
"""Methods with options that have a name of their own. The paper's EM is ``mle-pass``.

The first option tells the variant; with the others changed it keeps its name, and a page adds them.
"""

Record = dict[str, Any]

# What every record has; those that are tested by labels have more.
_PARTS = (
    *("started", "command", "jobs", "quick", "compiled", "code", "chosen_by", "data", "device"),
    *("final", "selected", "history", "seconds", "versions", "hardware"),
)
_TESTED = ("calibration", "example")

# What is compared and chosen by stands in a record twice: at its end and in its table of epochs.
_TWICE = {"accuracy": "test_accuracy", "held_out_log_likelihood": "held_out_log_likelihood"}


@dataclass(frozen=True)
class Run:
    """One training: everything a user can set that determines its result, and nothing else.

    What the source code, the device and the versions of libraries add to that is in the record.

    Args:
        experiment: One of :data:`EXPERIMENTS`.
        dataset: A data set by name.
        method: A method by its key.
        fold: Which fold is the test part, from 0.
        folds: Into how many folds the bags are divided.
        seed: Of the bags, the folds and, together with the fold, the training.
        bag_size: Of random bags: a number or the ends of a range; ``None`` for natural bags.
        data_options: The data set's own options.
        flat: Whether images are rows of numbers, for dense networks.
        network: A network by name.
        epochs: Passes over the training data.
        batch_size: Instances a step.
        lr: Learning rate of Adam.
        weight_decay: Decoupled weight decay.
        schedule: Of the learning rate.
        augment: A preset by name.
        precision: As Lightning Fabric takes it.
        held_out: Share of the training bags that are kept from training to select by.
        method_options: Arguments of the method, all of them, so that a change of a default is
            another run.
        compiled: Of timed runs, whether the network is compiled; no other result depends on it but
            for rounding.

    >>> run = Run("convergence", "digits", "mle", fold=3)
    >>> run.id == Run("convergence", "digits", "mle", fold=3).id != Run("grid", "digits", "mle").id
    True
    """

    experiment: str
    dataset: str
    method: str
    fold: int = 0
    folds: int = 10
    seed: int = 0
    bag_size: int | tuple[int, int] | None = None
    data_options: dict[str, Any] = field(default_factory=dict)
    flat: bool = False
    network: str = "conv-large"
    epochs: int = 100
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "tail"
    augment: str = "none"
    precision: str = "32-true"
    held_out: float | None = None
    method_options: dict[str, Any] = field(default_factory=dict)
    compiled: bool = False

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that follow from every field."""
        values = {"format": FORMAT, **asdict(self)}
        if not self.compiled:  # as in records that are older than the field
            del values["compiled"]
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """The method, or the variant of it that these options are.

        >>> Run("grid", "digits", "mle", method_options={"refresh": "pass", "step": 0.5}).name
        'mle-pass'
        """
        for name, (method, options) in VARIANTS.items():
            [(key, value), *_] = options.items()
            if method == self.method and self.method_options.get(key) == value:
                return name
        return self.method

    @property
    def title(self) -> str:
        """What tells it from its neighbours, for a reader."""
        parts = [self.dataset, self.name]
        if self.experiment == "bag-size":
            parts.append(f"bags of {self.bag_size}")
        if self.experiment == "grid":
            own = {"lr": self.lr, "weight_decay": self.weight_decay, **self.method_options}
            parts += [f"{name} {value}" for name, value in own.items()]
        return ", ".join([*parts, f"fold {self.fold}"])

    @classmethod
    def of(cls, record: Record) -> "Run":
        """The run of a record."""
        known = {item.name for item in fields(cls)}
        values = {name: value for name, value in record["run"].items() if name in known}
        if isinstance(values.get("bag_size"), list):
            values["bag_size"] = tuple(values["bag_size"])
        return cls(**values)


class Store:
    """Records in folders: one is written to, all are read.

    A record is the file ``records/<experiment>/<id>.json``, whole or not there. Folders of several
    machines are merged by copying them into one another, or by naming them all. A run that failed
    leaves ``<id>.error.json`` instead, which counts as not done.

    Args:
        folders: The first is written to.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        if not folders:
            raise LLPError("there is no results folder; name one")
        self.folders = list(folders)

    @property
    def home(self) -> Path:
        """Where new records go."""
        return self.folders[0]

    def done(self, run: Run) -> bool:
        """Whether any of the folders has the record of a run, and it can be read."""
        name = Path("records", run.experiment, f"{run.id}.json")
        paths = [folder / name for folder in self.folders]
        return any(path.exists() and not _looked_at(path)[1] for path in paths)

    def set_aside(self) -> list[tuple[Path, str]]:
        """Take damaged records out of the way, so that their runs are run again.

        The file ``<id>.json`` is called ``<id>.json.damaged`` then. Records of another format are
        left where they are, and so are those of folders that are only read.

        Returns:
            Where each is now, and what is wrong with it.
        """
        found = []
        for path in sorted((self.home / "records").rglob("[!.]*.json")):
            record, wrong = _looked_at(path)
            if not wrong or record.get("format", FORMAT) != FORMAT:
                continue
            aside = path.with_name(f"{path.name}.damaged")
            with contextlib.suppress(FileNotFoundError):  # another call was faster
                path.replace(aside)
                found.append((aside, wrong))
        return found

    @contextmanager
    def claimed(self, run: Run) -> Iterator[bool]:
        """Whether no other process is at this run; none will be while this lasts.

        A claim is given back when its process ends, however that ends. Where the system has no
        locks, two calls do the work twice.
        """
        path = self._path(run, ".claim")
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _claim(path)
        if file is None:
            yield False
            return
        try:
            yield True
        finally:
            with contextlib.suppress(PermissionError):  # an open file stays, on some systems
                path.unlink(missing_ok=True)
            file.close()

    def busy(self, run: Run) -> bool:
        """Whether another process is at this run."""
        if not self._path(run, ".claim").exists():
            return False
        with self.claimed(run) as mine:
            return not mine

    def write(self, run: Run, record: Record) -> Path:
        """Keep a record, and forget that the run ever failed."""
        path = self._write(run, ".json", record)
        self._path(run, ".error.json").unlink(missing_ok=True)
        return path

    def write_error(self, run: Run, record: Record) -> Path:
        """Keep what went wrong."""
        return self._write(run, ".error.json", record)

    def read(self, experiment: str | None = None) -> Iterator[Record]:
        """Every record once, or those of one experiment, in a stable order."""
        yield from self._read(experiment, failed=False)

    def errors(self, experiment: str | None = None) -> Iterator[Record]:
        """What went wrong, of runs that are not done since."""
        for record in self._read(experiment, failed=True):
            if not self.done(Run.of(record)):
                yield record

    def differing(self) -> list[str]:
        """Ids of records that several folders have with different results."""
        found: dict[str, Path] = {}
        differ = set()
        for folder in self.folders:
            for path in sorted((folder / "records").rglob("[!.]*.json")):
                first = found.setdefault(path.name, path)
                if path.name.endswith(".error.json") or first == path:
                    continue
                if results(parsed(first)) != results(parsed(path)):
                    differ.add(path.stem)
        return sorted(differ)

    def _read(self, experiment: str | None, failed: bool) -> Iterator[Record]:
        found: dict[str, Path] = {}
        for folder in self.folders:
            for path in sorted((folder / "records" / (experiment or "")).rglob("*.json")):
                if path.name.endswith(".error.json") == failed and path.name[0] != ".":
                    found.setdefault(f"{path.parent.name}/{path.name}", path)
        for name in sorted(found):
            try:
                record = parsed(found[name])
            except LLPError:
                if found[name].exists():
                    raise
                continue  # another call did the run that had failed, or set the record aside
            yield record

    def _path(self, run: Run, ending: str) -> Path:
        return self.home / "records" / run.experiment / f"{run.id}{ending}"

    def _write(self, run: Run, ending: str, record: Record) -> Path:
        path = self._path(run, ending)
        return write_json(path, {"format": FORMAT, "id": run.id, "run": asdict(run), **record})


def _claim(path: Path) -> IO[str] | None:
    """A file that is locked, unless another process has it."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            check_regular(path)
        file = path.open("w")
        if not locked(file.fileno(), alone=True):
            file.close()
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # its last owner has removed it meanwhile


def write_json(path: Path, content: Any) -> Path:
    """Write a file, whole or not at all; a table's columns stay on one line each."""
    return write_text(path, _dumps(content) + "\n")


def _dumps(content: Any, level: int = 0) -> str:
    """JSON whose lists of numbers do not take a line each."""
    if isinstance(content, dict) and content and level < 4:
        pad = " " * (level + 1)
        items = [f"{pad}{json.dumps(k)}: {_dumps(v, level + 1)}" for k, v in content.items()]
        return "{\n" + ",\n".join(items) + "\n" + " " * level + "}"
    return json.dumps(content, allow_nan=False, ensure_ascii=False)


TIMES = ("seconds", "measure_seconds")
"""Columns of the history that no two runs share."""


def results(record: Record) -> Record:
    """The table of epochs less the times, and less baselines, which older records do not have."""
    columns = record["history"].items()
    return {name: c for name, c in columns if name not in TIMES and "baseline" not in name}


def parsed(path: Path) -> Record:
    """The record in a file, if it is one."""
    record, wrong = _looked_at(path)
    if wrong:
        raise LLPError(f"{path} is not a record ({wrong}); remove it, and its run can be run again")
    return record


def _looked_at(path: Path) -> tuple[Record, str]:
    """What is in a file, and what is wrong with it as a record: empty if nothing is."""
    try:
        record = dict(json.loads(read_regular(path)))
        if record["format"] != FORMAT:
            return record, f"it is of format {record['format']}, not {FORMAT}"
        if ("error" in record) != path.name.endswith(".error.json"):
            return record, "its name does not tell whether its run failed"
        wrong = _missing(record) or wrong_with(record) or _changed(record)
        if not wrong and record["id"] != path.name.partition(".")[0]:  # a copy would count twice
            wrong = "its name is not its id"
        return record, wrong
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return {}, f"{type(error).__name__}: {error}"


def _missing(record: Record) -> str:
    """What the record of a finished run lacks; empty if nothing."""
    if "error" in record:
        return ""
    parts = _PARTS if record["run"]["experiment"] == "grid" else (*_PARTS, *_TESTED)
    if lacks := [name for name in parts if name not in record]:
        return f"incomplete: it has no {', '.join(lacks)}"
    if len({len(column) for column in record["history"].values()}) != 1:
        return "incomplete: the columns of its history differ in length"
    return ""


def _changed(record: Record) -> str:
    """What shows that a record was changed by hand; empty if nothing does."""
    if record["id"] != Run.of(record).id:
        return "changed by hand: its id is not that of its run"
    final, history = record.get("final", {}), record.get("history", {})
    for name, column in _TWICE.items():
        if name in final and column in history and final[name] != history[column][-1]:
            return (
                f"changed by hand: its final {name} is {final[name]}, but {history[column][-1]} "
                "in the last row of its history"
            )
    return ""
