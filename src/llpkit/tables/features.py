"""Columns of a table as features: numbers standardised, categories one-hot, missing values told."""

import json
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit._validation import option
from llpkit._words import several
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.tables.table import PLAIN_NUMBERS, Table

Array = NDArray[Any]
_FORMAT = "llpkit features 1"
_FEW_BAGS = 5
"""Bags of two rows or more, below which a column may be the same within each by chance."""
_UNUSED = "the column tells nothing of such a row"
_MAX_LEVELS = 64
"""Levels of a category that get a feature of their own; the rarer ones share one."""


@dataclass(frozen=True)
class NumberColumn:
    """``(x - mean) / scale``, zero where missing, and a feature that says missing if some were."""

    name: str
    mean: float
    scale: float
    missing: bool
    decimal_commas: bool = False

    @property
    def feature_names(self) -> list[str]:
        """One name a feature."""
        return [self.name, f"{self.name} is missing"][: 1 + self.missing]

    @classmethod
    def fit(cls, table: Table, name: str) -> "NumberColumn":
        """Mean and scale of the values that are there."""
        hint = f"correct it, leave it empty, or keep it a category: {option('categorical', name)}"
        values = table.numbers(name, hint)
        there = values[~np.isnan(values)]
        with np.errstate(all="ignore"):
            mean, scale = (there.mean(), there.std()) if len(there) else (0.0, 0.0)
        if not np.isfinite([mean, scale]).all():
            raise LLPError(
                f"{table.path}: column {name!r} goes up to {np.abs(there).max():.3g}, too far to "
                "standardise; divide it"
            )
        gone = len(there) < len(values)
        return cls(name, float(mean), float(scale) or 1.0, gone, name in table.decimal_commas)

    def fill(self, table: Table, out: NDArray[np.float32]) -> None:
        """Write the features ``(R, 1 or 2)`` of a table."""
        values = table.numbers(self.name, decimal_commas=self.decimal_commas)
        gone = np.isnan(values)
        with np.errstate(all="ignore"):
            scaled = ((values - self.mean) / self.scale).clip(-1e30, 1e30)  # float32 ends at 3e38
        out[:, 0] = np.where(gone, 0.0, scaled)
        out[:, 1:] = gone[:, None]

    def notes(self, table: Table) -> list[str]:
        """Decimal commas, and what the model never met: a value that is missing."""
        gone = np.isnan(table.numbers(self.name, decimal_commas=self.decimal_commas))
        told = []
        if (written := table.decimal_commas.get(self.name)) is not None:
            read = written.replace(",", ".")
            told = [f"column {self.name!r} is read with decimal commas, {written} as {read}"]
        if self.missing:
            return told
        return told + _never_met(table, self.name, gone, "the mean stands for it")


