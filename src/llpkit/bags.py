"""Bags: instances on one flat axis, where each bag lies on it, what is known of its counts."""

import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set, Sized
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit.errors import LLPError
from llpkit.likelihood import Evidence
from llpkit.likelihood._evidence import NO_BOUND
from llpkit.likelihood._ragged import bag_index, ranges, segment_sum, to_offsets

Array = NDArray[Any]
Seed = torch.Generator | int


class Bag(NamedTuple):
    """One bag: its id, its rows ``(n,)`` in the user's table, its smallest and largest count.

    With ``K`` classes ``low`` and ``high`` are tuples, one count a class.
    """

    id: Hashable
    rows: Tensor
    low: int | tuple[int, ...]
    high: int | tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of instances."""
        return len(self.rows)

    @property
    def count(self) -> int | tuple[int, ...]:  # type: ignore[override]  # hides tuple.count
        """The count, where it is known exactly."""
        if self.low != self.high:
            raise LLPError(f"bag {self.id!r} has {self.low} to {self.high}; use .low and .high")
        return self.low


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Bags:
    """Instances in bags, and what is known of each bag's counts.

    Bag ``b`` holds the rows ``rows[offsets[b]:offsets[b + 1]]`` of the user's table, so
    ``X[bags.rows]`` puts the instances in the order of the engine. A row is in one bag at most; a
    bag may be empty. Bags are immutable: their tensors must not be written to. True labels never
    sit in them.

    Args:
        offsets: Where the bags start and end, ``(B + 1,)``, from 0 to ``N``.
        counts: Positives ``(B,)``, counts of each class ``(B, K)``, or :class:`~llpkit.Evidence`.
        rows: Row numbers ``(N,)`` of the instances; ``0 … N - 1`` unless given.
        ids: A hashable name for every bag, which may repeat; ``0 … B - 1`` unless given.
        num_rows: Length of the table; one more than the largest row unless given.

    >>> bags = Bags(offsets=[0, 2, 5], counts=[1, 3])
    >>> bags
    Bags(2 bags, 5 instances, sizes 2 to 3, exact counts)
    >>> bags[1].size, bags[1].count
    (3, 3)
    """

    offsets: Tensor
    rows: Tensor
    evidence: Evidence
    ids: tuple[Hashable, ...]
    num_rows: int

    def __init__(
        self,
        offsets: Any,
        counts: Any,
        rows: Any = None,
        ids: Iterable[Hashable] | None = None,
        num_rows: int | None = None,
    ) -> None:
        ends = _checked_offsets(offsets)
        table, num_rows = _checked_rows(rows, int(ends[-1]), num_rows)
        names: Sequence[Hashable] = range(len(ends) - 1)
        if ids is not None:
            codes, distinct = _numbered(ids, "ids")
            names = [distinct[code] for code in codes]
        if len(names) != len(ends) - 1:
            raise LLPError(f"ids has {len(names)} entries but there are {len(ends) - 1} bags")
        evidence = _checked_evidence(counts, np.diff(ends), _Speech(names))
        home = next((x for x in (offsets, counts) if isinstance(x, Tensor | Evidence)), evidence)
        parts = torch.tensor(ends), torch.tensor(table), evidence.to(home.device)
        vars(self).update(vars(Bags._make(*parts, names, num_rows)))

    @classmethod
    def _make(
        cls,
        offsets: Tensor,
        rows: Tensor,
        evidence: Evidence,
        ids: Iterable[Hashable],
        num_rows: int,
    ) -> "Bags":
        """Bags of checked parts, on the device of the evidence."""
        bags, device = cls.__new__(cls), evidence.device
        vars(bags).update(offsets=offsets.to(device), rows=rows.to(device), evidence=evidence)
        vars(bags).update(ids=tuple(ids), num_rows=num_rows)
        return bags

    @classmethod
    def from_groups(cls, groups: Iterable[Hashable], counts: Any) -> "Bags":
        """Bags from a bag id for every row, in any order.

        Bags come in the order in which their ids first appear.

        Args:
            groups: The bag id of every row, ``(N,)``: a list, array, tensor or Series of hashables.
            counts: A mapping (or Series) from id to count, or to ``K`` class counts; or an array
                ``(B,)`` or ``(B, K)`` or :class:`~llpkit.Evidence`, in the order of the bags.

        >>> bags = Bags.from_groups(["b", "a", "b", "b"], {"a": 0, "b": 2})
        >>> bags.ids, bags.rows, bags.counts
        (('b', 'a'), tensor([0, 2, 3, 1]), tensor([2, 0]))
        """
        rows, sizes, ids = _group(groups)
        values, speech = _aligned(counts, ids, "counts")
        evidence = _checked_evidence(values, sizes, speech)
        return cls._make(to_offsets(torch.from_numpy(sizes)), rows, evidence, ids, len(rows))

    @classmethod
    def from_labels(
        cls, labels: Any, groups: Iterable[Hashable], num_classes: int | None = None
    ) -> "Bags":
        """Bags with the counts of true labels; the labels themselves are dropped.

        Labels ``(N,)`` are 0 or 1, or with ``num_classes`` ``0 … K - 1``.

        >>> Bags.from_labels([0, 1, 1, 1], groups=[7, 7, 9, 9]).counts
        tensor([1, 2])
        """
        rows, sizes, ids = _group(groups)
        truth = _checked_labels(labels, num_classes)
        if len(truth) != len(rows):
            raise LLPError(f"labels has {len(truth)} rows but groups has {len(rows)}")
        evidence = _label_counts(truth[rows.numpy()], sizes, num_classes)
        return cls._make(to_offsets(torch.from_numpy(sizes)), rows, evidence, ids, len(rows))

    @classmethod
    def from_proportions(
        cls,
        groups: Iterable[Hashable],
        proportions: Any,
        tolerance: float = 1e-3,
        decimals: int | None = None,
    ) -> "Bags":
        """Bags whose proportions of positives, or of each class, are known.

        Args:
            groups: The bag id of every row, as in :meth:`from_groups`.
            proportions: Numbers in [0, 1]; a mapping or an array, as counts in :meth:`from_groups`.
            tolerance: How far ``n * p`` may be from a whole count, in instances.
            decimals: The proportions were rounded to this many decimals: the evidence is the
                interval of all counts that round to them (a tie either way), not one count.

        >>> Bags.from_proportions(["a", "a", "a", "b"], {"a": 0.3333, "b": 1}).counts
        tensor([1, 1])
        >>> Bags.from_proportions([0] * 40, [0.3], decimals=1)[0].high
        14
        """
        rows, sizes, ids = _group(groups)
        values, speech = _aligned(proportions, ids, "proportions")
        p = _numbers(values, "proportions", speech.entry_of_bag).astype(np.float64)
        _check_shape(p, len(ids), "proportions")
        low, high = _proportion_counts(p, sizes, tolerance, decimals, speech)
        evidence = Evidence.exact(low) if decimals is None else Evidence.interval(low, high)
        _check_support(evidence, sizes, speech)
        return cls._make(to_offsets(torch.from_numpy(sizes)), rows, evidence, ids, len(rows))

    @classmethod
    def concat(cls, parts: "Iterable[Bags]") -> "Bags":
        """All bags of all parts, their tables stacked in that order, on the first one's device.

        >>> two = Bags.concat([Bags([0, 2], [1]), Bags([0, 1], [0])])
        >>> two.rows, two.num_rows
        (tensor([0, 1, 2]), 3)
        """
        parts = list(parts) if isinstance(parts, Iterable) else []
        if not parts or not all(isinstance(part, Bags) for part in parts):
            raise LLPError("Bags.concat needs Bags, at least one; pass them as a list")
        parts = [part.to(parts[0].device) for part in parts]
        before = np.cumsum([0, *(part.num_rows for part in parts)]).tolist()
        return cls._make(
            to_offsets(torch.cat([part.sizes for part in parts])),
            torch.cat([part.rows + shift for part, shift in zip(parts, before, strict=False)]),
            Evidence.concat([part.evidence for part in parts]),
            (name for part in parts for name in part.ids),
            before[-1],
        )

    def __repr__(self) -> str:
        sizes = sorted({int(self.sizes.min()), int(self.sizes.max())})
        parts = [f"{len(self)} bags", f"{self.num_instances} instances"]
        parts.append("sizes " + " to ".join(map(str, sizes)))
        parts.append(("exact" if self.evidence.is_exact else "imprecise") + " counts")
        if self.num_classes is not None:
            parts.append(f"{self.num_classes} classes")
        if self.device.type != "cpu":
            parts.append(str(self.device))
        return f"Bags({', '.join(parts)})"

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Bag]:
        n = self.sizes if self.num_classes is None else self.sizes[:, None]
        low, high = self.evidence.low.tolist(), self.evidence.high.minimum(n).tolist()
        if self.num_classes is not None:
            low, high = list(map(tuple, low)), list(map(tuple, high))
        return map(Bag, self.ids, self.rows.split(self.sizes.tolist()), low, high)

    @overload
    def __getitem__(self, index: int) -> Bag: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | Tensor | Array) -> "Bags": ...
    def __getitem__(self, index: Any) -> "Bag | Bags":
        """A :class:`Bag` for an integer; :class:`Bags` for a slice, a list, an array or a mask."""
        if isinstance(index, int | np.integer) or getattr(index, "ndim", 1) == 0:
            index = _integer(index, "index", low=-len(self), high=len(self) - 1)
            return next(iter(self._select(torch.tensor([index % len(self)]))))
        return self._select(torch.from_numpy(_positions(index, len(self))))

    def _select(self, where: Tensor) -> "Bags":
        """The bags at these valid, distinct positions, a CPU tensor."""
        ids = [self.ids[b] for b in where.tolist()]
        where = where.to(self.device)
        starts = self.offsets[where]
        sizes = self.offsets[where + 1] - starts
        rows = self.rows[ranges(starts, sizes)]
        return Bags._make(to_offsets(sizes), rows, self.evidence[where], ids, self.num_rows)

    @property
    def sizes(self) -> Tensor:
        """Number of instances of every bag, ``(B,)``."""
        return self.offsets.diff()

    @property
    def num_instances(self) -> int:
        """``N``, the instances of all bags together."""
        return len(self.rows)

    @property
    def num_classes(self) -> int | None:
        """``K``, or ``None`` for binary counts."""
        return self.evidence.num_classes

    @property
    def counts(self) -> Tensor:
        """The counts ``(B,)`` or ``(B, K)``; an error where some are not known exactly."""
        return self.evidence.counts

    @property
    def proportions(self) -> Tensor:
        """Counts over sizes, float64 ``(B,)`` or ``(B, K)``; zero for an empty bag."""
        n = self.sizes.clamp(min=1)
        return self.counts.double() / (n if self.num_classes is None else n[:, None])

    @cached_property
    def bag_index(self) -> Tensor:
        """The bag of every instance, ``(N,)``, in the order of ``rows``."""
        return bag_index(self.offsets)

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.evidence.device

    def to(self, device: torch.device | str) -> "Bags":
        """The same bags on another device."""
        evidence = self.evidence.to(device)
        return Bags._make(self.offsets, self.rows, evidence, self.ids, self.num_rows)

    def shuffle(self, generator: Seed) -> "Bags":
        """The bags in random order; the order inside a bag stays."""
        return self._select(_permutation(len(self), generator))

    def split(self, fraction: float, generator: Seed) -> "tuple[Bags, Bags]":
        """Two random parts, the first with this fraction of the bags; each keeps their order.

        >>> train, held_out = Bags([0, 1, 3, 6, 7], [0, 1, 2, 1]).split(0.75, generator=0)
        >>> len(train), len(held_out)
        (3, 1)
        """
        if not isinstance(fraction, Real) or not 0 < fraction < 1:
            raise LLPError(f"fraction = {fraction!r}; give a number between 0 and 1")
        first = round(float(fraction) * len(self))
        if first in (0, len(self)):
            raise LLPError(f"fraction = {fraction} of {len(self)} bags leaves a part without bags")
        order = _permutation(len(self), generator)
        return self._select(order[:first].sort()[0]), self._select(order[first:].sort()[0])

    def kfold(self, k: int, generator: Seed | None = None) -> "Iterator[tuple[Bags, Bags]]":
        """``k`` pairs (train, held out); every bag is held out once.

        The folds are runs of neighbouring bags, or random ones when a generator is given.

        >>> [len(held_out) for train, held_out in Bags([0, 1, 2, 3], [0, 1, 1]).kfold(2)]
        [2, 1]
        """
        k = _integer(k, "k", low=2, high=len(self))
        fold = torch.arange(len(self)) * k // len(self)
        if generator is not None:
            fold = fold[_permutation(len(self), generator)]
        select = self._select
        return (
            (select(torch.where(fold != i)[0]), select(torch.where(fold == i)[0])) for i in range(k)
        )


def random_bags(
    labels: Any,
    size: int | tuple[int, int],
    *,
    generator: Seed,
    leftover: Literal["keep", "drop"] = "keep",
    num_classes: int | None = None,
) -> Bags:
    """Random bags, drawn without replacement, with the counts of labels ``(N,)``.

    Args:
        labels: 0 or 1, or with ``num_classes`` ``0 … K - 1``; not kept.
        size: Instances in a bag: a number, or ``(low, high)`` for sizes uniform in that range.
        generator: A generator or a seed.
        leftover: The last bag, when the rows run out before it is full, is kept smaller
            (``"keep"``) or its rows stay outside all bags (``"drop"``).
        num_classes: ``K`` for more than two classes.

    >>> random_bags([0, 1, 1, 0, 1], size=2, generator=0).sizes
    tensor([2, 2, 1])
    >>> random_bags([0, 1, 1, 0, 1], size=2, generator=0, leftover="drop").sizes
    tensor([2, 2])
    """
    truth = _checked_labels(labels, num_classes)
    if leftover not in ("keep", "drop"):
        raise LLPError(f"leftover = {leftover!r}; give 'keep' or 'drop'")
    low, high = size if isinstance(size, tuple | list) and len(size) == 2 else (size, size)
    low = _integer(low, "size", low=1, high=len(truth))
    high = _integer(high, "size", low=low, high=len(truth))
    source = _generator(generator)
    rows = _permutation(len(truth), source)
    enough = (len(truth) // low,)
    drawn = torch.randint(low, high + 1, enough, generator=source, device=source.device)
    ends = drawn.cumsum(0).cpu()
    ends = ends[ends <= len(truth)]
    if leftover == "keep" and ends[-1] < len(truth):
        ends = torch.cat([ends, torch.tensor([len(truth)])])
    offsets = torch.cat([torch.tensor([0]), ends])
    rows = rows[: int(ends[-1])]
    evidence = _label_counts(truth[rows.numpy()], offsets.diff().numpy(), num_classes)
    return Bags._make(offsets, rows, evidence, range(len(ends)), len(truth))


# Groups


def _group(groups: Any) -> tuple[Tensor, Array, list[Hashable]]:
    """Rows ``(N,)`` put together by bag, sizes and ids, in the order in which the ids appear."""
    keys, distinct = _sortable(groups)
    if len(keys) == 0:
        raise LLPError("groups is empty; give the bag id of every row")
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    first = order[starts]
    appearance = np.argsort(first)
    sizes = np.diff(starts, append=len(keys))[appearance]
    where = ranges(torch.from_numpy(starts[appearance]), torch.from_numpy(sizes))
    return torch.from_numpy(order)[where], sizes, distinct or keys[first[appearance]].tolist()


def _sortable(groups: Any) -> tuple[Array, list[Hashable] | None]:
    """Arrays of numbers or strings as they are; for other ids their codes, and the distinct ids."""
    array = _column(groups, "groups")
    if array is not None and array.dtype.kind in "biufSU":
        missing = "is missing; drop the row or give it an id"
        _refuse(array != array, lambda i: f"groups[{i}] = {array[i]} {missing}", "rows")
        return array, None
    return _numbered(groups, "groups")


def _column(values: Any, name: str) -> Array | None:
    """An array, a tensor or a Series as a NumPy array; ``None`` for anything else."""
    if not hasattr(values, "__array__"):
        return None
    array = _read(values, name)
    if array.ndim != 1:
        raise LLPError(f"{name} has shape {array.shape}; give bag ids along one axis")
    return array


def _numbered(values: Any, name: str) -> tuple[Array, list[Hashable]]:
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


def _aligned(values: Any, ids: list[Hashable], name: str) -> "tuple[Any, _Speech]":
    """A mapping's values in the order of the bags; anything else as it is."""
    if not (hasattr(values, "keys") and hasattr(values, "__getitem__")):
        return values, _Speech(ids)
    if getattr(values, "ndim", 1) != 1:
        raise LLPError(f"{name} is a table; pass dict(zip(ids, table.to_numpy()))")
    try:
        pairs = list((values if hasattr(values, "items") else dict(values)).items())
        table = dict(pairs)
    except (TypeError, ValueError, KeyError) as error:
        raise LLPError(f"{name} cannot be read as a mapping from id to value: {error}") from error
    speech, known, keys = _Speech(ids, keyed=True), set(ids), [key for key, _ in pairs]
    _refuse(
        np.array([key not in table for key in ids]),
        lambda b: f"{speech.bag(b)} has no entry in {name}; add it or drop its rows",
    )
    _refuse(
        np.array([key not in known for key in keys]),
        lambda i: f"{name} has an entry for {keys[i]!r} but no row is in that bag; remove it",
        "entries",
    )
    if len(table) < len(pairs):
        twice = next(key for key, times in Counter(keys).items() if times > 1)
        raise LLPError(f"{name} has more than one entry for {twice!r}; keep one")
    return [table[key] for key in ids], speech


