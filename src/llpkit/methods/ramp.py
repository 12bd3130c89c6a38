"""Weights that rise during training."""

import math


def rising(epoch: int, epochs: int, share: float) -> float:
    r"""The factor :math:`\exp(-5 (1 - t)^2)` in epoch 1, 2, …; one after ``share`` of the epochs.

    :math:`t` runs from zero to one over the first ``share`` of the epochs.

    >>> [round(rising(epoch, 10, share=0.4), 3) for epoch in (1, 3, 5, 10)]
    [0.007, 0.287, 1.0, 1.0]
    """
    done = (epoch - 1) / epochs
    left = 1 - min(1.0, done / share) if share > 0 else 0.0
    return math.exp(-5 * left * left)
