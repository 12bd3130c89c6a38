"""Tables in Feather, Arrow, JSON and Excel files."""

import datetime
import io
import json
import struct
import sys
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pytest

from llpkit import Bags, LLPError
from llpkit.cli import main
from llpkit.datasets import load
from llpkit.tables import Table

FRAME = pd.DataFrame(
    {
        "bag": ["a", "a", "b"],
        "n": [1, 1, 0],
        "age": [20.5, np.nan, 40],
        "job": ["clerk", None, "nurse"],
        "ok": [True, False, True],
    }
)


def write(path, compression="zstd"):
    """The frame in the format that the name asks for."""
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    end = path.name.partition(".")[2]
    if end in ("feather", "ipc"):
        pyarrow.feather.write_feather(table, path, compression=compression)
    elif end == "arrow":  # as in the cache of Hugging Face
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    elif end == "xlsx":
        FRAME.to_excel(path, index=False)
    else:
        FRAME.to_json(path, orient="records", lines=end != "json")
    return path


NAMES = ["t.feather", "t.ipc", "t.arrow", "t.jsonl", "t.ndjson.gz", "t.json", "t.xlsx"]


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_same_table(name, tmp_path):
    table = Table.read(write(tmp_path / name))
    assert table.names == list(FRAME)
    np.testing.assert_array_equal(table.numbers("age"), FRAME["age"])
    assert table.words("job").to_pylist() == ["clerk", None, "nurse"]
    assert table.labels("ok", ["no", "yes"]).tolist() == [1, 0, 1]
    bags = Bags.from_frame(tmp_path / name, "bag", "n")
    assert bags.counts.tolist() == [1, 0]
    table.write(tmp_path / "out.csv", {"new": np.arange(3)})
    assert Table.read(tmp_path / "out.csv").numbers("new").tolist() == [0, 1, 2]


@pytest.mark.parametrize("compression", ["lz4", "uncompressed"])
def test_compression_of_feather(compression, tmp_path):
    assert len(Table.read(write(tmp_path / "t.feather", compression))) == 3


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
@pytest.mark.parametrize("stream", [False, True])
def test_feather_of_polars(compression, stream, tmp_path):
    frame = pl.DataFrame({"bag": ["a", "a", "b"], "n": [1, 1, 0], "age": ["1.5", None, "x" * 20]})
    frame = frame.with_columns(pl.Series("job", ["nurse", "clerk", None], dtype=pl.Categorical))
    write = frame.write_ipc_stream if stream else frame.write_ipc
    write(tmp_path / "t.feather", compression=compression)
    table = Table.read(tmp_path / "t.feather")
    assert table.words("age").to_pylist() == ["1.5", None, "x" * 20]
    assert table.words("job").to_pylist() == ["nurse", "clerk", None]
    assert Bags.from_frame(tmp_path / "t.feather", "bag", "n").counts.tolist() == [1, 0]
    table.write(tmp_path / "out.csv", {})
    assert Table.read(tmp_path / "out.csv").words("job").to_pylist() == ["nurse", "clerk", None]


@pytest.mark.parametrize("name", ["t.feather", "t.jsonl", "t.xlsx"])
def test_the_commands_read_them(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / name)
    assert main(["check", name, "--bag", "bag", "--count", "n"]) < 2, capsys.readouterr().err
    assert main(["plan", name, "--sizes", "2"]) == 0, capsys.readouterr().err


# JSON


def test_json_of_mixed_and_nested_values(tmp_path):
    rows = [{"id": "007", "x": 1, "e": [1, 2], "o": {"a": 1}}, {"x": "many", "big": 10**30}]
    (tmp_path / "t.jsonl").write_text("\n\n".join(map(json.dumps, rows)))
    table = Table.read(tmp_path / "t.jsonl")
    assert table.words("id").to_pylist() == ["007", None]
    assert table.words("x").to_pylist() == ["1", "many"]
    assert table.words("o").to_pylist() == ['{"a": 1}', None]
    assert table.is_vector("e")
    assert table.numbers("big")[1] == 1e30


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t.jsonl is empty"),
        (b'{"a": 1}\n{"a": }\n', "line 2 of .*t.jsonl is not JSON: Expecting value"),
        (b'{"a": 1}\n{"a": 1, "a": 2}\n', "line 2 of .*t.jsonl is not JSON: 'a' is given twice"),
        (b'{"a": 1}\n[1]\n', r"t.jsonl: line 2 is not an object; give one per row"),
        (b'[{"a": 1}, 2]', "t.jsonl: entry 2 is not an object"),
        (b'{"a": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", "is not JSON: maximum recursion"),
        (b'{"a": "\xff"}', "is not UTF-8"),
        (b'{"a": 1}\n{"a": "\\ud800"}', r"line 2: '\\ud800' has an unpaired surrogate; correct"),
        (b'{"a\\ud800": 1}', r"line 1: 'a\\ud800' has an unpaired surrogate"),
        (b'{"a": [{"b": ["\\udc00x"]}]}', r"line 1: '\\udc00x' has an unpaired surrogate"),
        (b'[{"a": 1}, {"a": "\\ud83d"}]', r"entry 2: '\\ud83d' has an unpaired surrogate"),
    ],
)
def test_bad_json(content, message, tmp_path):
    (tmp_path / "t.jsonl").write_bytes(content)
    with pytest.raises(LLPError, match=message):
        Table.read(tmp_path / "t.jsonl")


# Feather


