"""Tables: what is read, what is written back, and every refusal by its message."""

import csv
import gzip
import math
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from llpkit import Bags, LLPError
from llpkit.datasets import load
from llpkit.tables import CountColumns, FeatureEncoder, Table

BASIC = ["bag,n,x", "a,1,0.5", "b,0,1", "a,1,-2", "c,2,3", "c,2,4"]


def features(table, **options):
    return load("feature-table", table=table, **({"bag": "bag", "count": "n"} | options))


def refusal(call, *args, **options):
    with pytest.raises(LLPError) as error:
        call(*args, **options)
    return str(error.value)


# Reading


@pytest.fixture(
    params=[
        "csv",
        "csv.gz",
        "tsv",
        "semicolon.csv",
        "pipe.csv",
        "windows.csv",
        "bom.csv",
        "parquet",
    ]
)
def basic(request, write, tmp_path):
    text = "\n".join(BASIC) + "\n"
    if request.param == "parquet":
        columns = {"bag": list("abacc"), "n": [1, 0, 1, 2, 2], "x": [0.5, 1, -2, 3, 4]}
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        return tmp_path / "t.parquet"
    content = {
        "csv.gz": gzip.compress(text.encode()),
        "tsv": text.replace(",", "\t"),
        "semicolon.csv": text.replace(",", ";"),
        "pipe.csv": text.replace(",", "|"),
        "windows.csv": text.replace("\n", "\r\n"),
        "bom.csv": "\ufeff" + text,
    }.get(request.param, text)
    return write(f"t.{request.param}", content)


def test_read(basic):
    table = Table.read(basic)
    assert table.names == ["bag", "n", "x"]
    assert len(table) == 5
    assert table.text("bag").to_pylist() == list("abacc")
    assert table.numbers("x").tolist() == [0.5, 1, -2, 3, 4]
    assert repr(table).endswith("5 rows, 3 columns)")


def test_bags_of_a_table(basic):
    data = features(basic)
    assert data.bags.ids == ("a", "b", "c")
    assert data.bags.rows.tolist() == [0, 2, 1, 3, 4]
    assert data.bags.counts.tolist() == [1, 0, 2]
    assert data.class_names == ("negative", "positive")
    assert data.truth is None
    assert data.inputs.shape == (5, 1)


def test_values_over_several_lines_and_blank_lines(write):
    table = Table.read(write("t.csv", 'bag,note\n\na,"one\ntwo, ""three"""\n\nb,\n'))
    assert table.text("note").to_pylist() == ['one\ntwo, "three"', None]


def test_ids_are_text_as_written(write, tmp_path):
    csv = features(write("t.csv", ["bag,n,x", "007,0,1", " 7 ,0,2", "1e3,1,3"]))
    assert csv.bags.ids == ("007", "7", "1e3")
    pq.write_table(pa.table({"bag": [7.0, 1.5], "n": [1, 0], "x": [1, 2]}), tmp_path / "t.pq")
    assert features(tmp_path / "t.pq").bags.ids == ("7", "1.5")


