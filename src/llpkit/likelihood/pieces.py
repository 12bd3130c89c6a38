"""Evidence cut into log-concave pieces, the form that the torch and Numba backends take."""

from typing import NamedTuple

import torch
from torch import Tensor

from llpkit.evidence import Evidence
from llpkit.ragged import bag_index, to_offsets

_ROUNDING = 8 * torch.finfo(torch.float64).eps
"""A rise of the slope up to this, relative to the log-weights, is treated as rounding."""


class Pieces(NamedTuple):
    """One contiguous range of counts each, on which the log-weights are concave.

    An exact count, an interval, "at least" and the usual noise densities are one piece per bag; any
    other table is a mixture of several. Piece ``j`` weighs count ``k`` by
    ``exp(table[base[j] + k])`` if ``tabled[j]``, else by one, for ``low[j] <= k <= high[j]``.
    """

    bag: Tensor  # (P,) the bag of each piece, in ascending order
    low: Tensor  # (P,)
    high: Tensor  # (P,)
    tabled: Tensor  # (P,) bool
    base: Tensor  # (P,)
    table: Tensor  # flat log-weights
    one_each: bool  # every bag has one piece: piece j belongs to bag j

    def log_weight(self, k: Tensor) -> Tensor:
        """Log-weight of count ``k[j]`` in every piece ``j``; ``-inf`` outside its range."""
        inside = (k >= self.low) & (k <= self.high)
        log_w = torch.where(inside, 0.0, -torch.inf).to(self.table.dtype)
        if len(self.table) == 0:
            return log_w
        from_table = inside & self.tabled
        return torch.where(from_table, self.table[torch.where(from_table, self.base + k, 0)], log_w)

    def slope(self, k: Tensor) -> Tensor:
        """``log w(k + 1) - log w(k)``, falling with ``k``; infinite at the ends of the range."""
        return self.log_weight(k + 1) - self.log_weight(k)

    def take(self, index: Tensor) -> "Pieces":
        """Some pieces; the bags keep their numbers."""
        return Pieces(
            self.bag[index],
            self.low[index],
            self.high[index],
            self.tabled[index],
            self.base[index],
            self.table,
            False,
        )


def cut(evidence: Evidence) -> Pieces:
    """The log-concave pieces of binary evidence, in the order of the bags."""
    bags = torch.arange(len(evidence), device=evidence.device)
    if len(evidence.table) == 0:
        no = torch.zeros_like(bags, dtype=torch.bool)
        return Pieces(bags, evidence.low, evidence.high, no, bags, evidence.table, True)
    lengths = evidence.table_offsets.diff()
    tabled = lengths > 0
    base = evidence.table_offsets[:-1] - evidence.low  # index of count 0

    # A table is cut where a count is impossible and where the slope rises.
    table, starts = evidence.table, evidence.table_offsets[:-1][tabled]
    owner = bags[tabled][bag_index(to_offsets(lengths[tabled]))]
    possible = table.isfinite()
    first = torch.zeros_like(possible)
    first[starts] = True
    finite = torch.where(possible, table, 0.0)
    size = finite.abs()
    rise = finite.diff().diff() > _ROUNDING * (size[2:] + size[1:-1] + size[:-2])  # (S - 2,)
    breaks = first | ~possible  # (S,)
    breaks[1:] |= ~possible[:-1]
    # Slope k - 2 -> k - 1 counts only if both its ends belong to the run of k - 1.
    breaks[2:] |= rise & ~breaks[1:-1]
    begin = (breaks & possible).nonzero()[:, 0]
    last = torch.cat([breaks[1:], breaks.new_ones(1)]) & possible
    end = last.nonzero()[:, 0]

    of_run = owner[begin]
    run_base = base[of_run]
    plain = bags[~tabled]
    bag = torch.cat([plain, of_run])
    order = bag.argsort(stable=True)
    return Pieces(
        bag[order],
        torch.cat([evidence.low[plain], begin - run_base])[order],
        torch.cat([evidence.high[plain], end - run_base])[order],
        torch.cat([tabled[plain], tabled[of_run]])[order],
        torch.cat([base[plain], run_base])[order],
        table,
        bool(len(bag) == len(bags) and (bag[order] == bags).all()),
    )
