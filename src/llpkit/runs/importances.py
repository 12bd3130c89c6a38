"""Importances of the columns of a table, measured on bags."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit import evaluation
from llpkit.bags import Bags
from llpkit.bags.random import random_sample
from llpkit.tables import FeatureEncoder
from llpkit.training import Fitted

_ROWS = 20_000
"""Maximum number of rows that importances are measured on; more would only take longer."""
_REPEATS = 5
_PREDICTED = 2_000_000
"""Maximum number of predictions over all columns; a wide table has fewer rows per column."""
_FEWEST = 500
"""Rows per column of a table that is still wider."""


class Importance(NamedTuple):
    """Importance of a column: the drop of the mean bag log-likelihood when it is shuffled."""

    column: str
    mean: float
    sd: float


def importances(
    model: Fitted, inputs: Tensor, bags: Bags, encoder: FeatureEncoder | None, seed: int
) -> list[Importance]:
    """Permutation importances of the table's columns, largest first.

    All features of a column are shuffled together over all rows, several times. No instance labels
    are needed.
    """
    random = np.random.default_rng(seed)
    columns = _columns(encoder, inputs.shape[1])
    affordable = max(_FEWEST, _PREDICTED // (_REPEATS * max(1, len(columns))))
    bags = bags[random_sample(bags.sizes.numpy(), min(_ROWS, affordable), random)]
    rows = inputs[bags.rows].numpy()

    def likelihood(values: NDArray[Any]) -> float:
        logits = model.logits(torch.from_numpy(values))
        return evaluation.mean_log_likelihood(logits.cpu(), bags)

    unshuffled = likelihood(rows)
    found, start = [], 0
    for name, width in columns:
        drops = []
        for _ in range(_REPEATS):
            shuffled = rows.copy()
            column = slice(start, start + width)
            shuffled[:, column] = shuffled[random.permutation(len(rows)), column]
            drops.append(unshuffled - likelihood(shuffled))
        found.append(Importance(name, float(np.mean(drops)), float(np.std(drops, ddof=1))))
        start += width
    return sorted(found, key=lambda entry: -entry.mean)


def _columns(encoder: FeatureEncoder | None, width: int) -> list[tuple[str, int]]:
    if encoder is None:
        return [(f"x{i}", 1) for i in range(width)]
    return [(column.name, len(column.feature_names)) for column in encoder.columns]
