"""The weight of every possible count of every bag, as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from llpkit._arrays import real_tensor
from llpkit._text import SHOWN, html_table
from llpkit.errors import LLPError
from llpkit.ragged import bag_index, instances_of, to_offsets

NO_BOUND = 2**62
"""An upper end that no bag reaches."""

_WIDE = 12
"""Classes that a table in a notebook shows."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CountWeights:
    """The tensors of :class:`~llpkit.Evidence`, and how to select and join bags."""

    low: Tensor
    """Smallest possible count, int64 ``(B,)`` or ``(B, K)``."""
    high: Tensor
    """Largest possible count; :data:`NO_BOUND` where nothing bounds it."""
    table: Tensor
    """Log-weights of the cells (bag, or bag and class) that are not uniform, flat, float64."""
    table_offsets: Tensor
    """Each cell's range in ``table``: ``high - low + 1`` entries, or none if uniform."""

    @classmethod
    def _uniform(cls, low: Tensor, high: Tensor) -> Self:
        no_table = torch.empty(0, dtype=torch.float64, device=low.device)
        return cls(low, high, no_table, low.new_zeros(low.numel() + 1))

    @classmethod
    def _weighted(cls, low: Tensor, high: Tensor, table: Tensor, offsets: Tensor) -> Self:
        table = table.detach().to(torch.float64)
        bad = table.isnan() | (table == torch.inf)
        if bool(bad.any()):
            i = int(bad.nonzero()[0])
            cell = int(torch.searchsorted(offsets, i, right=True)) - 1
            raise LLPError(
                f"the log-weight of count {i - int(offsets[cell])} in cell {cell} is "
                f"{float(table[i])}; log-weights are finite, or -inf for an impossible count"
            )
        return cls(low, high, table, offsets)

    @classmethod
    def concat(cls, parts: "Sequence[CountWeights]") -> Self:
        """All bags of all parts, in order; the kinds may differ.

        >>> from llpkit import Evidence
        >>> len(Evidence.concat([Evidence.exact([1]), Evidence.unknown(2)]))
        3
        """
        if not isinstance(parts, list | tuple) or not parts:
            raise LLPError("Evidence.concat takes a list of at least one Evidence")
        for part in parts:
            if not isinstance(part, CountWeights):
                raise LLPError(f"Evidence.concat takes Evidence, not {type(part).__name__}")
        if len({p.num_classes for p in parts}) > 1:
            raise LLPError(
                "Evidence.concat: the parts disagree on the number of classes, "
                f"{[p.num_classes for p in parts]}; None means binary counts"
            )
        low = torch.cat([p.low for p in parts])
        exact = all(p.low is p.high for p in parts)
        return cls(
            low,
            low if exact else torch.cat([p.high for p in parts]),
            torch.cat([p.table for p in parts]),
            to_offsets(torch.cat([p.table_offsets.diff() for p in parts])),
        )

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, index: Any) -> Self:
        """The evidence of some bags: a slice, a list, an index tensor or a boolean mask."""
        if isinstance(index, tuple) and index[1:] == (...,):
            index = index[0]  # scikit-learn indexes rows as array[rows, ...]
        if isinstance(index, int):
            index = [index]
        if isinstance(index, slice):
            chosen = torch.arange(len(self), device=self.device)[index]
        else:
            chosen = real_tensor(index, "index").to(self.device)
            if chosen.dtype.is_floating_point and chosen.numel():
                raise LLPError("bags are selected by whole numbers, a boolean mask or a slice")
            if chosen.dtype == torch.bool:
                if chosen.shape != (len(self),):
                    raise LLPError(f"the mask has shape {tuple(chosen.shape)}, not ({len(self)},)")
                chosen = chosen.nonzero()
            chosen = chosen.to(torch.int64).reshape(-1)
        try:
            low = self.low[chosen]
        except IndexError as error:
            raise LLPError(f"there are {len(self)} bags to select from: {error}") from error
        # Identity marks exact evidence, so that is_exact need not read values from the device.
        high = low if self.low is self.high else self.high[chosen]
        if len(self.table) == 0:
            return self._uniform(low, high)
        classes = self.num_classes or 1
        chosen = chosen % len(self)  # negative ones count from the end
        # Tables are stored per cell: bag by bag, class by class.
        cells = (chosen[:, None] * classes + torch.arange(classes, device=self.device)).reshape(-1)
        entries, offsets = instances_of(self.table_offsets, cells)
        return type(self)(low, high, self.table[entries], offsets)

    def __repr__(self) -> str:
        kind = "exact" if self.is_exact else "mixed"
        classes = "" if self.num_classes is None else f", num_classes={self.num_classes}"
        return f"Evidence({len(self)} bags, {kind}{classes})"

    def _repr_html_(self) -> str:
        heads, cells = self.in_words(SHOWN)
        more = len(self) - len(cells)
        return html_table(
            "Evidence",
            [("bags", f"{len(self):,}"), ("counts", "exact" if self.is_exact else "imprecise")],
            ["bag", *heads],
            [[str(b), *each] for b, each in enumerate(cells)],
            [f"… and {more:,} more"] if more else [],
        )

    def in_words(self, most: int) -> tuple[list[str], list[list[str]]]:
        """The first bags' counts as text, under their heads; many classes are cut short.

        >>> from llpkit import Evidence
        >>> Evidence.concat([Evidence.exact([2]), Evidence.interval([1], [3])]).in_words(5)
        (['positives'], [['2'], ['1 to 3']])
        """
        K = self.num_classes
        heads = ["positives"] if K is None else [f"class {k}" for k in range(K)]
        parts = self.low, self.high, self.weighted
        columns = [part[:most].reshape(-1, K or 1).tolist() for part in parts]
        rows = [
            [_words(*cell) for cell in zip(*cells, strict=True)]
            for cells in zip(*columns, strict=True)
        ]
        if len(heads) > _WIDE:
            heads, *rows = ([*row[:_WIDE], "…"] for row in (heads, *rows))
        return heads, rows

    def describe(self, bag: int) -> str:
        """What is known about the counts of one bag, as text.

        >>> from llpkit import Evidence
        >>> Evidence.interval([[1, 0]], [[1, 2]]).describe(0)
        '1, 0 to 2'
        """
        return ", ".join(self[bag].in_words(1)[1][0])

    @property
    def shape(self) -> tuple[int, ...]:
        """``(B,)`` or ``(B, K)``."""
        return tuple(self.low.shape)

    @property
    def num_classes(self) -> int | None:
        """``K``, or ``None`` for binary counts."""
        return None if self.low.dim() == 1 else self.low.shape[1]

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.low.device

    @property
    def weighted(self) -> Tensor:
        """Which counts have a table of weights, in the shape of the counts."""
        return (self.table_offsets.diff() > 0).reshape(self.shape)

    @property
    def is_exact(self) -> bool:
        """Whether every count is known exactly."""
        # Identity first: comparing the values would wait for the device.
        return self.low is self.high or (
            len(self.table) == 0 and bool((self.low == self.high).all())
        )

    @property
    def exactly_known(self) -> Tensor:
        """Which bags have an exact count, ``(B,)`` bool."""
        cells = (self.low == self.high) & ~self.weighted
        return cells if cells.dim() == 1 else cells.all(1)

    @property
    def likeliest(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest count of the greatest weight, in the shape of the counts.

        >>> from llpkit import Evidence
        >>> Evidence.gaussian([1.8], sizes=[4], scale=1.0).likeliest
        (tensor([2]), tensor([2]))
        """
        if len(self.table) == 0:
            return self.low, self.high
        low, high = self.low.reshape(-1).clone(), self.high.reshape(-1).clone()  # one per cell
        cell = bag_index(self.table_offsets)  # of every entry of the table
        best = torch.full_like(low, -torch.inf, dtype=torch.float64)
        best.scatter_reduce_(0, cell, self.table, "amax")
        top = (self.table == best[cell]).nonzero()[:, 0]
        cell = cell[top]
        counts = low[cell] + top - self.table_offsets[cell]
        low.scatter_reduce_(0, cell, counts, "amin", include_self=False)
        high.scatter_reduce_(0, cell, counts, "amax", include_self=False)
        return low.reshape(self.shape), high.reshape(self.shape)

    @property
    def counts(self) -> Tensor:
        """The exact counts, ``(B,)`` or ``(B, K)``."""
        if not self.is_exact:
            raise LLPError(
                "these counts are not all exact; use .low and .high, or select the exact bags"
            )
        return self.low

    def to(self, device: torch.device | str) -> Self:
        """The same evidence on another device."""
        if self.low.device == torch.device(device):
            return self
        low = self.low.to(device)
        high = low if self.low is self.high else self.high.to(device)
        return type(self)(low, high, self.table.to(device), self.table_offsets.to(device))


def _words(low: int, high: int, weighted: bool) -> str:
    """What is known about one count."""
    if low == high:
        return str(low)
    text = f"{low} to {high}"
    if high == NO_BOUND:
        text = f"at least {low}" if low else "unknown"
    return f"{text}, weighted" if weighted else text
