"""A wall of bags, with the predictions of some methods for each instance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from llpkit.report.images import data_uri, is_crisp
from llpkit.report.instances import WallBag
from llpkit.report.predictions import ShownPrediction, expected, shown_prediction
from llpkit.report.style import BOUND

SHOWN = 12  # most instances shown per bag; the others are only counted
STRONGEST = "mle"  # listed first if present


@dataclass(frozen=True)
class ShownInstance:
    """An instance on the page, with one prediction per method."""

    image: str | None
    crisp: bool
    caption: str
    truth: str | None
    predictions: Sequence[ShownPrediction]


@dataclass(frozen=True)
class ShownBag:
    """A bag on the page; ``expected`` and ``right`` have one entry per method.

    A bag with instances left out has no expected count.
    """

    id: str
    known: str
    note: str
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
        bags: The bags, see :func:`llpkit.report.wall_bags`.
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
        """Whether any instance has an image."""
        return any(one.image is not None for bag in self.bags for one in bag.instances)

    @property
    def has_truth(self) -> bool:
        """Whether any prediction is marked right or wrong."""
        return any(bag.checked for bag in self.shown)

    @property
    def example(self) -> ShownBag | None:
        """The first bag with mixed labels and a convenient size, not the most flattering one."""
        mixed = [bag for bag in self.shown if bag.mixed]
        easy = [bag for bag in mixed if 4 <= bag.size <= 8]
        return next(iter(easy or mixed or self.shown), None)

    def _bag(self, b: int) -> ShownBag:
        bag = self.bags[b]
        probabilities = [self._of(self.probability, name, b) for name in self.methods]
        predictions = []
        for name, p in zip(self.methods, probabilities, strict=True):
            phi = self._of(self.posterior, name, b) if name in self.posterior else None
            rows = zip(p, [None] * len(p) if phi is None else phi, bag.instances, strict=True)
            predictions.append(
                [shown_prediction(row, own, one.truth, self.class_names) for row, own, one in rows]
            )
        instances = []
        for i, one in enumerate(bag.instances[:SHOWN]):
            instances.append(
                ShownInstance(
                    image=None if one.image is None else data_uri(one.image),
                    crisp=one.image is not None and is_crisp(one.image),
                    caption=one.caption or f"instance {i + 1} of bag {bag.id}",
                    truth=None if one.truth is None else self.class_names[one.truth],
                    predictions=[of_method[i] for of_method in predictions],
                )
            )
        truths = [one.truth for one in bag.instances if one.truth is not None]
        # Without true labels, the first method decides whether a bag is mixed.
        predicted = {one.label for of_method in predictions[:1] for one in of_method}
        return ShownBag(
            id=bag.id,
            known=bag.known,
            note=bag.note,
            size=len(bag.instances) + bag.left_out,
            instances=instances,
            mixed=len(set(truths) or predicted) > 1,
            checked=len(truths),
            expected=[
                None if bag.left_out else expected(p, self.class_names) for p in probabilities
            ],
            right=[sum(one.right is True for one in r) for r in predictions],
        )

    def _of(self, values: Mapping[str, Sequence[Any]], method: str, b: int) -> NDArray[np.float64]:
        """One method's values for one bag; two columns are reduced to that of the positives."""
        found = np.asarray(values[method][b], np.float64)
        return found[:, 1] if found.ndim == 2 and found.shape[1] == 2 else found


@dataclass(frozen=True)
class Example:
    """One bag of a wall in three steps: its count, the predictions, the truth."""

    wall: Wall
    kind: ClassVar[str] = "example"