def test_parquet_types(tmp_path):
    columns = {
        "bag": pa.array(["a", "b", "a"]).dictionary_encode(),
        "n": pa.array([True, False, True]),
        "x": pa.array([1.0, float("nan"), None]),
        "y": pa.array([1, 2, 3], pa.decimal128(5, 2)),
        "z": pa.array([["1"], ["2"], ["3"]]),
        "w": pa.nulls(3),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    data = features(tmp_path / "t.parquet")
    assert data.bags.counts.tolist() == [1, 0]
    assert data.encoder.feature_names == ["x", "x is missing", "y"]
    assert data.notes[0].startswith("column 'z' is left out: ")
    assert "holds list" in data.notes[0]
    assert data.notes[1] == "column 'w' is left out: it has no values"


# Files that are no tables


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "t.csv is empty; give a header line"),
        ("t.csv", b" \n\n ", "t.csv is empty"),
        ("t.csv", b"bag,n", "t.csv has no rows below its header"),
        ("t.csv", b"bag,n\n\n", "t.csv has no rows below its header"),
        ("t.csv", b"bag,n,n\n1,2,3", "t.csv: two columns are called 'n'; rename one"),
        ("t.csv", b"PK\x03\x04\0\0", r"t.csv is not a CSV: it starts with b'PK\x03\x04"),
        ("t.csv", b"bag,n\n1,0\n\xe9t\xe9,1\n", "t.csv is not UTF-8: byte 0xe9 in line 3"),
        ("t.csv", b"b\xe9g,n\n1,0\n", "t.csv is not UTF-8: byte 0xe9 in line 1; save"),
        ("t.csv", "bag,n\n1,0\n".encode("utf-16"), "is not a CSV"),
        (
            "t.csv",
            b"bag,n\n1,0\n1\n",
            "row 2 (header not counted) has 1 value but the header has 2",
        ),
        ("t.csv", b"bag,n\n1,0\n1,2,3\n", "columns; the row begins '1,2,3'"),
        ("t.csv", b'bag,n\n1,0\n"1,2\n3,4\n', "mark is opened in line 3 and never closed; close"),
        ("t.csv", b'bag,n\n1,0\n1,"2\n3,4\n', "mark is opened in line 3 and never closed"),
        (
            "t.csv",
            b'bag,n\n1,0\n1,"2\n3,4\n5,"x"\n"y",6\n',
            "is opened in line 3 and closed only in line 5, inside a value; close it",
        ),
        (
            "t.csv",
            b'bag,n\n\n1,"\n' + 20 * b"2,0\n" + b'5,"\n6,0\n',
            "is opened in line 3 and closed only in line 24, the lines between look like rows",
        ),
        (
            "t.csv",
            b'bag,n\n\n1,"a\nb"\n\n1,2,3\n',
            "row 2 (header not counted, line 6 of the file) has 3 values",
        ),
        ("t.parquet", b"bag,n\n1,0", "t.parquet is not a valid Parquet file"),
        ("t.csv", b"PAR1 and then nothing", "t.csv is not a valid Parquet file"),
        ("t.csv.gz", b"bag,n\n1,0", "t.csv.gz cannot be read"),
    ],
)
def test_bad_files(write, name, content, message):
    assert message in refusal(Table.read, write(name, content))


def test_no_file(tmp_path):
    assert "nothing.csv does not exist; check the path" in refusal(
        Table.read, tmp_path / "nothing.csv"
    )
    assert "is a folder; give a file: CSV, Parquet" in refusal(Table.read, tmp_path)
    assert "table is of type int; give the path" in refusal(Table.read, 3)
    assert "cannot be read" in refusal(Table.read, tmp_path / ("x" * 300))
    assert "cannot be read" in refusal(Table.read, "a\0b.csv")
    assert "does not exist" in refusal(Table.read, "~nobody of that name/t.csv")


def test_a_ragged_row_far_down_is_numbered(write):
    rows = ["bag,n", *("a,0" for _ in range(5000)), "a,0,0", *("a,0" for _ in range(5000))]
    assert "row 5001 (header not counted) has 3 values" in refusal(Table.read, write("t.csv", rows))


def test_the_separator_is_not_sought_within_quotation_marks(write):
    rows = ['bag;n;"income, k, net"', "a;1;3", "a;1;4"]
    assert Table.read(write("t.csv", rows)).names == ["bag", "n", "income, k, net"]
    rows = ["bag;n;income, k", "a;1;3", "a;1;4"]
    assert Table.read(write("t.csv", rows)).names == ["bag", "n", "income, k"]


def test_names_may_have_bars(write):
    assert Table.read(write("t.csv", ["a|x|y,b|z|w", "1,2"])).names == ["a|x|y", "b|z|w"]


def test_text_over_many_lines_is_no_slip(write):
    letter = "Dear all,\nyes, no, and, so, on\n" * 100
    table = Table.read(write("t.csv", f'bag,n,x\n1,0,"{letter}"\n2,0,"a\nb" \n'))
    assert len(table) == 2


# Cells


def test_a_cell_below_blank_lines_and_long_values_has_its_line(write):
    text = 'bag,n,x\r\n\r\na,1,"1"\r\n\r\na,1,"x\r\ny"\r\na,1,3\r\na,two,4\r\n'
    message = refusal(features, write("t.csv", text), categorical="x")
    assert "row 4 (header not counted, line 8 of the file), column 'n' = 'two'" in message


@pytest.mark.parametrize(
    "text",
    [
        'id,a,b\n1,"a","b,"\n\n2,"c","d"\n',  # a value that ends in the separator
        'id,a,b\n1,"a","b,"\n2,"c","d\ne"\n',
        'id,a\n1,"x\nroses are red, violets\nsugar is sweet, and\nso are you, too\ny"\n2,z\n',
    ],
)
def test_quoted_values_of_several_lines_are_read(write, text):
    assert len(Table.read(write("t.csv", text))) == 2


