"""An epoch in batches of one shape, so that every step is the same work on the device.

A batch that is not full is filled up with other training instances, drawn at random, whose weight
in the loss is zero: batch norm then sees real inputs and nothing else. In whole-bag batches every
such filler is a bag of its own, and bags of no instances make up the rest. All of an epoch's
indices are worked out on the host and go to the device in a few copies.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from llpkit.bags import Bags
from llpkit.evidence import Evidence
from llpkit.methods import Batch
from llpkit.training._batches import bag_batches


class Plan(NamedTuple):
    """The steps of an epoch, each with ``S`` instances and, of whole bags, ``S`` bags."""

    positions: Tensor
    """int64 ``(steps, S)``: where the instances stand in engine order."""
    into: Tensor
    """The same, with the number of instances, one beyond the last, in place of the fillers."""
    weights: Tensor
    """float32 ``(steps, S)``, of instances or bags; the weights of a step sum to one."""
    share: Tensor
    """float32 ``(steps,)``: the step's part of all instances."""
    offsets: Tensor | None = None
    """Of whole bags: int64 ``(steps, S + 1)``."""
    counts: Tensor | None = None
    """Of whole bags: int64 ``(steps, S)`` or ``(steps, S, K)``."""

    def to(self, device: torch.device) -> "Plan":
        """On the training device."""
        return self.map(lambda t: send(t, device))

    def step(self, index: int) -> "Plan":
        """What belongs to one step, without the first axis."""
        return self.map(lambda t: t[index])

    def map(self, change: Callable[[Tensor], Tensor]) -> "Plan":
        """The same change made to all that is there."""
        return Plan._make(None if t is None else change(t) for t in self)

    def batch(self, inputs: Tensor) -> Batch:
        """Of one step: what the method sees."""
        evidence = None if self.counts is None else Evidence.unchecked(self.counts)
        return Batch(inputs, self.positions, self.offsets, evidence, self.weights)


def plan_instances(num_instances: int, size: int, generator: torch.Generator | None = None) -> Plan:
    """Instances in random order.

    >>> plan = plan_instances(5, 3)
    >>> plan.into.flatten().tolist().count(5), plan.weights.sum(1).tolist()
    (1, [1.0, 1.0])
    """
    size = min(size, num_instances)
    order = torch.randperm(num_instances, generator=generator)
    steps = -(-num_instances // size)
    fillers = torch.randint(num_instances, (steps * size - num_instances,), generator=generator)
    into = torch.cat([order, torch.full_like(fillers, num_instances)]).view(steps, size)
    real = into < num_instances
    number = real.sum(1)
    return Plan(
        torch.cat([order, fillers]).view(steps, size),
        into,
        real / number[:, None],
        number / num_instances,
    )


def plan_bags(
    bags: Bags, sizes: Tensor, size: int, generator: torch.Generator | None = None
) -> tuple[Plan, list[int]]:
    """Whole bags in random order, on the host; and the bags that are larger than a batch.

    ``sizes`` and ``bags`` are on the CPU. The plan has no steps if all bags are large.
    """
    total = bags.num_instances
    size = min(size, total)
    fits = (sizes > 0) & (sizes <= size)
    small = fits.nonzero()[:, 0]
    groups = [small[g] for g in bag_batches(sizes[small], size, False, generator)]
    chosen = torch.cat(groups).numpy() if groups else np.zeros(0, dtype=np.int64)
    step = np.repeat(np.arange(len(groups)), [len(g) for g in groups])  # of each chosen bag
    n = sizes.numpy()[chosen]
    ends = n.cumsum()
    steps = len(groups)
    filled = np.bincount(step, n, steps).astype(np.int64)  # instances of each step
    number = np.bincount(step, minlength=steps)  # bags of each step
    before = np.concatenate([[0], filled.cumsum()])

    # Instances: those of the chosen bags one after another, then fillers.
    column = np.arange(size)
    taken = column < filled[:, None]  # (steps, S)
    positions = torch.randint(total, (steps, size), generator=generator).numpy()
    first = bags.offsets.numpy()[chosen]
    positions[taken] = np.repeat(first - ends + n, n) + np.arange(n.sum())
    into = np.where(taken, positions, total)

    # Bags: the chosen ones, then one for each filler, then empty ones.
    real = column < number[:, None]  # (steps, S)
    lengths = (column < (number + size - filled)[:, None]).astype(np.int64)
    lengths[real] = n
    offsets = np.concatenate([np.zeros((steps, 1), np.int64), lengths.cumsum(1)], 1)
    known = bags.evidence.counts.numpy()
    counts = np.zeros((steps, size, *known.shape[1:]), np.int64)
    if known.ndim == 2:
        counts[..., 0] = lengths  # a filler counts as of the first class, for what it weighs
    counts[real] = known[chosen]
    plan = Plan(
        torch.from_numpy(positions),
        torch.from_numpy(into),
        torch.from_numpy((real / number[:, None]).astype(np.float32)),
        torch.from_numpy((before[1:] - before[:-1]).astype(np.float32) / total),
        torch.from_numpy(offsets),
        torch.from_numpy(counts),
    )
    return plan, (sizes > size).nonzero()[:, 0].tolist()


def send(value: Tensor, device: torch.device) -> Tensor:
    """Copy to the training device, without waiting for it."""
    if device.type == "cuda":
        return value.pin_memory().to(device, non_blocking=True)
    return value.to(device)
