"""What users pass for bags, read and checked: every refusal names the row or bag and the remedy."""

import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set, Sized
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit.errors import LLPError
from llpkit.evidence import NO_BOUND, Evidence
from llpkit.ragged import segment_sum

Array = NDArray[Any]
Seed = torch.Generator | int


# Groups


class Groups(NamedTuple):
    """Rows put together by bag."""

    rows: Tensor  # (N,)
    sizes: Array  # (B,)
    ids: list[Hashable]  # sorted, as np.unique gives them, or as they first appear
    in_order: bool  # whether they are sorted, and nobody can expect another order


def group(groups: Any) -> Groups:
    """Rows put together by bag, the bags in the order of their ids where these have one."""
    keys, ids, in_order = _sortable(groups)
    if len(keys) == 0:
        raise LLPError("groups is empty; give the bag id of every row")
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(starts, append=len(keys))
    return Groups(torch.from_numpy(order), sizes, ids or ordered[starts].tolist(), in_order)


def _sortable(groups: Any) -> tuple[Array, list[Hashable] | None, bool]:
    """Arrays of numbers or strings as they are; for other ids their places among the ids."""
    array = _column(groups, "groups")
    if array is not None and array.dtype.kind in "biufSU":
        missing = "is missing; drop the row or give it an id"
        _refuse(array != array, lambda i: f"groups[{i}] = {array[i]} {missing}", "rows")
        return array, None, True
    codes, ids = numbered(groups, "groups")
    order = _order(ids)
    if order is None:
        return codes, ids, False
    # Whoever sums up by a pandas categorical gets the sums in the order of its categories.
    categories = getattr(getattr(groups, "dtype", None), "categories", None)
    usual = categories is None or _order(list(categories)) == list(range(len(categories)))
    return np.argsort(order)[codes], [ids[i] for i in order], usual


def _order(ids: list[Any]) -> list[int] | None:
    """The numbers of distinct ids in rising order; ``None`` if they have no order."""
    try:
        order = sorted(range(len(ids)), key=ids.__getitem__)
        # Sorting sets does not fail but means nothing: neither of two is the lesser.
        rising = all(bool(ids[a] < ids[b]) for a, b in pairwise(order))
    except (TypeError, ValueError, ArithmeticError):
        return None
    return order if rising else None


def _column(values: Any, name: str) -> Array | None:
    """An array, a tensor or a Series as a NumPy array; ``None`` for anything else."""
    if not hasattr(values, "__array__"):
        return None
    array = _read(values, name)
    if array.ndim != 1:
        raise LLPError(f"{name} has shape {array.shape}; give bag ids along one axis")
    return array