def test_a_column_of_decimal_commas_stays_one(write):
    encoder = FeatureEncoder.fit(Table.read(write("t.csv", "bag;x\n1;1,125\n1;2,5\n")), ["x"])
    encoder = FeatureEncoder.from_json(encoder.to_json())
    new = Table.read(write("new.csv", "bag;x\n1;1,125\n1;4\n"))  # could be thousands
    mean, scale = 1.8125, 0.6875
    expected = [(1.125 - mean) / scale, (4 - mean) / scale]
    assert encoder.apply(new)[:, 0].tolist() == pytest.approx(expected)


def test_decimal_commas(write):
    rows = ["bag;n;age", "a;1;30,5", "a;1;-40", "b;0;1,250"]
    for text in ("\n".join(rows), "\n".join(rows).replace(";", "\t")):
        data = features(write("t.csv", text))
        assert data.encoder.columns[0].mean == pytest.approx((30.5 - 40 + 1.25) / 3)
        assert data.notes == ("column 'age' is read with decimal commas, 30,5 as 30.5",)
    kept = features(write("t.csv", rows), categorical="age")
    assert kept.encoder.feature_names[0] == "age = -40"


@pytest.mark.parametrize(
    ("separator", "values", "shown"),
    [
        (",", ['"1,311"', "25", '"2,000"'], "'1,311'"),
        (",", ['"30,5"', '"4,25"', "x"], "'30,5'"),
        (";", ["311", "1,311", "25,000"], "'1,311'"),  # thousands, or three decimals?
        (";", ["3,5", "1.311,50", "1,2"], "'3,5'"),
        (",", [f'"{i},311"' for i in range(1, 90)], "'1,311'"),
        (",", ["10%", "20 %", "30%"], "'10%'"),
        (",", ["$10", "-$5.50", '"$1,311"'], "'$10'"),
        (",", ["10 €", "20€", "x"], "'10 €'"),
        (",", ["1 311", "2 000", "1'000"], "'1 311'"),
    ],
)
def test_numbers_with_commas_are_no_categories(write, separator, values, shown):
    rows = [separator.join(row) for row in (("bag", "n", "pay"), *(("a", "0", v) for v in values))]
    table = write("t.csv", rows)
    message = refusal(features, table)
    assert f"column 'pay' = {shown} is not a plain number; write 1311 or 30.5" in message
    assert message.endswith("keep the column a category: categorical='pay'")
    assert "write 1311 or 30.5" in refusal(features, table, numeric="pay")
    assert features(table, categorical="pay").encoder.feature_names[0].startswith("pay = ")


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (["a,1,0"], {"bag": "bgs"}, "has no column 'bgs'; did you mean 'bag'?"),
        (["a,1,0"], {"count": "zzzz"}, "has no column 'zzzz'; available: bag, n, x"),
        (["a,1,0"], {"features": ["X1"]}, "has no column 'X1'; did you mean 'x'?"),
        (["a,1,0"], {"label": 5}, "has no column 5"),
        (
            ["a,1,0", ",1,0", ",1,0"],
            {},
            "row 2 (header not counted), column 'bag' is empty; give the row its bag or drop it "
            "(2 such rows in all)",
        ),
        (
            ["a,1,0", "a,two,0"],
            {},
            "row 2 (header not counted), column 'n' = 'two' is not a number; a count is a whole",
        ),
        (
            ["b,0,0", "a,2,0"],
            {},
            "row 2 (header not counted), column 'n' = 2 but bag 'a' has 1 row; are rows of the bag",
        ),
        (
            ["b,0,0", "a,1,0", "a,2,0"],
            {},
            "row 3 (header not counted), column 'n' = 2 but row 2 of the same bag, 'a', has 1; all "
            "rows of a bag must agree",
        ),
        (["a,1,0", "a,,0"], {}, "row 2 (header not counted), column 'n' = nothing but row 1"),
        (["a,,0", "a,,0"], {}, "row 1 (header not counted), column 'n' is empty; give the count"),
        (
            ["a,0.5,0", "a,0.5,0"],
            {},
            "column 'n' = 0.5 of bag 'a' is not a whole number; give non-negative",
        ),
        (["a,-1,0"], {}, "column 'n' = -1 of bag 'a' is negative"),
        (["a,inf,0"], {}, "column 'n' = 'inf' is not a number"),
        (["a,1,0", "a,1,1", "a,1,1O"], {}, "column 'x' = '1O' is not a number, but 2 values of"),
        (["a,1,0", "a,1,y"], {"numeric": ["x"]}, "row 2 (header not counted), column 'x' = 'y' is"),
        (["a,1,1e200", "a,1,-1e200"], {}, "column 'x' goes up to 1e+200, which is too large"),
    ],
)
def test_bad_cells(write, rows, options, message):
    assert message in refusal(features, write("t.csv", ["bag,n,x", *rows]), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": None}, "no counts were given; name"),
        ({"proportion": "x"}, "counts and proportions were given"),
        ({"decimals": 2}, "decimals belongs to proportion"),
        ({"count": []}, "columns = []; name one column"),
        ({"count": ["n", "n"]}, "name one column, or one for each class"),
        ({"count": None, "count_low": "n", "count_high": ["n", "x"]}, "different numbers of"),
        ({"class_names": ["one"]}, "class_names = ['one']; give 2 names"),
        ({"class_names": "no"}, "give 2 names"),
        ({"features": []}, "has no feature columns; name some with features"),
        ({"numeric": ["x"], "categorical": ["x"]}, "'x' is in numeric and in categorical"),
        ({"features": ["x"], "numeric": ["n"]}, "'n' is in numeric or categorical but"),
        ({"label": "x"}, "row 1 (header not counted), column 'x' = '0.5' is not a class; give"),
    ],
)
def test_bad_options(write, options, message):
    assert message in refusal(features, write("t.csv", BASIC), **options)


