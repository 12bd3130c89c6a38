"""Bags for people who have none: by folder, time, likeness or score, or at random."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from llpkit.errors import LLPError

WAYS = ("folder", "time", "alike", "random", "score")
COMFORTABLE = 12
"""Items that most people can count at a glance or two."""
_ENOUGH = 12  # bags; from fewer, models learn next to nothing


def usual_size(number: int) -> int:
    """The largest size of a bag by default: comfortable, but smaller for few items.

    >>> [usual_size(number) for number in (1, 20, 60, 1000)]
    [1, 2, 5, 12]
    """
    return min(COMFORTABLE, max(2, number // _ENOUGH), number)


def by_group(groups: Sequence[str], size: int) -> dict[str, list[int]]:
    """One bag per group; a group larger than ``size`` is divided into bags of similar sizes.

    >>> by_group(["a", "b", "a", "a"], size=2)
    {'a (1)': [0, 2], 'a (2)': [3], 'b': [1]}
    """
    members: dict[str, list[int]] = {}
    for item, group in enumerate(groups):
        members.setdefault(group, []).append(item)
    found: dict[str, list[int]] = {}
    for group in sorted(members):
        pieces = even(members[group], size)
        if len(pieces) == 1:
            found[group] = pieces[0]
        else:
            found |= {f"{group} ({i})": piece for i, piece in enumerate(pieces, 1)}
    return found


def by_order(keys: Sequence[float], size: int, first: int = 1) -> dict[str, list[int]]:
    """Neighbours in the order of ``keys``, such as times, share a bag."""
    order = np.argsort(np.asarray(keys), kind="stable").tolist()
    return _numbered(even(order, size), first)


def by_likeness(features: NDArray[np.floating], size: int, first: int = 1) -> dict[str, list[int]]:
    """Items with similar features share a bag: all items are halved again and again.

    The count of equal items is worth as much as the label of each, that of very different items no
    more than one or two labels (:func:`llpkit.statistics.bag_information`).

    >>> by_likeness(np.array([[1.0, 0.0], [9.0, 0.0], [2.0, 0.0], [8.0, 0.0]]), size=2)
    {'bag 0001': [0, 2], 'bag 0002': [3, 1]}
    """
    pieces: list[list[int]] = []

    def divide(items: NDArray[np.int64]) -> None:
        number = -(-len(items) // size)
        if number <= 1:
            pieces.append(items.tolist())
            return
        centred = features[items] - features[items].mean(0)
        direction = np.linalg.svd(centred, full_matrices=False)[2][0]
        # The sign of a direction is arbitrary; the largest entry decides.
        direction = direction * np.sign(direction[np.abs(direction).argmax()])
        order = items[np.argsort(centred @ direction, kind="stable")]
        cut = round(len(items) * (number // 2) / number)
        divide(order[:cut])
        divide(order[cut:])

    divide(np.arange(len(features)))
    return _numbered(pieces, first)


def at_random(number: int, size: int, seed: int, first: int = 1) -> dict[str, list[int]]:
    """Items in random bags."""
    order = np.random.default_rng(seed).permutation(number).tolist()
    return _numbered(even(order, size), first)


def by_score(
    scores: NDArray[np.floating], free: Sequence[int], size: int, first: int
) -> dict[str, list[int]]:
    """Bags of the free items, neighbours in score together.

    Bags whose items have similar scores differ most from bag to bag, so that their counts say more
    about what the scores mean than those of mixed bags do.

    Args:
        scores: The model's logit of every item.
        free: The items to distribute.
        size: The size of a bag.
        first: The number of the first bag, for its name.
    """
    order = sorted(free, key=lambda item: float(scores[item]))
    return _numbered(even(order, size), first)


def even(items: Sequence[int], size: int) -> list[list[int]]:
    """As few pieces as possible with at most ``size`` items; their sizes differ by one at most.

    >>> even(range(7), 3)
    [[0, 1, 2], [3, 4], [5, 6]]
    """
    if not items:
        return []
    number = -(-len(items) // size)
    return [list(map(int, piece)) for piece in np.array_split(np.asarray(items), number)]


def _numbered(pieces: Sequence[list[int]], first: int = 1) -> dict[str, list[int]]:
    return {f"bag {number:04d}": piece for number, piece in enumerate(pieces, first)}


def make(
    way: str,
    free: Sequence[int],
    size: int,
    seed: int,
    groups: Sequence[str] | None = None,
    times: Sequence[float] | None = None,
    features: NDArray[np.floating] | None = None,
    taken: Collection[str] = (),
) -> dict[str, list[int]]:
    """Bags of the free items, made in one of the ways.

    Args:
        way: ``"folder"``, ``"time"``, ``"alike"`` or ``"random"``.
        free: The items to distribute.
        size: The largest size of a bag.
        seed: Of random bags.
        groups: The folder of every item, free or not.
        times: When every item was made.
        features: Those of every item.
        taken: The names of the bags that there are already.
    """
    first = len(taken) + 1
    if way == "folder":
        if groups is None:
            raise LLPError("these items have no folders; make bags with --bags random")
        made = by_group([groups[i] for i in free], size)
    elif way == "time":
        if times is None:
            raise LLPError("these items have no times; make bags with --bags random")
        made = by_order([times[i] for i in free], size, first)
    elif way == "alike":
        if features is None:
            raise LLPError("these items have no features; make bags with --bags random")
        made = by_likeness(features[list(free)], size, first)
    else:
        made = at_random(len(free), size, seed, first)
    found: dict[str, list[int]] = {}
    for name, places in made.items():
        while name in taken or name in found:
            name += ", added"  # to a folder some of whose items are in bags already
        found[name] = [free[i] for i in places]
    return found
