"""From answers to bags that a model can learn from."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from llpkit.bags import Bags
from llpkit.evidence import Evidence
from llpkit.label.store import Answer


class KnownCount(NamedTuple):
    """What is known about one bag."""

    low: int
    high: int
    people: int
    agreed: bool
    """Whether all people gave the same answer."""


def combine(answers: Sequence[Answer]) -> dict[int, KnownCount]:
    """One range per bag, from the lowest to the highest count that anybody gave.

    >>> one, two = (Answer(7, who, count, count, 1.0) for who, count in (("A", 3), ("B", 4)))
    >>> combine([one, two])[7]
    KnownCount(low=3, high=4, people=2, agreed=False)
    """
    by_bag: dict[int, list[Answer]] = {}
    for answer in answers:
        by_bag.setdefault(answer.bag, []).append(answer)
    return {
        bag: KnownCount(
            min(a.low for a in given),
            max(a.high for a in given),
            len(given),
            len({(a.low, a.high) for a in given}) == 1,
        )
        for bag, given in by_bag.items()
    }


class TrainingBag(NamedTuple):
    """A bag as it is learned from: some items, and the range of their count."""

    name: str
    items: list[int]
    low: int
    high: int
    source: int | None
    """The counted bag that it came from; ``None`` for a labelled item."""


def without_labels(
    bags: Mapping[int, Sequence[int]],
    names: Mapping[int, str],
    known: Mapping[int, KnownCount],
    labels: Mapping[int, int],
    item_names: Sequence[str],
) -> list[TrainingBag]:
    r"""Counted bags and labelled items as bags that do not overlap.

    A labelled item leaves its bag and becomes a bag of one, and the bag's count falls by the label.
    Nothing is lost: :math:`P(y, h_i) = P(h_i)\,P(y - h_i \text{ in the other items})`.

    >>> known = {1: KnownCount(2, 2, 1, True)}
    >>> parts = without_labels({1: [0, 1, 2]}, {1: "shelf"}, known, {1: 1}, ["a", "b", "c"])
    >>> [(part.name, part.items, part.low, part.high) for part in parts]
    [('shelf', [0, 2], 1, 1), ('item b', [1], 1, 1)]
    """
    parts = []
    for bag in sorted(known):
        own = [labels[item] for item in bags[bag] if item in labels]
        rest = [item for item in bags[bag] if item not in labels]
        # Labels that contradict the count win: they were given one by one.
        low = min(max(known[bag].low - sum(own), 0), len(rest))
        high = min(max(known[bag].high - sum(own), 0), len(rest))
        if rest:
            parts.append(TrainingBag(names[bag], rest, low, high, bag))
    taken = {part.name for part in parts}
    for item, value in sorted(labels.items()):
        name = f"item {item_names[item]}"
        while name in taken:
            name += "'"
        parts.append(TrainingBag(name, [item], value, value, None))
    return parts


def bags_of(parts: Sequence[TrainingBag], num_items: int) -> Bags:
    """The parts as :class:`~llpkit.Bags` over all items."""
    low, high = ([getattr(part, end) for part in parts] for end in ("low", "high"))
    offsets = np.cumsum([0, *(len(part.items) for part in parts)])
    rows = torch.tensor([item for part in parts for item in part.items], dtype=torch.int64)
    evidence = Evidence.exact(low) if low == high else Evidence.interval(low, high)
    return Bags(offsets, evidence, rows=rows, ids=[p.name for p in parts], num_rows=num_items)
