"""Bags to look at: their instances, what was told of them, what is said of each."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from llpkit.bags import Bag, Bags
from llpkit.errors import LLPError

CRISP = 40  # images up to this side are enlarged with square pixels
LARGEST = 112  # longer images are reduced to this side: the page must stay small


@dataclass(frozen=True)
class WallInstance:
    """One instance of a bag.

    Args:
        image: uint8 ``(C, H, W)`` with one or three channels, or ``None``.
        caption: What to show where there is no image, such as a few features, one a line; with an
            image, its description.
        probability: Of the positive class; with ``K`` classes, one of each class.
        posterior: The same given the bag's count, where it was computed.
        truth: The true label, where it is known.
    """

    image: NDArray[np.uint8] | None
    caption: str
    probability: float | Sequence[float]
    posterior: float | Sequence[float] | None = None
    truth: int | None = None


@dataclass(frozen=True)
class WallBag:
    """One bag: its id, what the learner knew of it (``"3 of 7 odd"``), its instances."""

    id: str
    known: str
    instances: Sequence[WallInstance]


class Loads(Protocol):
    """Images that are read when asked for, such as the image files of a data set."""

    def load(self, rows: list[int]) -> Tensor:
        """The images of some rows, uint8 ``(n, C, H, W)``."""
        ...


def known_text(bag: Bag, class_names: Sequence[str]) -> str:
    """What is known of a bag, in words.

    >>> bag = Bag("a", torch.arange(7), 3, 3)
    >>> known_text(bag, ("even", "odd"))
    '3 of 7 odd'
    >>> known_text(bag._replace(high=5), ("even", "odd"))
    '3 to 5 of 7 odd'
    >>> known_text(bag._replace(low=(2, 1, 4), high=(2, 1, 4)), ("cat", "dog", "bird"))
    '2 cat, 1 dog, 4 bird'
    """
    classes = len(bag.low) if isinstance(bag.low, tuple) else 2
    if len(class_names) != classes:
        raise LLPError(
            f"bag {bag.id!r} has counts of {classes} classes, but class_names has "
            f"{len(class_names)}: {tuple(class_names)}; name every class"
        )
    if isinstance(bag.low, tuple) and isinstance(bag.high, tuple):
        bounds = zip(bag.low, bag.high, class_names, strict=True)
        return ", ".join(f"{_range(low, high, bag.size)} {name}" for low, high, name in bounds)
    assert isinstance(bag.low, int)
    assert isinstance(bag.high, int)
    return f"{_range(bag.low, bag.high, bag.size)} of {bag.size} {class_names[1]}"


def _range(low: int, high: int, size: int) -> str:
    high = min(high, size)
    if low == high:
        return str(low)
    if high == size and low > 0:
        return f"at least {low}"
    return f"{low} to {high}"


def wall_bags(
    bags: Bags,
    inputs: Tensor | Loads,
    probability: Any,
    *,
    class_names: Sequence[str],
    posterior: Any = None,
    truth: Any = None,
    feature_names: Sequence[str] | None = None,
) -> list[WallBag]:
    """Gather bags for the wall; slice ``bags`` first, every bag passed is shown.

    Everything is indexed by the rows of the user's table, as ``bags.rows`` is.

    Args:
        bags: The bags. Take training bags where the page says what the learner was told.
        inputs: uint8 images ``(R, C, H, W)``, features ``(R, D)``, or an object whose
            ``load(rows)`` gives such images.
        probability: ``(R,)``, or ``(R, K)``.
        class_names: Names of the labels ``0 … K - 1``; negative, then positive, for two.
        posterior: Of the shape of ``probability``.
        truth: True labels ``(R,)``.
        feature_names: Names of the ``D`` features.

    >>> bags = Bags(offsets=[0, 2], counts=[1])
    >>> [bag] = wall_bags(bags, torch.tensor([[1.5], [2.0]]), [0.2, 0.7], class_names=("no", "yes"))
    >>> bag.known, bag.instances[1].caption
    ('1 of 2 yes', 'x0 2')
    """
    walls = []
    for bag in bags:
        rows = bag.rows.tolist()
        images, captions = _look(inputs, rows, feature_names)
        instances = [
            WallInstance(
                image=image,
                caption=caption,
                probability=_floats(probability[row]),
                posterior=None if posterior is None else _floats(posterior[row]),
                truth=None if truth is None else int(truth[row]),
            )
            for row, image, caption in zip(rows, images, captions, strict=True)
        ]
        walls.append(WallBag(str(bag.id), known_text(bag, class_names), instances))
    return walls


def _look(
    inputs: Tensor | Loads, rows: list[int], names: Sequence[str] | None
) -> tuple[list[NDArray[np.uint8] | None], list[str]]:
    if not isinstance(inputs, Tensor):
        inputs, rows = inputs.load(rows), list(range(len(rows)))
    chosen = inputs[rows].cpu().numpy()
    if chosen.ndim == 4:
        return list(chosen), [""] * len(rows)
    names = names or [f"x{i}" for i in range(chosen.shape[1])]
    few = [list(zip(names, row, strict=True))[:4] for row in chosen.tolist()]
    captions = ["\n".join(f"{name} {value:.3g}" for name, value in row) for row in few]
    return [None] * len(rows), captions


def _floats(value: Any) -> float | list[float]:
    numbers: float | list[float] = torch.as_tensor(value, dtype=torch.float64).tolist()
    return numbers


def data_uri(image: NDArray[np.uint8], where: str) -> str:
    """An image as ``data:`` address: PNG when small, JPEG when it is a photograph's size."""
    array = np.asarray(image)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[0] not in (1, 3):
        raise LLPError(
            f"the image of {where} has shape {array.shape} and type {array.dtype}; "
            "pass uint8 of shape (1, H, W) or (3, H, W)"
        )
    picture = Image.fromarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0))
    stream = io.BytesIO()
    if is_crisp(array):
        picture.save(stream, "PNG", optimize=True)
        kind = "png"
    else:
        picture.thumbnail((LARGEST, LARGEST))
        picture.save(stream, "JPEG", quality=82)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


def is_crisp(image: NDArray[np.uint8]) -> bool:
    """Whether an image is small enough to be shown with square pixels."""
    return bool(max(image.shape[1:]) <= CRISP)
