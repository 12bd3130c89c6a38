"""Bags for people who have none: by folder, time, similarity or score, or at random."""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from llpkit._text import several
from llpkit._validation import option
from llpkit.errors import LLPError

WAYS = ("folder", "time", "alike", "random", "score")
COMFORTABLE = 12
"""Items that most people can count at a glance or two."""
_LARGE = 50  # items; more are tedious to count
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


def remarks(groups: Sequence[str], size: int) -> list[str]:
    """What a user should know of their own bags when :func:`by_group` gets them.

    >>> remarks(["a", "b", "a", "a"], size=2)
    ['1 of 2 bags has more than size=2 items and is divided; leave size out to keep it whole']
    """
    sizes = Counter(groups)
    divided = sum(number > size for number in sizes.values())
    if divided:
        has, it = ("has", "it") if divided == 1 else ("have", "them")
        return [
            f"{divided} of {several(len(sizes), 'bag')} {has} more than {option('size', size)} "
            f"items and {'is' if divided == 1 else 'are'} divided; leave {option('size')} out to "
            f"keep {it} whole"
        ]
    large = sum(number > _LARGE for number in sizes.values())
    if large:
        name, most = sizes.most_common(1)[0]
        return [
            f"{large} of {several(len(sizes), 'bag')} {'is' if large == 1 else 'are'} large to "
            f"count: the largest, {name}, has {most:,} items. To divide bags, give "
            f"{option('size', COMFORTABLE)} in a new project"
        ]
    return []


def by_order(keys: Sequence[float] | NDArray[np.floating], size: int) -> list[list[int]]:
    """Neighbours in the order of ``keys``, such as times or scores, share a bag."""
    return even(np.argsort(np.asarray(keys), kind="stable").tolist(), size)


def by_likeness(features: NDArray[np.floating], size: int) -> list[list[int]]:
    """Items with similar features share a bag: the items are halved recursively.

    A count of identical items is worth as many labels as there are items; a count of very different
    items is worth one or two (:func:`llpkit.statistics.bag_information`).

    >>> by_likeness(np.array([[1.0, 0.0], [9.0, 0.0], [2.0, 0.0], [8.0, 0.0]]), size=2)
    [[0, 2], [3, 1]]
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
    return pieces


def even(items: Sequence[int], size: int) -> list[list[int]]:
    """As few pieces as possible with at most ``size`` items; their sizes differ by one at most.

    >>> even(range(7), 3)
    [[0, 1, 2], [3, 4], [5, 6]]
    """
    if not items:
        return []
    number = -(-len(items) // size)
    return [list(map(int, piece)) for piece in np.array_split(np.asarray(items), number)]


def numbered_name(number: int) -> str:
    """The name of a bag that has no other.

    >>> numbered_name(7)
    'bag 0007'
    """
    return f"bag {number:04d}"


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
    """Divide the free items into named bags.

    Args:
        way: ``"folder"``, ``"time"``, ``"alike"`` or ``"random"``.
        free: The items to divide.
        size: The largest size of a bag.
        seed: Seed for random bags.
        groups: The folder of every item, free or not.
        times: When every item was made.
        features: The features of every item.
        taken: The names of existing bags.
    """
    if way == "folder":
        if groups is None:
            raise LLPError(f"these items have no folders; make bags with {option('way', 'random')}")
        named = by_group([groups[i] for i in free], size)
    else:
        if way == "time":
            if times is None:
                raise LLPError(
                    f"these items have no times; make bags with {option('way', 'random')}"
                )
            pieces = by_order([times[i] for i in free], size)
        elif way == "alike":
            assert features is not None  # a project has them for this
            pieces = by_likeness(features[list(free)], size)
        else:
            order = np.random.default_rng(seed).permutation(len(free)).tolist()
            pieces = even(order, size)
        named = {numbered_name(i): piece for i, piece in enumerate(pieces, len(taken) + 1)}
    bags: dict[str, list[int]] = {}
    for name, piece in named.items():
        while name in taken or name in bags:
            name += ", added"  # to a folder some of whose items are in bags already
        bags[name] = [free[i] for i in piece]
    return bags
