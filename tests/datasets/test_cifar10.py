"""CIFAR-10 from made-up official batches and from made-up image folders."""

import hashlib
import io
import struct
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from llpkit import LLPError
from llpkit.datasets import cifar10, files, load

BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def python2_pickle(images, labels):
    """A batch as Python 2 and an early NumPy pickled the official ones."""

    def string(value):
        return b"T" + struct.pack("<i", len(value)) + value

    rows, columns = images.shape
    shape = b"M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", columns) + b"\x86"
    dtype = b"cnumpy\ndtype\n" + string(b"u1") + b"K\0K\1\x87R"
    dtype += b"(K\3" + string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85" + string(b"b")
    array += b"\x87R(K\1" + shape + dtype + b"\x89" + string(images.tobytes()) + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([k]) for k in labels) + b"e"
    return b"\x80\2}(" + string(b"data") + array + string(b"labels") + numbers + b"u."


@pytest.fixture
def batches(monkeypatch):
    """Six batches of 20 images whose first pixel tells batch, row and class."""
    made = {}
    for b, name in enumerate(BATCHES):
        labels = np.arange(20) % 10
        images = np.zeros((20, 3, 32, 32), np.uint8)
        images[:, 0, 0, 0], images[:, 1, 0, 0], images[:, 2, 0, 0] = b, np.arange(20), labels
        made[name] = python2_pickle(images.reshape(20, -1), labels)
    sums = {name: hashlib.md5(content).hexdigest() for name, content in made.items()}
    monkeypatch.setattr(cifar10, "_MD5", sums)
    return made


def put(folder, files, layout):
    if layout == "archive":
        with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as archive:
            for name, content in files.items():
                info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return
    home = folder / "cifar-10-batches-py" if layout == "folder" else folder
    home.mkdir(exist_ok=True)
    for name, content in files.items():
        (home / name).write_bytes(content)


@pytest.fixture(params=["archive", "folder", "inside"])
def official(request, tmp_path, batches):
    put(tmp_path, {**batches, "batches.meta": b"never opened", "readme.html": b""}, request.param)
    return tmp_path


def test_official_batches(official):
    data = load("cifar10", data_dir=official)
    assert data.inputs.shape == (24, 3, 32, 32)
    assert data.inputs.dtype == torch.uint8
    first = data.inputs[:, :, 0, 0].tolist()
    expected = [[b, i, i % 10] for b in range(6) for i in range(20) if i % 10 in (2, 3)]
    assert first == expected
    assert data.truth.tolist() == [i % 10 - 2 for _, i, _ in expected]
    assert data.class_names == ("bird", "cat")
    assert data.bags.num_instances == 24


def test_splits_and_classes(official):
    test = load("cifar10", data_dir=official, split="test", classes=["truck", "Cat", "airplane"])
    assert test.inputs[:, 2, 0, 0].tolist() == [0, 3, 9, 0, 3, 9]
    assert test.truth.tolist() == [2, 1, 0, 2, 1, 0]
    assert test.bags.num_classes == 3
    train = load("cifar10", data_dir=official, split="train", classes="cat,bird")
    both = load("cifar10", data_dir=official, classes="cat,bird")
    assert int((~both.test).sum()) == len(train.truth)
    assert test.test.all()
    assert train.class_names == ("cat", "bird")
    assert train.inputs[:, 0, 0, 0].tolist() == [b for b in range(5) for _ in range(4)]
    assert "train images of " in train.notes[0]


def test_a_wrong_checksum_is_never_unpickled(tmp_path, batches):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("it was unpickled",))

    import pickle

    batches["data_batch_3"] = pickle.dumps(Bomb())
    put(tmp_path, batches, "archive")
    with pytest.raises(LLPError) as error:
        load("cifar10", data_dir=tmp_path)
    message = str(error.value)
    assert "data_batch_3" in message
    assert hashlib.md5(batches["data_batch_3"]).hexdigest() in message
    assert cifar10._MD5["data_batch_3"] in message
    assert "so it was not opened. Get it again: the CIFAR-10 home page" in message


def test_the_published_checksums_are_in_place(tmp_path):
    assert cifar10._MD5["data_batch_1"] == "c99cafc152244af753f735de768cd75f"
    assert cifar10._MD5["test_batch"] == "40351d587109b95175f43aff81a1287e"
    assert list(cifar10._MD5) == BATCHES
    put(tmp_path, dict.fromkeys(BATCHES, b"cos\nsystem\n(S'false'\ntR."), "folder")
    with pytest.raises(LLPError, match="the published one is c99cafc152244af753f735de768cd75f"):
        load("cifar10", data_dir=tmp_path)


def test_an_incomplete_archive(tmp_path, batches):
    del batches["data_batch_4"]
    put(tmp_path, batches, "archive")
    with pytest.raises(LLPError, match="has no data_batch_4; it is incomplete"):
        load("cifar10", data_dir=tmp_path)


# Image files


def image(value, size=(32, 32)):
    file = io.BytesIO()
    Image.new("RGB", size, value).save(file, "JPEG", quality=100, subsampling=0)
    return file.getvalue()


@pytest.fixture
def folders(tmp_path):
    """Two images a split and class; red tells the class, green the split, blue the image."""
    for s, split in enumerate(("train", "test")):
        for c, name in enumerate(cifar10.CLASSES):
            home = tmp_path / "cifar10-jpeg" / split / name
            home.mkdir(parents=True)
            for i in range(2):
                (home / f"{i:04d}.jpg").write_bytes(image((c * 20, s * 100, i * 100)))
    return tmp_path


def colours(data):
    return (data.inputs[:, :, 5, 5] / 20).round().long().tolist()


def test_folders(folders):
    data = load("cifar10", data_dir=folders)
    assert colours(data) == [[c, s, i] for s in (0, 5) for c in (2, 3) for i in (0, 5)]
    assert data.truth.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    test = load("cifar10", data_dir=folders, split="test", classes=("dog", "frog", "bird"))
    assert colours(test) == [[c, 5, i] for c in (2, 5, 6) for i in (0, 5)]
    assert test.truth.tolist() == [2, 2, 0, 0, 1, 1]
    inside = load("cifar10", data_dir=folders / "cifar10-jpeg")
    assert torch.equal(inside.inputs, data.inputs)


def test_images_lie_alike_in_memory_the_first_time_and_later(folders, tmp_path, monkeypatch):
    """Or else a network would add up its sums in another order."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    first, later = (load("cifar10", data_dir=folders).inputs for _ in range(2))
    assert first.stride() == later.stride()


def test_an_archive_in_any_order_gives_the_same_rows(folders, tmp_path):
    expected = load("cifar10", data_dir=folders)
    other = tmp_path / "other"
    other.mkdir()
    files = sorted((folders / "cifar10-jpeg").rglob("*.jpg"), key=lambda p: p.name + str(p))
    with tarfile.open(other / "cifar10-jpeg.tar.xz", "w:xz") as archive:
        for file in reversed(files):
            archive.add(file, file.relative_to(folders / "cifar10-jpeg"))
    data = load("cifar10", data_dir=other)
    assert torch.equal(data.inputs, expected.inputs)
    assert torch.equal(data.truth, expected.truth)


def test_the_second_time_comes_from_the_cache(folders, monkeypatch):
    first = load("cifar10", data_dir=folders)
    monkeypatch.setattr(cifar10, "_from_files", lambda _: pytest.fail("decoded again"))
    assert torch.equal(load("cifar10", data_dir=folders).inputs, first.inputs)
    assert len(list((files.cache_folder() / "decoded").iterdir())) == 1


def test_official_batches_come_before_image_files(folders, batches):
    put(folders, batches, "archive")
    assert len(load("cifar10", data_dir=folders).inputs) == 24


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"junk", r"train/bird/0009.jpg is not an image"),
        (image((0, 0, 0), (31, 32)), r"train/bird/0009.jpg is not an image of 32 x 32 pixels"),
    ],
)
def test_bad_files_are_named(folders, content, message):
    (folders / "cifar10-jpeg" / "train" / "bird" / "0009.jpg").write_bytes(content)
    with pytest.raises(LLPError, match=message):
        load("cifar10", data_dir=folders)


def test_folders_without_the_class(folders):
    for file in (folders / "cifar10-jpeg" / "test" / "cat").iterdir():
        file.unlink()
    with pytest.raises(LLPError, match="has no cat images in test; it is incomplete"):
        load("cifar10", data_dir=folders, split="test")
    assert len(load("cifar10", data_dir=folders, split="train").truth) == 4


def test_folders_without_images(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(LLPError, match=r"has no files like train/bird/0001.jpg"):
        load("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ["bird", "cta"]}, "classes has 'cta'; did you mean 'cat'?"),
        ({"classes": ["bird"]}, "classes = bird; give two different classes or more"),
        ({"classes": ["bird", "Bird"]}, "give two different classes or more"),
        ({"classes": 3}, "classes = 3; give the names"),
        ({"split": "val"}, "split = 'val'; give train, test or all"),
    ],
)
def test_refusals(tmp_path, options, message):
    with pytest.raises(LLPError) as error:
        load("cifar10", data_dir=tmp_path, **options)
    assert message in str(error.value)