# Counts


@pytest.mark.parametrize("missing", ["", "NA"])
def test_a_missing_label_is_called_so(write, missing):
    rows = ["bag,n,y,x", "a,1,yes,1", f"a,1,{missing},0", "b,0,no,1", f"b,0,{missing},3"]
    with pytest.raises(LLPError, match=r"row 2 .*'y' has no label \(2 such rows in all\)"):
        features(write("t.csv", rows), label="y", class_names=["no", "yes"])


def test_labels_serve_as_truth_alone(write):
    rows = ["bag,n,x,y", "a,1,0,yes", "a,1,0,no", "b,0,0,0", "c,1,1,1"]
    data = features(write("t.csv", rows), label="y", class_names=["no", "yes"])
    assert data.truth.tolist() == [1, 0, 0, 1]
    assert data.encoder.feature_names == ["x"]
    assert data.class_names == ("no", "yes")
    booleans = features(write("u.csv", ["bag,n,y,x", "a,1,true,1", "a,1,false,0"]), label="y")
    assert booleans.truth.tolist() == [1, 0]


def test_several_classes(write):
    rows = ["bag,red,green,blue,x", "p,1,0,1,0", "q,0,1,0,0", "p,1,0,1,0"]
    data = features(write("t.csv", rows), count=["red", "green", "blue"])
    assert data.class_names == ("red", "green", "blue")
    assert data.bags.counts.tolist() == [[1, 0, 1], [0, 1, 0]]
    wrong = write("u.csv", ["bag,red,green,x", "p,0,1,0", "q,1,1,0"])
    assert (
        "row 2 (header not counted), column 'red' and its neighbours = 1, 1 but bag 'q' has 1 "
        "row; the counts of all classes must sum to that"
    ) in refusal(features, wrong, count=["red", "green"])


def test_bounds(write):
    rows = ["bag,least,most,x", "a,1,2,0", "a,1,2,0", "a,1,2,0", "b,,0,0", "c,1,,0", "d,,,1"]
    data = features(write("t.csv", rows), count=None, count_low="least", count_high="most")
    assert [(bag.low, bag.high) for bag in data.bags] == [(1, 2), (0, 0), (1, 1), (0, 1)]
    low = features(write("t.csv", rows), count=None, count_low="least")
    assert [(bag.low, bag.high) for bag in low.bags] == [(1, 3), (0, 1), (1, 1), (0, 1)]
    high = features(write("t.csv", rows), count=None, count_high="most")
    assert [(bag.low, bag.high) for bag in high.bags] == [(0, 2), (0, 0), (0, 1), (0, 1)]
    swapped = refusal(
        features, write("t.csv", rows), count=None, count_low="most", count_high="least"
    )
    assert "column 'most' = 2 is above the upper bound, 1; swap them" in swapped


