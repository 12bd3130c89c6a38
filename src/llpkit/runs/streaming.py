"""Predictions for Parquet tables of any length, batch by batch: memory does not grow with rows.

A posterior needs whole bags, so a batch ends where a bag ends: the rows of an incomplete last bag
wait for the next batch. This requires the rows of every bag to be next to each other, which a first
pass over the columns of bags and counts checks; it needs up to 24 bytes of memory per bag.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from llpkit._validation import number
from llpkit.bags import Bags
from llpkit.config import Data
from llpkit.errors import LLPError
from llpkit.evaluation.bags import posterior_of
from llpkit.files import atomic
from llpkit.probability import probability_of
from llpkit.runs.data import count_columns
from llpkit.runs.opening import Run
from llpkit.runs.predictions import (
    check_new_columns,
    check_output,
    named_columns,
    prediction_columns,
)
from llpkit.tables import Table
from llpkit.tables.files import PARQUET

if TYPE_CHECKING:
    from llpkit.distributed.parts import Layout

ROWS = 65_536
"""Rows per batch."""
IN_MEMORY = 500_000
"""Tables of up to this many rows are predicted in memory, where bags may be in any order."""


@dataclass(frozen=True)
class Streamed:
    """What was written."""

    rows: int
    columns: tuple[str, ...]
    notes: tuple[str, ...]


def is_long(run: Run, data: Data) -> bool:
    """Whether to predict in batches: many rows of features, or several files."""
    if run.encoder is None or data.table is None:
        return False
    path = Path(data.table).expanduser()
    if not path.exists() or path.is_dir():
        return "*" in data.table or path.is_dir()
    if path.suffix.lower() not in PARQUET:
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows) > IN_MEMORY
    except (pa.ArrowException, OSError):
        return False  # reading it explains what is wrong


def stream(run: Run, data: Data, out: Path, threshold: float = 0.5, prefix: str = "") -> Streamed:
    """Write the table with predictions to ``out``, a Parquet file."""
    import pyarrow.parquet as pq

    if out.suffix.lower() not in PARQUET:
        raise LLPError(f"{out}: write predictions for this many rows as .parquet")
    number("threshold", threshold, 0, 1)
    from llpkit.distributed.partitions import parquet
    from llpkit.distributed.parts import Layout

    assert data.table is not None  # checked with the configuration
    assert data.bag is not None
    files = list(dict.fromkeys(piece.path for piece in parquet(data.table).pieces))
    check_output(out, [*map(Path, files), *run.files])
    schema = pq.read_schema(files[0])
    layout = Layout(data.bag, count_columns(data), ())
    reason = _no_posterior(files, schema.names, layout, data)
    notes = {} if reason is None else {"": f"no posterior column: {reason}"}
    total, names, writer = 0, [], None
    try:
        with atomic(out) as temporary:
            for name, part in _whole_bags(files, None, data.bag if reason is None else None):
                columns = _columns(run, Table(Path(name), part), layout, threshold, reason is None)
                columns = {f"{prefix}{key}": value for key, value in columns.items()}
                check_new_columns(files[0], schema.names, list(columns))
                assert run.encoder is not None
                for column in run.encoder.columns:
                    if column.name not in notes:  # the first of each column
                        for text in column.notes(Table(Path(name), part))[:1]:
                            notes[column.name] = text
                for key, value in columns.items():
                    part = part.append_column(key, value)
                if writer is None:
                    writer = pq.ParquetWriter(temporary, part.schema)
                writer.write_table(part, row_group_size=ROWS)
                total, names = total + len(part), list(columns)
            if writer is not None:
                writer.close()
    finally:
        if writer is not None:
            writer.close()
    return Streamed(total, tuple(names), tuple(notes.values()))


def _columns(
    run: Run, table: Table, layout: "Layout", threshold: float, with_posterior: bool
) -> dict[str, Any]:
    """The new columns of one batch."""
    assert run.encoder is not None
    logits = run.model.logits(run.encoder.apply(table))
    probability = probability_of(logits)
    valid = np.ones(len(table), bool)
    columns = prediction_columns(run, probability, threshold, valid)
    if with_posterior:
        from llpkit.distributed.parts import group

        found = group(table.data, layout, str(table.path))
        rows = None if found.order is None else torch.from_numpy(found.order)
        bags = Bags(torch.from_numpy(found.offsets), found.evidence, rows=rows)
        columns |= named_columns("posterior", posterior_of(logits, bags), run.class_names, valid)
    return columns


def _batches(files: list[str], columns: list[str] | None) -> Iterator[tuple[str, Any]]:
    """The rows of all files in order, as tables, each with its file and first row for messages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in files:
        row = 0
        try:
            with pq.ParquetFile(path, pre_buffer=False) as file:
                for batch in file.iter_batches(ROWS, columns=columns, use_threads=False):
                    if len(batch):
                        yield f"{path}, from row {row + 1}", pa.Table.from_batches([batch])
                    row += len(batch)
        except (pa.ArrowException, OSError) as error:
            raise LLPError(f"{path} cannot be read: {error}; write it again") from error


