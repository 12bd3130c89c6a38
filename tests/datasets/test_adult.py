"""Adult from made-up files, and from the real ones where they are at hand."""

import gzip
import os
from pathlib import Path

import pytest
import torch

from llpkit import LLPError
from llpkit.datasets import load
from llpkit.datasets.adult import FEATURES, adult_table

DATA = os.environ.get("LLPKIT_DATA")

TRAIN = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Unmarried, White, Male, 2174, 0, 40, United-States, <=50K
50, ?, 83311, Masters, 14, Married, ?, Husband, White, Male, 0, 0, 13, United-States, >50K
38, Private, 215646, Masters, 14, Divorced, Adm-clerical, Unmarried, Black, Male, 0, 7, 40, ?, <=50K

"""  # noqa: E501
TEST = """\
|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, Sales, Own-child, Black, Male, 0, 0, 40, Peru, >50K.

"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "adult.data.gz").write_bytes(gzip.compress(TRAIN.encode()))
    (tmp_path / "adult.test").write_text(TEST)
    return tmp_path


def test_load(folder):
    data = load("adult", data_dir=folder, bag_size=2)
    assert data.truth.tolist() == [0, 1, 0]
    assert sorted(data.bags.sizes.tolist()) == [1, 2]
    names = data.encoder.feature_names
    assert "fnlwgt" not in names
    assert data.inputs.shape == (3, len(names))
    test = load("adult", data_dir=folder, split="test")
    assert test.truth.tolist() == [1]
    assert test.encoder == data.encoder  # learnt from the training part alone
    assert load("adult", data_dir=folder, split="all").truth.tolist() == [0, 1, 0, 1]


def test_natural_bags(folder):
    data = load("adult", data_dir=folder, key="education, sex")
    assert data.bags.ids == ("Bachelors / Male", "Masters / Male")
    assert data.bags.counts.tolist() == [0, 1]
    with pytest.raises(LLPError, match="bag_size = 3 but key = 'sex' makes the bags"):
        load("adult", data_dir=folder, key="sex", bag_size=3)
    with pytest.raises(LLPError, match="key has 'jobs'; available: age"):
        load("adult", data_dir=folder, key="jobs")


def test_bad_files_are_refused(folder):
    with pytest.raises(LLPError, match="split = 'half'; give train, test or all"):
        adult_table("half", folder)
    (folder / "adult.test").write_text(TEST.replace("25,", "young,"))
    with pytest.raises(LLPError, match=r"adult\.test: line 2 is not a row of Adult: 'young"):
        adult_table("test", folder)
    (folder / "adult.test").write_text("|nothing\n")
    with pytest.raises(LLPError, match=r"adult\.test has no rows"):
        adult_table("test", folder)
    for broken in (b"\x1f\x8bbroken", b"]\0\0broken"):  # gzip and lzma
        (folder / "adult.data.gz").write_bytes(broken)
        with pytest.raises(LLPError, match=r"adult\.data\.gz cannot be read"):
            adult_table("train", folder)
    (folder / "adult.test").unlink()
    with pytest.raises(LLPError, match=r"adult is not in .*archive\.ics\.uci\.edu"):
        adult_table("test", folder)


@pytest.mark.skipif(not DATA, reason="needs the real data; name its folder in LLPKIT_DATA")
def test_the_real_table():
    if not any(Path(DATA).glob("adult.data*")):
        pytest.skip("adult is not in LLPKIT_DATA")
    train, test = (load("adult", data_dir=DATA, split=part) for part in ("train", "test"))
    assert torch.bincount(train.truth).tolist() == [24720, 7841]
    assert torch.bincount(test.truth).tolist() == [12435, 3846]
    assert len(adult_table("all", DATA)) == 48842
    assert len(FEATURES) == 13
