"""Which instances go into which training step.

A whole epoch is planned on the host and sent to the device in a few copies. Instances are shuffled;
whole bags are shuffled and packed until a batch is full, and a bag larger than a batch gets its own
step.

With ``pad``, all steps have the same shape, so that the CUDA graph of one can be replayed for all.
Batches are padded with other training instances, drawn at random, so that batch norm sees only real
inputs; their weight in the loss is zero. In batches of whole bags, each padding instance forms its
own bag, and empty bags make up the rest.

Inputs that are read in blocks, such as the row groups of a Parquet file, are shuffled within a
window of blocks at a time; see :class:`Blocks`.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.methods import BagMethod, Batch, Method
from llpkit.ragged import instances_of

_CPU = torch.device("cpu")
_SAMPLE = 16
"""Blocks in a sample."""


class Step(NamedTuple):
    """One step, with ``n`` instances and, for whole bags, ``m`` bags."""

    positions: Tensor
    """int64 ``(n,)``: positions of the instances in engine order."""
    into: Tensor
    """Row of the logit buffer for each instance; padding goes to the extra last row."""
    share: Tensor | float
    """The step's share of all instances."""
    weights: Tensor | None = None
    """float32 ``(n,)`` or ``(m,)``, sums to one. ``None`` means uniform weights."""
    offsets: Tensor | None = None
    """For whole bags: int64 ``(m + 1,)``."""
    counts: Tensor | None = None
    """For padded whole bags: int64 ``(m,)`` or ``(m, K)``."""
    bags: Tensor | None = None
    """For whole bags without padding: the bag numbers."""
    large: bool = False
    """Whether this is one bag that is larger than a batch."""

    def map(self, change: Callable[[Tensor], Tensor]) -> "Step":
        """Apply a function to every tensor of the step."""
        return Step._make(change(v) if isinstance(v, Tensor) else v for v in self)

    def batch(self, evidence: Evidence, inputs: Tensor, strong: Tensor | None = None) -> Batch:
        """The batch that the method sees; ``evidence`` covers all bags."""
        known = None
        if self.counts is not None:
            known = Evidence.unchecked(self.counts)
        elif self.bags is not None:
            known = evidence[self.bags]
        return Batch(inputs, self.positions, self.offsets, known, self.weights, strong)


class Blocks(NamedTuple):
    """Which parts of the inputs are read together, and how many are in memory at a time.

    Block ``i`` is in lane ``i % lanes``. A window consists of one block of each lane, redrawn in
    every epoch. Each process owns whole lanes, so that it has a part of every window.
    """

    of_bag: Tensor
    """int64 ``(B,)``: the block of each bag's first row."""
    lanes: int

    def windows(self, generator: torch.Generator | None) -> Tensor:
        """The window of every bag in an epoch, int64 ``(B,)``."""
        number = int(self.of_bag.max()) + 1
        window = torch.empty(number, dtype=torch.int64)
        for lane in range(self.lanes):
            own = torch.arange(lane, number, self.lanes)
            window[own] = torch.randperm(len(own), generator=generator)
        return window[self.of_bag]

    def sample(self) -> Tensor:
        """The bags of a few evenly spaced blocks: a sample of all bags would read all inputs."""
        blocks = self.of_bag.unique()
        some = blocks[torch.linspace(0, len(blocks) - 1, min(_SAMPLE, len(blocks))).long()]
        return torch.where(torch.isin(self.of_bag, some))[0]

    def owners(self, processes: int) -> Tensor:
        """The process of every bag, int64 ``(B,)``."""
        if processes > self.lanes:
            raise LLPError(
                f"there are {processes} processes, but the images are read in windows of "
                f"{self.lanes} row groups; use fewer processes, or write smaller row groups"
            )
        return self.of_bag % self.lanes % processes


def shuffled(number: int, generator: torch.Generator | None, window: Tensor | None) -> Tensor:
    """A random order; with the window of every entry, one window after another.

    >>> shuffled(4, None, torch.tensor([1, 0, 0, 1]))[:2].sort()[0]
    tensor([1, 2])
    """
    order = torch.randperm(number, generator=generator)
    return order if window is None else order[window[order].argsort(stable=True)]