def _whole_bags(
    files: list[str], columns: list[str] | None, bag: str | None
) -> Iterator[tuple[str, Any]]:
    """Batches that end where a bag ends; without a bag column, wherever they end."""
    import pyarrow as pa
    import pyarrow.compute as pc

    waiting: list[Any] = []
    label = ""
    for name, batch in _batches(files, columns):
        if bag is None:
            yield name, batch
            continue
        label = label or name
        ids = batch.column(bag)
        if ids.null_count:
            raise LLPError(f"{name}: column {bag!r} is empty in some rows; give each its bag")
        changes = np.flatnonzero(pc.not_equal(ids[1:], ids[:-1]).to_numpy())
        if len(changes) == 0:
            same = not waiting or waiting[-1].column(bag)[-1] == ids[0]
            if not same:
                yield label, pa.concat_tables(waiting)
                waiting, label = [], name
            waiting.append(batch)
            continue
        end = int(changes[-1]) + 1
        yield label, pa.concat_tables([*waiting, batch.slice(0, end)])
        waiting, label = [batch.slice(end)], name
    if waiting:
        yield label, pa.concat_tables(waiting)


def _no_posterior(files: list[str], names: list[str], layout: "Layout", data: Data) -> str | None:
    """Why there are no posteriors, or None; reads the columns of bags and counts."""
    if data.counts_table is not None:
        return "the counts are in a table of their own; add them to the rows"
    if data.known_label in names:
        return (
            f"column {data.known_label!r} has known labels, which posteriors of so large a table "
            "cannot use; predict a part of it at a time"
        )
    missing = [name for name in layout.columns if name not in names]
    if missing:
        return f"{files[0]} has no column {', '.join(map(repr, missing))}"
    from llpkit.distributed.check import hashes_of
    from llpkit.distributed.parts import group

    remedy = f"sort the table by {layout.bag!r}"
    hashes = [np.empty(0, np.uint64)]
    try:
        for name, part in _whole_bags(files, layout.columns, layout.bag):
            found = group(part, layout, name)
            if found.order is not None:
                row = int((found.order != np.arange(len(found.order))).argmax())
                bag = part.column(layout.bag)[row].as_py()
                return f"the rows of bag {bag!r} are not next to each other ({name}); {remedy}"
            hashes.append(hashes_of(part.column(layout.bag).unique()))
    except LLPError as error:
        return f"{error}; a posterior needs whole bags and their counts: {remedy}"
    ordered = np.sort(np.concatenate(hashes))
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice) == 0:
        return None
    bag = _with_hash(files, layout, int(twice[0]))
    return f"the rows of bag {bag!r} are not next to each other; {remedy}"


def _with_hash(files: list[str], layout: "Layout", value: int) -> Any:
    """The id with this hash, for the message."""
    from llpkit.distributed.check import hashes_of

    for _, part in _batches(files, [layout.bag]):
        ids = part.column(layout.bag).unique()
        same = np.flatnonzero(hashes_of(ids) == np.uint64(value))
        if len(same):
            return ids[int(same[0])].as_py()
    return None
