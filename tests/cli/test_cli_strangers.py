"""Files from strangers: nothing of them reaches the terminal raw, waits, or fills the memory."""

import contextlib
import functools
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import skops.io
from PIL import Image
from sklearn.ensemble import (
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_array

from llpkit import LLPError, estimators
from llpkit.datasets import ImageFiles
from llpkit.datasets.files import members
from llpkit.files import add_checksums
from llpkit.tables import Table

COLUMNS = ("--bag", "district", "--count", "n_yes")


def in_time(code: str, *arguments: object, seconds: float = 120) -> subprocess.CompletedProcess:
    """A Python process of its own; waiting for ever, or a crash, is then a failed test."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)


# The terminal

ESCAPE = "\x1b[31mred\x9b2J\u202e"


def test_no_control_character_of_a_table_reaches_the_terminal(llpkit, survey, monkeypatch):
    text = survey.read_text().replace("region", f"re{ESCAPE}gion").replace("north", f"n{ESCAPE}")
    monkeypatch.setenv("PYTHONWARNINGS", "always")
    evil = Path(f"evil{ESCAPE}.csv")
    evil.write_text(text)
    one = ("--network", "linear", "--epochs", 1, "--out", f"run{ESCAPE}")
    results = [
        llpkit("fit", evil, *COLUMNS, *one),
        llpkit("predict", f"run{ESCAPE}", evil, "--out", f"p{ESCAPE}.csv"),
        llpkit("evaluate", f"run{ESCAPE}"),
        llpkit("fit", evil, "--bag", f"x{ESCAPE}", "--count", "n_yes"),
        llpkit("fit", evil, *COLUMNS, "--numeric", f"re{ESCAPE}gion"),
        llpkit("fit", f"none{ESCAPE}.csv", *COLUMNS),
        llpkit("fit", evil, evil),
        llpkit(f"fit{ESCAPE}"),
    ]
    assert [done.code for done in results] == [0, 0, 0, 2, 2, 2, 2, 2]
    for done in results:
        assert not {*"\x1b\x9b\u202e"} & {*done.out, *done.err}
        assert "\n" in done.out + done.err
    assert r"\x1b[31m" in results[5].err


def test_no_control_character_reaches_the_terminal_by_a_warning(llpkit, monkeypatch):
    shown = []

    def known(_):  # as Python formats what warnings.warn gets
        shown.append(warnings.formatwarning("\x1b[31mred", UserWarning, "file.py", 1, ""))
        return Path()

    monkeypatch.setattr("llpkit.datasets.data_folder", known)
    assert llpkit("datasets").code == 0
    assert "UserWarning: \\x1b[31mred" in shown[0]
    assert "\x1b" not in shown[0]


# Limits


def test_a_configuration_refers_to_nothing_and_has_a_limit(llpkit, monkeypatch):
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    Path("bomb.yaml").write_text("\n".join(lines))
    done = llpkit("fit", "bomb.yaml")
    assert done.code == 2
    assert "line 2" in done.err
    Path("c.yaml").write_text("data: {dataset: digits}\nepoch: 1\n")
    monkeypatch.setenv("LLPKIT_MAX_CONFIG", "9")
    assert "LLPKIT_MAX_CONFIG" in llpkit("fit", "c.yaml").err
    monkeypatch.setenv("LLPKIT_MAX_CONFIG", "99")
    assert "did you mean 'epochs'" in llpkit("fit", "c.yaml").err
    monkeypatch.setenv("LLPKIT_MAX_CONFIG", "many")
    assert "whole number" in llpkit("fit", "c.yaml").err


@pytest.mark.parametrize("opening", ["[", "- ", "{a: ", "? "])
def test_a_configuration_has_few_levels(llpkit, opening):
    Path("deep.yaml").write_text("data: " * (opening in "[{a: ") + opening * 10**5)
    done = llpkit("fit", "deep.yaml")
    assert done.code == 2
    assert "line 1 is nested" in done.err


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("data: {dataset: digits}\nepochs: 1\nlr: 0.1\nepochs: 2\n", 4, "epochs"),
        ("data:\n  dataset: digits\n  dataset: synthetic\n", 3, "dataset"),
        ("data: {dataset: synthetic, options: {rows: 60, 'rows': 70}}\n", 1, "rows"),
    ],
)
def test_a_key_that_is_given_twice_is_named(llpkit, text, line, key):
    Path("c.yaml").write_text(text)
    done = llpkit("fit", "c.yaml")
    assert done.code == 2
    assert f"line {line} gives '{key}' a second time" in done.err
    assert not Path("runs").exists()


def tar_of(path: str, sizes: list[int], how: str) -> Path:
    with tarfile.open(path, how) as archive:
        for i, size in enumerate(sizes):
            info = tarfile.TarInfo(f"file-{i}")
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
    return Path(path)


@pytest.mark.parametrize("how", ["w:gz", "w:bz2", "w:xz", "zip"])
def test_what_an_archive_unpacks_to_is_limited(how, monkeypatch):
    sizes = [2**18] * 8
    if how == "zip":
        path = Path("bomb.zip")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for i, size in enumerate(sizes):
                archive.writestr(f"file-{i}", bytes(size))
    else:
        path = tar_of("bomb.tar", sizes, how)
    assert len(list(members(path, lambda _: True))) == 8
    monkeypatch.setenv("LLPKIT_MAX_UNPACKED", str(2**20))
    read = members(path, lambda _: True)
    with pytest.raises(LLPError, match="LLPKIT_MAX_UNPACKED"):
        sum(len(content) for _, content in read)
    if how != "zip":  # what is passed over has to be unpacked as well
        with pytest.raises(LLPError, match="LLPKIT_MAX_UNPACKED"):
            list(members(path, lambda name: name == "file-7"))
    monkeypatch.delenv("LLPKIT_MAX_UNPACKED")
    monkeypatch.setenv("LLPKIT_MAX_MEMBERS", "7")
    with pytest.raises(LLPError, match="LLPKIT_MAX_MEMBERS"):
        list(members(path, lambda _: False))


def test_a_sparse_file_in_an_archive_counts_as_what_it_is():
    # An old GNU header: no bytes are there, the file is said to have 200 MB.
    archive = bytearray()
    for i in range(40):
        info = tarfile.TarInfo(f"file-{i}")
        info.type = tarfile.GNUTYPE_SPARSE
        header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
        header[483:495] = b"%011o\0" % (2 * 10**8)
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        archive += header[:512]
    Path("sparse.tar").write_bytes(archive + bytes(1024))
    read = members(Path("sparse.tar"), lambda _: True)
    with pytest.raises(LLPError, match="LLPKIT_MAX_UNPACKED"):
        for _ in read:
            pass


def test_what_a_table_unpacks_to_is_limited(monkeypatch):
    rows = 60_000
    text = b"district,n_yes,x\n" + b"a,1,1\n" * rows
    packer = zlib.compressobj(wbits=31)
    Path("t.csv.gz").write_bytes(packer.compress(text) + packer.flush())
    columns = {"district": ["a"] * rows, "n_yes": np.ones(rows), "x": np.ones(rows)}
    pq.write_table(pa.table(columns), "t.parquet")
    for name in ("t.csv.gz", "t.parquet"):
        assert len(Table.read(name)) == rows
    monkeypatch.setenv("LLPKIT_MAX_UNPACKED", str(2**18))
    for name in ("t.csv.gz", "t.parquet"):
        with pytest.raises(LLPError, match="LLPKIT_MAX_UNPACKED"):
            Table.read(name)
    Path("t.csv").write_bytes(text)  # as large, but nothing is unpacked
    assert len(Table.read("t.csv")) == rows


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no peak to be read")
def test_a_bomb_is_refused_before_it_is_in_memory(monkeypatch):
    size = 2**28
    rows = pa.table({"x": pa.array(np.zeros(2**20))})
    with pq.ParquetWriter("bomb.parquet", rows.schema) as file:
        for _ in range(size // rows.nbytes):
            file.write_table(rows)
    packer = zlib.compressobj(wbits=31)
    piece = packer.compress(b"0\n" * 2**23) + packer.flush()
    Path("bomb.csv.gz").write_bytes(piece * (size // 2**24))
    monkeypatch.setenv("LLPKIT_MAX_UNPACKED", str(size - 1))
    code = """
        import re, sys
        from pathlib import Path
        import pyarrow.parquet
        from llpkit import LLPError
        from llpkit.tables import Table
        status = Path("/proc/self/status")  # getrusage begins with the peak of the parent
        peak = lambda: 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", status.read_text())[1])
        before = peak()
        for bomb in sys.argv[1:]:
            assert Path(bomb).stat().st_size < 2**20
            try:
                Table.read(bomb)
            except LLPError:
                print(peak() - before)
    """
    done = in_time(code, "bomb.csv.gz", "bomb.parquet")
    grown = [int(line) for line in done.stdout.split()]
    assert len(grown) == 2, done.stderr
    assert max(grown) < size / 2


def test_the_pixels_of_an_image_are_limited_by_its_header(monkeypatch):
    Image.new("L", (1, 1)).save("a.png")
    content = bytearray(Path("a.png").read_bytes())
    content[16:24] = (30_000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    Path("bomb.png").write_bytes(content)
    with pytest.raises(LLPError, match="LLPKIT_MAX_PIXELS"):
        ImageFiles(["bomb.png"], size=(8, 8)).load([0])
    Image.new("L", (20, 10)).save("b.png")
    monkeypatch.setenv("LLPKIT_MAX_PIXELS", "199")
    with pytest.raises(LLPError, match="LLPKIT_MAX_PIXELS"):
        ImageFiles(["b.png"], size=(8, 8)).load([0])
    monkeypatch.setenv("LLPKIT_MAX_PIXELS", "200")
    assert ImageFiles(["b.png"], size=(8, 8)).load([0]).shape == (1, 3, 8, 8)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_no_reader_waits_for_a_pipe(fitted, llpkit, survey):
    """Whatever is read: photos, tables, archives, runs, checkpoints, records."""
    os.mkfifo("pipe")
    Path("photos.csv").write_text("bag,n,image\na,1,pipe\n")
    Path("table.csv").write_text("bag,n,x\na,1,1\n")
    assert llpkit("fit", survey, *COLUMNS, *SMALL, "logistic").code == 0
    for kind, run in (("network", fitted), ("table", Path("run"))):
        for name in [path.name for path in run.iterdir() if path.is_file()]:
            copy = Path(f"{kind} {name}")
            shutil.copytree(run, copy)
            (copy / name).unlink()
            os.mkfifo(copy / name)
    os.mkfifo("checkpoint.pt")
    Path("results/records/grid").mkdir(parents=True)
    os.mkfifo("results/records/grid/0123456789ab.json")
    code = """
        import sys
        from pathlib import Path
        import torch
        import llpkit
        from llpkit import config, datasets, estimators
        from llpkit.cli import main
        from llpkit.datasets.files import members
        from llpkit.tables import Table
        for run in sorted([*Path().glob("network *"), *Path().glob("table *")]):
            print(run, main(["predict", str(run), sys.argv[1], "--out", "p.csv"]), flush=True)
        print("report", main(["report", "results"]), flush=True)
        bags = llpkit.random_bags(torch.tensor([0, 1] * 9), 3, generator=0)
        calls = [
            lambda: llpkit.load("network model.json"),
            lambda: llpkit.fit("linear", bags, torch.randn(18, 2), run_dir=".", resume=True),
            lambda: datasets.load("image-table", table="photos.csv", bag="bag", count="n",
                                  image="image", skip_bad=True),
            lambda: datasets.ImageFiles(["pipe"]),
            lambda: Table.read("pipe"),
            lambda: datasets.load("feature-table", table="table.csv", bag="bag", count="n",
                                  counts_table="pipe"),
            lambda: config.read(Path("pipe")),
            lambda: list(members(Path("pipe"), lambda _: True)),
            lambda: datasets.load("group-photos", source="pipe"),
            lambda: estimators.load("pipe"),
        ]
        for call in calls:
            try:
                call()
            except llpkit.LLPError:
                print("refused", flush=True)
    """
    done = in_time(code, survey)
    lines = done.stdout.splitlines()
    assert lines.count("refused") == 10, done.stderr
    assert "report 2" in lines
    for name in ("config.yaml", "checksums.json", "model.json", "encoder.json"):
        assert {f"network {name} 2", f"table {name} 2"} <= set(lines)
    assert {"network weights.safetensors 2", "table estimator.skops 2"} <= set(lines)


# Estimators


SMALL = ("--categorical", "region", "--quiet", "--out", "run", "--estimator")


def damaged(model, how):
    """A fitted estimator of which one thing was changed that no fit would leave behind."""
    inner = model.estimator_
    if isinstance(inner, HistGradientBoostingClassifier):
        nodes = inner._predictors[0][0].nodes
    if isinstance(inner, RandomForestClassifier):
        tree = inner.estimators_[0].tree_
    match how:
        case "boosting, child":
            nodes["left"][0] = 10**9
        case "boosting, circle":
            nodes["left"][0] = nodes["right"][0] = 0
        case "boosting, feature":
            nodes["feature_idx"][0] = 10**12
        case "boosting, no nodes":
            inner._predictors[0][0].nodes = nodes[:0]
        case "boosting, category":
            nodes["is_categorical"][0], nodes["bitset_idx"][0] = 1, 10**9
        case "forest, child":
            tree.children_left[0] = 10**12
        case "forest, circle":
            tree.children_left[0] = tree.children_right[0] = 0
        case "forest, feature":
            tree.feature[0] = 10**12
        case "forest, width":
            del inner.estimators_[0].n_features_in_
        case "forest, method":
            inner._validate_X_predict = functools.partial(check_array)
        case "svc, coefficients":
            inner._dual_coef_ = inner._dual_coef_[:, :1].copy()
        case "svc, support":
            inner._n_support = np.array([-(10**6), 10**6 + inner._n_support.sum()], np.int32)
    return model


DAMAGE = {
    "hist-gradient-boosting": [
        "boosting, child",
        "boosting, circle",
        "boosting, feature",
        "boosting, no nodes",
        "boosting, category",
    ],
    "random-forest": [
        "forest, child",
        "forest, circle",
        "forest, feature",
        "forest, width",
        "forest, method",
    ],
    "svc": ["svc, coefficients", "svc, support"],
}


FEW = {
    "hist-gradient-boosting": "estimator__max_iter=5",
    "random-forest": "n_estimators=3",
    "svc": "max_iter=2",
}


def test_a_crafted_estimator_neither_crashes_nor_hangs(llpkit, survey):
    for name, changes in DAMAGE.items():
        option = ("--estimator-option", FEW[name])
        assert llpkit("fit", survey, *COLUMNS, *SMALL, name, *option, "--force").code == 0
        assert llpkit("predict", "run", survey, "--out", "p.csv").code == 0
        for how in changes:
            shutil.copytree("run", how)
            model = damaged(estimators.load("run/estimator.skops"), how)
            skops.io.dump(model, Path(how, "estimator.skops"))
            add_checksums(Path(how), ["estimator.skops"])
    code = """
        import sys
        from llpkit.cli import main
        for run in sys.argv[2:]:
            print(run, main(["predict", run, sys.argv[1], "--out", "q.csv"]), sep=": ", flush=True)
    """
    runs = [how for changes in DAMAGE.values() for how in changes]
    done = in_time(code, survey, *runs)
    assert done.stdout.splitlines() == [f"{how}: 2" for how in runs], done.stderr
    assert done.stderr.count("is not a valid estimator") == len(runs), done.stderr


@pytest.mark.parametrize("circle", [pytest.param(False, marks=pytest.mark.slow), True])
def test_parts_that_refer_to_each_other_come_to_an_end(circle):
    tree = DecisionTreeClassifier(max_depth=1).fit([[0.0], [1.0]], [0, 1])
    votes = BaggingClassifier(tree, n_estimators=2).fit([[0.0], [1.0]] * 9, [0, 1] * 9)
    old, new = zipfile.ZipFile(io.BytesIO(skops.io.dumps(votes))), io.BytesIO()
    schema = json.loads(old.read("schema.json"))
    inner = schema
    for i in range(1, 40):
        outer = json.loads(re.sub(r'"__id__": (\d+)', rf'"__id__": {i}\1', json.dumps(schema)))
        again = {"__class__": None, "__module__": None, "__loader__": "CachedNode"}
        again["__id__"] = outer["__id__"] if circle else inner["__id__"]
        outer["content"]["content"]["estimators_"]["content"] = [inner, again]
        inner = outer
    with zipfile.ZipFile(new, "w") as archive:
        for info in old.infolist():
            changed = json.dumps(inner) if info.filename == "schema.json" else old.read(info)
            archive.writestr(info.filename, changed)
    Path("votes.skops").write_bytes(new.getvalue())
    code = """
        import llpkit
        from llpkit import estimators
        try:
            estimators.load("votes.skops")
        except llpkit.LLPError:
            print("refused")
    """
    assert in_time(code).stdout == "refused\n"


def test_types_with_compiled_parts_have_to_be_trusted(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 2))
    nearest = KNeighborsClassifier(algorithm="brute").fit(X, X[:, 0] > 0)
    skops.io.dump(make_pipeline(StandardScaler().fit(X), nearest), tmp_path / "n.skops")
    with pytest.raises(LLPError, match="KNeighborsClassifier"):
        estimators.load(tmp_path / "n.skops")
    name = "sklearn.neighbors._classification.KNeighborsClassifier"
    assert estimators.load(tmp_path / "n.skops", trusted=[name]).predict(X).shape == (40,)


def test_what_load_will_refuse_is_told_by_save(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 2))
    nearest = KNeighborsClassifier(algorithm="brute", n_jobs=10**4).fit(X, X[:, 0] > 0)
    name = "sklearn.neighbors._classification.KNeighborsClassifier"
    with pytest.warns(UserWarning, match=name):
        estimators.save(make_pipeline(StandardScaler().fit(X), nearest), tmp_path / "n.skops")
    assert nearest.n_jobs == 10**4
    assert estimators.load(tmp_path / "n.skops", trusted=[name]).predict(X).shape == (40,)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_lightgbm_run_of_one_s_own_is_finished_after_a_kill(llpkit, survey, monkeypatch):
    pytest.importorskip("lightgbm")
    command = ("fit", survey, *COLUMNS, *SMALL, "lightgbm", "--estimator-option", "n_estimators=3")

    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", kill)
        with pytest.raises(Killed):
            llpkit(*command)
    assert not Path("run").exists()
    done = llpkit(*command)
    assert done.code == 0, done.err
    assert Path("run/report.html").exists()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_lightgbm_is_read_when_it_is_trusted(llpkit, survey):
    pytest.importorskip("lightgbm")
    options = ("--estimator-option", "n_estimators=3")
    assert llpkit("fit", survey, *COLUMNS, *SMALL, "lightgbm", *options).code == 0
    for command in (["predict", "run", survey, "--out", "p.csv"], ["evaluate", "run"]):
        done = llpkit(*command)
        assert done.code == 2
        assert "--trust-model" in done.err
        assert llpkit(*command, "--trust-model").code == 0


def test_a_flipped_bit_in_an_estimator_is_an_answer_or_an_error(llpkit, survey):
    assert llpkit("fit", survey, *COLUMNS, *SMALL, "logistic").code == 0
    file = Path("run/estimator.skops")
    whole, random = file.read_bytes(), np.random.default_rng(0)
    for position in random.integers(8 * len(whole), size=300):
        content = bytearray(whole)
        content[position // 8] ^= 1 << position % 8
        file.write_bytes(content)
        with contextlib.suppress(LLPError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimators.load(file)
        if position % 10 == 0:
            add_checksums(Path("run"), [file.name])
            assert llpkit("predict", "run", survey, "--out", "p.csv", "--quiet").code in (0, 2)


@pytest.mark.parametrize(
    ("name", "attribute"), [("logistic", "coef_"), ("hist-gradient-boosting", "floor_")]
)
def test_an_estimator_without_a_part_is_an_error(llpkit, survey, name, attribute):
    assert llpkit("fit", survey, *COLUMNS, *SMALL, name).code == 0
    model = estimators.load("run/estimator.skops")
    for value in (None, "text", np.full((2, 2), np.nan)):
        vars(model)[attribute] = value
        skops.io.dump(model, "run/estimator.skops")
        add_checksums(Path("run"), ["estimator.skops"])
        assert llpkit("predict", "run", survey, "--out", "p.csv").code == 2


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("hist-gradient-boosting", "max_leaf_nodes=abc"),
        ("random-forest", "max_depth=-3"),
        ("svc", "kernel=nothing"),
        ("naive-bayes", "priors=[0.1]"),
        ("hist-gradient-boosting", "estimator=3"),
        ("logistic", "C=abc"),
    ],
)
def test_a_bad_option_of_an_estimator_is_an_error(llpkit, survey, name, option):
    done = llpkit("fit", survey, *COLUMNS, *SMALL, name, "--estimator-option", option)
    assert done.code == 2
    assert option.partition("=")[0] in done.err
    assert not Path("run").exists()
