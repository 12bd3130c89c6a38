"""A results folder: one protocol and its records.

The folder has ``protocol.yaml``, one Parquet file per experiment and, during runs, ``runs/`` with
one small file per run. :func:`pack` moves the rows of small files into the Parquet files. A row
that is in both counts once, so that a call can be killed at any moment. Reading never writes.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llpkit._validation import registered, whole
from llpkit.errors import LLPError
from llpkit.experiments import protocol_file
from llpkit.experiments.protocol import EXPERIMENTS, Protocol
from llpkit.experiments.records import (
    RUNS,
    ExperimentRun,
    Record,
    read_packed,
    read_run,
    write_packed,
)
from llpkit.files import is_ours, locked
from llpkit.methods import METHODS


@dataclass(frozen=True)
class Results:
    """A results folder: its protocol and its records.

    Args:
        folder: Its path.
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
        """Read a folder; raises if a record does not match the protocol."""
        path = folder / protocol_file.FILE
        if not path.is_file():
            raise LLPError(
                f"{folder} has no {protocol_file.FILE}; give a folder of llpkit reproduce (a run "
                "of llpkit fit has its page already: report.html)"
            )
        return cls.of(folder, protocol_file.read(path), _rows(folder))

    @classmethod
    def of(cls, folder: Path, protocol: Protocol, records: Sequence[Record] = ()) -> "Results":
        """Results from records in any order; raises if one does not match the protocol.

        Of two records of the same run the finished one counts, else the first.
        """
        kept: dict[str, Record] = {}
        for record in records:
            if record.id not in kept or (kept[record.id].error and not record.error):
                kept[record.id] = record
        # A fixed order, so that the same records give the same files.
        ordered = sorted(kept.values(), key=lambda r: _order(protocol, r))
        done = [record for record in ordered if not record.error]
        for record in done:
            _check_record(record, protocol, folder)
        check_alike(done, folder)
        found = {name: [r for r in done if r.experiment == name] for name in EXPERIMENTS}
        return cls(folder, protocol, found, [r for r in ordered if r.error])

    def by_method(self, experiment: str) -> dict[str, list[Record]]:
        """The finished runs of an experiment by method, in the protocol's order."""
        found: dict[str, list[Record]] = {}
        for record in self.records[experiment]:
            found.setdefault(record.method, []).append(record)
        return found

    @property
    def finished(self) -> list[Record]:
        """The finished runs of all experiments."""
        return [record for records in self.records.values() for record in records]

    @property
    def every(self) -> list[Record]:
        """All records, including failures."""
        return [*self.failures, *self.finished]

    @property
    def ids(self) -> set[str]:
        """Ids of the runs that need not be repeated."""
        return {record.id for record in self.every if record.done}


def check_alike(runs: Iterable[ExperimentRun], folder: Path) -> None:
    """Refuse runs that are not comparable: of other data, settings or machines."""
    usual: dict[Any, tuple[Any, ExperimentRun]] = {}
    for run in runs:
        # What must be the same, within which runs, and its value.
        facts: list[tuple[str, Any, Any]] = []
        if run.experiment != "grid":
            within = (run.experiment, run.bag_size)
            facts = [(f"{key} of {run.method}", within, own) for key, own in run.recipe.items()]
        if isinstance(run, Record) and run.data is not None:
            facts.append(("the checksum of the data", run.bag_size, run.data.sha256))
        if isinstance(run, Record) and run.experiment == "epoch-time":
            facts.append(("the machine", None, run.machine))
        for name, within, value in facts:
            expected, first = usual.setdefault((name, within), (value, run))
            if value != expected:
                raise LLPError(
                    f"{folder}: {name} is {value} in {run.experiment} ({run.title}) but "
                    f"{expected} in {first.experiment} ({first.title}); a results folder has one "
                    "protocol: choose another folder"
                )