def test_damaged_feather(tmp_path):
    whole = write(tmp_path / "t.feather").read_bytes()
    file = tmp_path / "damaged.feather"
    refused = 0
    for place in range(0, len(whole), 27):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        try:  # some bytes do not matter
            Table.read(file)
        except LLPError:
            refused += 1
    assert refused > 5
    for size in range(0, len(whole), 50):
        file.write_bytes(whole[:size])
        with pytest.raises(LLPError):
            Table.read(file)
    file.write_bytes(b"FEA1" + bytes(100))
    with pytest.raises(LLPError, match="is a Feather file of version 1"):
        Table.read(file)


def test_a_small_file_that_unpacks_to_much(tmp_path, monkeypatch):
    monkeypatch.setenv("LLPKIT_MAX_UNPACKED", "1000000")
    file = tmp_path / "t.feather"
    zeros = pa.table({"x": np.zeros(10**6)})
    pyarrow.feather.write_feather(zeros, file, compression="zstd")
    with pytest.raises(LLPError, match=r"unpacks to more than 1,000,000 bytes"):
        Table.read(file)
    pyarrow.feather.write_feather(pa.table({"x": pa.nulls(10**7)}), file)
    with pytest.raises(LLPError, match=r"unpacks to more than 1,000,000 bytes"):
        Table.read(file)


def test_a_buffer_that_claims_to_be_huge(tmp_path):
    file = tmp_path / "t.feather"
    pyarrow.feather.write_feather(pa.table({"x": np.zeros(1000)}), file, compression="zstd")
    content = file.read_bytes()
    size = struct.pack("<q", 8000)
    assert content.count(size) == 1
    file.write_bytes(content.replace(size, struct.pack("<q", 10**13)))
    with pytest.raises(LLPError, match="unpacks to more than"):
        Table.read(file)


# Excel


def sheet(path, rows):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def test_cells_of_all_kinds(tmp_path):
    day = datetime.datetime(2020, 1, 2, 3, 4)
    rows = [["bag", "n", 3, None], [1, 2.0, day, None], ["b", True, None, None], [None, None]]
    table = Table.read(sheet(tmp_path / "t.xlsx", rows))
    assert table.names == ["bag", "n", "3"]
    assert table.words("bag").to_pylist() == ["1", "b"]
    assert table.words("n").to_pylist() == ["2", "true"]  # Excel has no 2.0
    assert table.words("3").to_pylist() == ["2020-01-02 03:04:00", None]


def test_errors_in_cells(tmp_path):
    rows = [["bag", "n", "x"], ["a", 1, 1.5], ["a", 1, "#N/A"], ["b", 0, 3], ["b", 0, "#DIV/0!"]]
    for name in ("t.xlsx", "t.csv"):
        table = lambda rows, name=name: written(tmp_path / name, rows)  # noqa: E731
        place = r"row 4 \(header not counted(, row 5 of the sheet)?\), column 'x' = '#DIV/0!'"
        with pytest.raises(LLPError, match=place + " is a spreadsheet error; correct"):
            load("feature-table", table=table(rows), bag="bag", count="n")
        # A column that is not used may have errors.
        load("feature-table", table=table([[*r, 7] for r in rows]), bag="bag", count="n", drop="x")
        data = load("feature-table", table=table(rows[:4]), bag="bag", count="n")
        assert data.encoder.feature_names == ["x", "x is missing"]
        with pytest.raises(LLPError, match="column 'bag' is empty; give the row its bag"):
            load("feature-table", table=table([*rows[:4], ["#N/A", 0, 1]]), bag="bag", count="n")


def written(path, rows):
    if path.suffix == ".xlsx":
        return sheet(path, rows)
    path.write_text("\n".join(",".join(map(str, row)) for row in rows))
    return path


def test_bad_sheets(tmp_path, monkeypatch):
    with pytest.raises(LLPError, match="is empty: its first sheet has no rows"):
        Table.read(sheet(tmp_path / "t.xlsx", []))
    file = tmp_path / "bad.xlsx"
    file.write_bytes(b"PK not a workbook")
    with pytest.raises(LLPError, match=r"bad.xlsx is not an .xlsx file"):
        Table.read(file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "no sheet")
    with pytest.raises(LLPError, match="cannot be read as an Excel file"):
        Table.read(file)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", bytes(10**6))
    monkeypatch.setenv("LLPKIT_MAX_UNPACKED", "100000")
    with pytest.raises(LLPError, match="unpacks to more than 100,000 bytes"):
        Table.read(file)


def test_a_sheet_with_cells_far_to_the_right(tmp_path, monkeypatch):
    source = sheet(tmp_path / "t.xlsx", [["a", "b"], [1, 2]])
    far = io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(far, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            text = old.read(name)
            if name.endswith("sheet1.xml"):
                rows = b"".join(b'<row><c r="XFD%d"><v>1</v></c></row>' % i for i in range(3, 999))
                text = text.replace(b"</sheetData>", rows + b"</sheetData>")
            new.writestr(name, text)
    source.write_bytes(far.getvalue())
    monkeypatch.setenv("LLPKIT_MAX_UNPACKED", "1000000")
    with pytest.raises(LLPError, match="unpacks to more than 1,000,000 bytes"):
        Table.read(source)


def test_without_openpyxl(tmp_path, monkeypatch):
    write(tmp_path / "t.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(LLPError, match=r"openpyxl is not installed; pip install 'llpkit\[excel\]'"):
        Table.read(tmp_path / "t.xlsx")
