"""Bags for a wall: their instances and their known counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from llpkit.bags import Bag, Bags
from llpkit.errors import LLPError

FEATURES = 4  # features shown for an instance without an image


@dataclass(frozen=True)
class WallInstance:
    """One instance of a bag.

    Args:
        image: uint8 ``(C, H, W)`` with one or three channels, or ``None``.
        caption: Shown instead of an image, such as a few features, one per line; with an image,
            its description.
        truth: The true label, if known.
    """

    image: NDArray[np.uint8] | None = None
    caption: str = ""
    truth: int | None = None


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


class Loads(Protocol):
    """Images that are read on demand, such as the image files of a data set."""

    def load(self, rows: list[int]) -> Tensor:
        """The images of some rows, uint8 ``(n, C, H, W)``."""
        ...


def wall_bags(
    bags: Bags,
    inputs: Tensor | Loads,
    *,
    class_names: Sequence[str],
    truth: Any = None,
    feature_names: Sequence[str] | None = None,
) -> list[WallBag]:
    """Collect bags for a wall; slice ``bags`` first, every bag is shown.

    Args:
        bags: The bags.
        inputs: uint8 images ``(R, C, H, W)``, features ``(R, D)``, or an object whose
            ``load(rows)`` returns such images; ``R`` rows as in ``bags.rows``.
        class_names: Names of the labels ``0 … K - 1``; negative, then positive, for two.
        truth: True labels ``(R,)``.
        feature_names: Names of the ``D`` features.

    >>> import torch
    >>> features = torch.tensor([[1.5], [2.0]])
    >>> [bag] = wall_bags(Bags(offsets=[0, 2], counts=[1]), features, class_names=("no", "yes"))
    >>> bag.known, bag.instances[1].caption
    ('1 of 2 yes', 'x0 2')
    """
    found = []
    for bag in bags:
        rows = bag.rows.tolist()
        chosen = inputs[rows] if isinstance(inputs, Tensor) else inputs.load(rows)
        instances = []
        for row, values in zip(rows, chosen.cpu().numpy(), strict=True):
            label = None if truth is None else int(truth[row])
            if values.ndim == 3:
                instances.append(WallInstance(values, "", label))
            else:
                instances.append(WallInstance(None, _features(values, feature_names), label))
        found.append(WallBag(str(bag.id), known_text(bag, class_names), instances))
    return found


def _features(values: NDArray[Any], names: Sequence[str] | None) -> str:
    names = names or [f"x{i}" for i in range(len(values))]
    few = list(zip(names, values.tolist(), strict=True))[:FEATURES]
    return "\n".join(f"{name} {value:.3g}" for name, value in few)


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