# Numbers


def _read(values: Any, name: str, dtype: type | None = None) -> Array:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.is_floating_point():
            values = values.double()  # NumPy has no bfloat16
    if np.ma.is_masked(values):
        raise LLPError(f"{name} has masked entries; drop their rows or fill them")
    try:
        return np.asarray(values, dtype)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise LLPError(f"{name} cannot be read as an array: {error}") from error


def _entry(name: str, value: object, *index: int) -> str:
    return f"{name}{list(index) if index else ''} = {value}"


def _numbers(values: Any, name: str, entry: Callable[..., str] = _entry) -> Array:
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
    array = _numbers(values, name, entry)
    if array.dtype.kind in "fu":
        _refuse(
            ~((array == np.floor(array)) & (np.abs(array) < 2**53)),
            lambda *i: f"{entry(name, array[i], *i)} is not a whole number; {remedy}",
            "entries",
        )
    return array.astype(np.int64)


def _integer(value: Any, name: str, low: int, high: int | None = None) -> int:
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
class _Speech:
    """How messages call a bag, and the entry of an input that belongs to it."""

    ids: Sequence[Hashable]
    keyed: bool = False  # the input is a mapping

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


def _check_shape(array: Array, num_bags: int, name: str) -> None:
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] < 2):
        raise LLPError(f"{name} has shape {array.shape}; give (B,), or (B, K) for K > 1 classes")
    if len(array) != num_bags:
        raise LLPError(f"{name} has {len(array)} entries but there are {num_bags} bags")


