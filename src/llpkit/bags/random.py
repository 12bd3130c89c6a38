"""Random bags of instances with known labels, for experiments and simulations."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import Array, checked_generator, checked_labels
from llpkit._validation import number, whole
from llpkit.bags.bags import Bags, Seed, permutation
from llpkit.evidence.support import label_counts


def random_bags(
    labels: Any,
    size: int | tuple[int, int],
    *,
    generator: Seed,
    num_classes: int | None = None,
    concentration: float | None = None,
) -> Bags:
    """Random bags, drawn without replacement, with the counts of labels ``(N,)``.

    Args:
        labels: 0 or 1, or with ``num_classes`` ``0 … K - 1``; not kept.
        size: Instances per bag: a number, or ``(low, high)`` for sizes uniform in that range. The
            last bag is smaller if the rows run out.
        generator: A generator or a seed.
        num_classes: ``K`` for more than two classes.
        concentration: Clusters the bags by class: the class shares of each bag are drawn from a
            symmetric Dirichlet distribution with this parameter, as far as instances are left.
            Small values give nearly pure bags; ``None`` ignores the classes.

    >>> random_bags([0, 1, 1, 0, 1], size=2, generator=0).sizes
    tensor([2, 2, 1])
    """
    truth = checked_labels(labels, num_classes)
    low, high = size if isinstance(size, tuple | list) and len(size) == 2 else (size, size)
    low = whole("size", low, 1, len(truth))
    high = whole("size", high, low, len(truth))
    source = checked_generator(generator)
    rows = permutation(len(truth), source)
    # No more bags than this fit; the rows after the last that fits make a smaller one.
    enough = (len(truth) // low,)
    drawn = torch.randint(low, high + 1, enough, generator=source, device=source.device)
    ends = drawn.cumsum(0).cpu()
    ends = ends[ends <= len(truth)]
    if ends[-1] < len(truth):
        ends = torch.cat([ends, torch.tensor([len(truth)])])
    offsets = torch.cat([torch.tensor([0]), ends])
    if concentration is not None:
        alpha = number("concentration", concentration, above=0)
        rows = rows[_clustered(truth[rows.numpy()], offsets.diff().tolist(), alpha, source)]
    evidence = label_counts(truth[rows.numpy()], offsets.diff().numpy(), num_classes)
    return Bags.unchecked(offsets, rows, evidence, range(len(ends)), len(truth))


def random_sample(
    sizes: Array, rows: int, random: np.random.Generator | np.random.RandomState, least: int = 1
) -> Array:
    """Indices of random bags with at most ``rows`` rows in total, but at least ``least`` bags.

    >>> random_sample(np.array([2, 2, 9]), 4, np.random.default_rng(0))
    array([2])
    """
    order = random.permutation(len(sizes))
    inside = np.cumsum(sizes[order]) <= rows
    inside[:least] = True  # however large they are
    return np.sort(order[inside])


def _clustered(truth: Array, sizes: list[int], alpha: float, source: torch.Generator) -> Tensor:
    """An order of the instances in which consecutive bags have Dirichlet class shares."""
    seed = int(torch.randint(2**62, (), generator=source, device=source.device))
    draw = np.random.default_rng(seed)
    queues = [np.flatnonzero(truth == k) for k in range(int(truth.max()) + 1)]
    taken, left = np.zeros(len(queues), int), np.array([len(queue) for queue in queues])
    parts = []
    for size in sizes:
        shares = draw.dirichlet(np.full(len(queues), alpha))
        counts = np.minimum(draw.multinomial(size, shares), left)
        # Where a class has run out, other instances fill the bag, each equally likely.
        counts += draw.multivariate_hypergeometric(left - counts, size - int(counts.sum()))
        ends = taken + counts
        parts += [q[a:b] for q, a, b in zip(queues, taken, ends, strict=True)]
        taken, left = ends, left - counts
    return torch.from_numpy(np.concatenate(parts))
