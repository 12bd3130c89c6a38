"""The data set class: inputs by row, bags over those rows, and true labels for evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit._registry import did_you_mean
from llpkit._text import several
from llpkit.bags import Bags, random_bags
from llpkit.datasets.images import ImageFiles, Inputs
from llpkit.errors import LLPError
from llpkit.tables.features import FeatureEncoder

BagSize = int | tuple[int, int]
"""Instances per random bag: a number, or the ends of the range that sizes are drawn from."""

PAPER_SIZES = (1, 12)
"""The bag sizes of the paper's CIFAR-10 experiment, and the default for random bags."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """A table of instances, the bags they are in, and their true labels if known.

    Args:
        name: The data set's key.
        inputs: One entry per row: uint8 images ``(R, C, H, W)``, float features ``(R, D)``, or
            :class:`ImageFiles`. ``inputs[bags.rows]`` are in the order of the engine.
        bags: The bags over these rows.
        truth: True labels, int64 ``(R,)``, only for evaluation and supervised training; ``None``
            if unknown.
        class_names: Names of the labels 0, 1, …
        notes: Notes for the user: where the data came from, what was left out.
        encoder: Turned table columns into features; applied again to tables for prediction.
        test: The data set's own test split, bool ``(R,)``; ``None`` if it has none.
    """

    name: str
    inputs: Inputs
    bags: Bags
    truth: Tensor | None
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    encoder: FeatureEncoder | None = None
    test: Tensor | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.inputs), self.bags.num_rows}
        if self.truth is not None:
            lengths.add(len(self.truth))
        if len(lengths) > 1:
            raise LLPError(f"inputs, bags and truth of {self.name} have {lengths} rows")
        if len(self.class_names) != (self.bags.num_classes or 2):
            raise LLPError(
                f"class_names = {self.class_names} but there are {self.bags.num_classes or 2} "
                "classes; give one name per class"
            )

    def __repr__(self) -> str:
        return f"DataSet({self.name!r}, {self._inputs()}, {self.bags})"

    @property
    def title(self) -> str:
        """The name, and the number and shape of the inputs."""
        return f"{self.name}: {self._inputs()}"

    def _inputs(self) -> str:
        rows, *shape = self.inputs.shape
        if isinstance(self.inputs, ImageFiles) or len(shape) == 3:
            return f"{several(rows, 'image')} of {' x '.join(map(str, shape))}"
        return f"{several(rows, 'row')} of {several(shape[0], 'feature')}"


def in_random_bags(
    name: str,
    inputs: Tensor,
    labels: Tensor,
    class_names: Sequence[str],
    bag_size: BagSize | None,
    seed: int | torch.Generator,
    notes: Sequence[str] = (),
    test: Tensor | None = None,
) -> DataSet:
    """A labelled table in random bags; with more than two classes every class is counted."""
    num_classes = len(class_names) if len(class_names) > 2 else None
    low, high = PAPER_SIZES
    # A table may have fewer rows than the largest default size.
    size = (low, min(high, len(labels))) if bag_size is None else bag_size
    bags = random_bags(labels, size, generator=seed, num_classes=num_classes)
    return DataSet(name, inputs, bags, labels, tuple(class_names), tuple(notes), test=test)


def chosen_classes(classes: str | Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Two or more of the known classes, in the given order; a string is split at commas.

    >>> chosen_classes("cat, Bird", known=["bird", "cat", "deer"])
    ('cat', 'bird')
    """
    parts = classes.split(",") if isinstance(classes, str) else classes
    if not isinstance(parts, Sequence):
        raise LLPError(f"classes = {classes!r}; give the names of two classes or more")
    plain = {name.casefold(): name for name in known}
    names = [str(part).strip() for part in parts]
    for name in names:
        if name.casefold() not in plain:
            raise LLPError(f"classes has {name!r}; {did_you_mean(name, known)}")
    chosen = tuple(plain[name.casefold()] for name in names)
    if len(chosen) < 2 or len(set(chosen)) < len(chosen):
        raise LLPError(f"classes = {', '.join(chosen)}; give two different classes or more")
    return chosen


def only_classes(
    labels: NDArray[np.uint8], names: Sequence[str], known: Sequence[str]
) -> tuple[NDArray[np.bool_], Tensor]:
    """Which rows belong to the named classes, and the labels ``0 … K - 1`` of those rows."""
    label_of = np.full(len(known), -1)
    label_of[[known.index(name) for name in names]] = range(len(names))
    chosen = label_of[labels]
    keep = chosen >= 0
    return keep, torch.from_numpy(chosen[keep])
