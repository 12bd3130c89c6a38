"""The wall as a reader sees it: each instance once, with every method's word on it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from llpkit.errors import LLPError
from llpkit.report._data import BOUND
from llpkit.report._wall import WallBag, WallInstance, data_uri, is_crisp

SHOWN = 24  # instances of a bag that are shown; the rest are counted in words
STRONGEST = "mle"  # stands in front where it took part


@dataclass(frozen=True)
class Reading:
    """What one method says of one instance.

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
class SeenInstance:
    """One instance and its readings, one a method."""

    image: str | None
    crisp: bool
    caption: str
    truth: str | None
    readings: Sequence[Reading]


@dataclass(frozen=True)
class SeenBag:
    """One bag; ``checked`` of its instances have a known truth.

    ``expected``, counts in words, and ``right`` have one entry per method.
    """

    id: str
    known: str
    size: int
    instances: Sequence[SeenInstance]
    mixed: bool
    checked: int
    expected: Sequence[str]
    right: Sequence[int]

    @property
    def hidden(self) -> int:
        """Instances that are not shown."""
        return self.size - len(self.instances)


@dataclass(frozen=True)
class SeenWall:
    """All of it, and what there is to explain."""

    methods: Sequence[str]
    bags: Sequence[SeenBag]

    @property
    def example(self) -> SeenBag | None:
        """The first bag of mixed labels and easy size, not the one that looks best."""
        if self.methods[:1] == [BOUND]:
            return None  # nobody learnt from counts
        mixed = [bag for bag in self.bags if bag.mixed]
        easy = [bag for bag in mixed if 4 <= bag.size <= 8]
        return next(iter(easy or mixed or self.bags), None)

    @property
    def _instances(self) -> list[SeenInstance]:
        return [instance for bag in self.bags for instance in bag.instances]

    @property
    def has_images(self) -> bool:
        """Whether there is anything to see but captions."""
        return any(instance.image for instance in self._instances)

    @property
    def has_truth(self) -> bool:
        """Whether anything is marked right or wrong."""
        return any(bag.checked for bag in self.bags)

    @property
    def has_posterior(self) -> bool:
        """Whether there are posteriors beside the probabilities."""
        return any(r.posterior_text for instance in self._instances for r in instance.readings)


def view_wall(
    wall: Mapping[str, Sequence[WallBag]], class_names: Sequence[str], threshold: float
) -> SeenWall:
    """Put the walls of several methods into one; they must hold the same bags."""
    learners = [name for name in wall if name != BOUND] or list(wall)
    first = STRONGEST if STRONGEST in wall else next(iter(learners), None)
    methods = sorted(wall, key=lambda name: (name != first, name == BOUND))
    shapes = {name: [(bag.id, len(bag.instances)) for bag in wall[name]] for name in methods}
    for name in methods:
        if shapes[name] != shapes[methods[0]]:
            raise LLPError(
                f"the wall of {name} has {_some(shapes[name])}, that of {methods[0]} has "
                f"{_some(shapes[methods[0]])}; pass every method the same bags"
            )
    reader = _Reader(class_names, threshold)
    columns = zip(*(wall[name] for name in methods), strict=True)
    return SeenWall(methods, [reader.bag(bags) for bags in columns])


def _some(shape: Sequence[tuple[str, int]]) -> str:
    bags = [f"bag {name!r} of {size}" for name, size in shape[:3]]
    return ", ".join([*bags, "…"] if len(shape) > 3 else bags) or "no bags"


@dataclass(frozen=True)
class _Reader:
    """Turns probabilities into words."""

    class_names: Sequence[str]
    threshold: float

    def bag(self, bags: Sequence[WallBag]) -> SeenBag:
        """One bag, as each method sees it."""
        first = bags[0]
        readings = [
            [self.reading(one, _place(bag, i)) for i, one in enumerate(bag.instances)]
            for bag in bags
        ]
        shown = [
            self.instance(one, _place(first, i), [of_method[i] for of_method in readings])
            for i, one in enumerate(first.instances[:SHOWN])
        ]
        truths = [one.truth for one in first.instances if one.truth is not None]
        return SeenBag(
            id=first.id,
            known=first.known,
            size=len(first.instances),
            instances=shown,
            mixed=len(set(truths or (reading.label for reading in readings[0]))) > 1,
            checked=len(truths),
            expected=[self.expected(bag) for bag in bags],
            right=[sum(reading.right is True for reading in r) for r in readings],
        )

    def instance(self, one: WallInstance, place: str, readings: Sequence[Reading]) -> SeenInstance:
        """One instance with what is said of it."""
        return SeenInstance(
            image=None if one.image is None else data_uri(one.image, place),
            crisp=one.image is not None and is_crisp(one.image),
            caption=one.caption or place,
            truth=None if one.truth is None else self.name(one.truth, place),
            readings=readings,
        )

    def reading(self, one: WallInstance, place: str) -> Reading:
        """What one method says of one instance."""
        probability = self.probabilities(one.probability, place)
        if len(probability) == 1:
            label, shown = int(probability[0] >= self.threshold), 0
            named = self.name(1, place)
        else:
            label = shown = max(range(len(probability)), key=probability.__getitem__)
            named = self.name(label, place)
        posterior = None
        if one.posterior is not None:
            posterior = self.probabilities(one.posterior, place)[shown]
        return Reading(
            label=self.name(label, place),
            share=_share(probability[shown]),
            text=f"{named} {percent(probability[shown])}",
            posterior_share=None if posterior is None else _share(posterior),
            posterior_text=None if posterior is None else percent(posterior),
            right=None if one.truth is None else label == one.truth,
        )

    def probabilities(self, value: float | Sequence[float], place: str) -> list[float]:
        """One number for two classes, else one a class."""
        values = [float(p) for p in np.atleast_1d(np.asarray(value))]
        if not all(math.isfinite(p) and -1e-6 <= p <= 1 + 1e-6 for p in values):
            raise LLPError(f"the probability of {place} is {value}; it must lie in 0 … 1")
        return values[1:] if len(values) == 2 else values

    def expected(self, bag: WallBag) -> str:
        """The counts that a method expects: sums of probabilities, as the known ones are of labels.

        The number of instances with a label would not do beside a known count: of 100 instances
        with a probability of 0.4 none is called positive, and 40 are expected.
        """
        rows = [
            self.probabilities(one.probability, _place(bag, i))
            for i, one in enumerate(bag.instances)
        ]
        totals = [f"{math.fsum(column):.1f}" for column in zip(*rows, strict=True)]
        if len(self.class_names) == 2:
            return f"{totals[0] if totals else '0.0'} of {len(rows)} {self.class_names[1]}"
        return ", ".join(f"{n} {name}" for n, name in zip(totals, self.class_names, strict=False))

    def name(self, label: int, place: str) -> str:
        """A label's name."""
        if not 0 <= label < len(self.class_names):
            raise LLPError(
                f"{place} has label {label}, but there are {len(self.class_names)} class names "
                f"{tuple(self.class_names)}; name every class"
            )
        return self.class_names[label]


def _place(bag: WallBag, i: int) -> str:
    return f"instance {i + 1} of bag {bag.id}"


def _share(p: float) -> str:
    return f"{100 * min(max(p, 0.0), 1.0):.1f}%"


def percent(p: float) -> str:
    """A probability in whole per cent that never claims certainty."""
    if p > 0.99:
        return ">99%"
    if p < 0.01:
        return "<1%"
    return f"{100 * p:.0f}%"
