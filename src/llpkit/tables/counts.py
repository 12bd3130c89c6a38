"""What a table says of the counts of its bags."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llpkit._validation import option
from llpkit._words import several
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.tables.table import Table

Array = NDArray[Any]
_DIGITS = 12  # decimals that a share can be told to have
Columns = str | Sequence[str] | None
"""The name of one column, or of several."""


@dataclass(frozen=True)
class CountColumns:
    """Which columns tell of the counts: of the positives, or one column a class.

    Give ``count``, or ``low`` and ``high`` (an empty cell is no bound), or ``proportion`` (with the
    ``decimals`` it was rounded to, if it was). ``table`` names a second table with one row a bag
    that has these columns and the bag column; without it they stand in the table itself, the same
    in all rows of a bag.
    """

    count: Columns = None
    low: Columns = None
    high: Columns = None
    proportion: Columns = None
    decimals: int | None = None
    table: str | os.PathLike[str] | None = None

    @property
    def names(self) -> list[str]:
        """All columns named."""
        given = (self.count, self.low, self.high, self.proportion)
        return [name for columns in given for name in listed(columns)]

    @property
    def classes(self) -> list[str] | None:
        """The columns of the classes; ``None`` for binary counts."""
        columns = next((c for c in (self.count, self.proportion, self.low, self.high) if c), None)
        return listed(columns) if len(listed(columns)) > 1 else None

    def bags(self, table: Table, bag: str) -> Bags:
        """The bags of a table, ids as text, in the order in which they appear."""
        kinds = [self.count is not None, self.proportion is not None]
        kinds.append(self.low is not None or self.high is not None)
        if sum(kinds) != 1:
            raise LLPError(
                f"what is known of the counts? Name the columns of one of {option('count')}, "
                f"{option('proportion')}, or "
                f"{option('count_low')} and {option('count_high')}; {sum(kinds)} of them were given"
            )
        if self.decimals is not None and self.proportion is None:
            raise LLPError(f"{option('decimals')} belongs to {option('proportion')}; leave it out")
        codes, ids = table.groups(bag)
        given = _Given.of(table, bag, codes, ids, self.table)
        if self.count is not None:
            y = given.whole(self.count, "count")
            given.check_sizes(y, y, self.count)
            given.check_not_shares(y, self.count)
            evidence = Evidence.exact(y)
        elif self.proportion is not None:
            evidence = given.proportions(self.proportion, self.decimals)
        else:
            low, high = given.bounds(self.low, self.high)
            given.check_sizes(low, high, self.low if self.low is not None else self.high)
            evidence = Evidence.interval(low, high)
        offsets = np.append(0, np.cumsum(given.sizes))
        rows = np.argsort(codes, kind="stable")
        return Bags(offsets, evidence, rows=rows, ids=ids, num_rows=len(table))


def listed(columns: Columns) -> list[str]:
    """Column names as a list, whether one was given, several or none."""
    if columns is None:
        return []
    return list(columns) if isinstance(columns, list | tuple) else [columns]  # type: ignore[list-item]


@dataclass(frozen=True)
class _Given:
    """The table that holds the counts, and where in it each bag stands."""

    table: Table
    codes: Array | None  # the bag of every row of that table; None: every bag has one row
    rows: Array  # (B,) the first row of every bag in that table
    sizes: Array  # (B,)
    ids: list[str]

    @classmethod
    def of(
        cls,
        table: Table,
        bag: str,
        codes: Array,
        ids: list[str],
        other: str | os.PathLike[str] | None,
    ) -> "_Given":
        sizes = np.bincount(codes, minlength=len(ids))
        if other is None:
            first = np.unique(codes, return_index=True)[1]
            return cls(table, codes, first, sizes, ids)
        counts = Table.read(other)
        bag_of_row, known = counts.groups(bag)
        if len(known) < len(bag_of_row):
            first_row, where = (
                np.unique(bag_of_row, return_index=True)[1],
                np.arange(len(bag_of_row)),
            )
            second = int((first_row[bag_of_row] != where).argmax())
            raise LLPError(
                f"{counts.cell(second, bag)} = {known[bag_of_row[second]]!r} stands in row "
                f"{first_row[bag_of_row[second]] + 1} already; keep one row a bag"
            )
        row_of = {name: row for row, name in enumerate(known)}
        for name in ids:
            if name not in row_of:
                raise LLPError(
                    f"{counts.path} has no row for bag {name!r} of {table.path}; add it, or drop "
                    "the bag's rows"
                )
        if len(known) > len(ids):
            own = set(ids)
            stray = next(row for row, name in enumerate(known) if name not in own)
            raise LLPError(
                f"{counts.cell(stray, bag)} = {known[stray]!r} but no row of {table.path} is in "
                "that bag; remove it"
            )
        return cls(counts, None, np.array([row_of[name] for name in ids]), sizes, ids)

    def values(self, columns: Columns, remedy: str) -> Array:
        """Numbers ``(B,)`` or ``(B, K)``, NaN where missing, the same in all rows of a bag."""
        names = listed(columns)
        if not names or len(names) != len(set(names)):
            raise LLPError(f"columns = {names}; name one column, or one for each class")
        stacked = [self._value(name, remedy) for name in names]
        return stacked[0] if len(stacked) == 1 else np.stack(stacked, 1)

    def _value(self, name: str, remedy: str) -> Array:
        values = self.table.numbers(name, remedy)
        first = values[self.rows]
        if self.codes is not None:
            expected = first[self.codes]
            differs = (values != expected) & ~(np.isnan(values) & np.isnan(expected))
            if differs.any():
                row = int(differs.argmax())
                bag = int(self.codes[row])
                raise LLPError(
                    f"{self.table.cell(row, name)} = {_said(values[row])} but row "
                    f"{self.rows[bag] + 1} of the same bag, {self.ids[bag]!r}, has "
                    f"{_said(first[bag])}; all rows of a bag must agree"
                )
        return first

    def whole(self, columns: Columns, what: str, missing: Array | None = None) -> Array:
        """Whole numbers from 0 on, int64; a missing one is an error unless ``missing`` is given."""
        remedy = f"a {what} is a whole number"
        y = self.values(columns, remedy)
        if missing is not None:
            y = np.where(np.isnan(y), missing if y.ndim == 1 else missing[:, None], y)
        self._refuse(
            np.isnan(y),
            columns,
            lambda *_: (
                "is empty; give the count. Where some are not known, use "
                f"{option('count_low', columns)} {option('count_high', columns)} in place of "
                f"{option('count')}: an empty "
                "cell is then no bound"
            ),
        )
        self._refuse(
            (y != np.floor(y)) | (y < 0) | (y > 2**53),
            columns,
            lambda *i: (
                f"= {_said(y[i])} is not a count; {remedy} from 0 on, proportions go in "
                f"{option('proportion')}"
            ),
        )
        return y.astype(np.int64)

    def bounds(self, low: Columns, high: Columns) -> tuple[Array, Array]:
        if low is not None and high is not None and len(listed(low)) != len(listed(high)):
            raise LLPError(
                f"{option('count_low')} and {option('count_high')} name different numbers of "
                "columns"
            )
        first = None if low is None else self.whole(low, "bound", np.zeros_like(self.sizes))
        last = None if high is None else self.whole(high, "bound", self.sizes)
        if first is None:
            assert last is not None  # one of the two was named
            return np.zeros_like(last), last
        if last is None:
            n = self.sizes if first.ndim == 1 else self.sizes[:, None]
            return first, np.broadcast_to(n, first.shape).copy()
        self._refuse(
            first > last,
            low,
            lambda *i: f"= {first[i]} is above the upper bound, {last[i]}; swap them",
        )
        return first, last

    def proportions(self, columns: Columns, decimals: int | None) -> Evidence:
        p = self.values(columns, "a proportion is a number from 0 to 1")
        self._refuse(
            ~((p >= 0) & (p <= 1)),
            columns,
            lambda *i: (
                f"= {_said(p[i])} is not a proportion from 0 to 1; divide percentages by "
                f"100, counts go in {option('count')}"
            ),
        )
        if decimals is None or (isinstance(decimals, int) and 0 <= decimals <= _DIGITS):
            self._check_rounding(p, columns, decimals)
        groups = np.repeat(np.arange(len(self.ids)), self.sizes)
        named = [self.ids[b] for b in groups.tolist()]
        try:
            bags = Bags.from_proportions(named, p, decimals=decimals, ids=self.ids)
            return bags._as_they_appear().evidence
        except LLPError as error:
            raise LLPError(f"{self.table.path}: {error}") from error

    def _check_rounding(self, p: Array, columns: Columns, decimals: int | None) -> None:
        """Refuse shares that no whole count of the bag makes."""
        n = self.sizes if p.ndim == 1 else self.sizes[:, None]
        written = next(d for d in range(_DIGITS + 1) if d == _DIGITS or _has_decimals(p, d).all())
        remedy = f"if it was rounded, use {option('decimals', written)}"
        expected, reach = n * p, np.full(n.shape, 1e-3)
        if decimals is not None:
            self._refuse(
                ~_has_decimals(p, decimals),
                columns,
                lambda *i: f"= {_said(p[i])} has more decimals; use {option('decimals', written)}",
            )
            expected, reach = n * np.round(p, decimals), n * 0.5 * 10.0**-decimals
            remedy = "check it, and whether all rows of the bag are there"
        self._refuse(
            np.ceil(expected - reach - 1e-7) > np.floor(expected + reach + 1e-7),
            columns,
            lambda *i: (
                f"= {_said(p[i])} makes {(n * p)[i]:.6g} of the "
                f"{several(int(self.sizes[i[0]]), 'row')} of bag {self.ids[i[0]]!r}, not a whole "
                f"count; {remedy}"
            ),
        )

    def check_sizes(self, low: Array, high: Array, columns: Columns) -> None:
        """Refuse counts that a bag of its size cannot have."""
        if low.ndim == 1:
            self._refuse(
                low > self.sizes,
                columns,
                lambda b: (
                    f"= {low[b]} but bag {self.ids[b]!r} has "
                    f"{several(int(self.sizes[b]), 'row')}; no count can pass that. Are rows of "
                    f"the bag missing? Proportions go in {option('proportion')}"
                ),
            )
            return
        self._refuse(
            (low.sum(1) > self.sizes) | (np.minimum(high, self.sizes[:, None]).sum(1) < self.sizes),
            columns,
            lambda b: (
                f"and its neighbours: {', '.join(map(str, low[b]))} in all classes, but bag "
                f"{self.ids[b]!r} has {several(int(self.sizes[b]), 'row')}; the counts must sum to "
                "that. Are rows of the bag missing?"
            ),
        )

    def check_not_shares(self, y: Array, columns: Columns) -> None:
        """Refuse 0.0 and 1.0 alone, where 1.0 may stand for one row of a bag or for all."""
        if y.ndim == 1 and (y <= 1).all() and self.table.has_decimals(listed(columns)[0]):
            self._refuse(
                (y == 1) & (self.sizes > 1),
                columns,
                lambda b: (
                    f"= 1.0 but bag {self.ids[b]!r} has {several(int(self.sizes[b]), 'row')}, and "
                    "the column holds 0.0 and 1.0 alone, as shares do; write 0 and 1 if they are "
                    f"counts, for shares use {option('proportion', columns)}"
                ),
            )

    def _refuse(self, bad: Array, columns: Columns, say: Any) -> None:
        """Raise for the first bad bag (and class): the cell, and what ``say(*index)`` says."""
        if bad.any():
            index = tuple(map(int, np.unravel_index(int(bad.argmax()), bad.shape)))
            name = listed(columns)[index[1] if len(index) > 1 else 0]
            raise LLPError(f"{self.table.cell(int(self.rows[index[0]]), name)} {say(*index)}")


def _has_decimals(p: Array, decimals: int) -> Array:
    """Where a share has no more decimals than these; float32 is off by up to 1e-7."""
    exact: Array = np.abs(p - np.round(p, decimals)) <= 0.01 * 10.0**-decimals + 1e-7
    return exact


def _said(value: Any) -> str:
    return "nothing" if np.isnan(value) else f"{value:.12g}"
