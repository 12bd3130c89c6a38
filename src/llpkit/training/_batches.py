"""Which instances go into which step: shuffled instances, or whole bags by number of instances."""

import numpy as np
import torch
from torch import Tensor

from llpkit.bags import Bags
from llpkit.ragged import ranges, to_offsets


def instance_batches(
    num_instances: int, batch_size: int, generator: torch.Generator | None = None
) -> list[Tensor]:
    """Positions in random order, cut into batches; a last one of a single instance joins another.

    >>> [len(batch) for batch in instance_batches(9, 4)]
    [4, 5]
    """
    order = torch.randperm(num_instances, generator=generator)
    batches = list(order.split(batch_size))
    if len(batches) > 1 and len(batches[-1]) == 1:  # batch norm cannot train on one instance
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def bag_batches(
    sizes: Tensor, batch_size: int, join: bool = True, generator: torch.Generator | None = None
) -> list[Tensor]:
    """Bags in random order, packed so that a batch has about ``batch_size`` instances.

    A batch is closed when the next bag would overfill it. A larger bag stands alone; empty bags
    are left out. With ``join``, a last batch of a single instance joins the one before.

    >>> [len(batch) for batch in bag_batches(torch.tensor([2, 2, 2, 2]), 4)]
    [2, 2]
    """
    order = torch.randperm(len(sizes), generator=generator)
    order = order[sizes[order] > 0]
    length = sizes[order].tolist()
    cuts, filled = [], 0
    for place, n in enumerate(length):
        if filled and filled + n > batch_size:
            cuts.append(place)
            filled = 0
        filled += n
    batches = list(order.tensor_split(cuts)) if len(order) else []
    if join and len(batches) > 1 and int(sizes[batches[-1]].sum()) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def positions_of(bags: Bags, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the chosen bags' instances, and the offsets of these bags among them."""
    sizes = bags.sizes[chosen]
    return ranges(bags.offsets[chosen], sizes), to_offsets(sizes)


def epoch_seed(seed: int, epoch: int, *stream: int) -> int:
    """The seed of one epoch of a run: any epoch can be drawn without those before it."""
    return int(np.random.SeedSequence([seed, epoch, *stream]).generate_state(1, np.uint64)[0] >> 1)