def numbered(values: Any, name: str) -> tuple[Array, list[Hashable]]:
    """The number of every id and the distinct ids, in order; all hashable, none missing."""
    array = _column(values, name)
    if array is not None and array.dtype.kind not in "mM":  # their tolist() may give integers
        items = array.tolist()
    elif isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping | Set):
        items = list(values)
    else:
        raise LLPError(f"{name} is a {type(values).__name__}; give a sequence of bag ids")
    numbers: defaultdict[Hashable, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    with suppress(TypeError):  # an id that is not hashable is named below
        codes = np.fromiter(map(numbers.__getitem__, items), np.int64, len(items))
        if not any(map(_flaw, numbers)):
            return codes, list(numbers)
    flaws = [_flaw(item) for item in items]
    bad = np.array([flaw is not None for flaw in flaws])
    _refuse(bad, lambda i: f"{name}[{i}] = {items[i]!r} {flaws[i]}", "rows")
    raise LLPError(f"{name} has ids that cannot be compared with each other; use strings")


def _flaw(item: Any) -> str | None:
    """Why this cannot be a bag id; ``None`` if it can."""
    if isinstance(item, Tensor):
        return "is a tensor, which equals nothing but itself; use .tolist()"
    try:
        hash(item)
    except TypeError:
        return "is not hashable; use a number, a string or a tuple"
    try:
        missing = item is None or bool(item != item)
    except TypeError:  # pandas.NA does not say whether it equals itself
        missing = True
    return "is missing; drop the row or give it an id" if missing else None


def aligned(values: Any, bags: Groups, name: str, ids: Any = None) -> "tuple[Any, Speech]":
    """Values in the order of the bags: of a mapping, of a sequence with ``ids``, or sorted.

    A sequence alone must be in the order of the sorted distinct ids.
    """
    own, entries = bags.ids, values
    mapping = hasattr(values, "keys") and hasattr(values, "__getitem__")
    if not mapping and ids is None:
        if not bags.in_order:
            raise LLPError(
                f"groups has ids without an order of their own, such as {own[0]!r} and "
                f"{own[1]!r}, so the order of {name} is not known; give a mapping from id to "
                "value, or with ids= the id of each entry"
            )
        return values, Speech(own)
    if mapping and ids is not None:
        raise LLPError(f"{name} is a mapping, which has ids of its own; leave ids= out")
    if mapping:
        if getattr(values, "ndim", 1) != 1:
            raise LLPError(f"{name} is a table; pass dict(zip(ids, table.to_numpy()))")
        try:
            pairs = list((values if hasattr(values, "items") else dict(values)).items())
            keys, entries = [key for key, _ in pairs], [value for _, value in pairs]
            place = {key: i for i, key in enumerate(keys)}
        except (TypeError, ValueError, KeyError) as error:
            raise LLPError(
                f"{name} cannot be read as a mapping from id to value: {error}"
            ) from error
    else:
        codes, distinct = numbered(ids, "ids")
        keys = [distinct[code] for code in codes]
        place = {key: i for i, key in enumerate(keys)}
        entries = values if isinstance(values, Evidence) else _entries(values, name)
        if len(entries) != len(keys):
            raise LLPError(
                f"{name} has {len(entries)} entries but ids has {len(keys)}; give the id of each"
            )
    _check_ids(keys, place, own, name)
    where = [place[key] for key in own]
    chosen = entries[where] if isinstance(entries, Evidence) else [entries[i] for i in where]
    return chosen, Speech(own, keyed=True)


def _entries(values: Any, name: str) -> Any:
    """What is counted by ids=: a sequence, an array or a tensor."""
    if hasattr(values, "__array__") or isinstance(values, Tensor):
        values = _read(values, name)
    sequence = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if not sequence and not (isinstance(values, np.ndarray) and values.ndim):
        raise LLPError(f"{name} is a {type(values).__name__}; give one entry for every id")
    return values


def _check_ids(keys: list[Any], place: dict[Any, int], own: list[Any], name: str) -> None:
    """Refuse ids of values that are not those of the bags, each once."""
    speech, known = Speech(own), set(own)
    _refuse(
        np.array([key not in place for key in own]),
        lambda b: f"{speech.bag(b)} has no entry in {name}; add it or drop its rows",
    )
    _refuse(
        np.array([key not in known for key in keys]),
        lambda i: f"{name} has an entry for {keys[i]!r} but no row is in that bag; remove it",
        "entries",
    )
    if len(place) < len(keys):
        twice = next(key for key, times in Counter(keys).items() if times > 1)
        raise LLPError(f"{name} has more than one entry for {twice!r}; keep one")


# Numbers


def _read(values: Any, name: str, dtype: type | None = None) -> Array:
    if np.ma.is_masked(values):
        raise LLPError(f"{name} has masked entries; drop their rows or fill them")
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()  # fails where a tensor has no data
            if values.is_floating_point():
                values = values.double()  # NumPy has no bfloat16
        return np.asarray(values, dtype)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise LLPError(f"{name} cannot be read as an array: {error}") from error


def _entry(name: str, value: object, *index: int) -> str:
    return f"{name}{list(index) if index else ''} = {value}"


def numbers(values: Any, name: str, entry: Callable[..., str] = _entry) -> Array:
    """The values as booleans, integers or float64; ``entry(name, value, *index)`` for messages."""
    try:
        array = _read(values, name)
    except LLPError:
        _check_lengths(values, name, entry)
        raise
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # a long double may become inf
            return array.astype(np.float64)
    if array.dtype.kind in "biu":
        return array
    items = _read(values, name, object)
    real = [isinstance(x, Real | np.bool_) and array.dtype.kind not in "mM" for x in items.flat]
    _refuse(
        ~np.array(real, dtype=bool).reshape(items.shape),
        lambda *i: f"{entry(name, repr(items[i]), *i)} is not a number; give an int or a float",
        "entries",
    )
    return _read(items, name, np.float64)


def _check_lengths(values: Any, name: str, entry: Callable[..., str]) -> None:
    """Refuse a list whose entries, the numbers of each class, differ in length."""
    if isinstance(values, list | tuple):
        sized = [isinstance(v, Sized) and getattr(v, "ndim", 1) > 0 for v in values]
        lengths = np.array([len(v) if s else 0 for v, s in zip(values, sized, strict=True)])
        _refuse(
            lengths != lengths[0],
            lambda i: (
                f"{entry(name, values[i], i)} has {lengths[i] or 1} numbers but the first entry "
                f"has {lengths[0] or 1}; give as many everywhere, one a class"
            ),
            "entries",
        )


def _whole(
    values: Any, name: str, remedy: str = "give integers", entry: Callable[..., str] = _entry
) -> Array:
    array = numbers(values, name, entry)
    if array.dtype.kind in "fu":
        _refuse(
            ~((array == np.floor(array)) & (np.abs(array) < 2**53)),
            lambda *i: f"{entry(name, array[i], *i)} is not a whole number; {remedy}",
            "entries",
        )
    return array.astype(np.int64)


def integer(value: Any, name: str, low: int, high: int | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise LLPError(f"{name} = {value!r} is not a whole number") from error
    if number < low or (high is not None and number > high):
        bound = f"at least {low}" if high is None else f"from {low} to {high}"
        raise LLPError(f"{name} = {number} but it must be {bound}")
    return number


# Checks


@dataclass(frozen=True)
class Speech:
    """How messages call a bag, and the entry of an input that belongs to it."""

    ids: Sequence[Hashable]
    keyed: bool = False  # the input is a mapping

    @property
    def remedy(self) -> str:
        """What to do about an entry that is no count."""
        return "for proportions use Bags.from_proportions, for a missing count Evidence.unknown"

    @property
    def shares(self) -> str:
        """What to do with proportions."""
        return "use Bags.from_proportions"

    @property
    def of_size(self) -> str:
        """What to do about a count that a bag of its size cannot have."""
        return "if these are proportions use Bags.from_proportions"

    def bag(self, b: int) -> str:
        own = self.ids[b]
        return f"bag {b}" if type(own) is int and own == b else f"bag {b} (id {own!r})"

    def entry(self, name: str, value: object, *index: int) -> str:
        if not self.keyed:
            return _entry(name, value, *index)
        return f"{name}[{self.ids[index[0]]!r}]{''.join(f'[{k}]' for k in index[1:])} = {value}"

    def entry_of_bag(self, name: str, value: object, *index: int) -> str:
        of_bag = f" of {self.bag(index[0])}" if index and index[0] < len(self.ids) else ""
        return self.entry(name, value, *index) + of_bag


def _refuse(bad: Array, message: Callable[..., str], noun: str = "bags") -> None:
    """Raise for the first true entry, with ``message(*index)``, and say how many there are."""
    if bad.any():
        first = np.unravel_index(int(bad.argmax()), bad.shape)
        total = int(bad.reshape(*bad.shape[:1], -1).any(-1).sum())
        more = f" ({total} such {noun} in all)" if total > 1 else ""
        raise LLPError(message(*map(int, first)) + more)


def check_shape(array: Array, num_bags: int, name: str) -> None:
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] < 2):
        raise LLPError(f"{name} has shape {array.shape}; give (B,), or (B, K) for K > 1 classes")
    if len(array) != num_bags:
        raise LLPError(
            f"{name} has {len(array)} entries but there are {num_bags} bags; give one per bag"
        )


