"""Bag ids from users: rows grouped by id, and values matched to ids."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import Array, read, refuse
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.evidence.counts import CountNaming


class Groups(NamedTuple):
    """Rows grouped by bag."""

    rows: Tensor  # (N,)
    sizes: Array  # (B,)
    ids: list[Hashable]  # sorted as by np.unique, or in order of appearance
    in_order: bool  # whether they are sorted, and nobody would expect another order


def group(groups: Any) -> Groups:
    """Group rows by bag; bags are in the order of their ids if these can be sorted."""
    keys, ids, in_order = _sortable(groups)
    if len(keys) == 0:
        raise LLPError("groups is empty; give the bag id of every row")
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    # A bag starts where the sorted id changes.
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(starts, append=len(keys))
    return Groups(torch.from_numpy(order), sizes, ids or ordered[starts].tolist(), in_order)


def _sortable(groups: Any) -> tuple[Array, list[Hashable] | None, bool]:
    """Sortable keys of the rows: the ids if numbers or strings, else their ranks."""
    array = _column(groups, "groups")
    if array is not None and array.dtype.kind in "biufSU":
        missing = "is missing; drop the row or give it an id"
        refuse(array != array, lambda i: f"groups[{i}] = {array[i]} {missing}", "rows")
        return array, None, True
    codes, ids = numbered(groups, "groups")
    order = _order(ids)
    if order is None:
        return codes, ids, False
    # A pandas groupby on a categorical returns its results in the order of the categories.
    # A Categorical of polars, whose categories have no length, is sorted as text.
    categories: Any = getattr(getattr(groups, "dtype", None), "categories", None)
    known = list(categories) if hasattr(categories, "__len__") else []
    sorted_categories = _order(known) == list(range(len(known)))
    return np.argsort(order)[codes], [ids[i] for i in order], sorted_categories


def _order(ids: list[Any]) -> list[int] | None:
    """Indices that sort distinct ids; ``None`` if they have no order."""
    try:
        order = sorted(range(len(ids)), key=ids.__getitem__)
        # Sorting sets does not fail but means nothing: of two sets, neither may be smaller.
        rising = all(bool(ids[a] < ids[b]) for a, b in pairwise(order))
    except (TypeError, ValueError, ArithmeticError):
        return None
    return order if rising else None


def _column(values: Any, name: str) -> Array | None:
    """An array, a tensor or a Series as a NumPy array; ``None`` for anything else."""
    if not hasattr(values, "__array__"):
        return None
    array = read(values, name)
    if array.ndim != 1:
        raise LLPError(f"{name} has shape {array.shape}; give bag ids along one axis")
    return array


def numbered(values: Any, name: str) -> tuple[Array, list[Hashable]]:
    """The number of every id and the distinct ids, in order; all hashable, none missing."""
    array = _column(values, name)
    if array is not None and array.dtype.kind not in "mM":  # tolist() of dates may give integers
        items = array.tolist()
    elif isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping | Set):
        items = list(values)
    else:
        raise LLPError(f"{name} is a {type(values).__name__}; give a sequence of bag ids")
    # The factory is the dictionary's own length, so each new id gets the next number.
    numbers: defaultdict[Hashable, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    with suppress(TypeError):  # an id that is not hashable is named below
        codes = np.fromiter(map(numbers.__getitem__, items), np.int64, len(items))
        if not any(map(_flaw, numbers)):
            return codes, list(numbers)
    flaws = [_flaw(item) for item in items]  # only now, since most ids are fine
    bad = np.array([flaw is not None for flaw in flaws])
    refuse(bad, lambda i: f"{name}[{i}] = {items[i]!r} {flaws[i]}", "rows")
    raise LLPError(f"{name} has ids that cannot be compared with each other; use strings")


def _flaw(item: Any) -> str | None:
    """Why this cannot be a bag id, or ``None`` if it can."""
    if isinstance(item, Tensor):
        return "is a tensor, which equals nothing but itself; use .tolist()"
    try:
        hash(item)
    except TypeError:
        return "is not hashable; use a number, a string or a tuple"
    try:
        missing = item is None or bool(item != item)
    except TypeError:  # comparing pandas.NA with itself gives neither True nor False
        missing = True
    return "is missing; drop the row or give it an id" if missing else None


def aligned(values: Any, bags: Groups, name: str, ids: Any = None) -> tuple[Any, CountNaming]:
    """Put values into the order of the bags, by the keys of a mapping or by ``ids``.

    A sequence without ``ids`` must be in the order of the sorted distinct ids.
    """
    bag_ids, entries = bags.ids, values
    mapping = hasattr(values, "keys") and hasattr(values, "__getitem__")
    if not mapping and ids is None:
        if not bags.in_order:
            raise LLPError(
                f"groups has ids that cannot be sorted, such as {bag_ids[0]!r} and {bag_ids[1]!r}, "
                f"so the order of {name} is not known; give a mapping from id to value, or the id "
                "of each entry as ids="
            )
        return values, CountNaming(bag_ids, name)
    if mapping and ids is not None:
        raise LLPError(f"{name} is a mapping, which already has ids; leave ids= out")
    if mapping:
        if getattr(values, "ndim", 1) != 1:
            raise LLPError(f"{name} is a table; pass dict(zip(ids, table.to_numpy()))")
        try:
            pairs = list((values if hasattr(values, "items") else dict(values)).items())
            keys, entries = [key for key, _ in pairs], [value for _, value in pairs]
            position = {key: i for i, key in enumerate(keys)}
        except (TypeError, ValueError, KeyError) as error:
            raise LLPError(
                f"{name} cannot be read as a mapping from id to value: {error}"
            ) from error
    else:
        codes, distinct = numbered(ids, "ids")
        keys = [distinct[code] for code in codes]
        position = {key: i for i, key in enumerate(keys)}
        entries = values if isinstance(values, Evidence) else _entries(values, name)
        if len(entries) != len(keys):
            raise LLPError(
                f"{name} has {len(entries)} entries but ids has {len(keys)}; give the id of each"
            )
    _check_ids(keys, position, bag_ids, name)
    order = [position[key] for key in bag_ids]
    chosen = entries[order] if isinstance(entries, Evidence) else [entries[i] for i in order]
    return chosen, CountNaming(bag_ids, name, keyed=True)


def _entries(values: Any, name: str) -> Any:
    """The entries that go with ids=: a sequence, an array or a tensor."""
    if hasattr(values, "__array__") or isinstance(values, Tensor):
        values = read(values, name)
    sequence = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if not sequence and not (isinstance(values, np.ndarray) and values.ndim):
        raise LLPError(f"{name} is a {type(values).__name__}; give one entry for every id")
    return values


def _check_ids(keys: list[Any], position: dict[Any, int], bag_ids: list[Any], name: str) -> None:
    """Check that the ids of the values are those of the bags, each exactly once."""
    naming, known = CountNaming(bag_ids), set(bag_ids)
    refuse(
        np.array([key not in position for key in bag_ids]),
        lambda b: f"{naming.bag(b)} has no entry in {name}; add one or drop its rows",
    )
    refuse(
        np.array([key not in known for key in keys]),
        lambda i: f"{name} has an entry for {keys[i]!r} but no row is in that bag; remove it",
        "entries",
    )
    if len(position) < len(keys):
        twice = next(key for key, times in Counter(keys).items() if times > 1)
        raise LLPError(f"{name} has more than one entry for {twice!r}; keep one")
