"""Sums, ranks and index ranges over bags of unequal size: flat tensors plus offsets."""

import torch
from torch import Tensor


def bag_index(offsets: Tensor, num_instances: int | None = None) -> Tensor:
    """The bag of every instance, ``(N,)``; where ``N`` is given, without waiting for a device.

    >>> bag_index(torch.tensor([0, 2, 2, 5]))
    tensor([0, 0, 2, 2, 2])
    """
    if num_instances is not None and offsets.device.type != "cpu":
        instances = torch.arange(num_instances, device=offsets.device)
        return torch.bucketize(instances, offsets[1:], right=True)
    bags = torch.arange(len(offsets) - 1, device=offsets.device)
    return torch.repeat_interleave(bags, offsets.diff())


def segment_sum(values: Tensor, offsets: Tensor) -> Tensor:
    """Sum of every bag's values, ``(B,)``; an empty bag sums to zero.

    >>> segment_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 2, 3]))
    tensor([3., 0., 4.])
    """
    if len(offsets) == 1:
        return values.new_zeros((0, *values.shape[1:]))
    return torch.segment_reduce(values, "sum", offsets=offsets, initial=0)


def segment_logsumexp(values: Tensor, offsets: Tensor) -> Tensor:
    """Logarithm of every bag's sum of exponentials, ``(B,)``; ``-inf`` where all are ``-inf``."""
    top = torch.segment_reduce(values, "max", offsets=offsets, initial=-torch.inf)
    shift = torch.where(top.isfinite(), top, 0.0)
    return segment_sum((values - shift[bag_index(offsets)]).exp(), offsets).log() + shift


def ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """Concatenation of ``start, start + 1, …`` for every start and length.

    >>> ranges(torch.tensor([5, 0]), torch.tensor([2, 3]))
    tensor([5, 6, 0, 1, 2])
    """
    ends = lengths.cumsum(0)
    shift = torch.repeat_interleave(starts - ends + lengths, lengths)
    return shift + torch.arange(len(shift), device=starts.device)


def to_offsets(lengths: Tensor) -> Tensor:
    """Offsets ``(B + 1,)`` of bags with these sizes ``(B,)``."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def descending(values: Tensor, offsets: Tensor) -> Tensor:
    """The permutation ``(N,)`` that sorts every bag's values, largest first."""
    by_value = values.argsort(descending=True, stable=True)
    return by_value[bag_index(offsets)[by_value].argsort(stable=True)]