def checked_offsets(offsets: Any) -> Array:
    ends = _whole(offsets, "offsets")
    if ends.ndim != 1 or len(ends) < 2:
        raise LLPError(f"offsets has shape {ends.shape}; give B + 1 numbers for B > 0 bags")
    if ends[0] != 0:
        raise LLPError(f"offsets[0] = {ends[0]} but offsets must start at 0")
    _refuse(
        np.append(False, ends[1:] < ends[:-1]),
        lambda b: (
            f"offsets[{b}] = {ends[b]} is below offsets[{b - 1}] = {ends[b - 1]}, so bag "
            f"{b - 1} would end before it starts; offsets must not fall"
        ),
    )
    return ends


def checked_rows(rows: Any, num_instances: int, num_rows: Any) -> tuple[Array, int]:
    """The row numbers and the length of their table."""
    if rows is None:
        try:
            rows = np.arange(num_instances)
        except (MemoryError, ValueError) as error:
            raise LLPError(f"offsets end at {num_instances}: too many for the memory") from error
    table = _whole(rows, "rows")
    if table.shape != (num_instances,):
        raise LLPError(f"rows has shape {table.shape} but offsets end at {num_instances}")
    needed = int(table.max(initial=-1)) + 1
    length = needed if num_rows is None else integer(num_rows, "num_rows", low=0)
    _refuse(
        (table < 0) | (table >= length),
        lambda i: f"rows[{i}] = {table[i]} but the table has {length} rows, numbered from 0",
        "rows",
    )
    if (table[1:] <= table[:-1]).any():
        repeated = np.ones(num_instances, dtype=bool)
        repeated[np.unique(table, return_index=True)[1]] = False
        _refuse(
            repeated,
            lambda i: f"rows[{i}] = {table[i]} for the second time; a row is in one bag only",
            "rows",
        )
    return table, length


