"""Records of runs: small files while runs go on, then one Parquet file per experiment.

A results folder has one protocol (``protocol.yaml``). Each run that ends leaves ``runs/<id>.json``;
:func:`pack` moves these rows into ``<experiment>.parquet`` and removes the small files. Every file
is whole or absent, and a row that is in both places counts once, so that a call may be killed at
any moment. Reading never writes.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from llpkit._files import atomic, locked, write_text
from llpkit.errors import LLPError
from llpkit.experiments import protocol as protocols
from llpkit.experiments.protocol import EXPERIMENTS, Protocol
from llpkit.methods import METHODS
from llpkit.training.recipe import Recipe

RUNS = "runs"
_TEXT = ("calibration", "examples", "environment", "method_options")
"""What a Parquet file holds as JSON text."""
_NESTED = ("data", "final", "selected", "history")
"""What it holds in columns such as ``final.accuracy``."""


@dataclass(frozen=True)
class Data:
    """The bags and instances of one fold."""

    sha256: str
    class_names: tuple[str, ...]
    train_bags: int
    test_bags: int
    train_instances: int
    test_instances: int


@dataclass(frozen=True)
class Record:
    """What one run left behind.

    Args:
        experiment: One of :data:`llpkit.experiments.protocol.EXPERIMENTS`.
        recipe: Every setting of the run, as :meth:`Recipe.to_dict` gives it; the seed is the
            protocol's, from which that of the training follows together with the fold.
        fold: Which fold was tested; of timed runs, the turn.
        bag_size: In ``bag-size``, the size of the bags; else ``None``: that of the protocol.
        error: Why the run failed; empty if it did not, and then the fields below are filled in.
        diverged: Whether it failed because the loss was no longer finite.
        final: Measures after the last epoch, ``accuracy`` among them but for a grid's.
        selected: The same after the epoch that held-out bags chose, if there were any.
        history: Measures after every epoch, one list per measure.
        seconds: Of the whole run.
        calibration: ``mean_predicted``, ``fraction_positive`` and ``number`` of 20 bins.
        examples: Predictions of a few test bags: ``bag``, ``count``, ``size``, ``rows``,
            ``probability``, ``truth``.
        environment: Command, versions, hardware, device.
    """

    experiment: str
    recipe: Mapping[str, Any]
    fold: int
    bag_size: int | None = None
    error: str = ""
    diverged: bool = False
    data: Data | None = None
    final: Mapping[str, float] = field(default_factory=dict)
    selected: Mapping[str, float] | None = None
    history: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    seconds: float = 0.0
    calibration: Mapping[str, Sequence[float]] | None = None
    examples: Sequence[Mapping[str, Any]] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.recipe["method"])

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that follow from everything that determines the run."""
        return run_id(self.experiment, self.recipe, self.fold, self.bag_size)

    @property
    def done(self) -> bool:
        """Whether the run need not be tried again: a grid's candidate that diverged has lost."""
        return not self.error or (self.diverged and self.experiment == "grid")

    @property
    def machine(self) -> str:
        """What did the work: the card, or the processor and its threads; and if compiled."""
        about = self.environment.get("hardware", {})
        name = f"{about.get('processor')}, threads: {about.get('threads')}"
        if self.environment.get("device") == "cuda":
            name = str(about.get("gpu", "cuda"))
        return f"{name}, compiled" if self.environment.get("compiled") else name


