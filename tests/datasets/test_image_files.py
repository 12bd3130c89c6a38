"""Images in files: decoded when asked for, and named by file and row when they are bad."""

import contextlib
import io
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from llpkit import LLPError
from llpkit.datasets import BadImage, ImageFiles
from llpkit.datasets.images import read_image


def png(array, **options):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG", **options)
    return file.getvalue()


@pytest.fixture
def images(tmp_path):
    """Five colour images of 4 x 6 pixels (height x width) and their files."""
    rng = np.random.default_rng(0)
    arrays = rng.integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
    paths = [tmp_path / f"{i}.png" for i in range(5)]
    for array, path in zip(arrays, paths, strict=True):
        path.write_bytes(png(array))
    return torch.from_numpy(arrays).permute(0, 3, 1, 2), paths


def test_load(images):
    expected, paths = images
    files = ImageFiles(paths)
    assert len(files) == 5
    assert files.size == (4, 6)
    assert files.shape == (5, 3, 4, 6)
    assert files.nbytes == expected.numel()
    assert repr(files) == "ImageFiles(5 images, 3 x 4 x 6)"
    assert files.load([3, 0]).dtype == torch.uint8
    assert torch.equal(files.load([3, 0]), expected[[3, 0]])
    assert torch.equal(files.load(torch.tensor([2])), expected[[2]])
    assert files.load([]).shape == (0, 3, 4, 6)


def test_select_keeps_the_row_numbers(images):
    expected, paths = images
    part = ImageFiles(paths).select(torch.tensor([4, 1]))
    assert torch.equal(part.load(range(2)), expected[[4, 1]])
    paths[1].unlink()
    with pytest.raises(BadImage, match=r"row 2: .*1.png does not exist"):
        part.load([1])


def test_workers_can_be_given_one(images):
    expected, paths = images
    assert torch.equal(pickle.loads(pickle.dumps(ImageFiles(paths))).load(range(5)), expected)


def test_grey_and_resized(images):
    _, paths = images
    files = ImageFiles(paths, size=(2, 3), channels=1)
    assert files.load(range(5)).shape == (5, 1, 2, 3)
    constant = paths[0]
    constant.write_bytes(png(np.full((9, 5, 3), 77, np.uint8)))
    assert torch.equal(files.load([0]), torch.full((1, 1, 2, 3), 77, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("array", "grey"),
    [
        (np.array([[0, 200]], np.uint8), [0, 200]),
        (np.array([[0, 200 * 256 + 7]], np.uint16), [0, 200]),
        (np.array([[False, True]]), [0, 255]),
        (np.array([[[9, 9, 9, 0], [200, 200, 200, 255]]], np.uint8), [9, 200]),
    ],
)
def test_kinds_of_pixels(array, grey):
    assert read_image(png(array), "x", channels=1)[0, 0].tolist() == grey
    assert read_image(png(array), "x", channels=3).shape == (3, 1, 2)


def test_a_photo_taken_sideways_is_turned_upright():
    array = np.zeros((2, 3, 3), np.uint8)
    array[0, 0] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: top left goes to top right
    upright = read_image(png(array, exif=exif), "x")
    assert upright.shape == (3, 3, 2)
    assert upright[:, 0, 1].tolist() == [255, 255, 255]


def test_bad_images_are_named(images):
    _, paths = images
    files = ImageFiles(paths)
    whole = paths[3].read_bytes()
    paths[1].write_bytes(b"not an image")
    paths[2].unlink()
    paths[3].write_bytes(whole[:-25])
    paths[4].unlink()
    paths[4].mkdir()
    messages = [
        (1, "row 2: .*1.png is not an image that can be read; put the right file there"),
        (2, "row 3: .*2.png does not exist; .*leave its bag out with skip_bad"),
        (3, "row 4: .*3.png cannot be read as an image: .*; put"),
        (4, "row 5: .*4.png cannot be read as an image: .*directory"),
    ]
    for row, message in messages:
        with pytest.raises(BadImage, match=message):
            files.load([row])
    assert list(files.bad_rows()) == [1, 2, 3, 4]
    assert "row 3: " in files.bad_rows()[2]


def test_the_first_that_can_be_read_says_the_size(images):
    _, paths = images
    paths[0].write_bytes(b"junk")
    assert ImageFiles(paths).size == (4, 6)
    with pytest.raises(BadImage, match="row 1: "):
        ImageFiles(paths[:1])


def test_another_size_is_refused_unless_one_is_given(images):
    _, paths = images
    paths[2].write_bytes(png(np.zeros((8, 5, 3), np.uint8)))
    message = "row 3: .*2.png is 8 x 5 pixels .* but the first image is 4 x 6; give .* image_size"
    with pytest.raises(LLPError, match=message):
        ImageFiles(paths).load(range(5))
    assert ImageFiles(paths, size=(4, 6)).load(range(5)).shape == (5, 3, 4, 6)


def test_pixels_of_unknown_range_are_refused():
    file = io.BytesIO()
    Image.fromarray(np.ones((2, 2), np.float32)).save(file, "TIFF")
    with pytest.raises(BadImage, match="x has 32-bit pixels of unknown range"):
        read_image(file.getvalue(), "x")


def test_formats_that_run_code_are_refused():
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n%%EndComments\nshowpage\n"
    with pytest.raises(BadImage, match="is not an image"):
        read_image(script, "x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 4}, "channels = 4; give 3 for colour or 1 for grey"),
        ({"size": (0, 3)}, "image_size = 0; give a whole number"),
        ({"size": (3,)}, "give height and width"),
        ({"rows": [1]}, "5 paths and 1 rows"),
    ],
)
def test_refusals(images, options, message):
    with pytest.raises(LLPError, match=message):
        ImageFiles(images[1], **options)


def test_no_images():
    with pytest.raises(LLPError, match="0 paths"):
        ImageFiles([])


@given(st.integers(0, 400), st.binary(min_size=1, max_size=6))
def test_damage_ends_in_an_image_or_in_an_error(where, damage):
    rng = np.random.default_rng(1)
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype=np.uint8)).save(file, "JPEG")
    content = bytearray(file.getvalue())
    content[where : where + len(damage)] = damage
    with contextlib.suppress(BadImage):
        assert read_image(bytes(content), "x").dtype == np.uint8
