"""Tables in files against Python's own csv module and dictionaries.

One case is one table read whole (cells, bags, counts, features), one written and read back by the
csv module, or one damaged table refused.
"""

import csv
import functools
import gzip
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fuzzing.scoring import Score, answer, attempt, fail, must_refuse
from llpkit.datasets import DataSet, load
from llpkit.tables import Table

TEXTS = (
    "",
    "u",
    "v",
    "a,b",
    'say "x"',
    '""',
    '"',
    "two\nlines",
    "cr\rhere",
    "crlf\r\nthere",
    "é😀",
)
TEXTS += (" padded ", ";", "\t", "=1+1", "-", "NA", "nan", "null", "?", "None", "TRUE", "x" * 300)
TEXTS += ("\x1b[31m", "\u2028", "\ufeff", "'", "\\", "0", "1e5")
MISSING = ("", "?", "na", "n/a", "nan", "none", "null")
IDS = (
    "1",
    "01",
    "b",
    "B",
    "é",
    "a,b",
    "a b",
    'q"q',
    "two\nlines",
    "-1",
    "1.0",
    "None",
    "NA",
    "x;y",
)


class Drawn(NamedTuple):
    names: list[str]
    cells: list[list[str]]  # by row
    counts: dict[str, tuple[int, ...]]  # by bag
    classes: int | None
    sizes: dict[str, int]

    def column(self, name: str) -> list[str]:
        return [row[self.names.index(name)] for row in self.cells]

    @property
    def count_columns(self) -> list[str]:
        return ["n"] if self.classes is None else [f"n{k}" for k in range(self.classes)]


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="llpkit-fuzz-"))


def case(rng: np.random.Generator, score: Score) -> None:
    """One round."""
    drawn = _draw(rng)
    kind = rng.random()
    if kind < 0.2:
        _parquet(rng, drawn, score)
    elif kind < 0.6:
        _csv(rng, drawn, score)
    else:
        for _ in range(5):
            _damaged(rng, drawn, score)


def _draw(rng: np.random.Generator) -> Drawn:
    rows = int(rng.integers(1, 25))
    classes = None if rng.random() < 0.7 else int(rng.integers(2, 4))
    ids = [IDS[i] for i in rng.permutation(len(IDS))[: rng.integers(1, 6)]]
    bag = [ids[i] for i in rng.integers(0, len(ids), rows)]
    labels = rng.integers(0, classes or 2, rows)
    counts, sizes = {}, {}
    for name in dict.fromkeys(bag):
        own = [int(y) for y, b in zip(labels, bag, strict=True) if b == name]
        sizes[name] = len(own)
        if classes is None:
            counts[name] = (own.count(1),)
        else:
            counts[name] = tuple(own.count(k) for k in range(classes))
    numbers = [_number(rng) for _ in range(rows)]
    texts = [TEXTS[i] for i in rng.integers(0, len(TEXTS), rows)]
    spoken = ["n"] if classes is None else [f"n{k}" for k in range(classes)]
    columns: dict[str, list[str]] = {"bag": bag, "x": numbers, "k": texts}
    for place, name in enumerate(spoken):
        # Zeros and ones alone, written 0.0 and 1.0, may be shares: they are refused, see below.
        ways = 4 if max(counts[b][place] for b in bag) > 1 else 1
        columns[name] = [_count(rng, counts[b][place], ways) for b in bag]
    names = [list(columns)[i] for i in rng.permutation(len(columns))]
    cells = [list(row) for row in zip(*(columns[name] for name in names), strict=True)]
    return Drawn(names, cells, counts, classes, sizes)


def _number(rng: np.random.Generator) -> str:
    value = float(rng.normal() * 10.0 ** int(rng.integers(-3, 4)))
    ways = [repr(value), f"{value:.2f}", str(int(value)), f"{value:e}", f"+{abs(value):.1f}", ""]
    ways += ["NA", "0", ".5", "7."]
    return ways[rng.integers(len(ways))]


def _count(rng: np.random.Generator, value: int, ways: int) -> str:
    spelt = [str(value), f"{value}.0", f" {value} ", f"{value}e0"]
    return spelt[rng.integers(ways) if rng.random() < 0.5 else 0]


def _as_csv(rng: np.random.Generator, drawn: Drawn) -> tuple[bytes, str]:
    """The bytes, and the separator."""
    delimiter = str(rng.choice([",", ",", ";", "\t"]))
    text = io.StringIO()
    quoting = csv.QUOTE_ALL if rng.random() < 0.3 else csv.QUOTE_MINIMAL
    end = str(rng.choice(["\n", "\r\n"]))
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=end)
    writer.writerow(drawn.names)
    writer.writerows(drawn.cells)
    content = text.getvalue()
    if rng.random() < 0.2:
        content = content.rstrip("\r\n")
    return (b"\xef\xbb\xbf" if rng.random() < 0.1 else b"") + content.encode(), delimiter


