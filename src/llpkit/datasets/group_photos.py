"""Faces from group photos: a photo is a bag, and its count is the number of women.

The paper's first data set, made from *Images of Groups* (A. Gallagher and T. Chen, Understanding
Images of Groups of People, CVPR 2009). Faces are read from files named as by the paper's authors,
``images/<bag>-<instance>-<f or m>.jpg``, or cropped from the original photos.

**Selection.** The four ``Fam*`` folders; faces of age code above 12 (codes 1, 5, 10, 16, 28, 51, 75
stand for the ages 0-2, 3-7, 8-12, 13-19, 20-36, 37-65, 66+); then photos with 1 to 12 such faces.
In all 1,913 bags, 4,012 women and 3,439 men.

**Crop.** With ``m`` the point between the eyes and ``d`` their distance, the box from
``m - (1.3 d, 1.365 d)`` to ``m + (1.3 d, 1.885 d)``, not rotated, becomes 90 x 72 pixels (height x
width) by bicubic interpolation: the eyes are 27.7 pixels apart, 42 % down. Areas outside the photo
are black. The published faces are these crops saved as JPEG.
"""

import math
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from llpkit._text import several
from llpkit._validation import one_of
from llpkit.bags import Bags
from llpkit.datasets.base import DataSet
from llpkit.datasets.files import Arrays, data_folder, decoded, first_of, members, not_found
from llpkit.datasets.images import BadImage, open_image, read_image
from llpkit.datasets.registry import register
from llpkit.errors import LLPError

SOURCE = (
    "the Images of Groups data set of A. Gallagher and T. Chen, from its page "
    "chenlab.ece.cornell.edu/people/Andy/ImagesOfGroups.html (research use only)"
)
SAVE_AS = (
    "the folders Fam2a, Fam4a, Fam5a and Fam8a, each with its PersonData.txt, in a folder "
    "group-photos; or cropped faces as group-photos-faces.tar.xz (or .tar.gz, or "
    "unpacked), named images/<bag>-<instance>-<f or m>.jpg"
)

HEIGHT, WIDTH = 90, 72
TOTALS = (1913, 4012, 3439)
"""Bags, women and men of the whole data set."""

_PLACES = (
    "group-photos-faces.tar.xz",
    "group-photos-faces.tar.gz",
    "group-photos-faces",
    "group-photos",
    "images",
    "Fam2a",
)
_FACE = re.compile(r"(?:^|/)([^/]+)-(\d+)-([fm])\.jpe?g$", re.I)
_PEOPLE = re.compile(r"(?:^|/)Fam[^/]*/PersonData\.txt$")


class Face(NamedTuple):
    """A line of ``PersonData.txt``: the eyes in pixels of the photo, age code and sex."""

    left_x: float
    left_y: float
    right_x: float
    right_y: float
    age: int
    female: bool


@register(
    "group-photos",
    summary="the paper's faces: 1,913 group photos as bags, with the number of women",
    source=SOURCE,
    save_as=SAVE_AS,
    files=_PLACES,
    shows_people=True,
)
def group_photos(
    *,
    data_dir: str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | None = None,
    size: str = "full",
    partial: bool = False,
) -> DataSet:
    """Faces in the bags of their photos; female is the positive class.

    Rows are in the order of the photos and of the faces in them. Ids are the bag numbers of the
    face files, or the names of the original photos.

    Args:
        data_dir: Where to look; ``LLPKIT_DATA`` or the user's cache folder by default.
        source: An archive or folder of faces or original photos with any other name.
        size: ``"full"``, 90 x 72 pixels (height x width), or ``"half"``, 45 x 36, the
            averages of 2 x 2.
        partial: Accept a part of the data set; otherwise totals other than 1,913 bags, 4,012 women
            and 3,439 men are an error.
    """
    one_of("size", size, ("full", "half"))
    where = _find(data_dir) if source is None else Path(os.path.expanduser(source))
    if not where.exists():
        raise LLPError(f"source = {str(source)!r} does not exist")
    arrays = decoded(where, "group-photos-1", lambda: _arrays(where))
    images, female = arrays["image"], arrays["female"]
    if size == "half":
        images = _halved(images)
    truth = torch.from_numpy(female.astype(np.int64))
    bags = Bags.from_labels(truth, arrays["bag"]).in_row_order()
    totals = (len(bags), int(female.sum()), int((~female).sum()))
    if totals != TOTALS and not partial:
        raise LLPError(
            f"{where} has {_described(totals)}, but the whole data set has {_described(TOTALS)}; "
            "get it again, or pass partial=True to use a part"
        )
    notes = (f"{'a part' if totals != TOTALS else 'the whole'} of the data set, from {where}",)
    return DataSet("group-photos", torch.from_numpy(images), bags, truth, ("male", "female"), notes)


def _described(totals: tuple[int, int, int]) -> str:
    bags, female, male = totals
    return f"{several(bags, 'bag')}, {female:,} female and {male:,} male faces"


def _find(data_dir: str | os.PathLike[str] | None) -> Path:
    folder = data_folder(data_dir)
    found = first_of(folder, _PLACES)
    if found is None:
        raise not_found("group-photos", folder, SOURCE, SAVE_AS)
    return folder if found.name == "Fam2a" else found


