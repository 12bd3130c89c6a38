"""Group photos from made-up faces and from made-up original folders."""

import math
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from llpkit import LLPError
from llpkit.datasets import group_photos, load
from llpkit.datasets.group_photos import Face, crops, read_people

FACES = {  # name: colour
    "0001-01-m": (60, 0, 0),
    "0001-00-f": (50, 0, 0),
    "0000-00-f": (10, 0, 0),
    "0001-10-m": (90, 0, 0),
    "0001-02-f": (70, 0, 0),
    "0000-01-m": (20, 0, 0),
}


@pytest.fixture
def faces(tmp_path, jpeg, monkeypatch):
    home = tmp_path / "group-photos-faces" / "images"
    home.mkdir(parents=True)
    for name, colour in FACES.items():
        (home / f"{name}.jpg").write_bytes(jpeg(colour))
    (home.parent / "instances.csv").write_text("bag,instance\n")
    monkeypatch.setattr(group_photos, "TOTALS", (2, 3, 3))
    return tmp_path


def reds(data):
    return (data.inputs[:, 0, 45, 36] / 10).round().long().tolist()


def test_faces(faces):
    data = load("group-photos", data_dir=faces)
    assert data.inputs.shape == (6, 3, 90, 72)
    assert data.inputs.dtype == torch.uint8
    assert reds(data) == [1, 2, 5, 6, 7, 9]  # 10 comes after 02
    assert data.truth.tolist() == [1, 0, 1, 0, 1, 0]
    assert data.class_names == ("male", "female")
    assert data.bags.ids == ("0000", "0001")
    assert data.bags.counts.tolist() == [1, 2]
    assert data.notes[0].startswith("the whole of the data set, from ")


@pytest.mark.parametrize("name", ["group-photos-faces.tar.xz", "group-photos-faces.tar.gz"])
def test_an_archive_gives_the_same(faces, tmp_path, name):
    other = tmp_path / "other"
    other.mkdir()
    with tarfile.open(other / name, f"w:{name[-2:]}") as archive:
        archive.add(faces / "group-photos-faces" / "images", "images")
    data, expected = load("group-photos", data_dir=other), load("group-photos", data_dir=faces)
    assert torch.equal(data.inputs, expected.inputs)
    assert torch.equal(data.truth, expected.truth)
    assert torch.equal(
        load("group-photos", source=other / name).inputs, expected.inputs
    )  # under any name


def test_half_size_is_the_mean_of_four(faces):
    rng = np.random.default_rng(0)
    array = rng.integers(0, 256, (90, 72, 3), dtype=np.uint8)
    path = faces / "group-photos-faces" / "images" / "0000-00-f.jpg"
    Image.fromarray(array).save(path, quality=100, subsampling=0)
    full = load("group-photos", data_dir=faces).inputs
    half = load("group-photos", data_dir=faces, size="half").inputs
    assert half.shape == (6, 3, 45, 36)
    assert half.dtype == torch.uint8
    mean = torch.nn.functional.avg_pool2d(full.double(), 2)
    assert torch.equal(half, (mean + 0.5).floor().to(torch.uint8))


def test_other_totals_are_an_error_unless_a_part_is_meant(faces, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(faces / "cache"))
    message = (
        "has 2 bags, 3 female and 3 male faces, but the whole data set has 1,913 bags, 4,012 "
        "female and 3,439 male faces; get it again, or pass partial=True"
    )
    with pytest.raises(LLPError, match=message):
        load("group-photos", data_dir=faces)
    data = load("group-photos", data_dir=faces, partial=True)
    assert data.notes[0].startswith("a part of the data set, from ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("0002-00-f.jpg", b"junk", r"images/0002-00-f.jpg is not an image"),
        ("0002-00-f.jpg", None, r"0002-00-f.jpg is 72 x 90 pixels \(height x width\), not 90 x 72"),
        ("0001-1-m.jpg", b"same", r"images/0001-1-m.jpg is the second face 1 of bag 0001"),
    ],
)
def test_bad_faces_are_named(faces, jpeg, name, content, message):
    home = faces / "group-photos-faces" / "images"
    if content is None:
        content = jpeg("red", (90, 72))
    elif content == b"same":
        content = jpeg("red")
    (home / name).write_bytes(content)
    with pytest.raises(LLPError, match=message):
        load("group-photos", data_dir=faces)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "quarter"}, "size = 'quarter'; give full or half"),
        ({"size": (72, 90)}, "give full or half"),
        ({"source": "nowhere.zip"}, "source = 'nowhere.zip' does not exist"),
    ],
)
def test_refusals(faces, options, message):
    with pytest.raises(LLPError, match=message):
        load("group-photos", data_dir=faces, **options)


