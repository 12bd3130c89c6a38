"""A wall of bags, with the predictions of some methods for each instance."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from llpkit.report.instances import WallBag


@dataclass(frozen=True)
class Prediction:
    """What a method predicts for an instance, as text.

    ``share`` is the length of its bar: the probability of the positive class, or of ``label`` with
    more than two classes.
    """

    label: str
    share: str
    text: str
    posterior_share: str | None
    posterior_text: str | None
    right: bool | None


@dataclass(frozen=True)
class BagPredictions:
    """What a method predicts for a bag.

    ``expected`` is the expected count; a bag with instances left out has none. ``right`` is the
    number of instances whose label is known and predicted.
    """

    instances: Sequence[Prediction]
    expected: str | None
    right: int


@dataclass(frozen=True)
class Wall:
    """Bags, and the predictions of some methods for them.

    Args:
        bags: The bags; see :func:`llpkit.report.wall_bags`.
        class_names: Names of the labels ``0 … K - 1``; negative, then positive, for two.
        probability: For each method one array per bag: ``(n,)``, or ``(n, K)``.
        posterior: The same given the bag's count, for any of these methods.
        note: Which bags these are.
        bounds: The methods that were trained with labels, and come last.
    """

    bags: Sequence[WallBag]
    class_names: Sequence[str]
    probability: Mapping[str, Sequence[Any]]
    posterior: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    note: str = ""
    bounds: Collection[str] = ()
    kind: ClassVar[str] = "wall"

    @property
    def methods(self) -> list[str]:
        """The methods, upper bounds last."""
        return sorted(self.probability, key=lambda name: name in self.bounds)

    @cached_property
    def shown(self) -> list[tuple[WallBag, list[BagPredictions]]]:
        """Every bag with the predictions of each method."""
        return [
            (bag, [self._predicted(method, bag, b) for method in self.methods])
            for b, bag in enumerate(self.bags)
        ]

    @property
    def has_images(self) -> bool:
        """Whether any instance has an image."""
        return any(one.image is not None for bag in self.bags for one in bag.instances)

    @property
    def has_truth(self) -> bool:
        """Whether any prediction is marked right or wrong."""
        return any(bag.truths for bag in self.bags)

    @property
    def example(self) -> tuple[WallBag, list[BagPredictions]] | None:
        """The first bag with mixed labels and a convenient size, not the most flattering one."""
        mixed = [each for each in self.shown if _mixed(*each)]
        easy = [each for each in mixed if 4 <= len(each[0].instances) + each[0].left_out <= 8]
        return next(iter(easy or mixed or self.shown), None)

    def _predicted(self, method: str, bag: WallBag, b: int) -> BagPredictions:
        p = _of_positives(self.probability[method][b])
        given: Any = [None] * len(p)
        if method in self.posterior:
            given = _of_positives(self.posterior[method][b])
        found = [
            prediction(row, own, one.truth, self.class_names)
            for row, own, one in zip(p, given, bag.instances, strict=True)
        ]
        count = None if bag.left_out else expected(p, self.class_names)
        return BagPredictions(found, count, sum(one.right is True for one in found))


def _of_positives(values: Any) -> NDArray[np.float64]:
    """The values for one bag; two columns are reduced to that of the positives."""
    found = np.asarray(values, np.float64)
    return found[:, 1] if found.ndim == 2 and found.shape[1] == 2 else found


def _mixed(bag: WallBag, predicted: Sequence[BagPredictions]) -> bool:
    """Whether labels differ. Without true ones, those of the first method count."""
    labels = [one.label for method in predicted[:1] for one in method.instances]
    return len(set(bag.truths or labels)) > 1


@dataclass(frozen=True)
class Example:
    """One bag of a wall in three steps: its count, the predictions, the truth."""

    wall: Wall
    kind: ClassVar[str] = "example"


def prediction(
    probability: Any, posterior: Any, truth: int | None, class_names: Sequence[str]
) -> Prediction:
    """Describe a probability, or one per class."""
    p = np.atleast_1d(probability)
    if len(p) == 1:
        label, shown, of = int(p[0] >= 0.5), 0, 1
    else:
        label = shown = of = int(p.argmax())
    phi = None if posterior is None else float(np.atleast_1d(posterior)[shown])
    return Prediction(
        label=class_names[label],
        share=_share(p[shown]),
        text=f"{class_names[of]} {percent(p[shown])}",
        posterior_share=None if phi is None else _share(phi),
        posterior_text=None if phi is None else percent(phi),
        right=None if truth is None else label == truth,
    )


def expected(probability: Any, class_names: Sequence[str]) -> str:
    """The expected counts of a bag: sums of probabilities, as known counts are sums of labels.

    The number of instances per predicted label would be misleading next to a known count: of 100
    instances with probability 0.4, none is labelled positive but 40 are expected to be.
    """
    rows = np.asarray(probability)
    if rows.ndim == 1:
        return f"{math.fsum(rows):.1f} of {len(rows)} {class_names[1]}"
    totals = zip(rows.sum(0), class_names, strict=True)
    return ", ".join(f"{total:.1f} {name}" for total, name in totals)


def percent(p: float) -> str:
    """A probability in whole percent that never claims certainty."""
    if p > 0.99:
        return ">99%"
    if p < 0.01:
        return "<1%"
    return f"{100 * p:.0f}%"


def _share(p: float) -> str:
    return f"{100 * min(max(p, 0.0), 1.0):.1f}%"
