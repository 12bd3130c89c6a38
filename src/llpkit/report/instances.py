"""Bags for a wall: their instances and their known counts."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from llpkit._arrays import Files
from llpkit._text import span
from llpkit.bags import Bag, Bags

FEATURES = 4  # features shown for an instance without an image
SHOWN = 12  # most instances shown per bag; the others are only counted
CRISP = 40  # images up to this side are enlarged with square pixels
LARGEST = 112  # larger images are reduced to this side: the page must stay small


@dataclass(frozen=True)
class WallInstance:
    """One instance of a bag.

    Args:
        caption: Shown instead of an image, such as a few features, one per line; with an image,
            its description.
        image: See :func:`is_picture`; or ``None``.
        truth: The true label, if known.
    """

    caption: str
    image: NDArray[np.uint8] | None = None
    truth: int | None = None

    @property
    def uri(self) -> str | None:
        """The image as a ``data:`` address."""
        return None if self.image is None else data_uri(self.image)

    @property
    def crisp(self) -> bool:
        """Whether the image is shown with square pixels."""
        return self.image is not None and is_crisp(self.image)


@dataclass(frozen=True)
class WallBag:
    """One bag: its id, its known count (``"3 of 7 odd"``) and its instances.

    ``left_out`` is the number of further instances of the bag; ``note`` is shown below the counts.
    """

    id: str
    known: str
    instances: Sequence[WallInstance]
    left_out: int = 0
    note: str = ""

    @property
    def shown(self) -> Sequence[WallInstance]:
        """The instances on the page."""
        return self.instances[:SHOWN]

    @property
    def more(self) -> int:
        """The number of instances that are not on the page."""
        return len(self.instances) + self.left_out - len(self.shown)

    @property
    def truths(self) -> list[int]:
        """The labels that are known."""
        return [one.truth for one in self.instances if one.truth is not None]


def wall_bags(
    bags: Bags,
    inputs: Tensor | Files,
    *,
    class_names: Sequence[str],
    truth: Any = None,
    captions: Sequence[str] | None = None,
    notes: Sequence[str] | None = None,
) -> list[WallBag]:
    """Collect bags for a wall; slice ``bags`` first, every bag is shown.

    Args:
        bags: The bags.
        inputs: Images ``(R, C, H, W)``, features ``(R, D)``, or an object whose ``load(rows)``
            returns images; ``R`` rows as in ``bags.rows``.
        class_names: Names of the labels ``0 … K - 1``; negative, then positive, for two.
        truth: True labels ``(R,)``.
        captions: The instances in words, in the order of ``bags.rows``; by default their features.
        notes: What is shown below the counts of each bag.

    >>> import torch
    >>> features = torch.tensor([[1.5], [2.0]])
    >>> [bag] = wall_bags(Bags(offsets=[0, 2], counts=[1]), features, class_names=("no", "yes"))
    >>> bag.known, bag.instances[1].caption
    ('1 of 2 yes', 'x0 2')
    """
    found, start = [], 0
    for b, bag in enumerate(bags):
        rows = bag.rows.tolist()
        chosen = inputs[rows] if isinstance(inputs, Tensor) else inputs.load(rows)
        instances = []
        for i, (row, values) in enumerate(zip(rows, chosen.cpu().numpy(), strict=True)):
            label = None if truth is None else int(truth[row])
            text = f"instance {i + 1} of bag {bag.id}"
            if is_picture(values):
                instances.append(WallInstance(text, values, label))
                continue
            if captions is not None:
                text = captions[start + i]
            elif values.ndim == 1:  # else an image that no browser shows
                text = _features(values)
            instances.append(WallInstance(text, None, label))
        start += len(rows)
        known, note = known_text(bag, class_names), "" if notes is None else notes[b]
        found.append(WallBag(str(bag.id), known, instances, note=note))
    return found


def _features(values: NDArray[Any]) -> str:
    return "\n".join(f"x{i} {value:.3g}" for i, value in enumerate(values.tolist()[:FEATURES]))


def known_text(bag: Bag, class_names: Sequence[str]) -> str:
    """The known count of a bag in words.

    >>> import torch
    >>> bag = Bag("a", torch.arange(7), 3, 3)
    >>> known_text(bag, ("even", "odd"))
    '3 of 7 odd'
    >>> known_text(bag._replace(high=5), ("even", "odd"))
    '3 to 5 of 7 odd'
    >>> known_text(bag._replace(low=(2, 1, 4), high=(2, 1, 4)), ("cat", "dog", "bird"))
    '2 cat, 1 dog, 4 bird'
    """
    if isinstance(bag.low, tuple) and isinstance(bag.high, tuple):
        bounds = zip(bag.low, bag.high, class_names, strict=True)
        return ", ".join(f"{_range(low, high, bag.size)} {name}" for low, high, name in bounds)
    assert isinstance(bag.low, int)
    assert isinstance(bag.high, int)
    return f"{_range(bag.low, bag.high, bag.size)} of {bag.size} {class_names[1]}"


def _range(low: int, high: int, size: int) -> str:
    if high >= size > low > 0:
        return f"at least {low}"
    return span(low, min(high, size))


def is_picture(image: Any) -> bool:
    """Whether an array can be shown: uint8 ``(1, H, W)`` or ``(3, H, W)``."""
    return image.ndim == 3 and image.dtype == np.uint8 and len(image) in (1, 3)


def is_crisp(image: NDArray[np.uint8]) -> bool:
    """Whether a picture is small enough to be shown with square pixels."""
    return bool(max(image.shape[1:]) <= CRISP)


def data_uri(image: NDArray[np.uint8]) -> str:
    """A picture as a ``data:`` address: PNG when small, JPEG when larger."""
    picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
    stream = io.BytesIO()
    if is_crisp(image):
        picture.save(stream, "PNG", optimize=True)
        kind = "png"
    else:
        picture.thumbnail((LARGEST, LARGEST))
        picture.save(stream, "JPEG", quality=82)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
