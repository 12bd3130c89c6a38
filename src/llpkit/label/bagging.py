"""Bags for people who have none: by folder, in order of time, at random, or by score."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from llpkit.errors import LLPError

WAYS = ("folder", "time", "random", "score")
COMFORTABLE = 12
"""Items that most people can count at a glance or two."""


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


def by_order(keys: Sequence[float], size: int) -> dict[str, list[int]]:
    """Neighbours in the order of ``keys``, such as times, share a bag."""
    order = np.argsort(np.asarray(keys), kind="stable").tolist()
    return _numbered(even(order, size))


def at_random(number: int, size: int, seed: int) -> dict[str, list[int]]:
    """Items in random bags."""
    order = np.random.default_rng(seed).permutation(number).tolist()
    return _numbered(even(order, size))


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
    number: int,
    size: int,
    seed: int,
    groups: Sequence[str] | None = None,
    times: Sequence[float] | None = None,
) -> Mapping[str, list[int]]:
    """All bags, made in one of the ways; by score they are random until there is a model."""
    if way == "folder":
        if groups is None:
            raise LLPError("these items have no folders; make bags with --bags random")
        return by_group(groups, size)
    if way == "time":
        if times is None:
            raise LLPError("these items have no times; make bags with --bags random")
        return by_order(times, size)
    return at_random(number, size, seed)
