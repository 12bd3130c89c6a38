"""One cheap pass over all partitions before anything expensive: what is wrong, and a sample.

Bags may be split across partitions that no process sees together, so every partition sends
64-bit hashes of its bag ids to buckets; a hash that a bucket receives twice is looked up in the two
partitions and named.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from llpkit._arrays import Array
from llpkit._text import several
from llpkit.distributed.cluster import answering
from llpkit.distributed.partitions import INDEX, Partitions, table_of
from llpkit.distributed.parts import Layout, group
from llpkit.errors import LLPError

_PER_BUCKET = 64
"""Partitions per bucket of hashes; a bucket holds the ids of about this many partitions."""
_SHOWN = 3


class Checked(NamedTuple):
    """The result of the pass."""

    rows: tuple[int, ...]
    """Rows per partition."""
    bags: int
    sample: Any
    """Rows of whole bags from all partitions, a ``pyarrow.Table``."""


class _Report(NamedTuple):
    """What the check learned about one partition."""

    rows: int
    bags: int
    schema: dict[str, str]
    error: str
    sample: Any


@answering()
def check(
    partitions: Partitions,
    layout: Layout,
    *,
    sample_rows: int,
    seed: int = 0,
    every: bool = False,
    finite: bool = False,
) -> Checked:
    """Check all partitions, or raise one error that names those that are wrong.

    Args:
        partitions: Where the rows are.
        layout: Which columns hold what; without features only bags and counts are checked.
        sample_rows: Size of the sample; whole bags, about equally many rows of every partition.
        seed: Seed for the choice of these bags.
        every: Read every column, not only those of the layout; all partitions must have the same.
        finite: Refuse missing and infinite features.
    """
    import dask

    share = -(-sample_rows // max(1, len(partitions)))
    buckets = -(-len(partitions) // _PER_BUCKET)
    seen = [
        dask.delayed(_inspect, nout=2)(
            piece, name, layout, share, (seed, i), buckets, every, finite
        )
        for i, (piece, name) in enumerate(zip(partitions.pieces, partitions.names, strict=True))
    ]
    twice = [dask.delayed(_repeated)([hashes[b] for _, hashes in seen]) for b in range(buckets)]
    reports, repeated = dask.compute([report for report, _ in seen], twice)
    torn = [pair for found in repeated for pair in found]
    _refuse(_torn(torn, partitions, layout), len(partitions))
    wrong = [
        report.error or _other_schema(report, reports[0], name)
        for report, name in zip(reports, partitions.names, strict=True)
    ]
    _refuse([text for text in wrong if text], len(partitions))
    import pyarrow as pa

    sample = pa.concat_tables([report.sample for report in reports])
    return Checked(tuple(r.rows for r in reports), sum(r.bags for r in reports), sample)


def _refuse(wrong: Sequence[str], number: int) -> None:
    wrong = list(dict.fromkeys(wrong))  # settings that contradict each other do so everywhere
    if not wrong:
        return
    more = len(wrong) - _SHOWN
    rest = [f"and {several(more, 'more problem')} like these"] if more > 0 else []
    lead = f"{several(len(wrong), 'problem')} in {several(number, 'partition')}:"
    lines = wrong if len(wrong) == 1 else [lead, *wrong[:_SHOWN], *rest]
    raise LLPError("\n  ".join(lines))


def _inspect(
    piece: Any,
    name: str,
    layout: Layout,
    share: int,
    seed: tuple[int, int],
    buckets: int,
    every: bool,
    finite: bool,
) -> tuple[_Report, list[Array]]:
    """Read a partition, check it, and draw its part of the sample."""
    nothing = [np.empty(0, np.uint64)] * buckets
    try:
        table = table_of(piece, None if every else layout.columns)
    except LLPError as error:
        return _Report(0, 0, {}, f"{name}: {error}", None), nothing
    schema = {field.name: str(field.type) for field in table.schema}
    missing = [column for column in layout.columns if column not in schema]
    if missing:
        names = ", ".join(map(repr, missing))
        own = ", ".join(list(schema)[:8])
        text = f"{name} has no column {names}; its columns are {own}"
        return _Report(0, 0, schema, text, None), nothing
    if not len(table):
        text = f"{name} has no rows; remove it, or use fewer partitions"
        return _Report(0, 0, schema, text, None), nothing
    try:
        found = group(table, layout, name)
        if layout.features:
            X = layout.numbers(table, name)
            if finite:
                _check_finite(X, layout, name)
    except LLPError as error:
        # A torn bag often shows first as a count that is larger than what is left of the bag.
        report = _Report(len(table), 0, schema, str(error), None)
        return report, _in_buckets(table, layout.bag, buckets)
    sizes = np.diff(found.offsets)
    order = np.random.default_rng(seed).permutation(len(sizes))
    bags = np.sort(order[: 1 + int(np.searchsorted(np.cumsum(sizes[order]), share))])
    starts = found.offsets[bags]
    places = np.repeat(starts - np.append(0, np.cumsum(sizes[bags])[:-1]), sizes[bags])
    rows = places + np.arange(len(places))
    sample = table.take(rows if found.order is None else found.order[rows])
    report = _Report(len(table), len(sizes), schema, "", sample)
    return report, _in_buckets(table, layout.bag, buckets)


def _check_finite(X: Array, layout: Layout, name: str) -> None:
    if np.isfinite(X).all():
        return
    row, column = np.argwhere(~np.isfinite(X))[0]
    found = "is empty" if np.isnan(X[row, column]) else f"= {X[row, column]}"
    raise LLPError(
        f"{name}: row {row + 1}, column {layout.feature_columns[column]!r} {found}; fill in the "
        "value or drop the row's bag, or use LLPClassifier, whose trees take missing values"
    )


def _in_buckets(table: Any, bag: str, buckets: int) -> list[Array]:
    hashes = hashes_of(table.column(bag).unique())
    bucket = hashes % np.uint64(buckets)
    return [hashes[bucket == b] for b in range(buckets)]


def hashes_of(ids: Any) -> Array:
    """64 bits per distinct bag id of a ``pyarrow.Array``, the same in every process."""
    import pyarrow as pa

    ids = ids.drop_null()
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    if pa.types.is_integer(ids.type):
        return np.asarray(ids.to_numpy().astype(np.int64).view(np.uint64))
    texts = ids.cast(pa.large_string()).to_pylist()
    digests = (blake2b(text.encode(), digest_size=8) for text in texts)
    return np.frombuffer(b"".join(digest.digest() for digest in digests), np.uint64)


def _repeated(hashes: Sequence[Array]) -> list[tuple[int, int, int]]:
    """Hashes that two partitions share: the hash and the two partitions, a few of them."""
    flat = np.concatenate(hashes)
    of = np.repeat(np.arange(len(hashes)), [len(part) for part in hashes])
    order = np.argsort(flat, kind="stable")
    same = np.flatnonzero(flat[order][1:] == flat[order][:-1])[:100]
    return [(int(flat[order[i]]), int(of[order[i]]), int(of[order[i + 1]])) for i in same]


def _torn(
    pairs: Sequence[tuple[int, int, int]], partitions: Partitions, layout: Layout
) -> list[str]:
    """A message for every bag that is in two partitions; different ids may share a hash."""
    import dask

    some = pairs[: _SHOWN + 1]
    looked = dask.compute(
        [
            [dask.delayed(_with_hash)(partitions.pieces[i], layout, value) for i in places]
            for value, *places in some
        ]
    )[0]
    texts = []
    for (_, one, two), (first, second) in zip(some, looked, strict=True):
        if (bag := next(iter(set(first) & set(second)), None)) is not None:
            texts.append(
                f"bag {bag!r} is split: it has rows in {partitions.names[one]} and in "
                f"{partitions.names[two]}; put every bag into one partition, for example with "
                "llpkit.distributed.repartition_by_bag"
            )
    return texts


def _with_hash(piece: Any, layout: Layout, value: int) -> list[Any]:
    ids = table_of(piece, [layout.bag]).column(layout.bag).unique().drop_null()
    return list(ids.filter(hashes_of(ids) == np.uint64(value)).to_pylist())


def _other_schema(report: _Report, first: _Report, name: str) -> str:
    """How the columns differ from those of the first partition, or nothing."""
    for column, kind in first.schema.items():
        if column.startswith(INDEX):
            continue
        if report.schema.get(column, kind) != kind:
            return (
                f"{name} has column {column!r} as {report.schema[column]}, but the first partition "
                f"has {kind}; give all partitions the same columns and types"
            )
        if column not in report.schema:
            return f"{name} has no column {column!r}, which the first partition has"
    for column in report.schema:
        if column not in first.schema and not column.startswith(INDEX):
            return f"{name} has a column {column!r}, which the first partition does not have"
    return ""
