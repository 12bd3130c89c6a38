"""CIFAR-10: the official Python batches, or folders of image files."""

import hashlib
import os
import pickle
import re
import warnings
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from llpkit._validation import one_of
from llpkit.datasets.base import BagSize, DataSet, chosen_classes, in_random_bags, only_classes
from llpkit.datasets.files import Arrays, data_folder, decoded, first_of, members, not_found
from llpkit.datasets.images import read_image
from llpkit.datasets.registry import register
from llpkit.errors import LLPError

SOURCE = (
    "the CIFAR-10 home page, www.cs.toronto.edu/~kriz/cifar.html, has it as "
    '"CIFAR-10 python version"'
)
SAVE_AS = (
    "cifar-10-python.tar.gz, packed or unpacked (cifar-10-batches-py), or image files as "
    "cifar10-jpeg.tar.xz or unpacked (cifar10-jpeg/train/<class>/*.jpg and test/<class>/*.jpg)"
)

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# MD5 sums published with the data set: a batch is a pickle, which could run any code.
_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_BATCHES = ("cifar-10-python.tar.gz", "cifar-10-batches-py", "data_batch_1")
_IMAGES = ("cifar10-jpeg.tar.xz", "cifar10-jpeg.tar.gz", "cifar10-jpeg", "train")
_FILE = re.compile(rf"(?:^|/)(train|test)/({'|'.join(CLASSES)})/[^/]+\.(?:jpe?g|png)$", re.I)


@register(
    "cifar10",
    summary="32 x 32 colour photos, bird against cat as in the paper, or any classes of the ten",
    source=SOURCE,
    save_as=SAVE_AS,
    files=(*_BATCHES, *_IMAGES),
)
def cifar10(
    *,
    data_dir: str | os.PathLike[str] | None = None,
    bag_size: BagSize | None = None,
    seed: int = 0,
    classes: str | tuple[str, ...] = ("bird", "cat"),
    split: str = "all",
) -> DataSet:
    """CIFAR-10 in random bags, by default the paper's two classes.

    Rows are in the order of the batches, train before test; image files are sorted by split, class
    and file name. The pixels of JPEG files differ slightly from the official batches, which are
    preferred if both are found.

    Args:
        data_dir: Where to look; ``LLPKIT_DATA`` or the user's cache folder by default.
        bag_size: Instances per bag: a number, or the ends of a range; 1 to 12 by default.
        seed: Seed for the bags.
        classes: Two or more classes; of two, the last is positive.
        split: ``"train"`` (5,000 images per class), ``"test"`` (1,000) or ``"all"``.
    """
    names = chosen_classes(classes, CLASSES)
    split = one_of("split", split, ("train", "test", "all"))
    source, arrays = _arrays(data_folder(data_dir))
    if split != "all":
        part = arrays["test"] == (split == "test")
        arrays = {name: array[part] for name, array in arrays.items()}
    keep, labels = only_classes(arrays["label"], names, CLASSES)  # (R,) bool, (kept rows,)
    images = torch.from_numpy(arrays["image"][keep])
    counts = torch.bincount(labels, minlength=len(names)).tolist()
    for name, count in zip(names, counts, strict=True):
        if not count:
            raise LLPError(f"{source} has no {name} images in {split}; it is incomplete")
    test = torch.from_numpy(arrays["test"][keep])
    notes = [f"{split} images of {source}"]
    return in_random_bags("cifar10", images, labels, names, bag_size, seed, notes, test)


def _arrays(folder: Path) -> tuple[Path, Arrays]:
    """The source, and all images ``(R, 3, 32, 32)``, their classes, and whether they are test."""
    official = first_of(folder, _BATCHES)
    if official is not None:
        # The batches may also be directly in the data folder.
        source = folder if official.name == "data_batch_1" else official
        return source, _from_batches(source)
    files = first_of(folder, _IMAGES)
    if files is not None:
        source = folder if files.name == "train" else files
        return source, decoded(source, "cifar10-1", lambda: _from_files(source))
    raise not_found("cifar10", folder, SOURCE, SAVE_AS)


def _from_batches(source: Path) -> Arrays:
    wanted = members(source, lambda name: PurePosixPath(name).name in _MD5)
    batches = {PurePosixPath(name).name: content for name, content in wanted}
    for name, published in _MD5.items():
        if name not in batches:
            raise LLPError(f"{source} has no {name}; it is incomplete; get it again: {SOURCE}")
        found = hashlib.md5(batches[name], usedforsecurity=False).hexdigest()
        if found != published:
            raise LLPError(
                f"{name} in {source} has the MD5 sum {found} but the published one is {published}, "
                f"so it was not opened. Get it again: {SOURCE}"
            )
    tables = [_unpickled(batches[name]) for name in _MD5]
    labels = [np.array(table[b"labels"], np.uint8) for table in tables]
    return {
        "image": np.concatenate([table[b"data"] for table in tables]).reshape(-1, 3, 32, 32),
        "label": np.concatenate(labels),
        "test": np.repeat([name == "test_batch" for name in _MD5], [len(part) for part in labels]),
    }


def _unpickled(content: bytes) -> dict[bytes, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # new versions of NumPy warn about the old array format
        table: dict[bytes, Any] = pickle.loads(content, encoding="bytes")
    return table


def _from_files(source: Path) -> Arrays:
    found: dict[str, NDArray[np.uint8]] = {}
    for name, content in members(source, lambda name: _FILE.search(name) is not None):
        image = read_image(content, f"{source}: {name}")
        if image.shape != (3, 32, 32):
            raise LLPError(f"{source}: {name} is not an image of 32 x 32 pixels")
        found[name] = image
    if not found:
        raise LLPError(f"{source} has no files like train/bird/0001.jpg; {SAVE_AS}")
    facts = {}
    for name in found:
        split, label = _FILE.search(name).groups()  # type: ignore[union-attr]
        facts[name] = (split.lower() == "test", CLASSES.index(label.lower()))
    # Archives have no fixed order; sorting makes the rows reproducible.
    order = sorted(found, key=lambda name: (*facts[name], name))
    return {
        "image": np.stack([found[name] for name in order]),
        "label": np.array([facts[name][1] for name in order], np.uint8),
        "test": np.array([facts[name][0] for name in order]),
    }
