"""Runs, their records, and the files that hold them.

A finished run writes a small JSON file; later its row is moved to the Parquet file of its
experiment. All files are written atomically.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from llpkit.errors import LLPError
from llpkit.files import atomic, write_text
from llpkit.methods import METHODS
from llpkit.recipe import Recipe

RUNS = "runs"
"""Folder of the small files."""
_TEXT = ("examples", "environment", "method_options")
"""Fields that a Parquet file holds as JSON text."""
_NESTED = ("data", "final", "selected", "history")
"""Fields that it holds in columns such as ``final.accuracy``."""
_SETTINGS = tuple(Recipe.defaults())


@dataclass(frozen=True)
class FoldData:
    """The bags and instances of one fold."""

    sha256: str
    class_names: tuple[str, ...]
    train_bags: int
    test_bags: int
    train_instances: int
    test_instances: int
    redrawn: bool = False
    """Whether folds are seeds that redraw the bags of one training split."""


@dataclass(frozen=True)
class ExperimentRun:
    """One training run; the protocol of its folder has the data.

    Args:
        experiment: One of :data:`llpkit.experiments.EXPERIMENTS`.
        recipe: Every setting, as in :meth:`Recipe.to_dict`. The seed is the protocol's; together
            with the fold it determines the seed of the training.
        fold: The test fold; in timed runs, the turn.
        bag_size: In ``bag-size``, the size of the bags; else ``None``, the protocol's size.
        variant: The variant's name in the protocol; empty for the method itself.
    """

    experiment: str
    recipe: Mapping[str, Any]
    fold: int
    bag_size: int | None = None
    variant: str = ""

    @property
    def method(self) -> str:
        """The name of the method or, in a protocol with variants of it, of the variant."""
        return self.variant or str(self.recipe["method"])

    @property
    def sees_labels(self) -> bool:
        """Whether the method learns from every label: an upper bound for the others, no rival."""
        return METHODS[self.recipe["method"]].needs_labels

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits: a hash of everything in which runs of a folder differ."""
        text = json.dumps(
            [self.experiment, dict(self.recipe), self.fold, self.bag_size], sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        """A short description that distinguishes it from the other runs of its experiment."""
        parts = [self.method]
        if self.bag_size is not None:
            parts.append(f"bags of {self.bag_size}")
        if self.experiment == "grid":
            parts.append(f"lr {self.recipe['lr']:g}")
            parts.append(f"weight decay {self.recipe['weight_decay']:g}")
            parts += [f"{k} {v}" for k, v in (self.recipe["method_options"] or {}).items()]
        turn = "turn" if self.experiment == "epoch-time" else "fold"
        return ", ".join([*parts, f"{turn} {self.fold}"])


@dataclass(frozen=True)
class Record(ExperimentRun):
    """A run and its result.

    Args:
        error: Why the run failed; empty if it succeeded, and then the fields below are set.
        diverged: Whether it failed because the loss became infinite or NaN.
        data: The bags and instances of its fold.
        final: Metrics after the last epoch, including ``accuracy`` except in a grid.
        selected: The same after the epoch selected by held-out bags, if there were any.
        history: Metrics after every epoch, one list per metric.
        seconds: Time of the whole run.
        examples: Predictions of a few test bags: ``bag``, ``count``, ``size``, ``rows``,
            ``probability``, ``truth``.
        environment: Command, versions, hardware, device.
    """

    error: str = ""
    diverged: bool = False
    data: FoldData | None = None
    final: Mapping[str, float] = field(default_factory=dict)
    selected: Mapping[str, float] | None = None
    history: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    seconds: float = 0.0
    examples: Sequence[Mapping[str, Any]] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether the run is final. One that diverged is: it would diverge again."""
        return not self.error or self.diverged

    @property
    def machine(self) -> str:
        """The machine that the run used."""
        return machine(self.environment)


_KEYS = tuple(each.name for each in fields(Record))
_DATA = tuple(each.name for each in fields(FoldData))


def machine(environment: Mapping[str, Any]) -> str:
    """The GPU, or the processor and its threads; and whether networks were compiled."""
    about = environment.get("hardware", {})
    name = f"{about.get('processor')}, threads: {about.get('threads')}"
    if environment.get("device") == "cuda":
        name = str(about.get("gpu", "cuda"))
    return f"{name}, compiled" if environment.get("compiled") else name


def write_run(folder: Path, record: Record) -> Path:
    """Write the record of a finished run atomically."""
    path = folder / RUNS / f"{record.id}.json"
    return write_text(path, json.dumps(asdict(record), ensure_ascii=False, allow_nan=False))


def read_run(path: Path) -> Record:
    """The record in a small file."""
    try:
        return _record(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, LookupError) as error:
        raise LLPError(f"{path} is not a record ({error}); remove it to run it again") from error


def _record(values: Mapping[str, Any]) -> Record:
    """A record from plain values, which must have all keys and no others."""
    _check_keys(values, _KEYS)
    _check_keys(values["recipe"], _SETTINGS)
    data = values["data"]
    if data is not None:
        _check_keys(data, _DATA)
        data = FoldData(**{**data, "class_names": tuple(data["class_names"])})
    return Record(**{**values, "data": data})


def _check_keys(values: Mapping[str, Any], wanted: Sequence[str]) -> None:
    differ = [f"no {key}" for key in wanted if key not in values]
    differ += [f"an unknown {key}" for key in values if key not in wanted]
    if differ:
        raise LLPError(f"it has {differ[0]}, so another version of llpkit wrote it")


def write_packed(path: Path, records: Sequence[Record]) -> None:
    """Write one row per record; settings and nested values are separate columns."""
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


def read_packed(path: Path, experiment: str) -> list[Record]:
    """The records in a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        rows = parquet.read_table(path).to_pylist()
        return [_record({"experiment": experiment, **_unflat(row)}) for row in rows]
    except (OSError, ValueError, TypeError, LookupError, pa.ArrowException) as error:
        raise LLPError(
            f"{path} is not a file of records ({error}); restore or remove it"
        ) from error


def _unflat(row: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {name: {} for name in ("recipe", *_NESTED)}
    for name, value in row.items():
        own = json.loads(value) if name in _TEXT else value
        part, dot, key = name.partition(".")
        if not dot:
            (values if name in _KEYS else values["recipe"])[name] = own
        # Metrics differ between methods; null means that this record lacks one.
        elif value is not None:
            values[part][key] = own
    return values | {name: values[name] or None for name in ("data", "selected")}
