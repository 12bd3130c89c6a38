"""Bags: instances on one flat axis, the extent of each bag, and what is known about its counts."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import Array, checked_generator, checked_labels, numbers
from llpkit._text import SHOWN, html_table, several, span
from llpkit._validation import share, whole
from llpkit.bags.groups import Groups, aligned, group, numbered
from llpkit.bags.indices import checked_offsets, checked_rows, positions
from llpkit.bags.known_labels import with_known_labels
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.evidence.counts import CountNaming
from llpkit.evidence.support import checked_evidence, label_counts, proportion_evidence
from llpkit.ragged import bag_index, instances_of, to_offsets

Seed = torch.Generator | int


class Bag(NamedTuple):
    """One bag: its id, its rows ``(n,)`` in the user's table, its smallest and largest count.

    With ``K`` classes ``low`` and ``high`` are tuples, one count per class.
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
        """The count, if it is known exactly."""
        if self.low != self.high:
            raise LLPError(
                f"the count of bag {self.id!r} is {self.low} to {self.high}; use .low and .high"
            )
        return self.low


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Bags:
    """Instances in bags, and what is known about each bag's counts.

    Bag ``b`` holds the rows ``rows[offsets[b]:offsets[b + 1]]`` of the user's table, so
    ``X[bags.rows]`` puts the instances in the order of the engine. A row is in at most one bag; a
    bag may be empty. Bags are immutable: their tensors must not be written to. They hold no labels
    except those added by :meth:`with_labels`.

    Args:
        offsets: Where the bags start and end, ``(B + 1,)``, from 0 to ``N``.
        counts: Positives ``(B,)``, counts of each class ``(B, K)``, or :class:`~llpkit.Evidence`.
        rows: Row numbers ``(N,)`` of the instances; ``0 … N - 1`` by default.
        ids: A hashable name for every bag, which may repeat; ``0 … B - 1`` by default.
        num_rows: Length of the table; one more than the largest row by default.

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
    columns: tuple[str, ...] = ()
    """The columns of a data frame that bags and counts came from; they are never features."""
    bag_column: str | None = None
    """The one of them that holds the ids, which reveals a frame in a different order."""
    known_rows: tuple[int, ...] = ()
    """Rows with a known label; each is a bag of its own, not named in the bag column."""

    def __init__(
        self,
        offsets: Any,
        counts: Any,
        rows: Any = None,
        ids: Iterable[Hashable] | None = None,
        num_rows: int | None = None,
    ) -> None:
        ends = checked_offsets(offsets)
        table, num_rows = checked_rows(rows, int(ends[-1]), num_rows)
        names: Sequence[Hashable] = range(len(ends) - 1)
        if ids is not None:
            codes, distinct = numbered(ids, "ids")
            names = [distinct[code] for code in codes]
        if len(names) != len(ends) - 1:
            raise LLPError(f"ids has {len(names)} entries but there are {len(ends) - 1} bags")
        evidence = checked_evidence(counts, np.diff(ends), CountNaming(names))
        # The bags live on the device of the first tensor that was passed.
        home = next((x for x in (offsets, counts) if isinstance(x, Tensor | Evidence)), evidence)
        parts = torch.tensor(ends), torch.tensor(table), evidence.to(home.device)
        vars(self).update(vars(Bags.unchecked(*parts, names, num_rows)))

    @classmethod
    def unchecked(
        cls,
        offsets: Tensor,
        rows: Tensor,
        evidence: Evidence,
        ids: Iterable[Hashable],
        num_rows: int,
    ) -> "Bags":
        """Bags from parts that are known to be valid, on the device of the evidence."""
        bags, device = cls.__new__(cls), evidence.device
        vars(bags).update(offsets=offsets.to(device), rows=rows.to(device), evidence=evidence)
        vars(bags).update(ids=tuple(ids), num_rows=num_rows)
        return bags

    def replace(self, **changes: Any) -> "Bags":
        """A copy with some fields changed, not checked."""
        bags = Bags.__new__(Bags)
        vars(bags).update({f.name: getattr(self, f.name) for f in fields(self)} | changes)
        return bags

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        bag: str,
        count: str | Sequence[str] | None = None,
        *,
        count_low: str | Sequence[str] | None = None,
        count_high: str | Sequence[str] | None = None,
        proportion: str | Sequence[str] | None = None,
        decimals: int | None = None,
        counts_table: Any = None,
        ignore_empty: bool = False,
        count_noise: str | None = None,
        known_label: str | None = None,
        class_names: Sequence[str] | None = None,
    ) -> "Bags":
        """Bags from the columns of a data frame: one row per instance, a bag column, and counts.

        The arguments mean the same as the options of ``llpkit fit``. Bag ids are text, and bags are
        in the order of their first rows. :func:`llpkit.fit` learns from the other columns.

        Args:
            frame: A frame of pandas, polars or pyarrow, a Hugging Face data set, or the path of a
                table file.
            bag: The column of bag names.
            count: The column of positives in the bag, the same in all its rows; or a list, one
                column per class.
            count_low: The lowest possible count, empty for no bound: instead of ``count``, or with
                it for bags in which that is empty.
            count_high: The highest possible count; empty for no bound.
            proportion: Instead of ``count``, the share of positives; or one column per class.
            decimals: The proportions were rounded to this many decimals.
            counts_table: A second frame or file, one row per bag, with the bag and count columns.
            ignore_empty: Leave out bags of ``counts_table`` that have no rows; else they are an
                error.
            count_noise: How the counts were published, such as ``laplace:2`` or ``rounded:5``.
            known_label: A column of labels that are known for some rows and empty for the others.
            class_names: Names of the classes in ``known_label``.

        >>> import pyarrow as pa
        >>> frame = pa.table({"district": ["b", "a", "b"], "n_yes": [1, 0, 1], "age": [30, 40, 50]})
        >>> bags = Bags.from_frame(frame, bag="district", count="n_yes")
        >>> bags.ids, bags.counts, bags.columns
        (('b', 'a'), tensor([1, 0]), ('district', 'n_yes'))
        """
        from llpkit.tables import CountColumns, Table

        columns = CountColumns(
            count,
            count_low=count_low,
            count_high=count_high,
            proportion=proportion,
            decimals=decimals,
            counts_table=counts_table,
            count_noise=count_noise,
            known_label=known_label,
            class_names=class_names,
            ignore_empty=ignore_empty,
        )
        bags, _ = columns.read(Table.of(frame), bag)
        return bags.replace(columns=(bag, *columns.names), bag_column=bag)

    @classmethod
    def from_groups(
        cls, groups: Iterable[Hashable], counts: Any, *, ids: Iterable[Hashable] | None = None
    ) -> "Bags":
        """Bags from a bag id for every row, in any order.

        Bags are in the order of their sorted ids, as from ``np.unique(groups)``. Bags whose ids
        cannot be sorted, such as a number and a string, are in the order of their first rows.

        Args:
            groups: The bag id of every row, ``(N,)``: a list, array, tensor or Series of hashables.
            counts: A mapping (or Series) from id to count, or to ``K`` class counts; or an array
                ``(B,)`` or ``(B, K)`` or :class:`~llpkit.Evidence`, in the order of the sorted
                distinct ids, as from ``np.bincount(groups, labels)``.
            ids: The id of each entry of such an array or evidence, if its order is different.

        >>> bags = Bags.from_groups(["b", "a", "b", "b"], {"b": 2, "a": 0})
        >>> bags.ids, bags.rows, bags.counts
        (('a', 'b'), tensor([1, 0, 2, 3]), tensor([0, 2]))
        >>> Bags.from_groups(["b", "a", "b", "b"], [2, 0], ids=["b", "a"]).counts
        tensor([0, 2])
        """
        found = group(groups)
        values, naming = aligned(counts, found, "counts", ids)
        return cls.of_groups(found, checked_evidence(values, found.sizes, naming))

    @classmethod
    def of_groups(cls, groups: Groups, evidence: Evidence) -> "Bags":
        """Bags of rows that are already grouped, with checked evidence."""
        offsets = to_offsets(torch.from_numpy(groups.sizes))
        return cls.unchecked(offsets, groups.rows, evidence, groups.ids, len(groups.rows))

    @classmethod
    def from_labels(
        cls, labels: Any, groups: Iterable[Hashable], num_classes: int | None = None
    ) -> "Bags":
        """Bags with the counts of true labels; the labels themselves are dropped.

        Bags are in the order of :meth:`from_groups`. Labels ``(N,)`` are 0 or 1, or with
        ``num_classes`` ``0 … K - 1``.

        >>> Bags.from_labels([0, 1, 1, 1], groups=[7, 7, 9, 9]).counts
        tensor([1, 2])
        """
        found = group(groups)
        truth = checked_labels(labels, num_classes)
        if len(truth) != len(found.rows):
            raise LLPError(f"labels has {len(truth)} rows but groups has {len(found.rows)}")
        counted = label_counts(truth[found.rows.numpy()], found.sizes, num_classes)
        return cls.of_groups(found, counted)

    @classmethod
    def from_proportions(
        cls,
        groups: Iterable[Hashable],
        proportions: Any,
        tolerance: float = 1e-3,
        decimals: int | None = None,
        *,
        ids: Iterable[Hashable] | None = None,
    ) -> "Bags":
        """Bags whose proportions of positives, or of each class, are known.

        Args:
            groups: The bag id of every row, as in :meth:`from_groups`.
            proportions: Numbers in [0, 1]: a mapping, or an array in the order of the sorted
                distinct ids, as counts in :meth:`from_groups`.
            tolerance: How far ``n * p`` may be from a whole count, in instances.
            decimals: The proportions were rounded to this many decimals: the evidence is the
                interval of all counts that round to them (a tie either way), not one count.
            ids: The id of each entry of an array, if its order is different.

        >>> Bags.from_proportions(["a", "a", "a", "b"], {"a": 0.3333, "b": 1}).counts
        tensor([1, 1])
        >>> Bags.from_proportions([0] * 40, [0.3], decimals=1)[0].high
        14
        """
        found = group(groups)
        values, naming = aligned(proportions, found, "proportions", ids)
        p = numbers(values, "proportions", naming.entry_of_bag).astype(np.float64)
        evidence = proportion_evidence(p, found.sizes, tolerance, decimals, naming)
        return cls.of_groups(found, evidence)

    def with_labels(self, labels: Any) -> "Bags":
        r"""The same bags, with the labels of some instances known: semi-supervised learning.

        An instance with a known label becomes a bag of one and leaves its bag, whose count falls
        by its label. This is exact, because :math:`P(h_j, y) = P(h_j)\, P(y - h_j)`, so every
        method and estimator can learn from the result. A bag that has no instances left is dropped.
        A bag without a count is ``Evidence.unknown``.

        Args:
            labels: One entry per row of the table: 0 or 1, or ``0 … K - 1``; -1 or NaN where the
                label is not known.

        >>> bags = Bags.from_groups(["a", "a", "a", "b"], {"a": 2, "b": 1})
        >>> known = bags.with_labels([1, -1, -1, -1])
        >>> known.sizes, known.counts
        (tensor([2, 1, 1]), tensor([1, 1, 1]))
        """
        return with_known_labels(self, labels, lambda row, label: f"labels[{row}] = {label}")

    @classmethod
    def concat(cls, parts: "Iterable[Bags]") -> "Bags":
        """All bags of all parts, their tables stacked in that order, on the first part's device.

        >>> two = Bags.concat([Bags([0, 2], [1]), Bags([0, 1], [0])])
        >>> two.rows, two.num_rows
        (tensor([0, 1, 2]), 3)
        """
        parts = list(parts) if isinstance(parts, Iterable) else []
        if not parts or not all(isinstance(part, Bags) for part in parts):
            raise LLPError("Bags.concat needs Bags, at least one; pass them as a list")
        parts = [part.to(parts[0].device) for part in parts]
        before = np.cumsum([0, *(part.num_rows for part in parts)]).tolist()
        bag_columns = {part.bag_column for part in parts}
        return parts[0].replace(
            offsets=to_offsets(torch.cat([part.sizes for part in parts])),
            rows=torch.cat([part.rows + n for part, n in zip(parts, before, strict=False)]),
            evidence=Evidence.concat([part.evidence for part in parts]),
            ids=tuple(name for part in parts for name in part.ids),
            num_rows=before[-1],
            columns=tuple(dict.fromkeys(name for part in parts for name in part.columns)),
            bag_column=bag_columns.pop() if len(bag_columns) == 1 else None,
            known_rows=tuple(
                row + n for part, n in zip(parts, before, strict=False) for row in part.known_rows
            ),
        )

    def _size_range(self) -> str:
        return span(int(self.sizes.min()), int(self.sizes.max()))

    def __repr__(self) -> str:
        parts = [f"{len(self)} bags", f"{self.num_instances} instances"]
        parts += [f"sizes {self._size_range()}", self.describe_counts()]
        if self.num_classes is not None:
            parts.append(f"{self.num_classes} classes")
        if self.device.type != "cpu":
            parts.append(str(self.device))
        return f"Bags({', '.join(parts)})"

    def _repr_html_(self) -> str:
        first = self[:SHOWN]
        heads, counts = first.evidence.in_words(SHOWN)
        sizes = first.sizes.tolist()
        rows = [[str(i), str(n), *c] for i, n, c in zip(first.ids, sizes, counts, strict=True)]
        facts = [
            ("bags", f"{len(self):,}"),
            ("instances", f"{self.num_instances:,}"),
            ("sizes", self._size_range()),
            ("counts", "exact" if self.evidence.is_exact else self.describe_counts()),
        ]
        more = len(self) - len(rows)
        notes = [f"… and {more:,} more"] if more else []
        return html_table("Bags", facts, ["bag", "size", *heads], rows, notes)

    @property
    def informative(self) -> Tensor:
        """Which bags have a count that rules something out, ``(B,)`` bool; empty bags have none.

        >>> Bags([0, 2, 4], Evidence.interval([0, 1], [2, 2])).informative
        tensor([False,  True])
        """
        evidence = self.evidence
        cells = (evidence.low > 0) | (evidence.high < self._size_per_count) | evidence.weighted
        return cells if self.num_classes is None else cells.any(1)

    def describe_counts(self) -> str:
        """How many counts are exact, in a range, seen through noise, or not known.

        >>> known = Evidence.concat([Evidence.exact([1, 0]), Evidence.interval([1], [2])])
        >>> Bags([0, 2, 4, 7], known).describe_counts()
        '2 exact counts, 1 range'
        """
        evidence = self.evidence
        if evidence.is_exact:
            return "exact counts"
        exact = evidence.low == evidence.high
        noisy = evidence.weighted
        if self.num_classes is not None:
            exact, noisy = exact.all(1), noisy.any(1)
        unknown = ~(self.informative | exact)
        kinds = {"exact count": exact, "range": ~(exact | noisy | unknown)}
        kinds |= {"noisy count": noisy & ~exact, "unknown count": unknown}
        numbers = {noun: int(which.sum()) for noun, which in kinds.items()}
        return ", ".join(several(number, noun) for noun, number in numbers.items() if number)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Bag]:
        low = self.evidence.low.tolist()
        high = self.evidence.high.minimum(self._size_per_count).tolist()
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
            index = whole("index", index, -len(self), len(self) - 1)
            return next(iter(self._select(torch.tensor([index % len(self)]))))
        return self._select(torch.from_numpy(positions(index, len(self))))

    def _select(self, where: Tensor) -> "Bags":
        """The bags at these valid, distinct positions, a CPU tensor."""
        ids = tuple(self.ids[b] for b in where.tolist())
        where = where.to(self.device)  # ids are on the host
        instances, offsets = instances_of(self.offsets, where)
        return self.replace(
            offsets=offsets, rows=self.rows[instances], evidence=self.evidence[where], ids=ids
        )

    @property
    def sizes(self) -> Tensor:
        """Number of instances of every bag, ``(B,)``."""
        return self.offsets.diff()

    @property
    def _size_per_count(self) -> Tensor:
        """The sizes in a shape that broadcasts with the counts, ``(B,)`` or ``(B, 1)``."""
        return self.sizes if self.num_classes is None else self.sizes[:, None]

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
        """The counts ``(B,)`` or ``(B, K)``; an error if some are not known exactly."""
        return self.evidence.counts

    @property
    def proportions(self) -> Tensor:
        """Counts over sizes, float64 ``(B,)`` or ``(B, K)``; zero for an empty bag."""
        return self.counts.double() / self._size_per_count.clamp(min=1)

    @cached_property
    def bag_index(self) -> Tensor:
        """The bag of every instance, ``(N,)``, in the order of ``rows``."""
        return bag_index(self.offsets)

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.evidence.device

    def to(self, device: torch.device | str) -> "Bags":
        """The same bags on another device."""
        names = "offsets", "rows", "evidence"
        return self.replace(**{name: getattr(self, name).to(device) for name in names})

    def in_row_order(self) -> "Bags":
        """The same bags in the order of their first rows; none may be empty.

        >>> Bags.from_groups(["b", "a", "b"], {"a": 0, "b": 2}).in_row_order().ids
        ('b', 'a')
        """
        return self._select(self.rows[self.offsets[:-1]].argsort().cpu())

    def split(self, fraction: float, generator: Seed) -> "tuple[Bags, Bags]":
        """Two random parts, the first with this fraction of the bags, each in the original order.

        >>> train, held_out = Bags([0, 1, 3, 6, 7], [0, 1, 2, 1]).split(0.75, generator=0)
        >>> len(train), len(held_out)
        (3, 1)
        """
        first = round(share("fraction", fraction) * len(self))
        if first in (0, len(self)):
            raise LLPError(f"fraction = {fraction} of {len(self)} bags leaves a part without bags")
        order = permutation(len(self), generator)
        return self._select(order[:first].sort()[0]), self._select(order[first:].sort()[0])

    def kfold(self, k: int, generator: Seed | None = None) -> "Iterator[tuple[Bags, Bags]]":
        """``k`` pairs (train, held out); every bag is held out once.

        The folds are runs of neighbouring bags, or random ones when a generator is given.

        >>> [len(held_out) for train, held_out in Bags([0, 1, 2, 3], [0, 1, 1]).kfold(2)]
        [2, 1]
        """
        k = whole("k", k, 2, len(self))
        fold = torch.arange(len(self)) * k // len(self)  # sizes differ by one at most
        if generator is not None:
            fold = fold[permutation(len(self), generator)]
        select = self._select
        return (
            (select(torch.where(fold != i)[0]), select(torch.where(fold == i)[0])) for i in range(k)
        )


def permutation(length: int, generator: Seed) -> Tensor:
    """A random order, on the CPU whatever the generator's device."""
    source = checked_generator(generator)
    return torch.randperm(length, generator=source, device=source.device).cpu()
