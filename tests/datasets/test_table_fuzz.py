"""A fuzzed table ends in a data set or in an LLPError, never in a traceback."""

import contextlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llpkit import LLPError
from llpkit.datasets import DataSet, load

OPTIONS = [
    {"count": "n"},
    {"count": ["n", "m"]},
    {"count_low": "n", "count_high": "m"},
    {"proportion": "n"},
    {"proportion": "n", "decimals": 1},
    {"count": "n", "counts_table": "itself"},
    {"count": "n", "label": "m"},
    {"count": "n", "features": ["x"], "numeric": ["x"]},
    {"count": "n", "features": ["x"], "categorical": ["x"]},
]
cells = st.one_of(
    st.sampled_from(["", "0", "1", "2", "a", "b", "0.5", "-1", "1e400", "nan", "NA", "?", "inf"]),
    st.sampled_from(["99999999999999999999", "1e308", "-1e308", '"', '""', "a,b", "\t", "\r", ";"]),
    st.text(max_size=6),
    st.floats().map(str),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def try_to_load(path, options):
    options = dict(options)
    if "counts_table" in options:
        options["counts_table"] = path
    for name, more in (("feature-table", {}), ("image-table", {"image": "x", "skip_bad": True})):
        own = dict(options)
        if name == "image-table":
            for option in ("features", "numeric", "categorical"):
                own.pop(option, None)
        with contextlib.suppress(LLPError):
            data = load(name, table=path, bag="bag", **own, **more)
            assert isinstance(data, DataSet)
            if name == "feature-table":
                assert data.inputs.isfinite().all()


likely = {"bag": ["a", "b"], "n": ["0", "1"], "m": ["0", "1"], "x": ["1", "2.5", "u", ""]}


@st.composite
def small_csvs(draw):
    """Tables that are nearly right: the columns are there, one cell in a few is anything."""
    columns = draw(st.permutations(list(likely)))
    columns += draw(st.sampled_from([[], [], ["y"], ["x"], [""]]))
    wild = draw(st.sampled_from([0, 0.1, 0.5]))
    lines = [columns]
    for _ in range(draw(st.integers(0, 6))):
        line = [
            draw(
                cells if draw(st.floats(0, 1)) < wild else st.sampled_from(likely.get(name, ["3"]))
            )
            for name in columns
        ]
        if wild and draw(st.integers(0, 19)) == 0:
            line = line[1:] if draw(st.booleans()) else [*line, "more"]
        lines.append(line)
    if draw(st.booleans()):
        lines = [['"' + cell.replace('"', '""') + '"' for cell in line] for line in lines]
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    between = draw(st.sampled_from([",", ",", ",", ";", "\t"]))
    return end.join(between.join(line) for line in lines).encode("utf-8", "surrogatepass")


@given(content=small_csvs(), options=st.sampled_from(OPTIONS))
def test_nearly_right_csvs(folder, content, options):
    path = folder / "t.csv"
    path.write_bytes(content)
    try_to_load(path, options)


@given(
    content=st.binary(max_size=80),
    start=st.sampled_from(
        [b"", b"bag,n,m,x\n", b"\xef\xbb\xbfbag,n,m,x\n1,", b"PAR1", b"\x1f\x8b"]
    ),
    name=st.sampled_from(["t.csv", "t.parquet", "t.csv.gz", "t"]),
)
def test_any_bytes(folder, content, start, name):
    path = folder / name
    path.write_bytes(start + content)
    try_to_load(path, OPTIONS[0])


values = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-2, 3)), min_size=3, max_size=3),
    st.lists(st.one_of(st.none(), st.floats()), min_size=3, max_size=3),
    st.lists(st.one_of(st.none(), cells), min_size=3, max_size=3),
    st.lists(st.one_of(st.none(), st.booleans()), min_size=3, max_size=3),
    st.lists(st.one_of(st.none(), st.binary(max_size=3)), min_size=3, max_size=3),
    st.lists(st.one_of(st.none(), st.dates()), min_size=3, max_size=3),
    st.lists(st.lists(st.integers(0, 9), max_size=2), min_size=3, max_size=3),
    st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=3), min_size=3, max_size=3),
)


@given(
    columns=st.fixed_dictionaries(dict.fromkeys(("bag", "n", "m", "x"), values)),
    options=st.sampled_from(OPTIONS),
)
def test_any_parquet_types(folder, columns, options):
    path = folder / "typed.parquet"
    try:
        table = pa.table(columns)
    except (pa.ArrowException, UnicodeEncodeError, OverflowError):
        return  # not even a table
    pq.write_table(table, path)
    try_to_load(path, options)
