"""Tables as features: numbers standardised, categories one-hot, missing values marked."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llpkit._validation import option
from llpkit.errors import LLPError
from llpkit.tables.columns import CategoryColumn, NumberColumn, VectorColumn
from llpkit.tables.selection import is_numeric
from llpkit.tables.table import Table

Column = NumberColumn | CategoryColumn | VectorColumn
_KINDS = {NumberColumn: "number", CategoryColumn: "category", VectorColumn: "vector"}
_FORMAT = "llpkit features 1"


@dataclass(frozen=True)
class FeatureEncoder:
    """Turns the columns of a table into features: fitted once, saved as JSON, applied to others.

    Numbers are standardised; a missing one is set to the mean and marked by a feature. Categories
    are one-hot, with one feature for all rare ones. Lists of numbers, such as embeddings, become
    one feature per entry.
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

        A column is numeric if all its values are numbers. If there are more numbers than other
        texts, these are treated as typos and rejected, unless the column is in
        ``categorical`` or a categorical of its data frame; a column in ``numeric`` must be numeric.
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
                "but is not a feature"
            )
        if not names:
            raise LLPError(
                f"{table.path} has no feature columns; name some with {option('features')}"
            )

        def fitted(name: str) -> Column:
            if name not in numeric | categorical and table.is_vector(name):
                return VectorColumn.fit(table, name)
            if name in numeric or (name not in categorical and is_numeric(table, name)):
                return NumberColumn.fit(table, name)
            return CategoryColumn.fit(table, name)

        return cls(tuple(map(fitted, names)))

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
        """Notes on how numbers were read, and on values that did not occur in training."""
        return [note for column in self.columns for note in column.notes(table)]

    def to_json(self) -> str:
        """The encoder as JSON."""
        columns = [{"kind": _KINDS[type(column)], **asdict(column)} for column in self.columns]
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
            # LLPError is a ValueError, so the clause above catches it too.
            if isinstance(error, LLPError):
                raise
            raise LLPError(f"this is not a feature encoder: {error!r}; fit it again") from error


def _column(entry: dict[str, Any]) -> Column:
    name, missing = str(entry["name"]), bool(entry["missing"])
    if entry["kind"] == "number":
        mean, scale = float(entry["mean"]), float(entry["scale"])
        return NumberColumn(name, mean, scale, missing, bool(entry["decimal_commas"]))
    if entry["kind"] == "category":
        levels, rare = (tuple(map(str, entry[key])) for key in ("levels", "rare"))
        return CategoryColumn(name, levels, missing, rare)
    if entry["kind"] == "vector":
        means, scales = (tuple(map(float, entry[key])) for key in ("mean", "scale"))
        if len(means) != len(scales):
            raise LLPError(f"column {name!r} has {len(means)} means and {len(scales)} scales")
        return VectorColumn(name, means, scales, missing)
    raise LLPError(f"column {name!r} has the unknown kind {entry['kind']!r}")
