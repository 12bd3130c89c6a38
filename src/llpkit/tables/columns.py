"""A column of a table as features: standardised numbers, or a one-hot category.

scikit-learn's ``StandardScaler`` and ``OneHotEncoder`` are no faster (1.7 s against 1.9 s for
300,000 rows, two numbers and four categories), could be saved only as a pickle or rebuilt by hand
from JSON, and cannot name the table cell that holds a new value.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llpkit._arrays import Array
from llpkit._text import a_few, several
from llpkit._validation import option
from llpkit.errors import LLPError
from llpkit.tables.table import Table

MAX_LEVELS = 64
"""Maximum number of levels of a category with their own feature; rarer ones share one."""
_MEAN = "the mean is used instead"
_UNUSED = "the column is ignored in such a row"
_RARE = "it counts as one of the column's rare values"


@dataclass(frozen=True)
class NumberColumn:
    """``(x - mean) / scale``, zero if missing; a second feature marks missing values, if any."""

    name: str
    mean: float
    scale: float
    missing: bool
    decimal_commas: bool = False

    @property
    def feature_names(self) -> list[str]:
        """One name per feature."""
        return [self.name, f"{self.name} is missing"][: 1 + self.missing]

    @classmethod
    def fit(cls, table: Table, name: str) -> "NumberColumn":
        """Fit mean and scale to the values that are not missing."""
        hint = f"correct it, leave it empty, or keep it a category: {option('categorical', name)}"
        values = table.numbers(name, hint)
        there = values[~np.isnan(values)]
        with np.errstate(all="ignore"):
            mean, scale = (there.mean(), there.std()) if len(there) else (0.0, 0.0)
        # Squares of values above 1e154 overflow.
        if not np.isfinite([mean, scale]).all():
            raise LLPError(
                f"{table.path}: column {name!r} goes up to {np.abs(there).max():.3g}, which is too "
                "large to standardise; rescale it"
            )
        missing = len(there) < len(values)
        return cls(name, float(mean), float(scale) or 1.0, missing, name in table.decimal_commas)

    def fill(self, table: Table, out: NDArray[np.float32]) -> None:
        """Write the features ``(R, 1 or 2)`` of a table."""
        values = table.numbers(self.name, decimal_commas=self.decimal_commas)[:, None]
        _fill(out, values, np.isnan(values), self.mean, self.scale)

    def notes(self, table: Table) -> list[str]:
        """Notes on how decimal commas are read, and on missing values where training had none."""
        missing = np.isnan(table.numbers(self.name, decimal_commas=self.decimal_commas))
        notes = []
        if (written := table.decimal_commas.get(self.name)) is not None:
            read = written.replace(",", ".")
            notes = [f"column {self.name!r} is read with decimal commas, {written} as {read}"]
        return notes if self.missing else notes + _note_on_new(table, self.name, missing, _MEAN)


@dataclass(frozen=True)
class CategoryColumn:
    """One-hot over the levels, with extra features for rare and for missing values, if any.

    A value without a feature, such as a new one, is zero in all of them: a feature that is zero in
    all training rows would have an untrained weight.
    """

    name: str
    levels: tuple[str, ...]
    missing: bool
    rare: tuple[str, ...]
    """Levels that share a feature with new values; without any there is no such feature."""

    @property
    def feature_names(self) -> list[str]:
        """One name per feature."""
        names = [f"{self.name} = {level}" for level in self.levels]
        names += [f"{self.name} is other"] * bool(self.rare)
        return names + [f"{self.name} is missing"] * self.missing

    @classmethod
    def fit(cls, table: Table, name: str) -> "CategoryColumn":
        """Fit the most frequent levels."""
        text = table.words(name)
        levels = {level: count for level, count in _counts(text).items() if level is not None}
        ranked = tuple(sorted(levels, key=lambda level: (-levels[level], level)))
        return cls(name, ranked[:MAX_LEVELS], text.null_count > 0, ranked[MAX_LEVELS:])

    def fill(self, table: Table, out: NDArray[np.float32]) -> None:
        """Write the features ``(R, levels + 0, 1 or 2)`` of a table."""
        codes, new, missing = self._codes(table, self.levels)
        known = np.flatnonzero(codes >= 0)
        out[known, codes[known]] = 1.0
        if self.rare:
            out[new, len(self.levels)] = 1.0
        if self.missing:
            out[missing, -1] = 1.0

    def _codes(self, table: Table, levels: tuple[str, ...]) -> tuple[Array, Array, Array]:
        """For every row: its level (-1 if not among these), whether it has another, or none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        text = table.words(self.name)
        codes = pc.index_in(text, value_set=pa.array(levels, pa.large_string()))
        codes = codes.fill_null(-1).to_numpy(zero_copy_only=False)
        missing = text.is_null().to_numpy(zero_copy_only=False)
        return codes, (codes < 0) & ~missing, missing

    def notes(self, table: Table) -> list[str]:
        """Notes on new values, and on missing ones where training had none."""
        _, new, missing = self._codes(table, self.levels + self.rare)
        fate = _RARE if self.rare else _UNUSED
        notes = _note_on_new(table, self.name, new, fate, table.words(self.name))
        return notes if self.missing else notes + _note_on_new(table, self.name, missing, _UNUSED)