MIXED = {"count": "n", "count_low": "least", "count_high": "most"}


def test_counts_and_bounds_together(write):
    rows = ["bag,n,least,most,x", *["a,1,,,0"] * 2, *["b,,1,2,0"] * 3, *["c,,,,1"] * 2]
    rows += [*["d,2,1,3,0"] * 3, *["e,,1,,1"] * 2]
    data = features(write("t.csv", rows), **MIXED)
    assert [(bag.low, bag.high) for bag in data.bags] == [(1, 1), (1, 2), (0, 2), (2, 2), (1, 2)]
    assert "of the bags, 2 exact counts, 2 ranges, 1 unknown count" in data.notes
    assert data.encoder.feature_names == ["x"]
    file = write("t.csv", rows)
    assert repr(Bags.from_frame(file, "bag", **MIXED)) == repr(data.bags)
    noisy = Bags.from_frame(file, "bag", **MIXED, count_noise="rounded:1")
    assert [(bag.low, bag.high) for bag in noisy] == [(bag.low, bag.high) for bag in data.bags]


def test_counts_that_contradict_bounds(write):
    rows = ["bag,n,least,most,x", *["a,1,0,2,0"] * 2, *["b,1,2,3,0"] * 3, "c,0,1,,1"]
    message = refusal(features, write("t.csv", rows), **MIXED)
    assert "row 3 (header not counted), column 'n' contradicts the bounds" in message
    assert "bag, 'b', which are 2 to 3 (column 'least'); correct" in message
    assert "(2 such bags in all)" in message
    # What noise leaves possible must be in the bounds.
    noise = {"count_noise": "binomial:0.9"}  # a count of 2 that may have missed some
    fine = write("t.csv", ["bag,n,least,most,x", *["a,2,,3,0"] * 4])
    assert features(fine, **MIXED, **noise).bags.evidence.table[[1, 4]].tolist() == [-np.inf] * 2
    wrong = write("t.csv", ["bag,n,least,most,x", *["a,2,,1,0"] * 4])
    assert "column 'n' contradicts the bounds" in refusal(features, wrong, **MIXED, **noise)


def test_proportions_and_classes_with_bounds(write):
    rows = ["bag,p,least,x", "a,0.5,,0", "a,0.5,,1", "b,,1,0", "b,,1,1"]
    data = features(write("t.csv", rows), count=None, proportion="p", count_low="least")
    assert [(bag.low, bag.high) for bag in data.bags] == [(1, 1), (1, 2)]
    rows = ["bag,a,b,a0,b0,x", *["p,1,1,,,0"] * 2, *["q,,,1,,0"] * 2]
    names = {"count": ["a", "b"], "count_low": ["a0", "b0"]}
    data = features(write("t.csv", rows), **names)
    assert [bag.low for bag in data.bags] == [(1, 1), (1, 0)]
    rows[3:] = ["q,1,,,,0"] * 2
    message = refusal(features, write("t.csv", rows), **names)
    assert "column 'b' is empty but bag 'q' has values of other classes" in message
    message = refusal(features, write("t.csv", rows[:3]), count=["a", "b"], count_low="a0")
    assert "name a different number of columns than ['a', 'b']" in message


def test_ids_of_floats_are_those_of_integers():
    frame = pd.DataFrame({"bag": [123456789012.0, 7.0, 7.0], "x": [1, 2, 3]})
    counts = pd.DataFrame({"bag": [7, 123456789012], "n": [2, 0]})
    bags = Bags.from_frame(frame, "bag", "n", counts_table=counts)
    assert bags.ids == ("123456789012", "7")
    assert bags.counts.tolist() == [0, 2]


def test_bounds_of_classes(write):
    rows = ["bag,a0,b0,a1,b1,x", "p,0,1,1,2,0", "p,0,1,1,2,0"]
    names = {"count_low": ["a0", "b0"], "count_high": ["a1", "b1"]}
    data = features(write("t.csv", rows), count=None, **names)
    assert data.bags[0].low == (0, 1)
    assert data.bags[0].high == (1, 2)