def run_id(experiment: str, recipe: Mapping[str, Any], fold: int, bag_size: int | None) -> str:
    """The id of a run; all runs of a folder share the protocol's data."""
    text = json.dumps([experiment, dict(recipe), fold, bag_size], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Results:
    """A results folder: its protocol and its records.

    Args:
        folder: Where it is.
        protocol: Its ``protocol.yaml``.
        records: Finished runs by experiment, ordered by method, bag size and fold.
        failures: Runs that failed.
    """

    folder: Path
    protocol: Protocol
    records: Mapping[str, Sequence[Record]]
    failures: Sequence[Record]

    @classmethod
    def read(cls, folder: Path) -> "Results":
        """Read a folder; an error if a record does not match the protocol."""
        path = folder / protocols.FILE
        if not path.is_file():
            raise LLPError(f"{folder} has no {protocols.FILE}; give a folder of llpkit reproduce")
        return cls._of(folder, protocols.read(path), _rows(folder))

    @classmethod
    def _of(cls, folder: Path, protocol: Protocol, rows: Iterable[Record]) -> "Results":
        found: dict[str, list[Record]] = {name: [] for name in EXPERIMENTS}
        failures = []
        for record in rows:
            if record.error:
                failures.append(record)
            else:
                found[record.experiment].append(record)
        for records in found.values():
            records.sort(key=lambda record: _order(protocol, record))
        results = cls(folder, protocol, found, failures)
        results._check()
        return results

    def by_method(self, experiment: str) -> dict[str, list[Record]]:
        """The finished runs of an experiment by method, in the protocol's order."""
        found: dict[str, list[Record]] = {}
        for record in self.records[experiment]:
            found.setdefault(record.method, []).append(record)
        return found

    @property
    def ids(self) -> set[str]:
        """Of the runs that need not be tried again."""
        every = (*self.failures, *(r for records in self.records.values() for r in records))
        return {record.id for record in every if record.done}

    def _check(self) -> None:
        """Refuse records that do not belong together."""
        shared: dict[tuple[Any, ...], tuple[str, Any]] = {}

        def same(what: str, key: tuple[Any, ...], value: Any, record: Record) -> None:
            at = f"{record.experiment}, {record.method}, fold {record.fold}"
            first, usual = shared.setdefault((what, *key), (at, value))
            if usual != value:
                raise LLPError(
                    f"{self.folder}: {what} is {value} in one record ({at}) but {usual} in another "
                    f"({first}); a results folder has one protocol: keep them in separate folders"
                )

        for record in (r for records in self.records.values() for r in records):
            check_record(record, self.protocol, self.folder)
            if record.data is not None:
                same("the checksum of the data", (record.bag_size,), record.data.sha256, record)
            if record.experiment != "grid":
                same("the recipe", (record.experiment, record.method), record.recipe, record)
            if record.experiment == "epoch-time":
                same("the machine", (), record.machine, record)


def check_record(record: Record, protocol: Protocol, folder: Path) -> None:
    """Refuse a record that was not made by this protocol."""
    axes = {"lr", "weight_decay", "method_options"}
    wanted = _expected(protocol, record)
    own = protocol.methods.get(record.method, {})
    for key, value in wanted.items():
        if key in axes - own.keys() or record.recipe.get(key) == value:
            continue
        raise LLPError(
            f"{folder}: a record of {record.experiment} ({record.method}, fold {record.fold}) has "
            f"{key} = {record.recipe.get(key)!r}, but {protocols.FILE} has {value!r}; keep it in "
            "another folder"
        )
    sizes = protocol.sizes.sizes if protocol.sizes and record.experiment == "bag-size" else (None,)
    if record.experiment not in protocol.experiments or record.bag_size not in sizes:
        what = f"bags of {record.bag_size}" if record.bag_size else record.experiment
        raise LLPError(f"{folder}: {protocols.FILE} has no {what}, but there is a record of it")


def _expected(protocol: Protocol, record: Record) -> dict[str, Any]:
    """The recipe of a record's method by the protocol, less what a network of its own changes."""
    values = {**Recipe().to_dict(), **protocol.settings(record.method, record.experiment)}
    known = METHODS.get(record.method)
    if known is None or known.network_name is not None:
        values.pop("network")
    return values


def _order(protocol: Protocol, record: Record) -> tuple[Any, ...]:
    names = list(protocol.methods)
    at = names.index(record.method) if record.method in names else len(names)
    own = json.dumps(dict(record.recipe), sort_keys=True) if record.experiment == "grid" else ""
    return at, record.method, own, record.bag_size or 0, record.fold


# Files


def begin(folder: Path, protocol: Protocol) -> Results:
    """The results in a folder, which is made if it is new; an error if its protocol is another."""
    path = folder / protocols.FILE
    if path.exists():
        there = protocols.read(path)
        ours, theirs = (replace(each, title="").to_dict() for each in (protocol, there))
        if differ := [key for key in ours | theirs if ours.get(key) != theirs.get(key)]:
            raise LLPError(
                f"{folder} has another protocol ({differ[0]} is {theirs.get(differ[0])} there and "
                f"{ours.get(differ[0])} here); choose another folder"
            )
    elif folder.exists() and any(folder.iterdir()):
        raise LLPError(f"{folder} has no {protocols.FILE} and is not empty; choose another folder")
    else:
        protocols.write(protocol, path)
    return Results.read(folder)


def write_run(folder: Path, record: Record) -> Path:
    """Keep the record of a run that has ended, whole or not at all."""
    path = folder / RUNS / f"{record.id}.json"
    return write_text(path, json.dumps(asdict(record), ensure_ascii=False, allow_nan=False))


def pack(folder: Path) -> Results:
    """Move the rows of small files into one Parquet file per experiment.

    Nothing is lost if this is interrupted: small files are removed last, and doing it again gives
    the same files.
    """
    small = sorted((folder / RUNS).glob("*.json"))
    results = Results.read(folder)
    if not small:
        return results
    every = [*results.failures, *(r for records in results.records.values() for r in records)]
    for experiment in {record.experiment for record in every}:
        rows = [record for record in every if record.experiment == experiment]
        _write(folder / f"{experiment}.parquet", rows)
    for path in small:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (folder / RUNS).rmdir()
    return results


def merge(folder: Path, others: Sequence[Path]) -> Results:
    """Add the records of other folders with the same protocol; of a run in both, ours stays."""
    with locked(folder):
        for other in others:
            theirs = Results.read(other)
            ids = begin(folder, theirs.protocol).ids
            for records in theirs.records.values():
                for record in records:
                    if record.id not in ids:
                        write_run(folder, record)
        return pack(folder)


def _rows(folder: Path) -> list[Record]:
    """Every record once: of two with one id the finished one, or else that of a small file."""
    rows = []
    # Small files first: one that is packed meanwhile has its row in the Parquet file read later.
    for path in sorted((folder / RUNS).glob("*.json")):
        with contextlib.suppress(FileNotFoundError):
            rows.append(read_run(path))
    for experiment in EXPERIMENTS:
        path = folder / f"{experiment}.parquet"
        if path.exists():
            rows += _read_packed(path, experiment)
    found: dict[str, Record] = {}
    for record in rows:
        if record.id not in found or (found[record.id].error and not record.error):
            found[record.id] = record
    return list(found.values())


def read_run(path: Path) -> Record:
    """The record in a small file."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return _record(**values)
    except (ValueError, TypeError) as error:
        raise LLPError(f"{path} is not a record ({error}); remove it to run it again") from error


def _record(data: Mapping[str, Any] | None, recipe: Mapping[str, Any], **rest: Any) -> Record:
    """A record from plain values; settings that are newer than it have their defaults."""
    if data is not None:
        data = {**data, "class_names": tuple(data["class_names"])}
    full = {**Recipe().to_dict(), **recipe}
    return Record(data=None if data is None else Data(**data), recipe=full, **rest)


def _write(path: Path, records: Sequence[Record]) -> None:
    """One row per record: settings under their own names, parts in columns of their own."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [_flat(record) for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    with atomic(path) as draft:
        parquet.write_table(pa.table(columns), draft, compression="zstd", compression_level=12)


def _flat(record: Record) -> dict[str, Any]:
    values = {k: v for k, v in asdict(record).items() if k != "experiment"}
    row = values.pop("recipe")
    for name, value in values.items():
        if name in _NESTED:
            row |= {f"{name}.{key}": own for key, own in (value or {}).items()}
        else:
            row[name] = value
    return {k: json.dumps(v, ensure_ascii=False) if k in _TEXT else v for k, v in row.items()}


def _read_packed(path: Path, experiment: str) -> list[Record]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        rows = parquet.read_table(path).to_pylist()
        return [_unflat(row, experiment) for row in rows]
    except (OSError, ValueError, TypeError, LookupError, pa.ArrowException) as error:
        raise LLPError(
            f"{path} is not a file of records ({error}); restore or remove it"
        ) from error


def _unflat(row: dict[str, Any], experiment: str) -> Record:
    parts: dict[str, Any] = {name: {} for name in ("recipe", *_NESTED)}
    settings = Recipe().to_dict().keys()
    for name, value in row.items():
        own = json.loads(value) if name in _TEXT else value
        part, dot, key = name.partition(".")
        if name in settings:
            parts["recipe"][name] = own
        elif not dot:
            parts[name] = own
        elif value is not None:
            parts[part][key] = own
    for name in ("data", "selected"):
        parts[name] = parts[name] or None
    return _record(experiment=experiment, **parts)
