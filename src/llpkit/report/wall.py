"""A wall of bags: their instances, their known counts, and the predictions for each instance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from llpkit.bags import Bag, Bags
from llpkit.errors import LLPError
from llpkit.report.images import data_uri, is_crisp
from llpkit.report.readings import Reading, expected, named, read
from llpkit.report.style import BOUND

SHOWN = 24  # instances of a bag that are shown; the others are only counted
FEATURES = 4  # of an instance without an image
STRONGEST = "mle"  # comes first if it is there


@dataclass(frozen=True)
class WallInstance:
    """One instance of a bag.

    Args:
        image: uint8 ``(C, H, W)`` with one or three channels, or ``None``.
        caption: Shown in place of an image, such as a few features, one per line; with an image,
            its description.
        truth: The true label, where it is known.
    """

    image: NDArray[np.uint8] | None = None
    caption: str = ""
    truth: int | None = None


@dataclass(frozen=True)
class WallBag:
    """One bag: its id, its known count (``"3 of 7 odd"``) and its instances.

    ``left_out`` is the number of instances of the bag that are not among them.
    """

    id: str
    known: str
    instances: Sequence[WallInstance]
    left_out: int = 0


@dataclass(frozen=True)
class ShownInstance:
    """An instance on the page, with one reading per method."""

    image: str | None
    crisp: bool
    caption: str
    truth: str | None
    readings: Sequence[Reading]


@dataclass(frozen=True)
class ShownBag:
    """A bag on the page; ``expected`` and ``right`` have one entry per method.

    Nothing is expected of a bag with unknown instances.
    """

    id: str
    known: str
    size: int
    instances: Sequence[ShownInstance]
    mixed: bool
    checked: int
    expected: Sequence[str | None]
    right: Sequence[int]


@dataclass(frozen=True)
class Wall:
    """Bags, and the predictions of some methods for them.

    Args:
        bags: The bags, see :func:`wall_bags`.
        class_names: Names of the labels ``0 … K - 1``; negative, then positive, for two.
        probability: For each method one array per bag: ``(n,)``, or ``(n, K)``.
        posterior: The same given the bag's count, for any of these methods.
        note: Which bags these are.
    """

    bags: Sequence[WallBag]
    class_names: Sequence[str]
    probability: Mapping[str, Sequence[Any]]
    posterior: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    note: str = ""
    kind: ClassVar[str] = "wall"

    @property
    def methods(self) -> list[str]:
        """The methods: the strongest first, the upper bound last."""
        learners = [name for name in self.probability if name != BOUND] or list(self.probability)
        first = STRONGEST if STRONGEST in learners else next(iter(learners), None)
        return sorted(self.probability, key=lambda name: (name != first, name == BOUND))

    @cached_property
    def shown(self) -> list[ShownBag]:
        """The bags as they appear on the page."""
        return [self._bag(b) for b in range(len(self.bags))]

    @property
    def has_images(self) -> bool:
        """Whether there is more to see than captions."""
        return any(one.image is not None for bag in self.bags for one in bag.instances)

    @property
    def has_truth(self) -> bool:
        """Whether anything is marked right or wrong."""
        return any(bag.checked for bag in self.shown)

    @property
    def example(self) -> ShownBag | None:
        """The first bag of mixed labels and easy size, not the most flattering one."""
        mixed = [bag for bag in self.shown if bag.mixed]
        easy = [bag for bag in mixed if 4 <= bag.size <= 8]
        return next(iter(easy or mixed or self.shown), None)

    def _bag(self, b: int) -> ShownBag:
        bag = self.bags[b]
        places = [f"instance {i} of bag {bag.id}" for i in range(1, len(bag.instances) + 1)]
        probabilities = [self._of(self.probability, name, b) for name in self.methods]
        readings = []
        for name, p in zip(self.methods, probabilities, strict=True):
            phi = self._of(self.posterior, name, b) if name in self.posterior else None
            rows = zip(
                p, [None] * len(p) if phi is None else phi, bag.instances, places, strict=True
            )
            readings.append(
                [read(row, own, one.truth, self.class_names, at) for row, own, one, at in rows]
            )
        instances = []
        for i, (one, place) in enumerate(zip(bag.instances[:SHOWN], places, strict=False)):
            instances.append(
                ShownInstance(
                    image=None if one.image is None else data_uri(one.image, place),
                    crisp=one.image is not None and is_crisp(one.image),
                    caption=one.caption or place,
                    truth=None if one.truth is None else named(one.truth, self.class_names, place),
                    readings=[of_method[i] for of_method in readings],
                )
            )
        truths = [one.truth for one in bag.instances if one.truth is not None]
        predicted = {reading.label for of_method in readings[:1] for reading in of_method}
        return ShownBag(
            id=bag.id,
            known=bag.known,
            size=len(bag.instances) + bag.left_out,
            instances=instances,
            mixed=len(set(truths) or predicted) > 1,
            checked=len(truths),
            expected=[
                None if bag.left_out else expected(p, self.class_names) for p in probabilities
            ],
            right=[sum(reading.right is True for reading in r) for r in readings],
        )

    def _of(self, values: Mapping[str, Sequence[Any]], method: str, b: int) -> NDArray[np.float64]:
        """One method's values for one bag; two columns are reduced to that of the positives."""
        if len(values[method]) != len(self.bags):
            raise LLPError(
                f"{method} has predictions for {len(values[method])} bags, and the wall has "
                f"{len(self.bags)}; pass one array per bag"
            )
        found = np.asarray(values[method][b], np.float64)
        bag = self.bags[b]
        if len(found) != len(bag.instances):
            raise LLPError(
                f"{method} has {len(found)} predictions for bag {bag.id} of "
                f"{len(bag.instances)} instances; pass one per instance"
            )
        return found[:, 1] if found.ndim == 2 and found.shape[1] == 2 else found


@dataclass(frozen=True)
class Opening:
    """One bag of a wall in three steps: its count, the predictions, the truth."""

    wall: Wall
    kind: ClassVar[str] = "opening"


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