def test_proportions(write):
    rows = ["bag,p,x", "a,0.5,0", "b,0.333,1", "b,0.333,1", "b,0.333,1", "a,0.5,1"]
    data = features(write("t.csv", rows), count=None, proportion="p")
    assert data.bags.counts.tolist() == [1, 1]
    assert data.bags.ids == ("a", "b")
    loose = features(write("t.csv", rows), count=None, proportion="p", decimals=3)
    assert not loose.bags.evidence.is_exact or loose.bags.counts.tolist() == [1, 1]
    for value, message in (
        ("50", "row 1 (header not counted), column 'p' = 50 of bag 'a' is not between 0 and 1"),
        ("", "column 'p' is empty; give the proportion"),
        ("0.4", "'a'"),
    ):
        table = write("u.csv", ["bag,p,x", f"a,{value},0", f"a,{value},0"])
        assert message in refusal(features, table, count=None, proportion="p")


COUNTS = ["n,bag", "2,c", "1,a", "0,b"]


@pytest.fixture
def instances(write):
    return write("t.csv", ["bag,x", "a,1", "b,2", "a,3", "c,4", "c,5"])


def test_a_second_table_of_counts(instances, write):
    data = features(instances, counts_table=write("counts.csv", COUNTS))
    assert data.bags.ids == ("a", "b", "c")
    assert data.bags.counts.tolist() == [1, 0, 2]
    assert data.encoder.feature_names == ["x"]


def test_tables_of_different_kinds_meet_by_text(write, tmp_path):
    pq.write_table(pa.table({"bag": [7, 8, 7], "x": [1, 2, 3]}), tmp_path / "t.parquet")
    data = features(tmp_path / "t.parquet", counts_table=write("c.csv", ["bag,n", "8,0", "7,2"]))
    assert data.bags.counts.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (COUNTS[:3], "counts.csv has no row for bag 'b' of "),
        (COUNTS[:2], "counts.csv has no row for bags 'a', 'b' of "),
        ([*COUNTS, "0,d"], "is in bag 'd' of "),
        (
            [*COUNTS, *(f"0,{name}" for name in "defghij")],
            "is in bags 'd', 'e', 'f', 'g', 'h' and 2 more of ",
        ),
        ([*COUNTS, "0,d"], "row 4 (header not counted), column 'bag'); remove them, or leave"),
        ([*COUNTS, "1,a"], "row 4 (header not counted), column 'bag' = 'a' is in row 2 already"),
        (
            [*COUNTS[:3], "2,b"],
            "counts.csv: row 3 (header not counted), column 'n' = 2 but bag 'b'",
        ),
        ([*COUNTS[:3], "many,b"], "counts.csv: row 3 (header not counted), column 'n' = 'many' is"),
        (["m,bag", *COUNTS[1:]], "counts.csv has no column 'n'"),
        (["n,bags", *COUNTS[1:]], "counts.csv has no column 'bag'; did you mean 'bags'?"),
    ],
)
def test_bad_tables_of_counts(instances, write, rows, message):
    assert message in refusal(features, instances, counts_table=write("counts.csv", rows))


def test_bags_of_a_table_for_predictions(write):
    table = Table.read(write("t.csv", BASIC))
    bags = CountColumns(count="n").bags(table, "bag")
    assert bags.counts.tolist() == [1, 0, 2]
    assert bags.num_rows == 5


# Features


def test_numbers_and_categories(write):
    rows = [
        "bag,n,age,job,code",
        "a,1,20,clerk,1",
        "a,1,,nurse,2",
        "b,0,40,?,1",
        "b,0,30,clerk,1",
    ]
    data = features(write("t.csv", rows), categorical=["code"])
    names = data.encoder.feature_names
    assert names == [
        "age",
        "age is missing",
        "job = clerk",
        "job = nurse",
        "job is missing",
        "code = 1",
        "code = 2",
    ]
    scale = math.sqrt(200 / 3)
    expected = torch.tensor(
        [
            [-10 / scale, 0, 1, 0, 0, 1, 0],
            [0, 1, 0, 1, 0, 0, 1],
            [10 / scale, 0, 0, 0, 1, 1, 0],
            [0, 0, 1, 0, 0, 1, 0],
        ]
    )
    assert data.inputs.dtype == torch.float32
    assert torch.allclose(data.inputs, expected)


def test_a_single_column_needs_no_list(write):
    rows = ["bag,n,age,job", "a,0,3,x", "b,0,4,y"]
    data = features(write("t.csv", rows), features="age", categorical="age")
    assert data.encoder.feature_names == ["age = 3", "age = 4"]


def test_a_constant_column_is_zero(write):
    data = features(write("t.csv", ["bag,n,x", "a,0,5", "b,0,5"]))
    assert data.inputs.tolist() == [[0.0], [0.0]]