def checked_evidence(counts: Any, sizes: Array, speech: Speech) -> Evidence:
    """The counts as evidence that bags of these sizes can fulfil."""
    if isinstance(counts, Evidence):
        evidence = counts
        check_shape(evidence.low.cpu().numpy(), len(sizes), "evidence")
    else:
        y = _whole(counts, "counts", speech.remedy, speech.entry_of_bag)
        check_shape(y, len(sizes), "counts")
        _refuse(
            y < 0,
            lambda *i: f"{speech.entry_of_bag('counts', y[i], *i)} is negative; {speech.remedy}",
        )
        if y.ndim == 1 and _of_floats(counts):
            check_not_shares(y, sizes, speech)
        evidence = Evidence.exact(torch.tensor(y))
    check_support(evidence, sizes, speech)
    return evidence


def _of_floats(values: Any) -> bool:
    """Whether any of the numbers is a float, as shares are."""
    array = _read(values, "counts")
    if array.dtype.kind == "O":
        return any(isinstance(x, float | np.floating) for x in array.flat)
    return array.dtype.kind == "f"


def check_not_shares(y: Array, sizes: Array, speech: Speech) -> None:
    """The rule of :meth:`Evidence.exact` on floats that may be shares, in the words of bags."""
    if (y <= 1).all():
        _refuse(
            (y == 1) & (sizes > 1),
            lambda b: (
                f"{speech.entry('counts', '1.0', b)} but {speech.bag(b)} has {sizes[b]} instances, "
                "and all values are 0.0 or 1.0, as shares are; give integers if they are counts, "
                f"as counts.astype(int) does; for shares {speech.shares}"
            ),
        )


def check_support(evidence: Evidence, sizes: Array, speech: Speech) -> None:
    """Refuse the first bag whose evidence leaves no count that a bag of its size can have."""
    low, high = evidence.low.cpu().numpy(), evidence.high.cpu().numpy()
    n = sizes if low.ndim == 1 else sizes[:, None]

    def known(*i: int) -> str:
        ends = zip(np.ravel(low[i]), np.ravel(high[i]), strict=True)
        cells = [
            f"{a}" if a == b else f"{a} or more" if b == NO_BOUND else f"{a} to {b}"
            for a, b in ends
        ]
        return speech.entry("counts", ", ".join(cells), *i)

    def has(b: int) -> str:
        return f"{speech.bag(b)} has {sizes[b]} instance{'' if sizes[b] == 1 else 's'}"

    _refuse(
        (low > n) | (high < 0),
        lambda *i: f"{known(*i)} but {has(i[0])}; {speech.of_size}",
    )
    if low.ndim == 2:
        _refuse(
            (low.sum(1) > sizes) | (np.minimum(high, n).sum(1) < sizes),
            lambda b: (
                f"{known(b)} but {has(b)}; the counts of all classes must sum to that; "
                f"{speech.of_size}"
            ),
        )
    if len(evidence.table):
        weighted = evidence.table_offsets.diff().cpu().numpy().reshape(low.shape) > 0
        possible = segment_sum((evidence.table > -torch.inf).double(), evidence.table_offsets)
        _refuse(
            weighted & (high != n),
            lambda *i: (
                f"the evidence has weights for counts 0 to {high[i]} but {has(i[0])}; give "
                "n + 1 weights for n instances"
            ),
        )
        _refuse(
            weighted & (possible.cpu().numpy().reshape(low.shape) == 0),
            lambda *i: (
                f"the evidence of {speech.bag(i[0])} gives no count a weight; give one above -inf"
            ),
        )


def checked_labels(
    labels: Any,
    num_classes: int | None,
    name: str = "labels",
    remedy: str = "give num_classes for more, and number the classes from 0",
    rows: Array | None = None,
) -> Array:
    """True labels ``0 … K - 1``, int64 ``(N,)``; with ``rows`` those of these rows alone."""
    whole = numbers(labels, name)
    if whole.ndim != 1 or len(whole) == 0:
        raise LLPError(f"{name} has shape {whole.shape}; give one label per row, shape (N,)")
    where = np.arange(len(whole)) if rows is None else rows
    given = whole[where]

    def entry(what: str, value: object, i: int) -> str:
        return f"{what}[{where[i]}] = {value}"

    truth = _whole(given, name, "drop the row or give its label", entry)
    top = 1 if num_classes is None else integer(num_classes, "num_classes", low=2) - 1
    _refuse(
        (truth < 0) | (truth > top),
        lambda i: f"{name}[{where[i]}] = {truth[i]} but labels go from 0 to {top}; {remedy}",
        "rows",
    )
    return truth