@dataclass(frozen=True)
class VectorColumn:
    """Lists of equal length, such as embeddings: standardised entries, zero if there is no list.

    An extra feature marks rows without a list, if there were any in training.
    """

    name: str
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    missing: bool

    @property
    def feature_names(self) -> list[str]:
        """One name per feature."""
        names = [f"{self.name}[{i}]" for i in range(len(self.mean))]
        return names + [f"{self.name} is missing"] * self.missing

    @classmethod
    def fit(cls, table: Table, name: str) -> "VectorColumn":
        """Fit mean and scale of every entry to the rows that have a list."""
        values = table.vectors(name)
        there = values[~_without_list(values)]
        if not there.size:
            raise LLPError(
                f"{table.path}: the lists in column {name!r} are all empty; leave the column out: "
                f"{option('drop', name)}"
            )
        scale = there.std(0, dtype=np.float64)
        scale[scale == 0] = 1.0
        mean = there.mean(0, dtype=np.float64)
        return cls(name, tuple(mean.tolist()), tuple(scale.tolist()), len(there) < len(values))

    def fill(self, table: Table, out: NDArray[np.float32]) -> None:
        """Write the features ``(R, D)`` or ``(R, D + 1)`` of a table."""
        values = table.vectors(self.name, len(self.mean))
        _fill(out, values, _without_list(values)[:, None], self.mean, self.scale)

    def notes(self, table: Table) -> list[str]:
        """Notes on missing lists where training had none."""
        missing = _without_list(table.vectors(self.name, len(self.mean)))
        return [] if self.missing else _note_on_new(table, self.name, missing, _MEAN)


def _fill(out: NDArray[np.float32], values: Array, missing: Array, mean: Any, scale: Any) -> None:
    """Write standardised values ``(R, D)``, and which rows ``(R, 1)`` have none."""
    with np.errstate(all="ignore"):
        # In float64; float32 ends at 3e38.
        scaled = ((values - np.array(mean)) / np.array(scale)).clip(-1e30, 1e30)
    width = values.shape[1]
    out[:, :width] = np.where(missing, 0.0, scaled)
    out[:, width:] = missing  # no such feature exists if nothing was missing in training


def _without_list(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which rows have no list, bool ``(R,)``."""
    return np.asarray(np.isnan(values).any(1))


def _note_on_new(table: Table, name: str, rows: Array, fate: str, words: Any = None) -> list[str]:
    """A note on words or missing values that did not occur in training, at these rows (a mask)."""
    if not rows.any():
        return []
    row, number = int(rows.argmax()), int(rows.sum())
    values = [] if words is None else words.filter(rows).unique().to_pylist()
    found = f"= {values[0]!r}" if values else "is empty"
    listed = f": {a_few(values)}" if len(values) > 1 else ""
    more = f" ({several(number, 'such row')} in all{listed})" if number > 1 else ""
    return [f"{table.cell(row, name)} {found}, which did not occur in training; {fate}{more}"]


def _counts(text: Any) -> dict[str | None, int]:
    import pyarrow.compute as pc

    counted = pc.value_counts(text)
    values, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
    return dict(zip(values, counts, strict=True))