def test_columns_that_cannot_help_are_left_out_and_named(write):
    rows = ["bag,n,,name,empty,x", *(f"b{i},0,{i},person {i},,{i}" for i in range(70))]
    data = features(write("t.csv", rows))
    assert data.encoder.feature_names == ["x"]
    assert data.notes == (
        "column '' is left out: it has no name",
        "column 'name' is left out: 70 different values in 70 rows are too many for a category",
        "column 'empty' is left out: it has no values",
    )
    asked = features(write("t.csv", rows), features=["name"])
    assert asked.inputs.shape == (70, 65)
    images = features(write("i.csv", ["bag,n,file,x", *(f"b{i},0,{i}.png,{i}" for i in range(70))]))
    assert images.notes[0].endswith("it names images; llpkit fit --image learns from those")
    assert asked.inputs[:, -1].sum() == 6  # those beyond 64 levels are other


def test_a_slip_in_a_column_of_many_numbers_names_its_row(write):
    rows = ["bag,n,x", *(f"b{i},0,{i}.5" for i in range(70)), "c,0,12O.5", "d,0,3"]
    table = write("t.csv", rows)
    for options in ({}, {"numeric": "x"}):
        message = refusal(features, table, **options)
        assert "'12O.5' is not a number" in message
        assert "row 71 " in message
    assert len(features(table, categorical="x").encoder.feature_names) == 65


def test_the_index_of_a_data_frame_is_no_feature(tmp_path):
    frame = pd.DataFrame({"bag": ["a", "a", "b"], "n": [1, 1, 0], "x": [1.0, 2.0, 3.0]})
    file = tmp_path / "t.parquet"
    frame[frame.x > 0].iloc[[2, 0, 1]].to_parquet(file)
    data = features(file)
    assert data.encoder.feature_names == ["x"]
    assert data.notes == (
        "column '__index_level_0__' is left out: it is the index of a data frame",
    )


def test_only_unusable_columns(write):
    message = refusal(features, write("t.csv", ["bag,n,e", "a,1,"]))
    assert "has no feature columns" in message