def _check_record(record: Record, protocol: Protocol, folder: Path) -> None:
    """Refuse a record that was not made by this protocol."""
    at = f"{folder}: a record of {record.experiment} ({record.method}, fold {record.fold})"
    registered(f"{at}: method", record.recipe["method"], METHODS)
    sizes = protocol.sizes.sizes if protocol.sizes and record.experiment == "bag-size" else (None,)
    for known, what in (
        (not record.variant or record.variant in protocol.methods, record.variant),
        (record.experiment in protocol.experiments, record.experiment),
        (record.bag_size in sizes, f"bags of {record.bag_size}"),
    ):
        if not known:
            raise LLPError(f"{at}, but {protocol_file.FILE} has no {what}; remove it")
    whole(f"{at}: fold", record.fold, 0, protocol.fold_limit(record.experiment) - 1)
    wanted = protocol.recipe_of(record.method, record.experiment, record.bag_size).to_dict()
    chosen = protocol.chosen(record.method)
    for key, value in wanted.items():
        if key not in chosen and record.recipe.get(key) != value:
            raise LLPError(
                f"{at} has {key} = {record.recipe.get(key)!r}, but {protocol_file.FILE} has "
                f"{value!r}; keep it in another folder"
            )


def _order(protocol: Protocol, record: Record) -> tuple[Any, ...]:
    names = list(protocol.methods)
    at = names.index(record.method) if record.method in names else len(names)
    own = json.dumps(dict(record.recipe), sort_keys=True) if record.experiment == "grid" else ""
    return at, record.method, own, record.bag_size or 0, record.fold


def view(folder: Path, protocol: Protocol) -> Results:
    """The results in a folder, none if it is new; raises if its records have another protocol."""
    path = folder / protocol_file.FILE
    there = path.exists()
    if not there and folder.exists() and not all(is_ours(each.name) for each in folder.iterdir()):
        raise LLPError(
            f"{folder} has no {protocol_file.FILE} and is not empty; choose another folder"
        )
    rows = _rows(folder) if there else []
    if not rows:  # nothing depends on its protocol yet
        return Results.of(folder, protocol)
    results = Results.of(folder, protocol_file.read(path), rows)
    _check_same(folder, results.protocol, protocol)
    return results


def _check_same(folder: Path, there: Protocol, here: Protocol) -> None:
    ours, theirs = here.plain(), there.plain()
    differ = [key for key in ours | theirs if ours.get(key) != theirs.get(key) and key != "title"]
    if differ:
        raise LLPError(
            f"{folder} has a different protocol ({differ[0]} is {theirs.get(differ[0])} there and "
            f"{ours.get(differ[0])} here); choose another folder"
        )


def begin(results: Results) -> None:
    """Give a folder without records its protocol."""
    if not results.every:
        protocol_file.write(results.protocol, results.folder / protocol_file.FILE)


def pack(results: Results) -> Results:
    """Add the records of small files to the results, and move their rows into the Parquet files.

    Nothing is lost if this is interrupted: small files are removed last, and repeating it gives the
    same files.
    """
    folder = results.folder
    small = sorted((folder / RUNS).glob("*.json"))
    if not small:
        return results
    new = [read_run(path) for path in small]
    results = Results.of(folder, results.protocol, [*new, *results.every])
    _write(results, new)
    # Only once all Parquet files are in place.
    for path in small:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (folder / RUNS).rmdir()
    return results


def _write(results: Results, new: Sequence[Record]) -> None:
    """Write the Parquet files of the experiments that have new records."""
    for experiment in {record.experiment for record in new}:
        rows = [record for record in results.every if record.experiment == experiment]
        write_packed(results.folder / f"{experiment}.parquet", rows)


def merge(folder: Path, others: Sequence[Path]) -> Results:
    """Add the records of other folders with the same protocol; existing records are kept.

    If any of them does not belong, nothing is written.
    """
    with locked(folder):
        read = [Results.read(other) for other in others]
        known = view(folder, read[0].protocol)
        for theirs in read:
            _check_same(folder, known.protocol, theirs.protocol)
        done = known.ids
        new = [r for theirs in read for r in theirs.every if r.done and r.id not in done]
        merged = Results.of(folder, known.protocol, [*new, *known.every])
        begin(known)
        _write(merged, new)
        return merged


def _rows(folder: Path) -> list[Record]:
    """The records of small files and of Parquet files; one may be in both."""
    rows = []
    # Small files first: if one is packed in the meantime, its row is in the Parquet file, which is
    # read later.
    for path in sorted((folder / RUNS).glob("*.json")):
        with contextlib.suppress(FileNotFoundError):
            rows.append(read_run(path))
    for experiment in EXPERIMENTS:
        path = folder / f"{experiment}.parquet"
        if path.exists():
            rows += read_packed(path, experiment)
    return rows
