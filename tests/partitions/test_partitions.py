"""The check pass: what is wrong with which partition, before anything expensive."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from large import frames, write
from llpkit import LLPError, distributed
from llpkit.distributed.check import check
from llpkit.distributed.partitions import Partitions, parquet
from llpkit.distributed.parts import Layout
from llpkit.estimators import LLPLogisticRegression
from llpkit.tables import CountColumns


def fit(folder, **options):
    return distributed.fit(LLPLogisticRegression(), str(folder), bag="bag", count="n", **options)


def change(path, **columns):
    frame = pd.read_parquet(path)
    for name, function in columns.items():
        frame[name] = function(frame[name].copy())
    frame.to_parquet(path)


def at(place, value):
    def put(column):
        column.iloc[place] = value(column.iloc[place])
        return column

    return put


def test_torn_bag(tmp_path):
    paths = write(tmp_path, parts=4)
    last = pd.read_parquet(paths[1])["bag"].iloc[-1]
    rows = pd.read_parquet(paths[3])
    pd.concat([rows, rows.iloc[:1].assign(bag=last, n=0)]).to_parquet(paths[3])
    with pytest.raises(LLPError, match=rf"bag {last} is split.*partition 1.*partition 3"):
        fit(tmp_path)


def test_split_bag_among_many_partitions_and_texts():
    pieces = [
        pa.table({"bag": [f"b{i}", f"c{i}"], "n": [0, 1], "x": [0.0, 1.0]}) for i in range(200)
    ]
    pieces[150] = pa.table({"bag": ["b7", "c150"], "n": [0, 1], "x": [0.0, 1.0]})
    names = [f"partition {i}" for i in range(200)]
    layout = Layout("bag", CountColumns("n"), ("x",))
    with dask.config.set(scheduler="sync"):
        whole = Partitions(pieces[:150], names[:150])
        assert check(whole, layout, sample_rows=50).bags == 300
        with pytest.raises(
            LLPError, match=r"bag 'b7' is split.* partition 7 and in partition 150;"
        ):
            check(Partitions(pieces, names), layout, sample_rows=50)


def test_wrong_count(tmp_path):
    paths = write(tmp_path, parts=4)
    change(paths[2], n=at(5, lambda n: n + 1))
    bag = pd.read_parquet(paths[2])["bag"].iloc[5]
    with pytest.raises(LLPError, match=rf"partition 2 \(.*part-002.parquet.*{bag}.*must agree"):
        fit(tmp_path)
    change(paths[2], n=lambda n: n * 0 + 99)
    with pytest.raises(LLPError, match=r"partition 2 .* = 99 but"):
        fit(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda frame: frame.iloc[:0], r"partition 2 \(.*part-002.parquet\) has no rows"),
        (lambda frame: frame.drop(columns="x1"), r"partition 2 .* has no column 'x1'"),
        (lambda frame: frame.astype({"x1": str}), r"partition 2 .* has column 'x1' as large"),
        (lambda frame: frame.astype({"x1": np.float64}), r"partition 2 .*'x1' as double.* float"),
        (lambda frame: frame.assign(bag=None), r"partition 2 .*'bag' is empty"),
        (lambda frame: frame.assign(x3=1.0), r"partition 2 .* a column 'x3', which the first"),
        (
            lambda frame: frame.assign(x1=frame["x1"].where(frame.index != 7)),
            r"partition 2 .*: row 8, column 'x1' is empty",
        ),
        (
            lambda frame: frame.assign(x1=frame["x1"].replace(frame["x1"][7], np.inf)),
            r"partition 2 .*: row 8, column 'x1' = inf",
        ),
    ],
    ids=["empty", "column", "text", "type", "no bag", "more", "missing", "infinite"],
)
def test_wrong_partition(tmp_path, wrong, message):
    paths = write(tmp_path, parts=4)
    wrong(pd.read_parquet(paths[2])).to_parquet(paths[2])
    with pytest.raises(LLPError, match=message):
        fit(tmp_path)


def test_the_index_of_pandas_is_no_feature(tmp_path):
    paths = write(tmp_path, parts=3)
    expected = fit(tmp_path)
    for path in paths[:2]:
        pd.read_parquet(path).set_index(np.arange(300) * 7).to_parquet(path)
    assert (fit(tmp_path).coef_ == expected.coef_).all()


def test_settings_that_contradict_each_other_are_reported_once(tmp_path):
    write(tmp_path, parts=3)
    with pytest.raises(LLPError, match=r"^decimals belongs to proportion; leave it out$"):
        distributed.fit(
            LLPLogisticRegression(), tmp_path, bag="bag", count=CountColumns("n", decimals=2)
        )


def test_several_problems_are_counted(tmp_path):
    for path in write(tmp_path, parts=6)[1:]:
        change(path, n=lambda n: n * 0 + 99)
    with pytest.raises(LLPError, match=r"5 problems in 6 partitions:[\s\S]*and 2 more problems"):
        fit(tmp_path)


def test_damaged_and_missing_files(tmp_path):
    with pytest.raises(LLPError, match="there is no such Parquet file"):
        fit(tmp_path / "*.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(LLPError, match=r"bad.parquet is not a valid Parquet file"):
        fit(tmp_path)


def test_long_files_are_several_partitions(tmp_path, monkeypatch):
    monkeypatch.setattr("llpkit.distributed.partitions.ROWS_PER_PARTITION", 100)
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table({"bag": np.arange(350) // 5}), path, row_group_size=50)
    found = parquet(path)
    assert [piece.groups for piece in found.pieces] == [[0, 1], [2, 3], [4, 5], [6]]
    assert found.names[1] == f"partition 1 ({path}, row groups 2 to 3)"


def test_repartition_mends_torn_bags():
    frame = pd.concat(frames(4)).sample(frac=1, random_state=0)
    torn = dd.from_pandas(frame, npartitions=5, sort=False)
    estimator = LLPLogisticRegression(tol=1e-8)
    with pytest.raises(LLPError, match="is split"):
        distributed.fit(estimator, torn, bag="bag", count="n")
    whole = distributed.repartition_by_bag(torn, "bag", 3)
    model = distributed.fit(estimator, whole, bag="bag", count="n")
    X = frame[["x0", "x1", "x2"]].to_numpy()
    one = LLPLogisticRegression(tol=1e-8).fit(X, frame["n"].to_numpy(), frame["bag"].to_numpy())
    np.testing.assert_allclose(model.coef_, one.coef_, atol=1e-5)
    with pytest.raises(LLPError, match="no column 'bags'"):
        distributed.repartition_by_bag(torn, "bags")