def _options(drawn: Drawn) -> dict[str, Any]:
    spoken = drawn.count_columns
    return {"bag": "bag", "count": spoken[0] if drawn.classes is None else spoken}


def _csv(rng: np.random.Generator, drawn: Drawn, score: Score) -> None:
    content, delimiter = _as_csv(rng, drawn)
    path = _folder() / "t.csv"
    if rng.random() < 0.1:
        path = _folder() / "t.csv.gz"
        path.write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)
    text = content.decode("utf-8-sig")
    rows = [r for r in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if r]
    if rows[1:] != drawn.cells or rows[0] != drawn.names:
        return  # what the csv module itself does not give back is no test
    info = {"content": content}
    _read(path, drawn, score, info)
    _round_trip(path, drawn, score, info)


def _parquet(rng: np.random.Generator, drawn: Drawn, score: Score) -> None:
    """The same table with columns of various types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {}
    for name in drawn.names:
        values: Any = drawn.column(name)
        kind = None
        if name in drawn.count_columns:
            values = [int(float(v)) for v in values]
            kinds = [pa.int8(), pa.uint16(), pa.int64(), pa.float32(), pa.float64()]
            kind = kinds[rng.integers(5 if max(values) > 1 else 3)]
        elif name == "bag" and rng.random() < 0.3:
            values = pa.array(values).dictionary_encode()
        elif name == "x" and rng.random() < 0.5:
            values = [None if v in ("", "NA") else float(v) for v in values]
            kind = pa.float64()
        columns[name] = pa.array(values, kind) if isinstance(values, list) else values
    path = _folder() / "t.parquet"
    table = pa.table(columns)
    pq.write_table(table, path)
    _read(path, drawn, score, {"table": table.to_pydict()}, cells=False)


def _read(path: Path, drawn: Drawn, score: Score, info: dict[str, Any], cells: bool = True) -> None:
    """Every cell, every bag, every feature."""
    table = answer(lambda: Table.read(path), **info)
    if table.names != drawn.names or len(table) != len(drawn.cells):
        fail(f"{table.names} with {len(table)} rows", **info)
    for name in drawn.names if cells else ():
        got = table.text(name).to_pylist()
        want = [v.strip() or None for v in drawn.column(name)]
        if got != want:
            i = next(i for i, (a, b) in enumerate(zip(got, want, strict=True)) if a != b)
            fail(f"cell {i} of {name} = {got[i]!r}, not {want[i]!r}", **info)
    score.confirm()
    data = answer(
        lambda: load(
            "feature-table",
            table=path,
            features=["x", "k"],
            numeric=["x"],
            categorical=["k"],
            **_options(drawn),
        ),
        **info,
    )
    _bags(data, drawn, info)
    _features(data, drawn, info)
    score.confirm()


def _bags(data: DataSet, drawn: Drawn, info: dict[str, Any]) -> None:
    bag = drawn.column("bag")
    if {b.id for b in data.bags} != set(bag) or len(data.bags) != len(set(bag)):
        fail(f"bags are {data.bags.ids}", **info)
    for b in data.bags:
        rows = [i for i, name in enumerate(bag) if name == b.id]
        want = drawn.counts[b.id]
        if b.rows.tolist() != rows or b.count != (want[0] if len(want) == 1 else want):
            fail(f"bag {b.id!r} has rows {b.rows.tolist()}, count {b.count}, not {want}", **info)


def _features(data: DataSet, drawn: Drawn, info: dict[str, Any]) -> None:
    gone = [v.strip().lower() in MISSING for v in drawn.column("x")]
    x = np.array([np.nan if g else float(v) for g, v in zip(gone, drawn.column("x"), strict=True)])
    there = x[~np.isnan(x)]
    mean, spread = (there.mean(), there.std()) if len(there) else (0.0, 0.0)
    want = np.where(np.isnan(x), 0.0, (x - mean) / (spread or 1.0))
    inputs = data.inputs.numpy()
    if not np.allclose(inputs[:, 0], want, rtol=1e-5, atol=1e-5):
        fail(f"numbers are {inputs[:, 0].tolist()}, not {want.tolist()}", **info)
    width = 1 + any(gone)
    if any(gone) and inputs[:, 1].tolist() != [float(g) for g in gone]:
        fail("missing numbers are not reported", **info)
    words = [v.strip() for v in drawn.column("k")]
    words = ["" if w.lower() in MISSING else w for w in words]
    hot = [tuple(row) for row in inputs[:, width:].tolist()]
    if len(set(zip(words, hot, strict=True))) != len(set(words)) or len(set(hot)) != len(
        set(words)
    ):
        fail(f"categories {words} became {hot}", **info)
    if any(sum(row) != 1 for row in hot) and len(set(words)) <= 64:
        fail(f"categories {words} became {hot}", **info)


def _round_trip(path: Path, drawn: Drawn, score: Score, info: dict[str, Any]) -> None:
    """Written with a further column, the table comes back cell by cell."""
    table = answer(lambda: Table.read(path), **info)
    out = _folder() / "out.csv"
    extra = np.arange(len(table)) / 8
    answer(lambda: table.write(out, {"p": extra}), **info)
    with out.open(encoding="utf-8", newline="") as file:
        try:
            rows = list(csv.reader(file))
        except csv.Error as error:
            fail(f"what was written cannot be read: {error}", written=out.read_bytes(), **info)
    if rows[0] != [*drawn.names, "p"] or [r[:-1] for r in rows[1:]] != drawn.cells:
        fail("what was written is another table", written=out.read_bytes(), **info)
    if [float(r[-1]) for r in rows[1:]] != extra.tolist():
        fail("the new column is another one", written=out.read_bytes(), **info)
    again = answer(lambda: Table.read(out), written=out.read_bytes(), **info)
    if again.names != rows[0] or len(again) != len(rows) - 1:
        fail("llpkit reads its own file otherwise", written=out.read_bytes(), **info)
    score.confirm()


# Damage


def _damaged(rng: np.random.Generator, drawn: Drawn, score: Score) -> None:
    """A table with one thing wrong, which must be refused; or with random bytes changed."""
    cells = [list(row) for row in drawn.cells]
    names = list(drawn.names)
    name = drawn.count_columns[int(rng.integers(len(drawn.count_columns)))]
    column, bag = names.index(name), names.index("bag")
    i = int(rng.integers(len(cells)))
    own = [row for row in cells if row[bag] == cells[i][bag]]
    size = len(own)
    options = _options(drawn)

    def everywhere(value: str) -> None:
        for row in own:
            row[column] = value

    kinds: dict[str, Callable[[], Any]] = {
        "a count above the size": lambda: everywhere(str(size + 1)),
        "a negative count": lambda: everywhere("-1"),
        "half a count": lambda: everywhere("0.5"),
        "no count": lambda: everywhere(""),
        "a word for a count": lambda: everywhere("two"),
        "an endless count": lambda: everywhere("inf"),
        "a huge count": lambda: everywhere("1e300"),
        "no bag": lambda: cells[i].__setitem__(bag, ""),
        "a ragged row": lambda: cells[i].append("more"),
        "a short row": lambda: cells[i].pop(),
        "a header twice": lambda: names.__setitem__(column, "k"),
        "no such bag column": lambda: options.update(bag="nobody"),
        "no such count column": lambda: options.update(count="nobody"),
        "no rows": cells.clear,
    }
    if size > 1 and drawn.classes is None:
        kinds["shares for counts"] = lambda: [row.__setitem__(column, "1.0") for row in cells]
    if size > 1:
        kinds["rows that disagree"] = lambda: cells[i].__setitem__(column, "99")
    kind = str(rng.choice([*kinds, "latin-1", "zero bytes", "an open quote", "random bytes"]))
    path = _folder() / "damaged.csv"
    if kind in kinds:
        kinds[kind]()
        content, _ = _as_csv(rng, drawn._replace(names=names, cells=cells))
    else:
        content, _ = _as_csv(rng, drawn)
    if kind == "latin-1":
        content = content.replace(b"x", b"\xe9", 1) + b"\xff\xfe"
    elif kind == "zero bytes":
        content = b"\0" * 4 + content
    elif kind == "an open quote":
        content += b'\n"' + b"1,1,1\n" * 3
    elif kind == "random bytes":
        for _ in range(int(rng.integers(1, 4))):
            place = int(rng.integers(len(content)))
            length = int(rng.integers(0, 3))
            content = content[:place] + rng.bytes(length) + content[place + length :]
        if rng.random() < 0.3:
            content = content[: int(rng.integers(len(content)))]
    path.write_bytes(content)
    info = {"kind": kind, "content": content, "options": options}
    if kind != "random bytes":
        must_refuse(lambda: load("feature-table", table=path, **options), score, **info)
        return
    data, refusal = attempt(lambda: load("feature-table", table=path, **options), **info)
    if refusal is not None:
        score.refuse()
        return
    assert data is not None
    sizes = data.bags.sizes.numpy()
    counts = data.bags.counts.numpy()
    if not data.inputs.isfinite().all() or sorted(data.bags.rows.tolist()) != list(
        range(len(data.inputs))
    ):
        fail("a damaged table became an impossible one", **info)
    if (counts < 0).any() or ((counts if counts.ndim == 1 else counts.sum(1)) > sizes).any():
        fail("a damaged table has impossible counts", **info)
    score.confirm()
