"""Counts of bags in the columns of a table."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import Array, entries_named, refuse
from llpkit._text import a_few, several, span
from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.bags.known_labels import with_known_labels
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.evidence.counts import CountNaming, check_not_shares, whole_counts
from llpkit.evidence.support import check_support, label_counts, proportion_evidence, within_bounds
from llpkit.tables.noise import CountNoise
from llpkit.tables.table import Table

Columns = str | Sequence[str] | None
"""The name of one column, or of several."""


@dataclass(frozen=True)
class CountColumns:
    """The columns that hold the counts, and how they are meant.

    Args:
        count: The column of positives in the bag, the same in all its rows; or one per class.
        count_low: The lowest possible count, empty for no bound: instead of ``count``, or with it;
            then a bag may have a count, a range, both if they agree, or neither.
        count_high: The highest possible count; empty for no bound.
        proportion: Instead of ``count``, the share of positives; or one column per class.
        decimals: The proportions were rounded to this many decimals.
        counts_table: A second table, a file or a data frame with one row per bag, that has the bag
            column and the columns above.
        count_noise: How the counts were published; see :class:`~llpkit.tables.noise.CountNoise`.
        known_label: A column of labels, class names or numbers, that are known for some rows. With
            it, an empty count means that the bag has none, counts are optional, and a labelled row
            needs no bag.
        class_names: Names of the classes.
        ignore_empty: Leave out bags of ``counts_table`` that have no rows; else they are an error.
    """

    count: Columns = None
    _: KW_ONLY
    count_low: Columns = None
    count_high: Columns = None
    proportion: Columns = None
    decimals: int | None = None
    counts_table: Any = None
    count_noise: str | None = None
    known_label: str | None = None
    class_names: Sequence[str] | None = None
    ignore_empty: bool = False

    @classmethod
    def of(cls, settings: Any, **changes: Any) -> "CountColumns":
        """From the attributes of the same names, with some changed."""
        return cls(**{f.name: getattr(settings, f.name) for f in fields(cls)} | changes)

    @property
    def names(self) -> list[str]:
        """The names of all these columns."""
        given = (self.count, self.count_low, self.count_high, self.proportion, self.known_label)
        return [name for columns in given for name in listed(columns)]

    @property
    def classes(self) -> list[str] | None:
        """The columns of the classes; ``None`` for binary counts."""
        given = map(listed, (self.count, self.proportion, self.count_low, self.count_high))
        columns = next(filter(None, given), [])
        return columns if len(columns) > 1 else None

    def class_names_in(self, table: Table) -> tuple[str, ...]:
        """The given names, else those of the count columns, else negative and positive.

        If there are known labels of more than two kinds and no counts, the labels are the names.
        """
        names, given = self.classes or ["negative", "positive"], self.class_names
        if self.known_label is not None and self.names == [self.known_label]:
            labels = table.distinct(self.known_label) if given is None else list(given)
            names = labels if len(labels) > 2 else names
        if given is None:
            return tuple(names)
        if isinstance(given, str) or len(given) != len(names):
            raise LLPError(
                f"{option('class_names')} = {given!r}; give {len(names)} names, in the order of "
                "the labels"
            )
        return tuple(map(str, given))

    def bags(self, table: Table, bag: str) -> Bags:
        """The bags of a table, ids as text, in the order in which they appear."""
        return self.read(table, bag)[0]

    def read(self, table: Table, bag: str) -> tuple[Bags, list[str]]:
        """The bags of a table, and notes on what was left out and on inexact counts."""
        self._check()
        labels = None
        names = self.class_names_in(table)
        if self.known_label is not None:
            labels = table.labels(self.known_label, names, partly=True)
        codes, ids = table.groups(bag, None if labels is None else labels >= 0)
        partly = labels is not None
        counted = _Counted.of(table, bag, codes, ids, self.counts_table, partly, self.ignore_empty)
        offsets = np.append(0, np.cumsum(counted.sizes))
        rows = np.argsort(codes, kind="stable")
        bags = Bags(
            offsets, self._evidence(counted, len(names)), rows=rows, ids=ids, num_rows=len(table)
        )
        notes = []
        if counted.empty:
            number = several(len(counted.empty), "bag")
            notes.append(
                f"left out {number} of {counted.table.path} without rows: {a_few(counted.empty)}"
            )
        if labels is not None:

            def entry(row: int, label: int) -> str:
                return f"{table.cell(row, str(self.known_label))} = {names[label]!r}"

            bags = with_known_labels(bags, labels, entry)
            known = several(int((labels >= 0).sum()), "row")
            notes.append(f"{known} with a known label, each in its own bag")
        if not bags.evidence.is_exact:
            notes.append(f"of the bags, {bags.describe_counts()}")
        return bags, notes

    def read_with_labels(
        self, table: Table, bag: str, label: str | None
    ) -> tuple[Bags, Tensor | None, list[str]]:
        """Like :meth:`read`, with the true labels ``(R,)`` from the column ``label``, if given."""
        bags, notes = self.read(table, bag)
        if label is None:
            return bags, None, notes
        truth = torch.from_numpy(table.labels(label, self.class_names_in(table)))
        return bags, truth, notes + contradictions(bags, truth, label)

    @property
    def _has_bounds(self) -> bool:
        return self.count_low is not None or self.count_high is not None

    def _check(self) -> None:
        if self.count is not None and self.proportion is not None:
            raise LLPError(
                f"counts and proportions were given; name the columns of {option('count')} or of "
                f"{option('proportion')}, each with or without {option('count_low')} and "
                f"{option('count_high')}"
            )
        # Known labels alone are enough to learn from.
        given = (self.count, self.proportion, self.count_low, self.count_high, self.known_label)
        if all(columns is None for columns in given):
            raise LLPError(
                f"no counts were given; name their columns with {option('count')}, "
                f"{option('proportion')}, or {option('count_low')} and {option('count_high')}, or "
                f"labels to learn from with {option('known_label')}"
            )
        if self.decimals is not None and self.proportion is None:
            raise LLPError(f"{option('decimals')} belongs to {option('proportion')}; leave it out")
        if self.count_noise is not None and self.count is None:
            raise LLPError(f"{option('count_noise')} belongs to {option('count')}; leave it out")

    def _evidence(self, counted: "_Counted", num_classes: int) -> Evidence:
        if self.count is None and self.proportion is None:
            if self._has_bounds:
                return counted.bounds(self.count_low, self.count_high)
            return Evidence.unknown(len(counted.ids), num_classes if num_classes > 2 else None)
        if self._has_bounds:  # a bag may then have bounds and no count
            counted = replace(counted, partly=True)
        if self.count is not None:
            name = option("count_noise")
            noise = None if self.count_noise is None else CountNoise.parse(self.count_noise, name)
            evidence = counted.counts(self.count, noise)
        else:
            evidence = counted.proportions(self.proportion, self.decimals)
        if not self._has_bounds:
            return evidence
        columns = self.proportion if self.count is None else self.count
        return counted.within(evidence, columns, self.count_low, self.count_high)


def contradictions(bags: Bags, truth: Tensor, label: str) -> list[str]:
    """A note on bags whose true labels ``(R,)`` do not add up to their counts, if there are any."""
    labels = truth[bags.rows].numpy()
    y = label_counts(labels, bags.sizes.numpy(), bags.num_classes).low
    wrong = (y < bags.evidence.low) | (y > bags.evidence.high)
    wrong = wrong if y.dim() == 1 else wrong.any(1)
    if not bool(wrong.any()):
        return []
    b = int(wrong.int().argmax())
    added = ", ".join(map(str, np.ravel(y[b])))
    return [
        f"the labels in column {label!r} contradict the counts of {int(wrong.sum()):,} of "
        f"{several(len(bags), 'bag')}, first that of bag {bags.ids[b]!r}: its labels add up to "
        f"{added}, its count is {bags.evidence.describe(b)}; if the classes are in a different "
        f"order, give them with {option('class_names')}"
    ]


def listed(columns: Columns) -> list[str]:
    """Column names as a list, whether none, one or several were given."""
    if columns is None:
        return []
    if isinstance(columns, list | tuple) or hasattr(columns, "tolist"):  # of NumPy or pandas
        return list(columns)
    return [columns]  # type: ignore[list-item]


@dataclass(frozen=True)
class _Cells(CountNaming):
    """Names a count by its table cell: the first row of the bag ``(B,)``, the column of a class."""

    table: Table = field(kw_only=True)
    columns: list[str] = field(kw_only=True)
    rows: Array = field(kw_only=True)

    unit = "row"

    @property
    def remedy(self) -> str:
        return f"give non-negative whole numbers; proportions go in {option('proportion')}"

    @property
    def as_integers(self) -> str:
        if self.table.is_file:
            return "write 0 and 1 if they are counts"
        # A pandas column with a missing value is of floats.
        return f"if they are counts, give integers: frame[{self.columns[0]!r}].astype('Int64')"

    @property
    def for_shares(self) -> str:
        return f"use {option('proportion', self.columns[0])}"

    @property
    def for_counts(self) -> str:
        return f"counts go in {option('count')}"

    @property
    def of_size(self) -> str:
        return f"are rows of the bag missing? Proportions go in {option('proportion')}"

    def bag(self, b: int) -> str:
        return f"bag {self.ids[b]!r}"

    def cell(self, *index: int) -> str:
        """The cell of a bag and a class, or of a bag and its first class."""
        b, k, *_ = (*index, 0)
        more = " and its neighbours" if len(index) < 2 and len(self.columns) > 1 else ""
        return self.table.cell(int(self.rows[b]), self.columns[k]) + more

    def entry(self, value: object, *index: int) -> str:
        return f"{self.cell(*index)} = {_shown(value)}"


@dataclass(frozen=True)
class _Counted:
    """The table that holds the counts, and the rows of each bag in it."""

    table: Table
    codes: Array | None  # the bag of every row of the table; None if every bag has one row
    rows: Array  # (B,) the first row of every bag in the table; -1 if it has none
    sizes: Array  # (B,)
    ids: list[str]
    partly: bool = False  # whether a bag may have no count
    empty: tuple[str, ...] = ()  # bags that are left out because they have no rows

    @classmethod
    def of(
        cls,
        table: Table,
        bag: str,
        codes: Array,
        ids: list[str],
        other: Any,
        partly: bool,
        ignore_empty: bool,
    ) -> "_Counted":
        sizes = np.bincount(codes, minlength=len(ids))
        if other is None:
            first = np.unique(codes, return_index=True)[1]
            return cls(table, codes, first, sizes, ids, partly)
        counts = Table.of(other, "the counts table")
        bag_of_row, known = counts.groups(bag)
        if len(known) < len(bag_of_row):
            # For each row, the first row with the same bag.
            first = np.unique(bag_of_row, return_index=True)[1][bag_of_row]
            second = int((first != np.arange(len(first))).argmax())
            raise LLPError(
                f"{counts.cell(second, bag)} = {known[bag_of_row[second]]!r} is in row "
                f"{first[second] + 1} already; keep one row per bag"
            )
        row_of = {name: row for row, name in enumerate(known)}
        uncounted = [name for name in ids if name not in row_of]
        if uncounted and not partly:
            raise LLPError(
                f"{counts.path} has no row for {_bags(uncounted)} of {table.path}; add the counts, "
                "or drop the rows"
            )
        own = set(ids)
        empty = [name for name in known if name not in own]
        if empty and not ignore_empty:
            raise LLPError(
                f"no row of {table.path} is in {_bags(empty)} of {counts.path} (first in "
                f"{counts.cell(row_of[empty[0]], bag)}); remove them, or leave them out with "
                f"{option('ignore_empty')}"
            )
        rows = np.array([row_of.get(name, -1) for name in ids])
        return cls(counts, None, rows, sizes, ids, partly, tuple(empty))

    def naming(self, columns: Columns, name: str = "counts") -> _Cells:
        """How errors name the cells of these columns."""
        names = listed(columns)
        if not names or len(names) != len(set(map(str, names))):
            raise LLPError(f"columns = {names}; name one column, or one for each class")
        return _Cells(self.ids, name, table=self.table, columns=names, rows=self.rows)

    def values(self, naming: _Cells, remedy: str, missing: str | None = None) -> Array:
        """Numbers ``(B,)`` or ``(B, K)``, NaN where missing, the same in all rows of a bag.

        ``missing`` is a regular expression for strings that stand for a missing number.
        """
        stacked = [self._value(name, remedy, missing) for name in naming.columns]
        return stacked[0] if len(stacked) == 1 else np.stack(stacked, 1)

    def _value(self, name: str, remedy: str, missing: str | None) -> Array:
        values = self.table.numbers(name, remedy, missing=missing)
        first = np.where(self.rows >= 0, values[self.rows], np.nan)
        if self.codes is not None:
            # The value in the first row of each row's bag.
            expected = first[self.codes]
            differs = (values != expected) & ~(np.isnan(values) & np.isnan(expected))
            if differs.any():
                row = int(differs.argmax())
                bag = int(self.codes[row])
                raise LLPError(
                    f"{self.table.cell(row, name)} = {_shown(values[row])} but row "
                    f"{self.rows[bag] + 1} of the same bag, {self.ids[bag]!r}, has "
                    f"{_shown(first[bag])}; all rows of a bag must agree"
                )
        return first

    def counts(self, columns: Columns, noise: CountNoise | None) -> Evidence:
        """Evidence from counts, exact or as they were published; none without a count."""
        naming = self.naming(columns)
        hidden = None if noise is None else noise.hidden
        words = "a count is a whole number" if noise is None else "a count is a number"
        values = self.values(naming, words, hidden)
        missing = np.isnan(values)
        if hidden is not None:
            missing = np.zeros_like(missing)  # an empty cell is a suppressed count
        if not self.partly:
            refuse(
                missing,
                lambda *i: (
                    f"{naming.cell(*i)} is empty; give the count. If some are not known, use "
                    f"{option('count_low', columns)} {option('count_high', columns)} instead of "
                    f"{option('count')}: an empty cell then means no bound"
                ),
            )
        return self._where_given(
            naming, values, missing, lambda part, given: part.published(columns, given, noise)
        )

    def _where_given(
        self,
        naming: _Cells,
        values: Array,
        missing: Array,
        make: Callable[["_Counted", Array], Evidence],
    ) -> Evidence:
        """The evidence that ``make`` builds from the values; bags without values have none."""
        if missing.ndim == 2:
            refuse(
                missing & ~missing.all(1, keepdims=True),
                lambda *i: (
                    f"{naming.cell(*i)} is empty but {naming.bag(i[0])} has values of other "
                    f"classes; give all, or bounds with {option('count_low')} and "
                    f"{option('count_high')}"
                ),
            )
            missing = np.asarray(missing.all(1))
        given, rest = np.flatnonzero(~missing), np.flatnonzero(missing)
        part = replace(
            self, rows=self.rows[given], sizes=self.sizes[given], ids=[self.ids[b] for b in given]
        )
        evidence = make(part, values[given])
        if not len(rest):
            return evidence
        unknown = Evidence.unknown(len(rest), evidence.num_classes)
        order = np.argsort(np.concatenate([given, rest]))  # back from "given first"
        return Evidence.concat([evidence, unknown])[order]

    def published(self, columns: Columns, values: Array, noise: CountNoise | None) -> Evidence:
        """Evidence from values that are not missing, exact or as ``noise`` describes them."""
        naming = self.naming(columns)
        if noise is None:
            y = whole_counts(values, naming)
            evidence = Evidence.exact(y)
            if y.ndim == 1 and self.table.has_decimals(naming.columns[0]):
                check_not_shares(y, naming, self.sizes)
        else:
            with entries_named("observed", naming.entry):
                evidence = noise.evidence(values, self.sizes)
        check_support(evidence, self.sizes, naming)
        return evidence

    def bounds(self, low: Columns, high: Columns) -> Evidence:
        """Evidence from bounds; without bounds a count is between 0 and the size of the bag."""
        if low is not None and high is not None and len(listed(low)) != len(listed(high)):
            names = f"{option('count_low')} and {option('count_high')}"
            raise LLPError(f"{names} name different numbers of columns")
        naming = self.naming(high if low is None else low)
        n = self.sizes if len(naming.columns) == 1 else self.sizes[:, None]
        first = self._bound(low, np.zeros_like(n))
        # At least the lower bound, so that a bound above the size is reported as such, below.
        last = self._bound(high, np.maximum(n, first))
        first = np.broadcast_to(first, last.shape)
        refuse(
            first > last,
            lambda *i: (
                f"{naming.entry(first[i], *i)} is above the upper bound, {last[i]}; swap them"
            ),
        )
        evidence = Evidence.interval(first, last)
        check_support(evidence, self.sizes, naming)
        return evidence

    def within(self, known: Evidence, columns: Columns, low: Columns, high: Columns) -> Evidence:
        """Evidence from counts or shares, which are in ``columns``, and from bounds as well."""
        bounds = self.bounds(low, high)
        if bounds.num_classes != known.num_classes:
            names = f"{option('count_low')} and {option('count_high')}"
            raise LLPError(f"{names} name a different number of columns than {listed(columns)}")
        own, naming = self.naming(columns), self.naming(high if low is None else low)
        both, possible = within_bounds(known, bounds)

        def message(*i: int) -> str:
            ends = span(int(bounds.low[i]), int(bounds.high[i]))
            return (
                f"{own.cell(*i)} contradicts the bounds of the same bag, {own.ids[i[0]]!r}, which "
                f"are {ends} (column {naming.columns[(*i, 0)[1]]!r}); correct one of the two, or "
                "leave it empty"
            )

        refuse(~possible.numpy(), message)
        check_support(both, self.sizes, naming)
        return both

    def _bound(self, columns: Columns, missing: Array) -> Array:
        """Bounds ``(B,)`` or ``(B, K)``; ``missing`` fills empty cells."""
        if columns is None:
            return missing
        naming = self.naming(columns)
        values = self.values(naming, "a bound is a whole number")
        filled = np.where(np.isnan(values), missing, values)
        return whole_counts(filled, naming)

    def proportions(self, columns: Columns, decimals: int | None) -> Evidence:
        """Evidence from shares of the bag; none without a share."""
        naming = self.naming(columns, "proportions")
        p = self.values(naming, "a proportion is a number from 0 to 1")
        missing = np.isnan(p)
        if not self.partly:
            refuse(missing, lambda *i: f"{naming.cell(*i)} is empty; give the proportion")

        def make(part: _Counted, given: Array) -> Evidence:
            cells = part.naming(columns, "proportions")
            return proportion_evidence(given, part.sizes, 1e-3, decimals, cells)

        return self._where_given(naming, p, missing, make)


def _bags(ids: Sequence[str]) -> str:
    """Bags by name."""
    return f"bag{'' if len(ids) == 1 else 's'} {a_few(ids)}"


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return "nothing" if np.isnan(value) else f"{value:.12g}"
