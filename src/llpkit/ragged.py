"""Bags of unequal size, as one flat tensor and offsets: sums, indices and orders per bag.

The instances of ``B`` bags are concatenated along the first axis, ``N`` in all. Bag ``b`` has the
entries ``offsets[b]:offsets[b + 1]``, where ``offsets`` is int64 ``(B + 1,)``, rises from 0 to
``N``, and repeats a number where a bag is empty. Nothing is padded, so the cost of a loss per bag
is linear in the number of instances. The functions work on any device.
"""

import torch
from torch import Tensor


def to_offsets(sizes: Tensor) -> Tensor:
    r"""Offsets of bags of these sizes, one after the other.

    .. math:: o_0 = 0, \qquad o_{b+1} = \sum_{a \le b} n_a

    Args:
        sizes: int64 ``(B,)``.

    Returns:
        int64 ``(B + 1,)``; ``offsets.diff()`` gives the sizes back.

    >>> to_offsets(torch.tensor([2, 0, 3]))
    tensor([0, 2, 2, 5])
    """
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def bag_index(offsets: Tensor, num_instances: int | None = None) -> Tensor:
    r"""The bag of every instance, :math:`b(i)` with :math:`o_b \le i < o_{b+1}`.

    ``values[bag_index(offsets)]`` gives every instance the value of its bag.

    Args:
        offsets: int64 ``(B + 1,)``.
        num_instances: ``N``, if known: the host then need not wait for the device.

    Returns:
        int64 ``(N,)``.

    >>> bag_index(torch.tensor([0, 2, 2, 5]))
    tensor([0, 0, 2, 2, 2])
    """
    if num_instances is not None and offsets.device.type != "cpu":
        instances = torch.arange(num_instances, device=offsets.device)
        return torch.bucketize(instances, offsets[1:], right=True)
    bags = torch.arange(len(offsets) - 1, device=offsets.device)
    return torch.repeat_interleave(bags, offsets.diff())


def ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    r"""The index ranges :math:`s_b, \ldots, s_b + \ell_b - 1` of all bags, one after the other.

    ``ranges(offsets[chosen], sizes[chosen])`` are the instances of some bags.

    Args:
        starts: int64 ``(B,)``.
        lengths: int64 ``(B,)``.

    Returns:
        int64 ``(sum of the lengths,)``.

    >>> ranges(torch.tensor([5, 0]), torch.tensor([2, 3]))
    tensor([5, 6, 0, 1, 2])
    """
    ends = lengths.cumsum(0)
    # One arange over everything, shifted so that each bag restarts at its own start.
    shift = torch.repeat_interleave(starts - ends + lengths, lengths)
    return shift + torch.arange(len(shift), device=starts.device)


def instances_of(offsets: Tensor, bags: Tensor) -> tuple[Tensor, Tensor]:
    r"""The instances of some bags, and the offsets of these bags among them.

    Args:
        offsets: int64 ``(B + 1,)``.
        bags: Indices of bags, or a mask ``(B,)``; ``C`` bags.

    Returns:
        int64 indices of the instances, bag by bag, and int64 offsets ``(C + 1,)``.

    >>> instances_of(torch.tensor([0, 2, 2, 5]), torch.tensor([2, 0]))
    (tensor([2, 3, 4, 0, 1]), tensor([0, 3, 5]))
    """
    sizes = offsets.diff()[bags]
    return ranges(offsets[:-1][bags], sizes), to_offsets(sizes)


def segment_sum(values: Tensor, offsets: Tensor) -> Tensor:
    r"""Sum over the instances of every bag, :math:`\sum_{i \in b} v_i`; zero for an empty bag.

    Differentiable.

    Args:
        values: Floating point, ``(N,)`` or ``(N, …)``.
        offsets: int64 ``(B + 1,)``.

    Returns:
        ``(B,)`` or ``(B, …)``.

    >>> segment_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 2, 3]))
    tensor([3., 0., 4.])
    """
    if len(offsets) == 1:
        return values.new_zeros((0, *values.shape[1:]))
    return torch.segment_reduce(values, "sum", offsets=offsets, initial=0)


def segment_logsumexp(values: Tensor, offsets: Tensor) -> Tensor:
    r"""Logarithm of every bag's sum of exponentials, :math:`\log \sum_{i \in b} e^{v_i}`.

    ``-inf`` where all values are, and for an empty bag. Differentiable.

    Args:
        values: Floating point, ``(N,)`` or ``(N, …)``.
        offsets: int64 ``(B + 1,)``.

    Returns:
        ``(B,)`` or ``(B, …)``.

    >>> segment_logsumexp(torch.zeros(3), torch.tensor([0, 2, 2, 3])).exp()
    tensor([2., 0., 1.])
    """
    # The shift is detached: it cancels, and the gradient of a maximum is undefined at ties.
    top = torch.segment_reduce(values.detach(), "max", offsets=offsets, initial=-torch.inf)
    shift = torch.where(top.isfinite(), top, 0.0)  # (B, …); -inf - -inf would be NaN
    inside = (values - shift[bag_index(offsets, len(values))]).exp()
    return segment_sum(inside, offsets).log() + shift


def descending(values: Tensor, offsets: Tensor) -> Tensor:
    r"""The permutation that sorts every bag by itself, largest value first.

    Instances stay in their bag, and equal values in their order:
    :math:`v_{\pi(i)} \ge v_{\pi(i+1)}` for neighbours in one bag.

    Args:
        values: ``(N,)``.
        offsets: int64 ``(B + 1,)``.

    Returns:
        int64 ``(N,)``.

    >>> descending(torch.tensor([1.0, 3.0, 2.0, 5.0]), torch.tensor([0, 3, 4]))
    tensor([1, 2, 0, 3])
    """
    by_value = values.argsort(descending=True, stable=True)
    return by_value[bag_index(offsets)[by_value].argsort(stable=True)]
