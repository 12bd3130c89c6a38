"""Fashion-MNIST from made-up idx files."""

import gzip
import struct

import numpy as np
import pytest
import torch

from llpkit import LLPError
from llpkit.datasets import load
from llpkit.datasets.fashion_mnist import read_idx


def idx(array):
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


FILES = {}
for _part, _rows in (("train", 30), ("t10k", 10)):
    _images = np.zeros((_rows, 28, 28), np.uint8)
    _images[:, 3, 5] = np.arange(_rows) + 100 * (_part == "t10k")
    FILES[f"{_part}-images-idx3-ubyte"] = idx(_images)
    FILES[f"{_part}-labels-idx1-ubyte"] = idx(np.arange(_rows) % 10)


def put(folder, files, zipped=True):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("where", ["fashion-mnist", "FashionMNIST/raw", "."])
def test_load(tmp_path, zipped, where):
    put(tmp_path / where, FILES, zipped)
    data = load("fashion-mnist", data_dir=tmp_path)
    assert data.inputs.shape == (8, 1, 28, 28)
    assert data.inputs.dtype == torch.uint8
    assert data.inputs[:, 0, 3, 5].tolist() == [2, 4, 12, 14, 22, 24, 102, 104]
    assert data.truth.tolist() == [0, 1] * 4
    assert data.class_names == ("pullover", "coat")
    test = load("fashion-mnist", data_dir=tmp_path, split="test", classes="bag, t-shirt/TOP, shirt")
    assert test.class_names == ("bag", "T-shirt/top", "shirt")
    assert test.truth.tolist() == [1, 2, 0]
    assert data.test.tolist() == [False] * 6 + [True] * 2
    assert test.test.all()


def test_a_share_at_half_size(tmp_path):
    put(tmp_path, FILES)
    data = load("fashion-mnist", data_dir=tmp_path, share=0.5, size="half")
    assert data.inputs.shape == (6, 1, 14, 14)
    # The mean of four pixels, one of which is not black.
    assert data.inputs[:, 0, 1, 2].tolist() == [round(v / 4) for v in (2, 4, 12, 14, 102, 104)]
    assert data.test.tolist() == [False] * 4 + [True] * 2
    for wrong, message in (({"share": 0}, "share = 0"), ({"size": "tiny"}, "size = 'tiny'")):
        with pytest.raises(LLPError, match=message):
            load("fashion-mnist", data_dir=tmp_path, **wrong)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", b"", "train-images-idx3-ubyte.gz is not a complete idx file"),
        ("train-images-idx3-ubyte", b"\0\0\x0d\3" + bytes(12), "no idx header of bytes"),
        ("t10k-labels-idx1-ubyte", FILES["t10k-labels-idx1-ubyte"][:-1], "not a complete idx file"),
        (
            "t10k-labels-idx1-ubyte",
            FILES["t10k-labels-idx1-ubyte"] + b"x",
            "not a complete idx file",
        ),
        ("train-labels-idx1-ubyte", idx(np.arange(9)), r"hold \(30, 28, 28\) images and \(9,\)"),
        ("train-labels-idx1-ubyte", idx(np.arange(30)), "labels up to 29"),
        ("train-images-idx3-ubyte", idx(np.zeros((30, 5, 5))), "expected 28 x 28 images"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    put(tmp_path, {**FILES, name: content})
    with pytest.raises(LLPError, match=message):
        load("fashion-mnist", data_dir=tmp_path)


def test_a_damaged_gzip(tmp_path):
    put(tmp_path, FILES)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(LLPError, match="not a complete idx file"):
        load("fashion-mnist", data_dir=tmp_path)


def test_a_broken_lzma_file(tmp_path):
    put(tmp_path, {**FILES, "train-labels-idx1-ubyte": b"]\0\0junk"}, zipped=False)
    with pytest.raises(LLPError, match="train-labels-idx1-ubyte is not a complete idx file"):
        load("fashion-mnist", data_dir=tmp_path)


def test_what_a_file_unpacks_to_is_limited(tmp_path, monkeypatch):
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(2**21)))
    monkeypatch.setenv("LLPKIT_MAX_UNPACKED", str(2**20))
    with pytest.raises(LLPError, match="LLPKIT_MAX_UNPACKED"):
        read_idx(path)


def test_a_file_that_is_not_there(tmp_path):
    put(tmp_path, {k: v for k, v in FILES.items() if k != "train-labels-idx1-ubyte"})
    with pytest.raises(LLPError, match=r"has no train-labels-idx1-ubyte.gz; it is incomplete"):
        load("fashion-mnist", data_dir=tmp_path)