def label_counts(labels: Array, sizes: Array, num_classes: int | None) -> Evidence:
    """The counts of labels that stand in the order of the bags."""
    num_bags, k = len(sizes), num_classes or 2
    cells = np.repeat(np.arange(num_bags) * k, sizes) + labels
    counts = np.bincount(cells, minlength=num_bags * k).reshape(num_bags, k)
    return Evidence.exact(counts if num_classes else counts[:, 1].copy())


def proportion_counts(
    p: Array, sizes: Array, tolerance: float, decimals: int | None, speech: Speech
) -> tuple[Array, Array]:
    """The smallest and largest count near ``n * p``: within ``tolerance``, or that rounds to it."""
    n = sizes if p.ndim == 1 else sizes[:, None]

    def given(*i: int) -> str:
        return speech.entry_of_bag("proportions", p[i], *i)

    _refuse(
        ~((p >= 0) & (p <= 1)),
        lambda *i: (
            f"{given(*i)} is not between 0 and 1; divide percentages by 100, give counts to "
            "Bags.from_groups"
        ),
    )
    if not isinstance(tolerance, Real) or not 0 <= tolerance < 0.5:
        raise LLPError(f"tolerance = {tolerance!r}; give a number of instances from 0 to below 0.5")
    remedy = "raise tolerance, or give the decimals to which it was rounded"
    expected, reach = n * p, np.full_like(n, tolerance, dtype=np.float64)
    if decimals is not None:
        digits = integer(decimals, "decimals", low=0, high=12)
        rounded = np.round(p, digits)  # float32 is off by up to 1e-7
        _refuse(
            np.abs(p - rounded) > 0.01 * 10.0**-digits + 1e-7,
            lambda *i: f"{given(*i)} has more than {digits} decimals; raise decimals",
        )
        remedy = "check its rows, or give fewer decimals"
        expected, reach = n * rounded, n * 0.5 * 10.0**-digits
    reach = reach + 1e-7  # n * p is itself rounded
    if p.ndim == 2:
        _refuse(
            np.abs(expected.sum(1) - sizes) > p.shape[1] * reach[:, 0],
            lambda b: f"{given(b)} sum to {p[b].sum():.6g}; all classes together must make 1",
        )
    low, high = np.ceil(expected - reach), np.floor(expected + reach)
    _refuse(
        low > high,
        lambda *i: (
            f"{given(*i)} makes {(n * p)[i]:.6g} of its {sizes[i[0]]} instances, not a whole "
            f"count; {remedy}"
        ),
    )
    return np.maximum(low, 0).astype(np.int64), np.minimum(high, n).astype(np.int64)


def positions(index: Any, num_bags: int) -> Array:
    """A slice, a list, an array or a mask as distinct bag numbers."""
    array = np.arange(num_bags)[index] if isinstance(index, slice) else numbers(index, "index")
    if array.dtype == bool and array.shape != (num_bags,):
        raise LLPError(f"the mask has shape {array.shape} but there are {num_bags} bags")
    where = np.flatnonzero(array) if array.dtype == bool else _whole(array, "index")
    if where.ndim != 1 or len(where) == 0:
        raise LLPError(f"index has shape {where.shape}; select at least one bag, along one axis")
    _refuse(
        (where < -num_bags) | (where >= num_bags),
        lambda i: f"index[{i}] = {where[i]} but there are {num_bags} bags, numbered from 0",
        "entries",
    )
    where = where % num_bags
    _refuse(
        np.bincount(where) > 1, lambda b: f"bag {b} is selected twice; a row is in one bag only"
    )
    return where


# Randomness


def as_generator(generator: Any) -> torch.Generator:
    if isinstance(generator, torch.Generator):
        return generator
    if isinstance(generator, int | np.integer) and 0 <= generator < 2**63:
        return torch.Generator().manual_seed(int(generator))
    raise LLPError(
        f"generator = {generator!r}; give a torch.Generator or a seed from 0 to 2**63 - 1"
    )


def permutation(length: int, generator: Any) -> Tensor:
    source = as_generator(generator)
    return torch.randperm(length, generator=source, device=source.device).cpu()
