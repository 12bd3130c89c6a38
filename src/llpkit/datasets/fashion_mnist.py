"""Fashion-MNIST: grey images of 28 x 28 pixels in idx files."""

import os
import struct
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from llpkit._validation import number, one_of
from llpkit.datasets.base import BagSize, DataSet, chosen_classes, in_random_bags, only_classes
from llpkit.datasets.files import BROKEN, data_folder, first_of, not_found, unpacked
from llpkit.datasets.registry import register
from llpkit.errors import LLPError

SOURCE = "the data set's page, github.com/zalandoresearch/fashion-mnist, has its four idx files"
SAVE_AS = (
    "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and "
    "t10k-labels-idx1-ubyte.gz, with or without .gz, in a folder fashion-mnist"
)

CLASSES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)

_PARTS = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}
_FOLDERS = ("fashion-mnist", "FashionMNIST/raw")


@register(
    "fashion-mnist",
    summary="28 x 28 grey images of clothes, pullover against coat or any classes of the ten",
    source=SOURCE,
    save_as=SAVE_AS,
    files=(*_FOLDERS, "train-images-idx3-ubyte.gz", "train-images-idx3-ubyte"),
)
def fashion_mnist(
    *,
    data_dir: str | os.PathLike[str] | None = None,
    bag_size: BagSize | None = None,
    seed: int = 0,
    classes: str | tuple[str, ...] = ("pullover", "coat"),
    split: str = "all",
    size: str = "full",
    share: float = 1.0,
) -> DataSet:
    """Fashion-MNIST in random bags; rows in the order of the files, train before test.

    Args:
        data_dir: Where to look; ``LLPKIT_DATA`` or the user's cache folder by default.
        bag_size: Instances per bag: a number, or the ends of a range; 1 to 12 by default.
        seed: Seed for the bags.
        classes: Two or more classes; of two, the last is positive.
        split: ``"train"`` (6,000 images per class), ``"test"`` (1,000) or ``"all"``.
        size: ``"full"``, or ``"half"`` for 14 x 14 pixels, each the mean of four.
        share: Share of each split to keep, the first images of its file; for quick trials.
    """
    names = chosen_classes(classes, CLASSES)
    parts = _PARTS[one_of("split", split, _PARTS)]
    size = one_of("size", size, ("full", "half"))
    share = number("share", share, most=1, above=0)
    folder = data_folder(data_dir)
    folders = [folder / name for name in (*_FOLDERS, "")]
    home = next((p for p in folders if _file(p, f"{parts[0]}-images-idx3-ubyte")), None)
    if home is None:
        raise not_found("fashion-mnist", folder, SOURCE, SAVE_AS)
    pairs = [_part(home, part) for part in parts]
    pairs = [(i[: round(share * len(i))], k[: round(share * len(k))]) for i, k in pairs]
    images, labels = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    keep, truth = only_classes(labels, names, CLASSES)
    if size == "half":
        images = images.reshape(-1, 14, 2, 14, 2).mean((2, 4)).round().astype(np.uint8)
    inputs = torch.from_numpy(images[keep][:, None])
    test = torch.from_numpy(np.repeat([p == "t10k" for p in parts], [len(k) for _, k in pairs]))
    if len(truth) == 0:
        raise LLPError(f"{home} has no images of {', '.join(names)}; it is incomplete")
    notes = [f"{split} images of {home}"]
    return in_random_bags("fashion-mnist", inputs, truth, names, bag_size, seed, notes, test[keep])


def _file(folder: Path, name: str) -> Path | None:
    return first_of(folder, (f"{name}.gz", name))


def _part(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    arrays = []
    for name in (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"):
        file = _file(folder, name)
        if file is None:
            raise LLPError(f"{folder} has no {name}.gz; it is incomplete. Get it: {SOURCE}")
        arrays.append(read_idx(file))
    images, labels = arrays
    if images.shape[1:] != (28, 28) or labels.shape != images.shape[:1] or labels.max() > 9:
        raise LLPError(
            f"{folder}: the {part} files hold {images.shape} images and {labels.shape} labels up "
            f"to {labels.max()}; expected 28 x 28 images and as many labels from 0 to 9"
        )
    return images, labels


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes in the idx format, plain or gzipped."""
    try:
        content = unpacked(path)
        # The idx header: two zero bytes, the type (8 is unsigned byte), the number of axes.
        zero, kind, axes = struct.unpack_from(">HBB", content)
        shape = struct.unpack_from(f">{axes}I", content, 4)
        if (zero, kind) != (0, 8) or not 1 <= axes <= 3 or 0 in shape:
            raise ValueError("no idx header of bytes")
        pixels = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
        return pixels.reshape(shape).copy()
    except LLPError:  # a limit, which another copy of the file would reach too
        raise
    except (*BROKEN, ValueError, struct.error) as error:
        raise LLPError(
            f"{path} is not a complete idx file: {error}; get it again: {SOURCE}"
        ) from error
