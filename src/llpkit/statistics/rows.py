"""Bags whose rows may represent several instances with the same features."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.likelihood import log_prob
from llpkit.likelihood.dispatch import solve
from llpkit.losses import class_counts, two_columns
from llpkit.ragged import segment_sum

_QUICK = 3e7
"""Pairs of a row and a frequency; this many take a second or two."""
_WORTH = 4
"""Rows are merged if at most one in this many remains."""


@dataclass(frozen=True)
class Rows:
    """Bags, and how many instances each of their rows represents.

    Args:
        bags: Counts are of instances, so a count may exceed the number of rows.
        times: float64 ``(R,)``, in the order of ``bags.rows``; ``None`` if every row is one
            instance.
        approximation: For K classes without multiplicities, as in
            :func:`llpkit.likelihood.log_prob`.
    """

    bags: Bags
    times: Tensor | None = None
    approximation: Any = None

    def __post_init__(self) -> None:
        if self.times is not None and not self.bags.evidence.is_exact:
            raise LLPError(
                "rows with a multiplicity need exact counts; give one row per instance for "
                "intervals or weights"
            )

    @property
    def offsets(self) -> Tensor:
        """Where the rows of a bag start and end, ``(B + 1,)``."""
        return self.bags.offsets

    @property
    def num_classes(self) -> int | None:
        """``K``, or ``None`` for binary counts."""
        return self.bags.num_classes

    @property
    def weight(self) -> Tensor:
        """How many instances every row represents, float64 ``(R,)``."""
        if self.times is not None:
            return self.times
        return torch.ones(self.bags.num_instances, dtype=torch.float64)

    @property
    def sizes(self) -> Tensor:
        """Instances of every bag, float64 ``(B,)``."""
        return segment_sum(self.weight, self.offsets)

    @property
    def counts(self) -> Tensor:
        """Counts of every class, float64 ``(B, K)``; of both classes if they are binary."""
        return class_counts(self.bags.counts.double(), self.sizes)

    def log_prob(self, z: Tensor) -> Tensor:
        """Log-probability of every bag ``(B,)``, differentiable twice.

        Args:
            z: Logits in the order of ``bags.rows``, ``(R,)`` or ``(R, K)``, float64.
        """
        if self.times is None and not self._suits_fourier_sum():
            return log_prob(
                z,
                self.bags.evidence,
                self.offsets,
                approximation=self.approximation,
                validate=False,
            )
        from llpkit.statistics.repeated import RepeatedSolver  # Numba is slow to import

        solver = RepeatedSolver(self.offsets, self.weight, self.counts)
        return solve(two_columns(z), solver)[0]

    def _suits_fourier_sum(self) -> bool:
        """Whether K classes are few enough for a Fourier sum: exact, with fast derivatives."""
        if self.num_classes is None or not self.bags.evidence.is_exact:
            return False
        from llpkit.statistics.repeated import grid_size

        return float((self.offsets.diff() * grid_size(self.counts)).sum()) <= _QUICK

    def prior(self, z: Tensor) -> Tensor:
        """Expected totals of every row before counts are known, in the shape of ``z``."""
        if z.dim() == 1:
            return self.weight * z.sigmoid()
        return self.weight[:, None] * z.softmax(1)


def take_rows(X: Any, rows: Any) -> Any:
    """These rows of an array, a tensor, a sparse matrix or a table."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def rows_of(bags: Bags, multiplicity: Any = None, approximation: Any = None) -> Rows:
    """Rows of bags, with a validated multiplicity per row of the table."""
    if multiplicity is None:
        return Rows(bags, None, approximation)
    m = torch.from_numpy(np.asarray(multiplicity).astype(np.float64))
    return Rows(bags, m[bags.rows], approximation)


def merged(X: Any, rows: Rows, extra: Any = None) -> tuple[Any, Rows, Any]:
    """Features in the order of the bags, equal rows of a bag merged where that is worthwhile.

    A table of a few categories shrinks to one row per bag and category, each with a multiplicity,
    and the likelihood of large bags of K classes becomes exact.

    Args:
        X: Features, in the order of the table.
        rows: The bags.
        extra: Whole numbers ``(R,)`` in the order of the bags; only rows with equal numbers are
            merged.
    """
    X = take_rows(X, rows.bags.rows.numpy())
    dense = isinstance(X, np.ndarray) or hasattr(X, "to_numpy")
    mergeable = rows.times is None and rows.num_classes is not None and rows.bags.evidence.is_exact
    if not dense or not mergeable:
        return X, rows, extra
    values = np.asarray(X)
    columns = [*values.T, *([] if extra is None else [np.asarray(extra)])]
    key = rows.bags.bag_index.numpy().astype(np.int64)
    bound = len(rows.bags)
    for column in columns:
        distinct, code = np.unique(column, return_inverse=True)
        bound *= len(distinct)
        if len(distinct) > len(values) / _WORTH or bound >= 2**62:
            return X, rows, extra
        key = key * len(distinct) + code
    # The bag is the leading digit of the key, so sorting keeps bags together.
    _, first, times = np.unique(key, return_index=True, return_counts=True)
    if len(first) > len(values) / _WORTH:
        return X, rows, extra
    per_bag = np.bincount(rows.bags.bag_index.numpy()[first], minlength=len(rows.bags))
    offsets = torch.from_numpy(np.append(0, per_bag.cumsum()))
    bags = Bags.unchecked(
        offsets, torch.arange(len(first)), rows.bags.evidence, rows.bags.ids, len(first)
    )
    merged_rows = Rows(bags, torch.from_numpy(times.astype(np.float64)))
    return take_rows(X, first), merged_rows, None if extra is None else extra[first]
