"""Evidence: what is known about the counts of labels in bags."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from llpkit._arrays import on_device_of, real_tensor, refuse
from llpkit._text import SHOWN, html_table
from llpkit._validation import whole
from llpkit.errors import LLPError
from llpkit.evidence.counts import CountNaming, exact_counts, whole_tensor
from llpkit.evidence.published import Reports
from llpkit.ragged import ranges, to_offsets

NO_BOUND = 2**62
"""An upper end that no bag reaches."""

_WIDE = 12
"""Classes that a table in a notebook shows."""


class Evidence(Reports):
    r"""What is known about the counts of ``B`` bags: a weight for every possible count.

    .. math:: P(E_b) = \sum_k w_b(k)\, P(y_b = k)

    An exact count has weight one at a single ``k``; an interval has ones inside it; a noisy count
    has the density of the noise; an unknown count has ones everywhere. With ``K`` classes the
    arrays are ``(B, K)`` and the weights multiply over the classes,
    :math:`w_b(y) = \prod_k w_{bk}(y_k)`.

    Evidence is immutable. Build it with the class methods, join kinds with :meth:`concat`.

    >>> evidence = Evidence.concat([Evidence.exact([2, 0]), Evidence.at_least([1])])
    >>> len(evidence), evidence.is_exact
    (3, False)
    >>> evidence[:2].counts
    tensor([2, 0])
    """

    __slots__ = ("high", "low", "table", "table_offsets")

    low: Tensor
    """Smallest possible count, int64 ``(B,)`` or ``(B, K)``."""
    high: Tensor
    """Largest possible count; :data:`NO_BOUND` where nothing bounds it."""
    table: Tensor
    """Log-weights of the cells (bag, or bag and class) that are not uniform, flat, float64."""
    table_offsets: Tensor
    """Each cell's range in ``table``: ``high - low + 1`` entries, or none if uniform."""

    def __init__(self, low: Tensor, high: Tensor, table: Tensor, table_offsets: Tensor) -> None:
        for name, value in zip(
            ("low", "high", "table", "table_offsets"),
            (low, high, table, table_offsets),
            strict=True,
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Evidence is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("Evidence is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Evidence, (self.low, self.high, self.table, self.table_offsets))

    @classmethod
    def _uniform(cls, low: Tensor, high: Tensor) -> Self:
        no_table = torch.empty(0, dtype=torch.float64, device=low.device)
        return cls(low, high, no_table, low.new_zeros(low.numel() + 1))

    @classmethod
    def exact(cls, counts: Any) -> "Evidence":
        """The counts themselves, ``(B,)`` positives or ``(B, K)`` of each class.

        Floats are accepted if they are whole numbers, with one exception: floats that are all 0.0
        or 1.0 are refused, because 1.0 may be a share, unless the bags with 1.0 are known to have
        one instance. Give integers. This holds wherever counts of positives are passed.

        >>> Evidence.exact([3, 1, 4]).is_exact
        True
        """
        y = exact_counts(counts, CountNaming())
        return cls.unchecked(on_device_of(counts, y))

    @classmethod
    def unchecked(cls, counts: Tensor) -> "Evidence":
        """:meth:`exact` for an int64 tensor that is known to be valid, without a copy."""
        return cls._uniform(counts, counts)

    @classmethod
    def interval(cls, low: Any, high: Any) -> Self:
        """Counts between ``low`` and ``high``, both included.

        >>> Evidence.interval(low=[1, 0], high=[2, 5]).high
        tensor([2, 5])
        """
        first, last = whole_tensor(low, "low"), whole_tensor(high, "high")
        if first.shape != last.shape:
            raise LLPError(
                f"low has shape {tuple(first.shape)} and high has shape {tuple(last.shape)}; "
                "give one low and one high for every count"
            )
        last = last.to(first.device)
        refuse(
            (first > last).cpu().numpy(),
            lambda *i: f"low{[*i]} = {first[i]} but high{[*i]} = {last[i]}; swap them",
            "entries",
        )
        return cls._uniform(first, last)

    @classmethod
    def at_least(cls, low: Any) -> "Evidence":
        """Counts of ``low`` or more. ``at_least(1)`` is multiple-instance learning.

        >>> Evidence.at_least([1, 1]).low
        tensor([1, 1])
        """
        first = whole_tensor(low, "low")
        return cls._uniform(first, torch.full_like(first, NO_BOUND))

    @classmethod
    def unknown(cls, num_bags: int, num_classes: int | None = None) -> "Evidence":
        """Nothing known: every count has weight one.

        >>> Evidence.unknown(2).low
        tensor([0, 0])
        """
        whole("num_bags", num_bags, 0)
        if num_classes is not None:
            whole("num_classes", num_classes)
        low = torch.zeros(num_bags if num_classes is None else (num_bags, num_classes)).long()
        return cls._uniform(low, torch.full_like(low, NO_BOUND))

    @classmethod
    def noisy(
        cls, observed: Any, log_density: Callable[[Tensor, Tensor], Tensor], sizes: Any
    ) -> Self:
        r"""Counts seen through noise, :math:`\log w_b(k) = \log p(\text{observed}_b \mid k)`.

        Args:
            observed: The observations, ``(B,)`` or ``(B, K)``; any numbers.
            log_density: Called once as ``log_density(observed, count)`` with two float64 tensors of
                one shape; returns the log-density of the noise there. Need not be normalised.
            sizes: The bag sizes ``(B,)``, for the possible counts ``0 … n``.

        >>> gaussian = lambda observed, count: -0.5 * ((observed - count) / 2.0) ** 2
        >>> Evidence.noisy([2.6], gaussian, sizes=[4]).high
        tensor([4])
        """
        seen = real_tensor(observed, "observed").to(torch.float64)
        n = whole_tensor(sizes, "sizes")
        if n.dim() != 1 or seen.dim() not in (1, 2) or len(n) != len(seen):
            raise LLPError(
                f"observed has shape {tuple(seen.shape)} and sizes has shape {tuple(n.shape)}; "
                "give one size for every bag"
            )
        n = n.to(seen.device)
        if seen.dim() == 2:
            n = n[:, None].expand(seen.shape)
        lengths = n.reshape(-1) + 1  # of each cell: counts 0 to n
        count = ranges(torch.zeros_like(lengths), lengths).to(torch.float64)
        table = log_density(torch.repeat_interleave(seen.reshape(-1), lengths), count)
        if not isinstance(table, Tensor) or table.shape != count.shape:
            raise LLPError("log_density must return a tensor of the shape of its arguments")
        return cls._table(torch.zeros_like(n), n, table, to_offsets(lengths))

    @classmethod
    def weights(cls, log_weights: Any, offsets: Any) -> "Evidence":
        """Any weights: bag ``b``'s are ``log_weights[offsets[b]:offsets[b + 1]]`` for ``0 … n``.

        ``-inf`` marks an impossible count. Weights need not sum to one.

        >>> odd = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0])  # one bag of three instances
        >>> Evidence.weights(odd, offsets=[0, 4]).high
        tensor([3])
        """
        if isinstance(log_weights, Tensor) and log_weights.requires_grad:
            raise LLPError("log_weights requires grad, but evidence is data; detach it first")
        table = real_tensor(log_weights, "log_weights")
        ends = whole_tensor(offsets, "offsets").to(table.device)
        lengths = ends.diff()
        if table.dim() != 1 or ends.dim() != 1 or len(ends) == 0:
            raise LLPError("log_weights and offsets must each have one axis, and offsets an entry")
        if int(ends[0]) != 0 or int(ends[-1]) != len(table) or bool((lengths < 1).any()):
            raise LLPError(
                f"offsets must rise from 0 to len(log_weights) = {len(table)}, by n + 1 for a bag "
                "of n instances"
            )
        return cls._table(torch.zeros_like(lengths), lengths - 1, table, ends)

    @classmethod
    def _table(cls, low: Tensor, high: Tensor, table: Tensor, offsets: Tensor) -> Self:
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
    def concat(cls, parts: "Sequence[Evidence]") -> "Evidence":
        """All bags of all parts, in order; the kinds may differ.

        >>> len(Evidence.concat([Evidence.exact([1]), Evidence.unknown(2)]))
        3
        """
        if not isinstance(parts, list | tuple) or not parts:
            raise LLPError("Evidence.concat takes a list of at least one Evidence")
        for part in parts:
            if not isinstance(part, Evidence):
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

    def __getitem__(self, index: Any) -> "Evidence":
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
            return Evidence._uniform(low, high)
        classes = self.num_classes or 1
        chosen = chosen % len(self)
        # Tables are stored per cell: bag by bag, class by class.
        cells = (chosen[:, None] * classes + torch.arange(classes, device=self.device)).reshape(-1)
        lengths = self.table_offsets.diff()[cells]
        table = self.table[ranges(self.table_offsets[cells], lengths)]
        return Evidence(low, high, table, to_offsets(lengths))

    def __repr__(self) -> str:
        kind = "exact" if self.is_exact else "mixed"
        classes = "" if self.num_classes is None else f", num_classes={self.num_classes}"
        return f"Evidence({len(self)} bags, {kind}{classes})"

    def _repr_html_(self) -> str:
        heads, cells = self._in_words(SHOWN)
        more = len(self) - len(cells)
        return html_table(
            "Evidence",
            [("bags", f"{len(self):,}"), ("counts", "exact" if self.is_exact else "imprecise")],
            ["bag", *heads],
            [[str(b), *each] for b, each in enumerate(cells)],
            [f"… and {more:,} more"] if more else [],
        )

    def _in_words(self, most: int) -> tuple[list[str], list[list[str]]]:
        """The first bags' counts as text, under their heads; many classes are cut short.

        >>> Evidence.concat([Evidence.exact([2]), Evidence.interval([1], [3])])._in_words(5)
        (['positives'], [['2'], ['1 to 3']])
        """
        K = self.num_classes
        heads = ["positives"] if K is None else [f"class {k}" for k in range(K)]
        weighted = (self.table_offsets.diff() > 0).reshape(self.shape)
        columns = [x[:most].reshape(-1, K or 1).tolist() for x in (self.low, self.high, weighted)]
        rows = [
            [_words(*cell) for cell in zip(*parts, strict=True)]
            for parts in zip(*columns, strict=True)
        ]
        if len(heads) > _WIDE:
            heads, *rows = ([*row[:_WIDE], "…"] for row in (heads, *rows))
        return heads, rows

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
    def is_exact(self) -> bool:
        """Whether every count is known exactly."""
        return self.low is self.high or (
            len(self.table) == 0 and bool((self.low == self.high).all())
        )

    @property
    def counts(self) -> Tensor:
        """The exact counts, ``(B,)`` or ``(B, K)``."""
        if not self.is_exact:
            raise LLPError(
                "these counts are not all exact; use .low and .high, or select the exact bags"
            )
        return self.low

    def to(self, device: torch.device | str) -> "Evidence":
        """The same evidence on another device."""
        if self.low.device == torch.device(device):
            return self
        low = self.low.to(device)
        high = low if self.low is self.high else self.high.to(device)
        return Evidence(low, high, self.table.to(device), self.table_offsets.to(device))


def _words(low: int, high: int, weighted: bool) -> str:
    """What is known about one count."""
    if low == high:
        return str(low)
    text = f"{low} to {high}"
    if high == NO_BOUND:
        text = f"at least {low}" if low else "unknown"
    return f"{text}, weighted" if weighted else text
