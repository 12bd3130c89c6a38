"""Which bags each process trains on. All processes take the same steps as a single one.

All processes plan the same epoch from the same seed, and each trains on the instances of a step
that are in its own bags. So the batches, and the weights up to rounding, do not depend on the
number of processes. A bag is never divided: its posterior and likelihood need no communication.

In one process, the loss of a step is the mean over the step's ``n`` instances (or bags). With ``R``
processes, each multiplies its instances' losses by ``R / n``. DDP averages the gradients over the
processes, which gives the mean over all ``n`` again.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from llpkit._text import several
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.ragged import instances_of
from llpkit.training.batches import Step


def deal(sizes: Tensor, number: int) -> Tensor:
    """The process of every bag, int64 ``(B,)``, balanced by instances.

    Bags are dealt from the largest to the smallest, to the processes in ascending and descending
    order in turn. The loads then differ by no more than the largest bag.

    >>> deal(torch.tensor([1, 5, 4, 2]), 2).tolist()
    [0, 0, 1, 1]
    """
    order = torch.argsort(sizes, descending=True, stable=True)
    turn = torch.arange(len(sizes)) % (2 * number)
    owner = torch.empty_like(order)
    owner[order] = torch.minimum(turn, 2 * number - 1 - turn)
    return owner


@dataclass(frozen=True)
class Shard:
    """The bags of one process.

    Args:
        whole: The bags of all processes, on the CPU.
        numbers: Which of them this process has, ascending.
        bags: The bags of this process.
        number: How many processes there are.
    """

    whole: Bags
    numbers: Tensor
    bags: Bags
    number: int

    @classmethod
    def of(cls, bags: Bags, rank: int, number: int, owner: Tensor | None = None) -> "Shard":
        """The bags of one of several processes; ``owner`` overrides :func:`deal`."""
        bags = bags.to("cpu")
        if number == 1:
            return cls(bags, torch.arange(len(bags)), bags, 1)
        if owner is None:
            owner = deal(bags.sizes, number)
        numbers = torch.where((owner == rank) & (bags.sizes > 0))[0]
        # Empty bags have nothing to train on, but the first process measures them.
        if rank == 0:
            numbers = torch.where((owner == rank) | (bags.sizes == 0))[0]
        if int(bags.sizes[numbers].sum()) == 0:
            raise LLPError(
                f"there are {number} processes but {several(len(bags), 'bag')} to train on or to "
                "hold out, and bags are not divided; use fewer processes"
            )
        return cls(bags, numbers, bags[numbers], number)

    @cached_property
    def positions(self) -> Tensor:
        """Positions of this process's instances among those of all processes, ``(N,)``."""
        return instances_of(self.whole.offsets, self.numbers)[0]

    @cached_property
    def _index_of(self) -> Tensor:
        """This process's position of every instance; -1 for those of other processes."""
        return _inverse(self.positions, self.whole.num_instances)

    @cached_property
    def _index_of_bag(self) -> Tensor:
        return _inverse(self.numbers, len(self.whole))

    @cached_property
    def _spare(self) -> Tensor:
        """A small bag to pad with: two instances if possible, since batch norm needs two."""
        sizes = self.bags.sizes.numpy()
        enough = np.flatnonzero(sizes >= min(2, sizes.max()))
        return torch.tensor([int(enough[sizes[enough].argmin()])])

    def restrict(self, plan: list[Step]) -> list[Step]:
        """This process's part of every step.

        DDP needs all processes in every step, so a part of less than two instances is padded with
        another bag of the process, which has weight zero.
        """
        return [self._part(step) for step in plan]

    def _part(self, step: Step) -> Step:
        bags = offsets = None
        if step.bags is None:
            into = self._index_of[step.positions]
            into = into[into >= 0]
            real, total = len(into), len(step.positions)
        else:
            bags = self._index_of_bag[step.bags]
            bags = bags[bags >= 0]
            into, offsets = instances_of(self.bags.offsets, bags)
            real, total = len(bags), len(step.bags)
        own = into
        if len(own) < 2:
            padding = instances_of(self.bags.offsets, self._spare)[0]
            own = torch.cat([own, padding])
            into = torch.cat([into, torch.full_like(padding, self.bags.num_instances)])
            if bags is not None and offsets is not None:
                bags = torch.cat([bags, self._spare])
                offsets = torch.cat([offsets, torch.tensor([len(own)])])
        # The loss is per instance or per bag, and that of padding has weight zero.
        weights = torch.zeros(len(own) if bags is None else len(bags), dtype=torch.float64)
        weights[:real] = self.number / total
        # The losses of all processes then add up to R times the mean, hence a share divided by R.
        return Step(own, into, step.share / self.number, weights, offsets, None, bags)


def _inverse(positions: Tensor, length: int) -> Tensor:
    inverse = torch.full((length,), -1)
    inverse[positions] = torch.arange(len(positions))
    return inverse
