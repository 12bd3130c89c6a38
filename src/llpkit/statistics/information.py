r"""The Fisher information that the counts of bags carry about the weights of a linear model.

With logits :math:`z = X\beta`, the derivative of :math:`\log P(y)` is :math:`X^\top (\varphi(y) -
p)`, which has mean zero. So the information of a bag is the variance of :math:`X^\top \varphi(y)`
over its possible counts. For one labelled instance it is :math:`p (1 - p)\, x x^\top`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from llpkit._arrays import Array
from llpkit.errors import LLPError
from llpkit.likelihood import log_prob_and_posterior
from llpkit.ragged import bag_index, instances_of, ranges, segment_sum, to_offsets

_ROWS = 2**19
"""Maximum number of rows that the engine solves at once."""
_BYTES = 2**32
"""Maximum memory for the matrices of all bags."""
_TAILS = 9.0
"""Counts further from the mean than this many standard deviations are ignored."""


def bag_information(design: Any, weights: Any, offsets: Any) -> Array:
    """The information of every bag's count, float64 ``(B, P, P)``.

    Args:
        design: ``(N, P)``, the instances of a bag contiguous; includes a column of ones if the
            model has an intercept.
        weights: The weights of the model, ``(P,)``.
        offsets: ``(B + 1,)``.

    >>> one = bag_information([[1.0], [1.0]], [0.0], [0, 1, 2])  # two labels: p (1 - p) each
    >>> both = bag_information([[1.0], [1.0]], [0.0], [0, 2])  # equal rows: nothing is lost
    >>> one.ravel(), both.ravel()
    (array([0.25, 0.25]), array([0.5]))
    """
    x = torch.as_tensor(np.asarray(design, np.float64))
    ends = torch.as_tensor(np.asarray(offsets, np.int64))
    z = x @ torch.as_tensor(np.asarray(weights, np.float64))  # (N,)
    needed = 8 * (len(ends) - 1) * x.shape[1] ** 2
    if needed > _BYTES:
        raise LLPError(
            f"the information of {len(ends) - 1:,} bags about {x.shape[1]:,} weights takes "
            f"{needed / 2**30:.1f} GiB, more than {_BYTES / 2**30:.0f} GiB; give fewer features, "
            "such as the first 20 principal components"
        )
    information = np.zeros((len(ends) - 1, x.shape[1], x.shape[1]))
    for bags, counts, first in _counts(z, ends):
        rows, inner = instances_of(ends, bags)  # every bag is repeated for each of its counts
        log_p, phi = log_prob_and_posterior(z[rows], counts, inner, validate=False)
        score = segment_sum((phi - z[rows].sigmoid())[:, None] * x[rows], inner)  # (S, P)
        root = (score * (0.5 * log_p).exp()[:, None]).numpy()  # each score times sqrt P(y)
        outer = root[:, :, None] * root[:, None, :]  # (S, P, P)
        information[bags[first].numpy()] = np.add.reduceat(outer, first.numpy(), axis=0)
    return information


def _counts(z: Tensor, offsets: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Chunks of pairs to solve together: the bag and the count of each, and where a bag begins.

    Counts without noticeable probability are left out.
    """
    p = z.sigmoid()
    sizes = offsets.diff()
    mean, spread = segment_sum(p, offsets), segment_sum(p * (1 - p), offsets).sqrt()
    low = (mean - _TAILS * spread - 1).floor().clamp(min=0).long()
    high = torch.minimum((mean + _TAILS * spread + 1).ceil().long(), sizes)
    number = high - low + 1
    # A bag is solved once for each of its counts, so it takes this many rows of a chunk.
    cost = (number * sizes).cumsum(0)
    for chunk in torch.unique(cost // _ROWS):
        bags = torch.where((cost // _ROWS == chunk) & (sizes > 0))[0]
        if not len(bags):
            continue
        inner = to_offsets(number[bags])
        yield bags[bag_index(inner)], ranges(low[bags], number[bags]), inner[:-1]


def label_information(design: Any, weights: Any) -> Array:
    """The information of the labels of all instances together, ``(P, P)``."""
    x = np.asarray(design, np.float64)
    p = expit(x @ np.asarray(weights, np.float64))
    total: Array = x.T @ (x * (p * (1 - p))[:, None])
    return total
