"""Known labels of some instances: what remains to be known about the others in their bags."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import Array, numbers, refuse
from llpkit._validation import whole
from llpkit.errors import LLPError
from llpkit.evidence import NO_BOUND, Evidence
from llpkit.ragged import ranges, segment_sum, to_offsets

UNKNOWN = -1


def checked_known(labels: Any, num_rows: int, num_classes: int | None) -> Array:
    """Labels ``0 … K - 1``, int64 ``(num_rows,)``, with -1 for unknown; NaN and None become -1."""
    if isinstance(labels, list | tuple):
        labels = [np.nan if label is None else label for label in labels]
    given = numbers(labels, "labels")
    if given.shape != (num_rows,):
        raise LLPError(
            f"labels has shape {given.shape} but the table has {num_rows} rows; give one entry per "
            "row, -1 or NaN where the label is not known"
        )
    known = np.where(np.isnan(given.astype(np.float64)), UNKNOWN, given)
    top = 1 if num_classes is None else whole("num_classes", num_classes, 2) - 1
    refuse(
        ~np.isin(known, np.arange(UNKNOWN, top + 1)),
        lambda i: (
            f"labels[{i}] = {given[i]} but labels go from 0 to {top}; give -1 or NaN where the "
            "label is not known"
        ),
        "rows",
    )
    return known.astype(np.int64)


def without_labelled(
    evidence: Evidence, labelled: Tensor, left: Tensor, which: Callable[[int], str]
) -> Evidence:
    r"""Evidence about the counts of the instances that are left in their bags.

    .. math:: w'_b(k) = w_b(k + m_b)

    Args:
        evidence: About all instances, ``B`` bags.
        labelled: How many known labels of each class a bag has, ``(B,)`` positives or ``(B, K)``.
        left: How many instances of unknown label a bag has, ``(B,)``.
        which: Says that the count of a bag contradicts its labels, for messages.
    """
    left_of_cell = left if labelled.dim() == 1 else left[:, None].expand_as(labelled)
    bounded = evidence.high != NO_BOUND
    low = (evidence.low - labelled).clamp(min=0)
    high = torch.where(bounded, evidence.high - labelled, evidence.high)
    impossible = (high < 0) | (low > left_of_cell)
    if labelled.dim() == 2:
        # The counts of all classes together must be able to fill the rest of the bag.
        total = torch.minimum(high, left_of_cell).sum(1)
        impossible = impossible.any(1) | (low.sum(1) > left) | (total < left)
    table, lengths = evidence.table, evidence.table_offsets.diff()
    if len(table):
        weighted = lengths > 0
        starts = evidence.table_offsets[:-1] + labelled.reshape(-1)
        lengths = torch.where(weighted, left_of_cell.reshape(-1) + 1, 0)
        table = table[ranges(starts, lengths)]
        weighted = weighted.reshape(low.shape)
        low = torch.where(weighted, 0, low)
        high = torch.where(weighted, left_of_cell, high)
        some = segment_sum((table > -torch.inf).double(), to_offsets(lengths)).reshape(low.shape)
        gone = weighted & (some == 0)
        impossible |= gone if low.dim() == 1 else gone.any(1)
    refuse(
        impossible.cpu().numpy(),
        lambda b: f"{which(b)}; correct the count or the labels, or leave one of them empty",
    )
    if evidence.low is evidence.high:  # identity marks exact counts
        return Evidence.unchecked(low)
    return Evidence(low, high, table, to_offsets(lengths))