@dataclass(frozen=True)
class CategoryColumn:
    """One-hot over the levels; one more feature for rarer ones and one for missing if some were.

    What none of these features stands for, a value not seen before say, is zero in all of them: a
    feature that was zero in all rows would have a weight that nothing was learnt about.
    """

    name: str
    levels: tuple[str, ...]
    missing: bool
    other: bool

    @property
    def feature_names(self) -> list[str]:
        """One name a feature."""
        names = [f"{self.name} = {level}" for level in self.levels]
        names += [f"{self.name} is other"] * self.other
        return names + [f"{self.name} is missing"] * self.missing

    @classmethod
    def fit(cls, table: Table, name: str) -> "CategoryColumn":
        """The most frequent levels."""
        text = table.words(name)
        levels = {level: count for level, count in _counts(text).items() if level is not None}
        kept = sorted(levels, key=lambda level: (-levels[level], level))[:_MAX_LEVELS]
        return cls(name, tuple(kept), text.null_count > 0, len(kept) < len(levels))

    def fill(self, table: Table, out: NDArray[np.float32]) -> None:
        """Write the features ``(R, levels + 0, 1 or 2)`` of a table."""
        codes, new, gone = self._codes(table)
        known = np.flatnonzero(codes >= 0)
        out[known, codes[known]] = 1.0
        if self.other:
            out[new, len(self.levels)] = 1.0
        if self.missing:
            out[gone, -1] = 1.0

    def _codes(self, table: Table) -> tuple[Array, Array, Array]:
        """Of every row its level (else -1), whether it has another value, whether it has none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        text = table.words(self.name)
        codes = pc.index_in(text, value_set=pa.array(self.levels, pa.large_string()))
        codes = codes.fill_null(-1).to_numpy(zero_copy_only=False)
        gone = text.is_null().to_numpy(zero_copy_only=False)
        return codes, (codes < 0) & ~gone, gone

    def notes(self, table: Table) -> list[str]:
        """What the model never met: a value that is new, or missing."""
        _, new, gone = self._codes(table)
        told = [] if self.other else _never_met(table, self.name, new, _UNUSED)
        return told if self.missing else told + _never_met(table, self.name, gone, _UNUSED)


def _never_met(table: Table, name: str, rows: Array, fate: str) -> list[str]:
    """A note on values that training had none of, at these rows (a mask)."""
    if not rows.any():
        return []
    row, number = int(rows.argmax()), int(rows.sum())
    value = table.words(name)[row].as_py()
    return [
        f"{table.cell(row, name)} {'is empty' if value is None else f'= {value!r}'}, which "
        f"training never had; {fate}"
        + (f" ({several(number, 'such row')} in all)" if number > 1 else "")
    ]


Column = NumberColumn | CategoryColumn


@dataclass(frozen=True)
class FeatureEncoder:
    """How the columns of a table become features; fitted once, kept as JSON, applied ever after.

    Numbers are standardised, with a missing one at the mean and a feature that says so. Categories
    are one-hot, with a feature for those that are rare.
    """

    columns: tuple[Column, ...]

    @property
    def feature_names(self) -> list[str]:
        """The names of all ``D`` features."""
        return [name for column in self.columns for name in column.feature_names]

    @classmethod
    def fit(
        cls,
        table: Table,
        names: Sequence[str],
        *,
        numeric: Iterable[str] = (),
        categorical: Iterable[str] = (),
    ) -> "FeatureEncoder":
        """Fit to these columns of a table.

        A column is numeric when its values are numbers. One with more numbers than other texts is
        taken for a numeric column with a slip in it, which is an error, unless it stands in
        ``categorical``; one in ``numeric`` must be numeric.
        """
        numeric, categorical = set(numeric), set(categorical)
        both = sorted(numeric & categorical)
        stray = sorted((numeric | categorical) - set(names))
        if both or stray:
            raise LLPError(
                f"column {both[0]!r} is in {option('numeric')} and in {option('categorical')}; "
                "choose one"
                if both
                else f"column {stray[0]!r} is in {option('numeric')} or {option('categorical')} "
                "but is no feature"
            )
        if not names:
            raise LLPError(
                f"{table.path} has no feature columns; name some with {option('features')}"
            )
        return cls(
            tuple(
                NumberColumn.fit(table, name)
                if name in numeric or (name not in categorical and _is_numeric(table, name))
                else CategoryColumn.fit(table, name)
                for name in names
            )
        )

    def apply(self, table: Table) -> Tensor:
        """The features of a table, float32 ``(R, D)``."""
        out = np.zeros((len(table), len(self.feature_names)), np.float32)
        start = 0
        for column in self.columns:
            width = len(column.feature_names)
            column.fill(table, out[:, start : start + width])
            start += width
        return torch.from_numpy(out)

    def notes(self, table: Table) -> list[str]:
        """How numbers were read, and what in a table the model never met in training."""
        return [note for column in self.columns for note in column.notes(table)]

    def to_json(self) -> str:
        """All there is to know, as JSON."""
        columns = [
            {"kind": "number" if isinstance(column, NumberColumn) else "category", **asdict(column)}
            for column in self.columns
        ]
        return json.dumps({"format": _FORMAT, "columns": columns}, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "FeatureEncoder":
        """The encoder that :meth:`to_json` wrote."""
        try:
            content = json.loads(text)
            if content["format"] != _FORMAT:
                raise LLPError(f"the features are in format {content['format']!r}, not {_FORMAT!r}")
            return cls(tuple(map(_column, content["columns"])))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, LLPError):
                raise
            raise LLPError(f"this is not a feature encoder: {error!r}; fit it again") from error


def _column(entry: dict[str, Any]) -> Column:
    name, missing = str(entry["name"]), bool(entry["missing"])
    if entry["kind"] == "number":
        commas = bool(entry.get("decimal_commas", False))
        return NumberColumn(name, float(entry["mean"]), float(entry["scale"]), missing, commas)
    if entry["kind"] == "category":
        levels = tuple(map(str, entry["levels"]))
        return CategoryColumn(name, levels, missing, bool(entry.get("other", True)))
    raise LLPError(f"column {name!r} is of the unknown kind {entry['kind']!r}")


def _counts(text: Any) -> dict[str | None, int]:
    import pyarrow.compute as pc

    counted = pc.value_counts(text)
    values, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
    return dict(zip(values, counts, strict=True))


def _is_numeric(table: Table, name: str) -> bool:
    values, bad = table.parse(name)
    if bad is None:
        return True
    row, written, others = bad
    numbers = int((~np.isnan(values)).sum())
    if _with_commas(table, name):
        row = int(table.comma_numbers(name).argmax())
        raise LLPError(
            f"{table.cell(row, name)} = {table.words(name)[row].as_py()!r} is a number with a "
            f"comma; {PLAIN_NUMBERS}, or keep the column a category: {option('categorical', name)}"
        )
    if numbers > others:
        raise LLPError(
            f"{table.cell(row, name)} = {written!r} is not a number, but "
            f"{several(numbers, 'value')} of that column are; correct it, leave it empty, or keep "
            f"it a category: {option('categorical', name)}"
        )
    return False


def _with_commas(table: Table, name: str) -> bool:
    """Whether most values of a column are numbers and some of these have commas."""
    values, bad = table.parse(name)
    commas = int(table.comma_numbers(name).sum())
    others = 0 if bad is None else bad[2]
    return bool(commas > 0 and (~np.isnan(values)).sum() + commas > others - commas)


def usable(
    table: Table, names: Iterable[str], wanted: Container[str] = ()
) -> tuple[list[str], list[str]]:
    """Of these columns, those that can be features, and for each other one a note why not.

    A column that is ``wanted`` by name is kept, and so is one of numbers with a slip in it: to fit
    the encoder will say what is wrong with them.
    """
    kept, notes = [], []
    for name in names:
        reason = None if name in wanted else _useless(table, name)
        if reason is None:
            kept.append(name)
        else:
            notes.append(f"column {name!r} is left out: {reason}")
    return kept, notes


def same_in_bags(table: Table, name: str, bags: Bags) -> bool:
    """Whether a column differs between bags but never within one, of which there are a few."""
    values, bad = table.parse(name)
    if bad is not None:
        encoded = table.words(name).dictionary_encode().indices.fill_null(-1)
        values = encoded.to_numpy(zero_copy_only=False)
    values = np.nan_to_num(values, nan=np.inf)[bags.rows.numpy()]  # a missing one is like another
    first = values[bags.offsets[:-1].numpy()][bags.bag_index.numpy()]
    enough = int((bags.sizes > 1).sum()) >= _FEW_BAGS
    return enough and bool((values == first).all() and (values != values[0]).any())


def _useless(table: Table, name: str) -> str | None:
    import pyarrow.compute as pc

    if not name.strip():
        return "it has no name"
    if re.fullmatch(r"__index_level_\d+__", name):
        return "it is the index of a data frame"
    try:
        values, bad = table.parse(name)
    except LLPError as error:
        return str(error)
    if bad is None:
        return "it has no values" if np.isnan(values).all() else None
    if (~np.isnan(values)).sum() > bad[2] or _with_commas(table, name):
        return None
    distinct = pc.count_distinct(table.words(name)).as_py()
    if distinct > max(_MAX_LEVELS, len(table) // 2):
        return f"{distinct:,} different texts in {several(len(table), 'row')} tell nothing"
    return None
