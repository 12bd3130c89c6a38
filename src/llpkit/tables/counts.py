"""Counts of bags in the columns of a table."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llpkit._arrays import refuse
from llpkit._counts import CountNaming, check_not_shares, whole_counts
from llpkit._support import check_support, proportion_evidence
from llpkit._validation import option
from llpkit._words import a_few
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.evidence import NO_BOUND, Evidence
from llpkit.tables.noise import CountNoise
from llpkit.tables.table import Table

Array = NDArray[Any]
Columns = str | Sequence[str] | None
"""The name of one column, or of several."""


@dataclass(frozen=True)
class CountColumns:
    """The columns that hold the counts: one for the positives, or one per class.

    Give ``count``, or ``low`` and ``high`` (an empty cell means no bound), or ``proportion`` (with
    the ``decimals`` that it was rounded to, if any). ``table`` is a second table, a file or a data
    frame with one row per bag, that has these columns and the bag column; without it they are in
    the table itself, the same in all rows of a bag. With ``ignore_empty``, bags of that table
    without rows are left out instead of being an error.

    ``noise`` says how the counts were published, see :class:`~llpkit.tables.noise.CountNoise`.
    ``known_label`` is a column of labels that are known for some rows, by the names of the classes
    or their numbers. With it, an empty count means that the bag has none, there need be no counts
    at all, and a row of known label needs no bag.
    """

    count: Columns = None
    low: Columns = None
    high: Columns = None
    proportion: Columns = None
    decimals: int | None = None
    table: Any = None
    noise: str | None = None
    known_label: str | None = None
    class_names: Sequence[str] | None = None
    ignore_empty: bool = False

    @property
    def names(self) -> list[str]:
        """The names of all these columns."""
        given = (self.count, self.low, self.high, self.proportion, self.known_label)
        return [name for columns in given for name in listed(columns)]

    @property
    def classes(self) -> list[str] | None:
        """The columns of the classes; ``None`` for binary counts."""
        columns = next((c for c in (self.count, self.proportion, self.low, self.high) if c), None)
        if columns is None and self.class_names is not None and len(self.class_names) > 2:
            return list(self.class_names)
        return listed(columns) if len(listed(columns)) > 1 else None

    def bags(self, table: Table, bag: str) -> Bags:
        """The bags of a table, ids as text, in the order in which they appear."""
        self._check()
        labels = None
        if self.known_label is not None:
            names = self.class_names or self.classes or ("negative", "positive")
            labels = table.labels(self.known_label, names, partly=True)
        codes, ids = table.groups(bag, None if labels is None else labels >= 0)
        partly = labels is not None
        counted = _Counted.of(table, bag, codes, ids, self.table, partly, self.ignore_empty)
        offsets = np.append(0, np.cumsum(counted.sizes))
        rows = np.argsort(codes, kind="stable")
        bags = Bags(offsets, self._evidence(counted), rows=rows, ids=ids, num_rows=len(table))
        return bags if labels is None else bags.with_labels(labels)

    def notes(self, bags: Bags) -> list[str]:
        """What known labels and missing counts amount to in these bags."""
        if self.known_label is None:
            return []
        alone, known = bags.sizes == 1, bags.evidence.low == bags.evidence.high
        silent = bags.evidence.high >= NO_BOUND
        if bags.num_classes is not None:
            known, silent = known.all(1), silent.all(1)
        return [
            f"rows of known label, each a bag of its own: {int((alone & known).sum()):,}; bags "
            f"without a count: {int(silent.sum()):,} of {len(bags):,}"
        ]

    def _check(self) -> None:
        kinds = [self.count is not None, self.proportion is not None]
        kinds.append(self.low is not None or self.high is not None)
        # Known labels alone are enough to learn from.
        if sum(kinds) != 1 and not (sum(kinds) == 0 and self.known_label is not None):
            raise LLPError(
                f"{sum(kinds)} kinds of counts were given; name the columns of one of "
                f"{option('count')}, {option('proportion')}, or {option('count_low')} and "
                f"{option('count_high')}"
            )
        if self.decimals is not None and self.proportion is None:
            raise LLPError(f"{option('decimals')} belongs to {option('proportion')}; leave it out")
        if self.noise is not None and self.count is None:
            raise LLPError(f"{option('count_noise')} belongs to {option('count')}; leave it out")

    def _evidence(self, counted: "_Counted") -> Evidence:
        if self.count is not None:
            noise = None
            if self.noise is not None:
                noise = CountNoise.parse(self.noise, option("count_noise"))
            return counted.counts(self.count, noise)
        if self.proportion is not None:
            return counted.proportions(self.proportion, self.decimals)
        if self.low is not None or self.high is not None:
            return counted.bounds(self.low, self.high)
        return Evidence.unknown(
            len(counted.ids), None if self.classes is None else len(self.classes)
        )


def listed(columns: Columns) -> list[str]:
    """Column names as a list, whether none, one or several were given."""
    if columns is None:
        return []
    return list(columns) if isinstance(columns, list | tuple) else [columns]  # type: ignore[list-item]


@dataclass(frozen=True)
class _Cells(CountNaming):
    """Errors name a table cell: the first row ``(B,)`` of the bag, and the column (of a class)."""

    table: Table = field(kw_only=True)
    columns: list[str] = field(kw_only=True)
    rows: Array = field(kw_only=True)

    unit = "row"

    @property
    def remedy(self) -> str:
        return f"give whole numbers from 0; proportions go in {option('proportion')}"

    @property
    def as_integers(self) -> str:
        return "write 0 and 1 if they are counts"

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

    def in_cells(self, message: str) -> str:
        """A message about ``observed[b]`` or ``observed[b, k]`` as one about a cell."""

        def cell(found: re.Match[str]) -> str:
            return self.cell(*map(int, re.findall(r"\d+", found[0])))

        return re.sub(r"observed(\[[\d, ]+\])+", cell, message)


@dataclass(frozen=True)
class _Counted:
    """The table that holds the counts, and the rows of each bag in it."""

    table: Table
    codes: Array | None  # the bag of every row of that table; None if every bag has one row
    rows: Array  # (B,) the first row of every bag in that table; -1 if it has none
    sizes: Array  # (B,)
    ids: list[str]
    partly: bool = False  # whether a bag may have no count

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
        return cls(counts, None, rows, sizes, ids, partly)

    def naming(self, columns: Columns, name: str = "counts") -> _Cells:
        """How errors name the cells of these columns."""
        names = listed(columns)
        if not names or len(names) != len(set(names)):
            raise LLPError(f"columns = {names}; name one column, or one for each class")
        return _Cells(self.ids, name, table=self.table, columns=names, rows=self.rows)

    def values(self, naming: _Cells, remedy: str, missing: str | None = None) -> Array:
        """Numbers ``(B,)`` or ``(B, K)``, NaN where missing, the same in all rows of a bag.

        ``missing`` is a regular expression for texts that stand for a missing number.
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
        known = ~(missing if missing.ndim == 1 else missing.any(1))  # (B,)
        some = np.flatnonzero(known)
        part = _Counted(
            self.table, self.codes, self.rows[some], self.sizes[some], [self.ids[b] for b in some]
        )
        evidence = part.published(columns, values[some], noise)
        if known.all():
            return evidence
        # Bags without a count go to the end, and then back to their places.
        nothing = Evidence.unknown(int((~known).sum()), evidence.num_classes)
        order = np.argsort(np.concatenate([some, np.flatnonzero(~known)]))
        return Evidence.concat([evidence, nothing])[order]

    def published(self, columns: Columns, values: Array, noise: CountNoise | None) -> Evidence:
        """Evidence from values that are not missing, exact or as ``noise`` describes them."""
        naming = self.naming(columns)
        if noise is None:
            y = whole_counts(values, naming)
            evidence = Evidence.exact(y)
            if y.ndim == 1 and self.table.has_decimals(naming.columns[0]):
                check_not_shares(y, naming, self.sizes)
        else:
            try:
                evidence = noise.evidence(values, self.sizes)
            except LLPError as error:
                raise LLPError(naming.in_cells(str(error))) from error
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

    def _bound(self, columns: Columns, missing: Array) -> Array:
        """Bounds ``(B,)`` or ``(B, K)``; ``missing`` fills empty cells."""
        if columns is None:
            return missing
        naming = self.naming(columns)
        values = self.values(naming, "a bound is a whole number")
        filled = np.where(np.isnan(values), missing, values)
        return whole_counts(filled, naming)

    def proportions(self, columns: Columns, decimals: int | None) -> Evidence:
        """Evidence from shares of the bag."""
        naming = self.naming(columns, "proportions")
        p = self.values(naming, "a proportion is a number from 0 to 1")
        refuse(np.isnan(p), lambda *i: f"{naming.cell(*i)} is empty; give the proportion")
        return proportion_evidence(p, self.sizes, 1e-3, decimals, naming)


def _bags(ids: list[str]) -> str:
    """Bags by name."""
    return f"bag{'' if len(ids) == 1 else 's'} {a_few(ids)}"


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return "nothing" if np.isnan(value) else f"{value:.12g}"