def send(value: Tensor, device: torch.device) -> Tensor:
    """Copy to the training device without blocking the host."""
    if device.type == "cuda":
        return value.pin_memory().to(device, non_blocking=True)
    return value.to(device)


def plan_epoch(
    method: Method,
    bags: Bags,
    size: int,
    generator: torch.Generator,
    *,
    pad: bool = False,
    max_bags: int | None = None,
    blocks: Blocks | None = None,
    device: torch.device = _CPU,
) -> list[Step]:
    """The steps of one epoch of a method: instances or whole bags, in random order."""
    window = None if blocks is None else blocks.windows(generator)
    if method.batches == "instances":
        if window is not None:
            window = window[bags.bag_index]  # of every instance
        return plan_instances(bags.num_instances, size, pad, device, generator, window)
    split = isinstance(method, BagMethod)  # only these can process a bag in pieces
    return plan_bags(bags, size, pad, split, device, generator, max_bags, window)


def plan_instances(
    num_instances: int,
    size: int,
    pad: bool = False,
    device: torch.device = _CPU,
    generator: torch.Generator | None = None,
    window: Tensor | None = None,
) -> list[Step]:
    """Instances in random order; ``window`` has one entry per instance; see :func:`shuffled`.

    >>> [step.weights.sum().item() for step in plan_instances(5, 3, pad=True)]
    [1.0, 1.0]
    """
    if not pad:
        batches = instance_batches(num_instances, size, generator, window)
        batches = [send(batch, device) for batch in batches]
        return [Step(b, b, len(b) / num_instances) for b in batches]
    size = min(size, num_instances)
    order, steps = shuffled(num_instances, generator, window), -(-num_instances // size)
    padding = torch.randint(num_instances, (steps * size - num_instances,), generator=generator)
    into = torch.cat([order, torch.full_like(padding, num_instances)]).view(steps, size)
    real = into < num_instances  # (steps, size)
    number = real.sum(1)  # (steps,)
    positions = torch.cat([order, padding]).view(steps, size)
    return _steps(Step(positions, into, number / num_instances, real / number[:, None]), device)


def plan_bags(
    bags: Bags,
    size: int,
    pad: bool = False,
    split: bool = True,
    device: torch.device = _CPU,
    generator: torch.Generator | None = None,
    max_bags: int | None = None,
    window: Tensor | None = None,
) -> list[Step]:
    """Whole bags in random order.

    Args:
        bags: On the CPU; with exact counts if ``pad``.
        size: Instances per step.
        pad: Whether all steps have the same shape; see above.
        split: Whether a bag larger than a batch is marked as large, so that the method can process
            it in pieces.
        device: Where to put the steps.
        generator: Draws the order; torch's global one if ``None``.
        max_bags: Maximum number of bags per step; ``None`` for as many as fit.
        window: The window of every bag; see :func:`shuffled`.
    """
    size = min(size, bags.num_instances)
    batches = bag_batches(bags.sizes, size, not pad, generator, max_bags, window)
    # A last batch may have one instance more than fits; see bag_batches.
    most = size if pad else size + 1
    lengths = bags.sizes.tolist()
    large = [split and sum(lengths[i] for i in b.tolist()) > most for b in batches]
    # Padded steps are built together, in a few copies; they are then dealt out in batch order.
    padded: Iterator[Step] = iter(())
    if pad:
        small = [b for b, alone in zip(batches, large, strict=True) if not alone]
        padded = iter(_steps(_padded(bags, small, size, generator), device)) if small else padded
    steps: list[Step] = []
    for chosen, alone in zip(batches, large, strict=True):
        if pad and not alone:
            steps.append(next(padded))
            continue
        positions, offsets = instances_of(bags.offsets, chosen)
        share = len(positions) / bags.num_instances
        positions, offsets, chosen = (send(t, device) for t in (positions, offsets, chosen))
        steps.append(Step(positions, positions, share, None, offsets, None, chosen, alone))
    return steps


def _steps(stacked: Step, device: torch.device) -> list[Step]:
    """Split tensors stacked as ``(steps, ...)`` into steps, after one copy per tensor."""
    fields = [send(f, device).unbind() if isinstance(f, Tensor) else None for f in stacked[:6]]
    number = len(stacked.positions)
    columns = [f if f is not None else (None,) * number for f in fields]
    return [Step(*values) for values in zip(*columns, strict=True)]


def _padded(
    bags: Bags, batches: list[Tensor], size: int, generator: torch.Generator | None
) -> Step:
    """Steps of ``size`` instances and ``size`` bags each, stacked."""
    total, steps = bags.num_instances, len(batches)
    chosen = torch.cat(batches).numpy()
    step = np.repeat(np.arange(steps), [len(b) for b in batches])  # of each chosen bag
    n = bags.sizes.numpy()[chosen]
    filled = np.bincount(step, n, steps).astype(np.int64)  # instances of each step
    number = np.bincount(step, minlength=steps)  # bags of each step

    # Instances: those of the chosen bags one after another, then padding.
    column = np.arange(size)
    real = column < filled[:, None]  # (steps, S)
    positions = torch.randint(total, (steps, size), generator=generator).numpy()
    starts = bags.offsets.numpy()[chosen]
    # starts - (n.cumsum() - n) shifts the running count of instances to each bag's first position.
    positions[real] = np.repeat(starts - n.cumsum() + n, n) + np.arange(n.sum())
    into = np.where(real, positions, total)

    # Bags: the chosen ones, then one for each padding instance, then empty ones.
    own = column < number[:, None]  # (steps, S)
    lengths = (column < (number + size - filled)[:, None]).astype(np.int64)
    lengths[own] = n
    offsets = np.concatenate([np.zeros((steps, 1), np.int64), lengths.cumsum(1)], 1)
    every = bags.evidence.counts.numpy()
    counts = np.zeros((steps, size, *every.shape[1:]), np.int64)
    if every.ndim == 2:
        counts[..., 0] = lengths  # padding counts as the first class; its weight is zero
    counts[own] = every[chosen]
    weights = (own / number[:, None]).astype(np.float32)  # (steps, S): only real bags count
    share = (filled / total).astype(np.float32)
    stacked = map(torch.from_numpy, (positions, into, share, weights, offsets, counts))
    return Step._make((*stacked, None, False))


def instance_batches(
    num_instances: int,
    batch_size: int,
    generator: torch.Generator | None = None,
    window: Tensor | None = None,
) -> list[Tensor]:
    """Positions in random order, cut into batches.

    A last batch of a single instance joins the one before: batch norm cannot train on it alone.

    >>> [len(batch) for batch in instance_batches(9, 4)]
    [4, 5]
    """
    batches = list(shuffled(num_instances, generator, window).split(batch_size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def bag_batches(
    sizes: Tensor,
    batch_size: int,
    join: bool = True,
    generator: torch.Generator | None = None,
    max_bags: int | None = None,
    window: Tensor | None = None,
) -> list[Tensor]:
    """Bags in random order, packed so that a batch has about ``batch_size`` instances.

    A batch is closed when the next bag would overfill it, or when it has ``max_bags``. A bag larger
    than a batch gets its own batch; empty bags are left out. With ``join``, a last batch of one
    instance joins the previous.

    >>> [len(batch) for batch in bag_batches(torch.tensor([2, 2, 2, 2]), 4)]
    [2, 2]
    >>> [len(batch) for batch in bag_batches(torch.tensor([2, 2, 2, 2]), 4, max_bags=1)]
    [1, 1, 1, 1]
    """
    order = shuffled(len(sizes), generator, window)
    order = order[sizes[order] > 0]
    length = sizes[order].tolist()
    cuts, filled, number = [], 0, 0
    for i, n in enumerate(length):
        if number and (filled + n > batch_size or number == max_bags):
            cuts.append(i)
            filled = number = 0
        filled, number = filled + n, number + 1
    batches = list(order.tensor_split(cuts)) if len(order) else []
    if join and len(batches) > 1 and int(sizes[batches[-1]].sum()) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches
