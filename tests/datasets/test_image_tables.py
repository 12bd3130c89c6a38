"""Tables of image files, and bad images by file, row and bag."""

import numpy as np
import pytest
import torch

from llpkit import LLPError
from llpkit.datasets import ImageFiles, image_files, load
from llpkit.tables import Table

ROWS = ["photo,file,n,sex", "p,a.jpg,1,m", "q,sub/b.jpg,0,m", "p,c.jpg,1,f", "r,d.jpg,1,f"]


@pytest.fixture
def folder(write, jpeg):
    for name, grey in (("a", 40), ("sub/b", 80), ("c", 120), ("d", 160)):
        write(f"{name}.jpg", jpeg((grey, grey, grey), (6, 4)))
    return write("t.csv", ROWS).parent


def images(folder, **options):
    given = {"table": folder / "t.csv", "bag": "photo", "image": "file", "count": "n"}
    return load("image-table", **(given | options))


def greys(inputs):
    tensor = inputs.load(range(len(inputs))) if isinstance(inputs, ImageFiles) else inputs
    return (tensor[:, 0, 2, 2] / 40).round().long().tolist()


def test_load(folder):
    data = images(folder, label="sex", class_names=["m", "f"])
    assert isinstance(data.inputs, ImageFiles)
    assert data.inputs.shape == (4, 3, 4, 6)
    assert greys(data.inputs) == [1, 2, 3, 4]
    assert data.bags.ids == ("p", "q", "r")
    assert data.bags.rows.tolist() == [0, 2, 1, 3]
    assert data.truth.tolist() == [0, 0, 1, 1]
    assert data.title == "image-table: 4 images of 3 x 4 x 6"


def test_options(folder, tmp_path):
    other = tmp_path / "elsewhere"
    other.mkdir()
    (folder / "t.csv").rename(other / "t.csv")
    data = images(other, image_root=folder, image_size=(8, 3), grey=True)
    assert data.inputs.shape == (4, 1, 8, 3)
    table = Table.read(other / "t.csv")
    assert len(image_files(table, "file", root=folder)) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": "flie"}, "has no column 'flie'; did you mean 'file'?"),
        ({"image_size": 3}, "image_size = 3; give height and width"),
        ({"image_size": (0, 0)}, "image_size = 0; give a whole number from 1"),
        ({"image_root": "/nowhere"}, "row 1 (header not counted), column 'file': there is no file"),
        ({"skip_bad": True, "image_root": "/nowhere"}, "row 1: /nowhere/a.jpg does not exist"),
    ],
)
def test_refusals(folder, options, message):
    with pytest.raises(LLPError) as error:
        images(folder, **options)
    assert message in str(error.value)


def test_a_missing_image(folder):
    (folder / "c.jpg").unlink()
    with pytest.raises(LLPError) as error:
        images(folder)
    assert "row 3 (header not counted), column 'file': there is no file" in str(error.value)
    assert "c.jpg; correct it, name the folder that paths are relative to with image_root" in str(
        error.value
    )


def test_an_empty_path(folder, write):
    write("t.csv", [*ROWS, "s,,0,m"])
    with pytest.raises(LLPError, match=r"row 5 .*, column 'file' is empty; give the path"):
        images(folder)


def test_a_corrupt_image_is_named_when_it_is_loaded(folder):
    (folder / "c.jpg").write_bytes(b"junk")
    data = images(folder)
    with pytest.raises(LLPError, match=r"row 3: .*c.jpg is not an image that can be read"):
        data.inputs.load(data.bags[0].rows)


def test_skip_bad_leaves_out_the_bag_and_says_so(folder):
    (folder / "a.jpg").write_bytes(b"junk")
    (folder / "d.jpg").unlink()
    data = images(folder, skip_bad=True, label="sex", class_names=["m", "f"])
    assert data.bags.ids == ("q",)
    assert data.bags.rows.tolist() == [0]
    assert greys(data.inputs) == [2]
    assert list(data.inputs.rows) == [1]
    assert data.truth.tolist() == [0]
    assert len(data.notes) == 2
    assert data.notes[0].startswith("bag 'p' (2 rows) is left out: row 1: ")
    assert "a.jpg is not an image" in data.notes[0]
    assert "bag 'r' (1 row) is left out: row 4: " in data.notes[1]


def test_skip_bad_keeps_the_order_of_what_is_left(folder):
    (folder / "sub" / "b.jpg").unlink()
    data = images(folder, skip_bad=True)
    assert data.bags.ids == ("p", "r")
    assert data.bags.rows.tolist() == [0, 1, 2]
    assert greys(data.inputs.load(data.bags.rows)) == [1, 3, 4]


def test_skip_bad_without_bad_images(folder):
    assert images(folder, skip_bad=True).notes == ()


def test_skip_bad_when_nothing_is_left(folder):
    for name in ("a", "sub/b", "d"):
        (folder / f"{name}.jpg").write_bytes(b"junk")
    with pytest.raises(LLPError, match="every bag has a bad image; the first: row 1: "):
        images(folder, skip_bad=True)


def test_images_of_other_sizes_are_not_bad_but_refused(folder, write, jpeg):
    write("d.jpg", jpeg("red", (5, 5)))
    with pytest.raises(
        LLPError, match=r"row 4: .*d.jpg is 5 x 5 pixels .* but the first image is 4 x 6"
    ):
        images(folder, skip_bad=True)
    assert images(folder, image_size=(4, 6)).inputs.load([3]).dtype == torch.uint8
    assert np.prod(images(folder, image_size=(4, 6)).inputs.shape) == 4 * 3 * 4 * 6
