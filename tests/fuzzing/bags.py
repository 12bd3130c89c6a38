"""Builders of bags against dictionaries: which rows are in which bag, and with which count.

One case is one call: a builder, an index, a split, or one of these with junk.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
import torch

from fuzzing.scoring import Score, answer, fail, must_refuse
from llpkit import Bags, Evidence, random_bags

Counts = dict[Hashable, tuple[int, ...]]
"""The counts of each bag: one number for binary counts, else one per class."""


class Drawn(NamedTuple):
    """A table, and what its bags must be, found out by dictionaries alone."""

    labels: np.ndarray
    groups: list[Hashable]  # the bag id of every row
    classes: int | None  # None for binary counts
    rows: dict[Hashable, list[int]]
    counts: Counts


def case(rng: np.random.Generator, score: Score) -> None:
    """One round: some bags, everything that can be done with them, and junk."""
    drawn = _draw(rng)
    _from_labels(rng, drawn, score)
    bags = _from_groups(rng, drawn, score)
    _from_proportions(rng, drawn, score)
    _parts(rng, drawn, bags, score)
    _random(rng, drawn, score)
    for _ in range(5):
        _junk(rng, drawn, bags, score)


# Reference


def _draw(rng: np.random.Generator) -> Drawn:
    n = int(rng.integers(1, 40))
    classes = None if rng.random() < 0.6 else int(rng.integers(2, 5))
    labels = rng.integers(0, classes or 2, n)
    number = int(rng.integers(1, n + 1))
    kinds: list[list[Hashable]] = [
        [int(v) for v in rng.permutation(100)[:number]],
        [int(v) - 50 for v in rng.permutation(100)[:number]],
        list(range(number)),
        [f"bag {v}" for v in rng.permutation(number)],
        [float(v) / 4 for v in rng.permutation(number)],
        [(int(v), "x") for v in rng.permutation(number)],
        ["", " ", "a", "A", "é", "\n", "0", "00", "nan", "None"][:number],
        [True, False],
        [0, "0", (0,), frozenset([1]), b"0", 1.5][:number],
        [
            np.datetime64("2020-01-01") + np.timedelta64(int(v), "D")
            for v in rng.permutation(number)
        ],
    ]
    ids = kinds[rng.integers(len(kinds))]
    groups = [ids[i] for i in rng.integers(0, len(ids), n)]
    rows: dict[Hashable, list[int]] = {}
    for row, name in enumerate(groups):
        rows.setdefault(name, []).append(row)
    counts = {}
    for name, own in rows.items():
        found = [int(labels[row]) for row in own]
        if classes is None:
            counts[name] = (found.count(1),)
        else:
            counts[name] = tuple(found.count(k) for k in range(classes))
    return Drawn(labels, groups, classes, rows, counts)


def _sorted_ids(rows: dict[Hashable, list[int]]) -> list[Any] | None:
    """The distinct ids in rising order; ``None`` where they have none."""
    kinds = {type(name) for name in rows}
    if len(kinds) > 1 or kinds == {frozenset}:
        return None
    return sorted(rows)  # type: ignore[type-var]


def _shown(counts: tuple[int, ...]) -> Any:
    return counts[0] if len(counts) == 1 else list(counts)


def _spelt(rng: np.random.Generator, groups: list[Hashable]) -> Any:
    """The same ids as a list, an array, a tensor, a Series."""
    kinds = {type(name) for name in groups}
    ways: list[Callable[[], Any]] = [lambda: list(groups), lambda: tuple(groups)]
    if kinds <= {int} or kinds <= {float} or kinds <= {str} or kinds <= {bool}:
        ways.append(lambda: np.array(groups))
    if kinds <= {int} or kinds <= {float}:
        ways.append(lambda: torch.tensor(groups))
    if kinds <= {int} and min(groups) >= 0:  # type: ignore[type-var, operator]
        ways.append(lambda: np.array(groups, dtype=np.uint8))
    if kinds <= {int} or kinds <= {str} or kinds <= {float}:
        import pandas as pd

        ways.append(lambda: pd.Series(groups, index=range(len(groups))[::-1]))
    if len({type(name) for name in groups}) > 1 or kinds <= {str}:
        ways.append(lambda: _objects(groups))
    return ways[rng.integers(len(ways))]()


def _objects(items: list[Any]) -> np.ndarray:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def _same(
    bags: Bags, rows: dict[Hashable, list[int]], counts: Counts, num_rows: int, /, **info: Any
) -> None:
    """Bags hold exactly these rows with these counts."""
    if len(bags) != len(rows) or bags.num_rows != num_rows:
        fail("another number of bags or rows", got=bags, **info)
    if len(set(bags.ids)) != len(rows):
        fail("ids repeat", got=bags.ids, **info)
    for number, bag in enumerate(bags):
        if bag.id not in rows:
            fail(f"an id of nobody: {bag.id!r}", **info)
        want = counts[bag.id]
        if bag.rows.tolist() != rows[bag.id]:
            fail(f"rows of bag {bag.id!r} = {bag.rows.tolist()}, not {rows[bag.id]}", **info)
        shown = want[0] if len(want) == 1 else want
        if bag.count != shown or bag.size != len(rows[bag.id]):
            fail(f"count of bag {bag.id!r} = {bag.count}, not {shown}", **info)
        part = bags.rows[bags.offsets[number] : bags.offsets[number + 1]]
        if part.tolist() != rows[bag.id] or bags.sizes[number] != bag.size:
            fail(f"offsets of bag {bag.id!r} are wrong", **info)
    share = bags.proportions.tolist()
    for number, name in enumerate(bags.ids):
        want = [c / len(rows[name]) for c in counts[name]]
        got = share[number] if len(want) > 1 else [share[number]]
        if not np.allclose(got, want, rtol=0, atol=1e-15):
            fail(f"proportions of bag {name!r} = {got}, not {want}", **info)


# Builders


def _from_labels(rng: np.random.Generator, drawn: Drawn, score: Score) -> None:
    labels, groups, classes, rows, counts = drawn
    ways: list[Any] = [labels, labels.tolist(), torch.tensor(labels), labels.astype(np.uint8)]
    ways += [labels.astype(float)] + ([labels.astype(bool)] if classes is None else [])
    truth, ids = ways[rng.integers(len(ways))], _spelt(rng, groups)
    info = {"call": "from_labels", "labels": truth, "groups": ids, "num_classes": classes}
    bags = answer(lambda: Bags.from_labels(truth, ids, num_classes=classes), **info)
    _same(bags, rows, counts, len(labels), **info)
    score.confirm()


def _from_groups(rng: np.random.Generator, drawn: Drawn, score: Score) -> Bags:
    _, groups, classes, rows, counts = drawn
    names = list(rows)
    shuffled = [names[i] for i in rng.permutation(len(names))]
    mapping = {name: _shown(counts[name]) for name in shuffled}
    ids = _spelt(rng, groups)
    info = {"call": "from_groups", "groups": ids, "counts": mapping}
    bags = answer(lambda: Bags.from_groups(ids, mapping), **info)
    _same(bags, rows, counts, len(groups), **info)
    score.confirm()

    if classes is None and {type(name) for name in names} in ({int}, {str}):
        import pandas as pd

        series = pd.Series([counts[name][0] for name in shuffled], index=shuffled)
        info = {"call": "from_groups", "groups": ids, "counts": series}
        _same(
            answer(lambda: Bags.from_groups(ids, series), **info), rows, counts, len(groups), **info
        )
        score.confirm()

    given = np.array([_shown(counts[name]) for name in shuffled])
    given = Evidence.exact(given) if rng.random() < 0.3 else given  # type: ignore[assignment]
    info = {"call": "from_groups", "groups": ids, "counts": given, "ids": shuffled}
    found = answer(lambda: Bags.from_groups(ids, given, ids=shuffled), **info)
    _same(found, rows, counts, len(groups), **info)
    score.confirm()

    # An array alone is in the order of the sorted distinct ids.
    order = _sorted_ids(rows)
    if order is None and len(rows) > 1:
        array = np.array([_shown(counts[name]) for name in names])
        info = {"call": "from_groups", "groups": ids, "counts": array}
        must_refuse(lambda: Bags.from_groups(ids, array), score, **info)
    elif order is not None:
        array = np.array([_shown(counts[name]) for name in order])
        plain = np.unique(ids) if isinstance(ids, np.ndarray) and ids.dtype != object else None
        if plain is not None and plain.tolist() != order:
            fail("the fuzzer's own order is not that of np.unique", groups=ids)
        info = {"call": "from_groups", "groups": ids, "counts": array}
        found = answer(lambda: Bags.from_groups(ids, array), **info)
        _same(found, rows, counts, len(groups), **info)
        score.confirm()
    return bags


def _from_proportions(rng: np.random.Generator, drawn: Drawn, score: Score) -> None:
    _, groups, classes, rows, counts = drawn
    share = {name: [c / len(rows[name]) for c in counts[name]] for name in rows}
    mapping = {name: p[0] if classes is None else p for name, p in share.items()}
    ids = _spelt(rng, groups)
    info = {"call": "from_proportions", "groups": ids, "proportions": mapping}
    bags = answer(lambda: Bags.from_proportions(ids, mapping), **info)
    _same(bags, rows, counts, len(groups), **info)
    score.confirm()
    decimals = int(rng.integers(0, 6))
    rounded = {n: [round(v, decimals) for v in p] for n, p in share.items()}
    info = {**info, "proportions": rounded, "decimals": decimals}
    mapping = {name: p[0] if classes is None else p for name, p in rounded.items()}
    bags = answer(lambda: Bags.from_proportions(ids, mapping, decimals=decimals), **info)
    for bag in bags:
        n = len(rows[bag.id])
        low = bag.low if isinstance(bag.low, tuple) else (bag.low,)
        high = bag.high if isinstance(bag.high, tuple) else (bag.high,)
        for a, b, p, y in zip(low, high, rounded[bag.id], counts[bag.id], strict=True):
            reach = n * 0.5 * 10.0**-decimals
            fits = [k for k in range(n + 1) if abs(k - n * p) <= reach + 1e-6]
            sure = [k for k in range(n + 1) if abs(k - n * p) <= reach - 1e-6]
            if not a <= y <= b or a not in fits or b not in fits:
                fail(f"counts of bag {bag.id!r} are {a} to {b}, expected {fits}", **info)
            if sure and (a > sure[0] or b < sure[-1]):
                fail(f"counts of bag {bag.id!r} are {a} to {b}, expected {sure}", **info)
    score.confirm()


def _parts(rng: np.random.Generator, drawn: Drawn, bags: Bags, score: Score) -> None:
    """Indexing, splits, folds, shuffles and joins keep bags whole."""
    rows, counts = drawn.rows, drawn.counts
    number = len(bags)
    table = bags.num_rows

    def some(part: Bags, names: list[Hashable], /, **info: Any) -> None:
        if list(part.ids) != names:
            fail(f"ids are {part.ids}, expected {names}", **info)
        _same(part, {n: rows[n] for n in names}, counts, table, **info)
        score.confirm()

    where = rng.permutation(number)[: rng.integers(1, number + 1)]
    mask = np.zeros(number, bool)
    mask[where] = True
    start, stop, step = (
        int(rng.integers(-5, 5)),
        int(rng.integers(-5, 40)),
        int(rng.choice([1, 2, -1])),
    )
    indices: list[tuple[Any, list[int]]] = [
        (where, where.tolist()),
        (where.tolist(), where.tolist()),
        (torch.tensor(where), where.tolist()),
        (where - number, where.tolist()),
        (mask, np.flatnonzero(mask).tolist()),
        (torch.tensor(mask), np.flatnonzero(mask).tolist()),
    ]
    chosen = list(range(number))[start:stop:step]
    if chosen:
        indices.append((slice(start, stop, step), chosen))
    for index, expected in indices:
        info = {"call": "bags[index]", "index": index, "bags": bags}
        part = answer(lambda i=index: bags[i], **info)
        some(part, [bags.ids[b] for b in expected], **info)
    b = int(rng.integers(-number, number))
    bag = answer(lambda: bags[b], call="bags[int]", index=b, bags=bags)
    if bag.id != bags.ids[b] or bag.rows.tolist() != rows[bag.id]:
        fail("bags[int] is another bag", index=b, bags=bags)
    score.confirm()

    seed = int(rng.integers(2**31))
    fraction = float(rng.uniform(0.01, 0.99))
    first = round(fraction * number)
    info = {"call": "split", "fraction": fraction, "seed": seed, "bags": bags}
    if first in (0, number):
        must_refuse(lambda: bags.split(fraction, seed), score, **info)
    else:
        one, two = answer(lambda: bags.split(fraction, seed), **info)
        place = {name: b for b, name in enumerate(bags.ids)}
        for part, length in ((one, first), (two, number - first)):
            names = sorted(part.ids, key=place.__getitem__)
            if len(part) != length:
                fail(f"a part has {len(part)} bags, not {length}", **info)
            some(part, names, **info)
        if set(one.ids) & set(two.ids):
            fail("a bag is in both parts", **info)
    k = int(rng.integers(2, 7))
    info = {"call": "kfold", "k": k, "bags": bags}
    generator = seed if rng.random() < 0.5 else None
    if k > number:
        must_refuse(lambda: list(bags.kfold(k, generator)), score, **info)
    else:
        folds = answer(lambda: list(bags.kfold(k, generator)), **info)
        held = [name for _, out in folds for name in out.ids]
        sizes = [len(out) for _, out in folds]
        if len(folds) != k or sorted(map(str, held)) != sorted(map(str, bags.ids)):
            fail("not every bag is held out once", **info)
        if max(sizes) - min(sizes) > 1:
            fail(f"folds of unequal size: {sizes}", **info)
        for train, out in folds:
            rest = [name for name in bags.ids if name not in set(out.ids)]
            some(train, rest, **info)
            _same(out, {n: rows[n] for n in out.ids}, counts, table, **info)
            score.confirm()
    joined = answer(lambda: Bags.concat([bags, bags]), call="concat", bags=bags)
    both = joined.rows.tolist()
    if both != bags.rows.tolist() + [r + table for r in bags.rows.tolist()]:
        fail("concat has other rows", bags=bags)
    if joined.ids != (*bags.ids, *bags.ids) or joined.num_rows != 2 * table:
        fail("concat has other ids or rows", bags=bags)
    if joined.counts.tolist() != bags.counts.tolist() * 2:
        fail("concat has other counts", bags=bags)
    score.confirm()


def _random(rng: np.random.Generator, drawn: Drawn, score: Score) -> None:
    labels, classes = drawn.labels, drawn.classes
    n = len(labels)
    low = int(rng.integers(1, n + 1))
    high = int(rng.integers(low, n + 1))
    size: Any = low if rng.random() < 0.5 else (low, high)
    seed = int(rng.integers(2**31))
    options = {"generator": seed, "num_classes": classes}
    info = {"call": "random_bags", "labels": labels.tolist(), "size": size, **options}
    bags = answer(lambda: random_bags(labels, size, **options), **info)
    top = size if isinstance(size, int) else high
    rows = bags.rows.tolist()
    if sorted(rows) != list(range(n)):
        fail("a row is missing, or in two bags", **info)
    sizes = bags.sizes.tolist()
    if not all(low <= s <= top for s in sizes[:-1]) or not 1 <= sizes[-1] <= top:
        fail(f"sizes {sizes}", **info)
    for bag in bags:
        found = [int(labels[row]) for row in bag.rows]
        want: Any = found.count(1)
        if classes is not None:
            want = tuple(found.count(k) for k in range(classes))
        if bag.count != want:
            fail(f"count of bag {bag.id} = {bag.count}, expected {want}", **info)
    if random_bags(labels, size, **options).rows.tolist() != rows:
        fail("one seed, two answers", **info)
    score.confirm()


# Junk


def _junk(rng: np.random.Generator, drawn: Drawn, bags: Bags, score: Score) -> None:
    """A call that is wrong in one place."""
    labels, groups, classes, rows, counts = drawn
    nan, inf = float("nan"), float("inf")
    things = [None, 5, 1.5, "word", b"x", {}, set(), object(), nan, [], [[1], [2, 3]], lambda: 0]
    things += [np.zeros((2, 2, 2)), torch.tensor(3.0), np.array(["a"], object), 1j, [None], [nan]]
    thing = things[rng.integers(len(things))]
    right = {name: _shown(c) for name, c in counts.items()}
    first, size = next(iter(rows)), len(next(iter(rows.values())))
    n, number = len(groups), len(rows)
    binary = classes is None
    k = classes or 1

    def put(value: Any) -> dict[Hashable, Any]:
        return {**right, first: value}

    sure = [0] * k if not binary else 0
    bad_counts: list[Any] = [
        put(size + 1 if binary else [size + 1] + [0] * (k - 1)),
        put(-1 if binary else [-1] + [0] * (k - 1)),
        put(0.5 if binary else [0.5] * k),
        put(nan if binary else [nan] * k),
        put(inf if binary else [inf] * k),
        put(None),
        put("one"),
        put([1] * (k + 40)),
        put(10**30 if binary else [10**30] * k),
        {**right, ("nobody", "here"): sure},
        {name: c for name, c in right.items() if name != first},
        thing,
    ]
    missing = list(groups)
    missing[int(rng.integers(n))] = None
    unhashable: list[Any] = list(groups)
    unhashable[int(rng.integers(n))] = [1]
    bad_groups: list[Any] = [[], missing, unhashable, 7, None, "groups", {}, np.zeros((n, 2)), nan]
    bad_groups += [np.full(n, nan), np.array(3), [nan] * n, object()]
    bad_labels: list[Any] = [labels - 1 - labels.max(), labels + (classes or 2), labels + 0.5]
    bad_labels += [labels[:-1], np.append(labels, 0), labels[None], thing, np.full(n, nan)]
    bad_labels += [["no"] * n, [None] * n, labels + 1j]
    shares = {name: 0.0 if binary else [1.0] + [0.0] * (k - 1) for name in rows}
    bad_shares: list[Any] = [
        {**shares, first: v if binary else [v] * k} for v in (1.1, -0.1, nan, inf, "x", None)
    ]
    bad_indices: list[Any] = [[number], [-number - 1], [0, 0], [0.5], [], "a", None, [nan], {}]
    bad_indices += [np.ones(number + 1, bool), np.zeros(number, bool), number, -number - 1, 1.5]
    bad_indices += [slice(number, None), np.zeros((1, 1), int), [[0]], [None], object()]
    seeds: list[Any] = [-1, 2**63, 1.5, "s", nan, [1], object(), None]
    bad_sizes: list[Any] = [
        0,
        -1,
        n + 1,
        1.5,
        "2",
        None,
        (2, 1),
        (0, 1),
        (1, n + 1),
        (1,),
        (1, 2, 3),
    ]
    bad_sizes += [nan, [], {}]
    bad_k: list[Any] = [0, 1, -1, number + 1, 1.5, "2", None, nan, [2]]
    fractions: list[Any] = [0, 1, -0.5, 1.5, nan, inf, "half", None, [0.5], 0.5j]

    def pick(values: list[Any]) -> Any:
        return values[rng.integers(len(values))]

    calls: dict[str, Callable[[Any], Any]] = {
        "from_groups counts": lambda v: Bags.from_groups(groups, v),
        "from_groups groups": lambda v: Bags.from_groups(v, right),
        "from_labels labels": lambda v: Bags.from_labels(v, groups, num_classes=classes),
        "from_labels groups": lambda v: Bags.from_labels(labels, v, num_classes=classes),
        "from_labels num_classes": lambda v: Bags.from_labels(labels, groups, num_classes=v),
        "from_proportions": lambda v: Bags.from_proportions(groups, v),
        "from_proportions tolerance": lambda v: Bags.from_proportions(groups, shares, tolerance=v),
        "from_proportions decimals": lambda v: Bags.from_proportions(groups, shares, decimals=v),
        "index": lambda v: bags[v],
        "split": lambda v: bags.split(v, 0),
        "split seed": lambda v: bags.split(0.5, v),
        "kfold": lambda v: list(bags.kfold(v)),
        "concat": lambda v: Bags.concat(v),
        "random_bags size": lambda v: random_bags(labels, v, generator=0, num_classes=classes),
        "random_bags seed": lambda v: random_bags(labels, 1, generator=v, num_classes=classes),
        "random_bags labels": lambda v: random_bags(v, 1, generator=0, num_classes=classes),
        "Bags offsets": lambda v: Bags(v, [0] * number if binary else [[0] * k] * number),
        "Bags rows": lambda v: Bags(bags.offsets, bags.evidence, rows=v),
        "Bags num_rows": lambda v: Bags(bags.offsets, bags.evidence, num_rows=v),
        "Bags ids": lambda v: Bags(bags.offsets, bags.evidence, ids=v),
    }
    name = pick(list(calls))
    wrong = {
        "from_groups counts": bad_counts,
        "from_groups groups": bad_groups,
        "from_labels labels": [v for v in bad_labels if not _right_labels(v, n, classes)],
        "from_labels groups": [*bad_groups, groups[:-1], [*groups, groups[0]]],
        "from_labels num_classes": [0, 1, -1, 1.5, "2", nan, [2], object()],
        "from_proportions": [*bad_shares, thing],
        "from_proportions tolerance": [-1, 0.5, nan, inf, "x", None, [0], 1j],
        "from_proportions decimals": [-1, 13, 1.5, "2", nan, [1], object()],
        "index": bad_indices,
        "split": fractions,
        "split seed": seeds if number > 1 else [None, "s"],
        "kfold": bad_k,
        "concat": [None, [], [None], bags, 3, [bags, 3], "bags"],
        "random_bags size": bad_sizes,
        "random_bags seed": seeds,
        "random_bags labels": [v for v in bad_labels if not _right_labels(v, None, classes)],
        "Bags offsets": [[], [0], [1, 2], [0, 2, 1], [0, nan], [0, -1], None, "ab", 3, [[0, 1]]],
        "Bags rows": [[0] * (n + 1), list(range(n - 1)), [-1] * n, [0.5] * n, "r", [None] * n],
        "Bags num_rows": [-1, n - 1, 1.5, "3", [n], nan],
        "Bags ids": [list(range(number + 1)), 3, "x" * number, [[1]] * number, [None] * number],
    }[name]
    value = pick(wrong)
    if name == "from_groups counts" and isinstance(value, list) and number == len(value):
        return  # by chance right
    info = {"call": name, "value": value, "groups": groups, "labels": labels.tolist()}
    must_refuse(lambda: calls[name](value), score, **info, counts=right, num_classes=classes)


def _right_labels(values: Any, n: int | None, classes: int | None) -> bool:
    """Whether these are labels after all, by chance."""
    try:
        array = np.asarray(values)
    except ValueError:
        return False
    if array.dtype.kind not in "biuf" or array.ndim != 1 or len(array) == 0:
        return False
    whole = (array == np.floor(array)) & (array >= 0) & (array < (classes or 2))
    return bool(whole.all()) and n in (None, len(array))