def test_reading_time_grows_with_the_rows(tmp_path):
    import time

    from pyarrow import csv

    seconds = []
    for n in (50_000, 200_000):
        rng = np.random.default_rng(0)
        bag = rng.integers(0, n // 6, n)
        labels = rng.integers(0, 2, n)
        columns = {
            "bag": bag,
            "n": np.bincount(bag, labels, minlength=n // 6).astype(int)[bag],
            "x": rng.normal(size=n),
            "y": np.array(["one", "two", ""])[rng.integers(0, 3, n)],
        }
        csv.write_csv(pa.table(columns), tmp_path / "t.csv")
        best = np.inf
        for _ in range(2):  # on the CPU, so that other processes do not count
            start = time.process_time()
            data = features(tmp_path / "t.csv")
            best = min(best, time.process_time() - start)
        assert data.bags.num_instances == n
        seconds.append(best)
    assert seconds[1] < 10 * seconds[0]  # four times the rows; a quadratic cost would take 16


def test_bags_of_one(tmp_path):
    n = 100_000
    labels = np.arange(n) % 2
    table = pa.table({"bag": np.arange(n), "n": labels, "x": np.arange(n) * 1.0})
    pq.write_table(table, tmp_path / "t.parquet")
    data = features(tmp_path / "t.parquet")
    assert len(data.bags) == n
    assert np.array_equal(data.bags.counts, labels)


# Writing back


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_written_back_as_it_was(write, tmp_path, suffix):
    rows = ["bag,n,note", '007,1,"a, ""b"""', "007,1, NA", "x,0,1e3"]
    table = Table.read(write("t.csv", rows))
    out = tmp_path / f"out.{suffix}"
    table.write(out, {"probability": np.array([0.25, 0.5, 1.0]), "label": np.array([0, 1, 1])})
    back = Table.read(out)
    assert back.names == ["bag", "n", "note", "probability", "label"]
    for name in table.names:
        assert back.text(name).to_pylist() == table.text(name).to_pylist()
    assert back.numbers("probability").tolist() == [0.25, 0.5, 1.0]
    if suffix == "csv":
        assert out.read_text().splitlines()[2:] == ["007,1, NA,0.5,1", "x,0,1e3,1,1"]


def test_write_refusals(write, tmp_path):
    table = Table.read(write("t.csv", BASIC))
    message = refusal(table.write, tmp_path / "out.csv", {"n": np.zeros(5)})
    assert "has a column 'n' already; rename it" in message
    (tmp_path / "no").touch()
    message = refusal(table.write, tmp_path / "no" / "out.csv", {"m": np.zeros(5)})
    assert "cannot be written" in message


hostile = st.one_of(
    st.text(st.sampled_from("a1 ,;\t\"\r\n\\'|\x1b\u2028\ufeff"), max_size=8),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
)


@given(
    st.lists(hostile, min_size=1, max_size=4, unique=True),
    st.lists(st.tuples(*[hostile | st.none()] * 4), min_size=1, max_size=4),
)
def test_what_is_written_is_read_back(names, rows):
    assume("p" not in names)
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    types = pa.schema([(name, pa.string()) for name in names])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.csv"
        Table(Path("in.parquet"), pa.table(columns, types)).write(file, {"p": np.zeros(len(rows))})
        again = Table.read(file)
        with file.open(newline="", encoding="utf-8") as text:
            header, *others = csv.reader(text)
    assert again.names == header == [*names, "p"]
    expected = [[value or "" for value in row[: len(names)]] for row in rows]
    assert [row[:-1] for row in others] == expected
    found = [again.data.column(name).to_pylist() for name in names]
    assert [list(row) for row in zip(*found, strict=True)] == expected


@pytest.mark.parametrize("kind", ["csv", "semicolon", "parquet", "second table"])
def test_a_count_column_that_may_hold_shares(kind, write, tmp_path):
    """0.0 and 1.0 alone may be shares; 0 and 1, or another number among them, are counts."""

    def table(values, whole=False):
        if kind == "parquet":
            path = tmp_path / "t.parquet"
            numbers = pa.array([float(v.replace(",", ".")) for v in values])
            column = numbers.cast(pa.int64()) if whole else numbers
            pq.write_table(pa.table({"bag": list("abacc"), "n": column, "x": range(5)}), path)
            return {"table": path}
        if kind == "second table":
            counts = dict(zip("abacc", values, strict=True))
            lines = ["bag,n", *(f"{bag},{n}" for bag, n in counts.items())]
            return {
                "table": write("t.csv", ["bag,x", *(f"{b},1" for b in "abacc")]),
                "counts_table": write("counts.csv", lines),
            }
        separator = ";" if kind == "semicolon" else ","
        rows = zip("abacc", values, "12345", strict=True)
        return {"table": write("t.csv", [separator.join(r) for r in (("bag", "n", "x"), *rows)])}

    point = "," if kind == "semicolon" else "."
    shares = [f"{v}{point}0" for v in "10100"]
    message = refusal(load, "feature-table", bag="bag", count="n", **table(shares))
    assert "column 'n' = 1.0 but bag 'a' has 2 rows" in message
    assert "proportion='n'" in message
    found = load("feature-table", bag="bag", proportion="n", **table(shares)).bags
    assert found.counts.tolist() == [2, 0, 0]
    counts = load("feature-table", bag="bag", count="n", **table(list("10100"), whole=True)).bags
    assert counts.counts.tolist() == [1, 0, 0]
    more = load("feature-table", bag="bag", count="n", **table([f"{v}{point}0" for v in "10122"]))
    assert more.bags.counts.tolist() == [1, 0, 2]


def names_compared(write, columns):
    """Comparisons of column names while a table of so many columns is read and encoded."""
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str(self) == str(other)

    names = [f"x{i}" for i in range(columns)]
    rows = [f"a,1,{','.join(['1'] * columns)}", f"a,1,{','.join(['2'] * columns)}"]
    path = write(f"{columns}.csv", "\n".join([",".join(["bag", "n", *names]), *rows]))
    table = Table.read(path)
    table.names[:] = map(Name, table.names)  # a search of the list would compare these
    encoder = FeatureEncoder.fit(table, [str(name) for name in names])
    assert encoder.apply(table).shape == (2, columns)
    return compared


def test_the_work_grows_with_the_columns_not_with_their_square(write):
    assert names_compared(write, 800) <= 10 * 800


def test_a_mark_that_is_open_at_the_end_of_the_file(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text('bag,n,x\na,1,"0.1\n')
    with pytest.raises(LLPError, match="opened in line 2 and never closed"):
        Table.read(file)
    file.write_text('bag,n,x\na,1,5" pipe\n')  # no value begins with it
    assert len(Table.read(file)) == 1