def test_a_source_of_something_else(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(LLPError, match=r"has neither faces nor original photos. Put there: the"):
        load("group-photos", source=tmp_path, partial=True)


# The original photos


def ramp(width=500, height=400):
    """A photo whose red is half the column and whose green is half the row."""
    array = np.zeros((height, width, 3), np.uint8)
    array[..., 0] = np.arange(width) // 2
    array[..., 1] = np.arange(height)[:, None] // 2
    return array


@pytest.mark.parametrize("eyes", [(200, 160, 230, 160), (250, 200, 280, 240), (131, 93, 90, 90)])
def test_geometry(jpeg, eyes):
    left_x, left_y, right_x, right_y = eyes
    (crop,) = crops(jpeg(ramp()), [Face(*eyes, 28, True)], "photo")
    assert crop.shape == (3, 90, 72)
    d = math.hypot(right_x - left_x, right_y - left_y)
    scale = 2.6 * d / 72
    columns = (left_x + right_x) / 2 - 1.3 * d + (np.arange(72) + 0.5) * scale - 0.5
    rows = (left_y + right_y) / 2 - 1.365 * d + (np.arange(90) + 0.5) * scale - 0.5
    for ramp_of, place in ((crop[0].mean(0), columns), (crop[1].mean(1), rows)):
        assert place[0] > 2  # all inside the photo; the ramp and Pillow both round down
        slope, start = np.polyfit(place, ramp_of, 1)
        assert slope == pytest.approx(0.5, rel=0.01)
        assert slope * place.mean() + start == pytest.approx(place.mean() / 2 - 0.75, abs=0.15)


def test_level_eyes_come_to_rest_42_percent_down(jpeg):
    photo = np.zeros((200, 200, 3), np.uint8)
    for x in (80, 120):
        photo[98:103, x - 2 : x + 3] = 255
    (crop,) = crops(jpeg(photo), [Face(80, 100, 120, 100, 28, True)], "photo")
    weight = crop[0].astype(float)
    left, right = weight[:, :36], weight[:, 36:]
    for part, x in ((left, 36 - 72 / 5.2), (right, 72 / 5.2)):
        centre = (part.sum(0) @ (np.arange(36) + 0.5)) / part.sum()
        assert centre == pytest.approx(x, abs=0.6)
    assert (weight.sum(1) @ (np.arange(90) + 0.5)) / weight.sum() == pytest.approx(37.8, abs=0.6)


def test_what_lies_outside_is_black(jpeg):
    (crop,) = crops(jpeg("white", (100, 100)), [Face(2, 50, 22, 50, 28, True)], "photo")
    assert crop[:, :, :19].max() == 0  # 14 pixels of the photo
    assert crop[:, :, 20:].min() == 255


PEOPLE = """\
b.jpg
200\t160\t230\t160\t28\t1
250\t200\t280\t205\t12\t1
300\t100\t320\t100\t16\t2
a.jpg
200\t160\t230\t160\t75\t2
child.jpg
200\t160\t230\t160\t10\t2
crowd.jpg
"""


@pytest.fixture
def originals(tmp_path, jpeg, monkeypatch):
    """Two Fam folders, and one of weddings, which does not belong to the selection."""
    photo = jpeg(ramp())
    for folder, text in (
        ("Fam8a", PEOPLE + "200 160 230 160 28 1\n" * 13),
        ("Fam2a", "z.jpg\n200 160 230 160 16 1\n" + "200 160 230 160 5 1\n" * 12),
        ("Wed2a", "w.jpg\n200 160 230 160 28 1\n"),
    ):
        home = tmp_path / "group-photos" / folder
        home.mkdir(parents=True)
        (home / "PersonData.txt").write_text(text)
        for name in ("a", "b", "child", "crowd", "w", "z"):
            (home / f"{name}.jpg").write_bytes(photo)
    monkeypatch.setattr(group_photos, "TOTALS", (3, 2, 2))
    return tmp_path


def test_the_papers_selection(originals, jpeg):
    data = load("group-photos", data_dir=originals)
    assert data.bags.ids == ("Fam2a/z.jpg", "Fam8a/a.jpg", "Fam8a/b.jpg")
    assert data.bags.sizes.tolist() == [1, 1, 2]
    assert data.truth.tolist() == [1, 0, 1, 0]
    (crop,) = crops(jpeg(ramp()), [Face(300, 100, 320, 100, 16, False)], "photo")
    assert np.array_equal(data.inputs[3], crop)


def test_folders_right_in_the_data_folder(originals):
    a = load("group-photos", data_dir=originals)
    b = load("group-photos", data_dir=originals / "group-photos")
    assert torch.equal(a.inputs, b.inputs)
    assert a.bags.ids == b.bags.ids


def test_a_photo_that_is_not_there(originals):
    (originals / "group-photos" / "Fam8a" / "a.jpg").unlink()
    with pytest.raises(LLPError, match=r"has no photo Fam8a/a.jpg, which its PersonData.txt names"):
        load("group-photos", data_dir=originals)


def test_a_photo_that_cannot_be_read(originals):
    path = originals / "group-photos" / "Fam8a" / "a.jpg"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(LLPError, match=r"Fam8a/a.jpg cannot be read as an image"):
        load("group-photos", data_dir=originals)


def test_people():
    people = read_people(PEOPLE.encode(), "x")
    assert list(people) == ["b.jpg", "a.jpg", "child.jpg", "crowd.jpg"]
    assert people["b.jpg"][2] == Face(300, 100, 320, 100, 16, False)
    assert people["crowd.jpg"] == []


@pytest.mark.parametrize(
    "line",
    [
        "1 2 3 4 28",
        "1 2 3 4 28 1 9",
        "1 2 3 4 28 3",
        "5 5 5 5 28 1",
        "1 2 x 4 28 1",
        "1 2 inf 4 28 1",
        "1 2 3 4 nan 1",
        "1 2 3 4 inf 1",
    ],
)
def test_a_line_that_is_no_face(line):
    with pytest.raises(LLPError) as error:
        read_people(f"a.jpg\n1 2 3 4 28 1\n{line}\n".encode(), "Fam2a/PersonData.txt")
    assert f"Fam2a/PersonData.txt: line 3, '{line}', is not a face" in str(error.value)


def test_a_face_above_all_photos():
    with pytest.raises(LLPError, match=r"line 1, .* is not a face below its photo's name"):
        read_people(b"1 2 3 4 28 1\n", "x")


def test_a_zip_of_the_originals(originals):
    import shutil

    expected = load("group-photos", data_dir=originals)
    made = shutil.make_archive(str(originals / "photos"), "zip", originals / "group-photos")
    data = load("group-photos", source=made)
    assert torch.equal(data.inputs, expected.inputs)
    assert data.bags.ids == expected.bags.ids