def _checked_offsets(offsets: Any) -> Array:
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


def _checked_rows(rows: Any, num_instances: int, num_rows: Any) -> tuple[Array, int]:
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
    length = needed if num_rows is None else _integer(num_rows, "num_rows", low=0)
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


def _checked_evidence(counts: Any, sizes: Array, speech: _Speech) -> Evidence:
    """The counts as evidence that bags of these sizes can fulfil."""
    if isinstance(counts, Evidence):
        evidence = counts
        _check_shape(evidence.low.cpu().numpy(), len(sizes), "evidence")
    else:
        remedy = "for proportions use Bags.from_proportions, for a missing count Evidence.unknown"
        y = _whole(counts, "counts", remedy, speech.entry_of_bag)
        _check_shape(y, len(sizes), "counts")
        _refuse(
            y < 0,
            lambda *i: f"{speech.entry_of_bag('counts', y[i], *i)} is negative; {remedy}",
        )
        evidence = Evidence.exact(torch.tensor(y))
    _check_support(evidence, sizes, speech)
    return evidence


def _check_support(evidence: Evidence, sizes: Array, speech: _Speech) -> None:
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
        lambda *i: (
            f"{known(*i)} but {has(i[0])}; if these are proportions use Bags.from_proportions"
        ),
    )
    if low.ndim == 2:
        _refuse(
            (low.sum(1) > sizes) | (np.minimum(high, n).sum(1) < sizes),
            lambda b: f"{known(b)} but {has(b)}; the counts of all classes must sum to that",
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


def _checked_labels(labels: Any, num_classes: int | None) -> Array:
    truth = _whole(labels, "labels", "drop the row or give its label")
    if truth.ndim != 1 or len(truth) == 0:
        raise LLPError(f"labels has shape {truth.shape}; give one label a row, shape (N,)")
    top = 1 if num_classes is None else _integer(num_classes, "num_classes", low=2) - 1
    _refuse(
        (truth < 0) | (truth > top),
        lambda i: (
            f"labels[{i}] = {truth[i]} but labels go from 0 to {top}; give num_classes for more"
        ),
        "rows",
    )
    return truth


def _label_counts(labels: Array, sizes: Array, num_classes: int | None) -> Evidence:
    """The counts of labels that stand in the order of the bags."""
    num_bags, k = len(sizes), num_classes or 2
    cells = np.repeat(np.arange(num_bags) * k, sizes) + labels
    counts = np.bincount(cells, minlength=num_bags * k).reshape(num_bags, k)
    return Evidence.exact(counts if num_classes else counts[:, 1].copy())


def _proportion_counts(
    p: Array, sizes: Array, tolerance: float, decimals: int | None, speech: _Speech
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
        digits = _integer(decimals, "decimals", low=0, high=12)
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


def _positions(index: Any, num_bags: int) -> Array:
    """A slice, a list, an array or a mask as distinct bag numbers."""
    array = np.arange(num_bags)[index] if isinstance(index, slice) else _numbers(index, "index")
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


def _generator(generator: Any) -> torch.Generator:
    if isinstance(generator, torch.Generator):
        return generator
    if isinstance(generator, int | np.integer) and 0 <= generator < 2**63:
        return torch.Generator().manual_seed(int(generator))
    raise LLPError(
        f"generator = {generator!r}; give a torch.Generator or a seed from 0 to 2**63 - 1"
    )


def _permutation(length: int, generator: Any) -> Tensor:
    source = _generator(generator)
    return torch.randperm(length, generator=source, device=source.device).cpu()