def _halved(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Averages of 2 x 2 pixels, rounded."""
    # The sum of four bytes needs more than eight bits.
    wide = images.astype(np.uint16)
    rows = wide[..., ::2, :] + wide[..., 1::2, :]
    return ((rows[..., ::2] + rows[..., 1::2] + 2) // 4).astype(np.uint8)


def _arrays(source: Path) -> Arrays:
    """All faces ``(R, 3, 90, 72)``, the bag of each, and whether it is female."""
    people = dict(members(source, lambda name: _PEOPLE.search(name) is not None))
    faces = list(_from_photos(source, people) if people else _from_faces(source))
    if not faces:
        raise LLPError(f"{source} has neither faces nor original photos. Put there: {SAVE_AS}")
    bags, female, images = zip(*faces, strict=True)
    return {"image": np.stack(images), "bag": np.array(bags), "female": np.array(female)}


def _from_faces(source: Path) -> Iterator[tuple[str, bool, NDArray[np.uint8]]]:
    """Bag, sex and pixels of every face file, in the order of bags and instances."""
    found: dict[tuple[str, int], tuple[str, bool, NDArray[np.uint8]]] = {}
    for name, content in members(source, lambda name: _FACE.search(name) is not None):
        image = read_image(content, f"{source}: {name}")
        if image.shape != (3, HEIGHT, WIDTH):
            high, wide = image.shape[1:]
            raise LLPError(
                f"{source}: {name} is {high} x {wide} pixels (height x width), not "
                f"{HEIGHT} x {WIDTH}"
            )
        bag, instance, sex = _FACE.search(name).groups()  # type: ignore[union-attr]
        # Names such as 1-2-f and 1-02-f are the same instance.
        if found.setdefault((bag, int(instance)), (bag, sex in "fF", image))[2] is not image:
            raise LLPError(f"{source}: {name} is the second face {instance} of bag {bag}")
    yield from (found[key] for key in sorted(found))


def _from_photos(
    source: Path, people: dict[str, bytes]
) -> Iterator[tuple[str, bool, NDArray[np.uint8]]]:
    """Photo, sex and pixels of every selected face, photos in the order of folder and name."""
    selected: dict[str, list[Face]] = {}
    for name, content in people.items():
        home = PurePosixPath(name).parent
        for photo, faces in read_people(content, f"{source}: {name}").items():
            grown = [face for face in faces if face.age > 12]
            if 1 <= len(grown) <= 12:
                selected[str(home / photo)] = grown

    def cut(photo: tuple[str, bytes]) -> tuple[str, list[NDArray[np.uint8]]]:
        name, content = photo
        return name, crops(content, selected[name], f"{source}: {name}")

    # Pillow decodes without Python's lock, so threads run in parallel.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        images = dict(pool.map(cut, members(source, selected.__contains__)))
    for name in sorted(selected, key=lambda name: PurePosixPath(name).parts[-2:]):
        if name not in images:
            raise LLPError(f"{source} has no photo {name}, which its PersonData.txt names")
        for face, image in zip(selected[name], images[name], strict=True):
            yield "/".join(PurePosixPath(name).parts[-2:]), face.female, image


def read_people(content: bytes, name: str) -> dict[str, list[Face]]:
    """The faces of every photo that a ``PersonData.txt`` names.

    A line is a photo's name, or one of its faces: left eye x, y, right eye x, y, age code and sex
    (1 female, 2 male).
    """
    photos: dict[str, list[Face]] = {}
    faces: list[Face] | None = None
    for i, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if len(words) == 1:
            faces = photos.setdefault(words[0], [])
        elif words:
            try:
                *eyes, age, sex = (float(word) for word in words)
                left_x, left_y, right_x, right_y = eyes
                apart = math.hypot(right_x - left_x, right_y - left_y)
                if faces is None or sex not in (1, 2) or not 0 < apart < math.inf:
                    raise ValueError(line)
                faces.append(Face(left_x, left_y, right_x, right_y, int(age), sex == 1))
            except (ValueError, OverflowError) as error:
                raise LLPError(
                    f"{name}: line {i}, {line.strip()!r}, is not a face below its photo's name: "
                    "left eye x y, right eye x y, age code, sex 1 or 2"
                ) from error
    return photos


def crops(photo: bytes, faces: list[Face], name: str) -> list[NDArray[np.uint8]]:
    """The faces of a photo, each uint8 ``(3, 90, 72)``."""
    from PIL import Image

    try:
        with open_image(photo, name, ("JPEG",)) as opened:
            image = opened.convert("RGB")
    except BadImage:
        raise
    except Exception as error:  # Pillow's decoder raises errors of all kinds for damaged files
        raise BadImage(f"{name} cannot be read as an image: {error}") from error
    cut = []
    for face in faces:
        eyes = math.hypot(face.right_x - face.left_x, face.right_y - face.left_y)
        left = (face.left_x + face.right_x) / 2 - 1.3 * eyes
        top = (face.left_y + face.right_y) / 2 - 1.365 * eyes
        scale = 2.6 * eyes / WIDTH  # pixels of the photo for one of the crop
        crop = image.transform(
            (WIDTH, HEIGHT),
            Image.Transform.AFFINE,
            (scale, 0, left, 0, scale, top),
            Image.Resampling.BICUBIC,
        )
        cut.append(np.asarray(crop).transpose(2, 0, 1))
    return cut
