"""Known labels of some instances: what remains to be known about the others in their bags."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import Array, numbers, refuse
from llpkit._validation import whole
from llpkit.errors import LLPError
from llpkit.evidence import NO_BOUND, Evidence
from llpkit.ragged import ranges, segment_sum, to_offsets

if TYPE_CHECKING:
    from llpkit.bags.bags import Bags

UNKNOWN = -1
_NAMED = 3
"""Maximum number of known labels that an error lists."""


def with_known_labels(bags: "Bags", labels: Any, entry: Callable[[int, int], str]) -> "Bags":
    """See :meth:`llpkit.Bags.with_labels`; ``entry`` is how errors name a row and its label."""
    of_row = checked_known(labels, bags.num_rows, bags.num_classes)
    h = torch.from_numpy(of_row).to(bags.device)[bags.rows]  # (N,) in the order of the bags
    known = h != UNKNOWN
    if not bool(known.any()):
        return bags
    classes = bags.num_classes
    if classes is None:
        one_hot = (h == 1).long()  # (N,)
    else:
        one_hot = (h[:, None] == torch.arange(classes, device=bags.device)).long()  # (N, K)
    # index_add in int64 is exact.
    labelled = one_hot.new_zeros(bags.evidence.shape).index_add_(0, bags.bag_index, one_hot)
    num_known = torch.zeros_like(bags.sizes).index_add_(0, bags.bag_index, known.long())
    unlabelled = bags.sizes - num_known  # (B,)

    def contradiction(b: int) -> str:
        rows = bags.rows[bags.offsets[b] : bags.offsets[b + 1]].tolist()
        entries = [entry(row, int(of_row[row])) for row in rows if of_row[row] != UNKNOWN]
        more = f" and {len(entries) - _NAMED:,} more" if len(entries) > _NAMED else ""
        return (
            f"the count of bag {bags.ids[b]!r}, {bags.evidence.describe(b)}, contradicts the known "
            f"labels of its rows, {', '.join(entries[:_NAMED])}{more}"
        )

    rest = without_labelled(bags.evidence, labelled, unlabelled, contradiction)
    kept = torch.where((unlabelled > 0) | (num_known == 0))[0]
    single = bags.rows[known]
    rows = single.tolist()
    return bags.replace(
        offsets=to_offsets(torch.cat([unlabelled[kept], torch.ones_like(single)])),
        rows=torch.cat([bags.rows[~known], single]),
        evidence=Evidence.concat([rest[kept], Evidence.unchecked(one_hot[known])]),
        ids=(*(bags.ids[b] for b in kept.tolist()), *(f"row {row}" for row in rows)),
        known_rows=(*bags.known_rows, *rows),
    )


def checked_known(labels: Any, num_rows: int, num_classes: int | None) -> Array:
    """Labels ``0 … K - 1``, int64 ``(num_rows,)``, with -1 for unknown; NaN and None become -1."""
    if isinstance(labels, list | tuple):
        labels = [np.nan if label is None else label for label in labels]
    values = numbers(labels, "labels")
    if values.shape != (num_rows,):
        raise LLPError(
            f"labels has shape {values.shape} but the table has {num_rows} rows; give one entry "
            "per row, -1 or NaN where the label is not known"
        )
    known = np.where(np.isnan(values.astype(np.float64)), UNKNOWN, values)
    top = 1 if num_classes is None else whole("num_classes", num_classes, 2) - 1
    refuse(
        ~np.isin(known, np.arange(UNKNOWN, top + 1)),
        lambda i: (
            f"labels[{i}] = {values[i]} but labels go from 0 to {top}; give -1 or NaN where the "
            "label is not known"
        ),
        "rows",
    )
    return known.astype(np.int64)


def without_labelled(
    evidence: Evidence, labelled: Tensor, unlabelled: Tensor, contradiction: Callable[[int], str]
) -> Evidence:
    r"""Evidence about the counts of the unlabelled instances.

    .. math:: w'_b(k) = w_b(k + m_b)

    Args:
        evidence: About all instances, ``B`` bags.
        labelled: How many known labels of each class a bag has, ``(B,)`` positives or ``(B, K)``.
        unlabelled: How many instances of unknown label a bag has, ``(B,)``.
        contradiction: The message for a bag whose count contradicts its labels, less the remedy.
    """
    n = unlabelled if labelled.dim() == 1 else unlabelled[:, None].expand_as(labelled)
    # Known labels are subtracted from both ends, but "no bound" stays that.
    bounded = evidence.high != NO_BOUND
    low = (evidence.low - labelled).clamp(min=0)
    high = torch.where(bounded, evidence.high - labelled, evidence.high)
    impossible = (high < 0) | (low > n)
    if labelled.dim() == 2:
        # The counts of all classes together must be able to fill the rest of the bag.
        total = torch.minimum(high, n).sum(1)
        impossible = impossible.any(1) | (low.sum(1) > unlabelled) | (total < unlabelled)
    table, lengths = evidence.table, evidence.table_offsets.diff()
    if len(table):
        # Each table starts at the count 0 of the bag; drop the counts below the labelled ones.
        weighted = evidence.weighted
        starts = evidence.table_offsets[:-1] + labelled.reshape(-1)
        lengths = torch.where(weighted, n + 1, 0).reshape(-1)
        table = table[ranges(starts, lengths)]
        low = torch.where(weighted, 0, low)
        high = torch.where(weighted, n, high)
        some = segment_sum((table > -torch.inf).double(), to_offsets(lengths)).reshape(low.shape)
        ruled_out = weighted & (some == 0)
        impossible |= ruled_out if low.dim() == 1 else ruled_out.any(1)
    refuse(
        impossible.cpu().numpy(),
        lambda b: (
            f"{contradiction(b)}; correct the count or the labels, or leave one of them empty"
        ),
    )
    if evidence.low is evidence.high:  # identity marks exact counts
        return Evidence.unchecked(low)
    return Evidence(low, high, table, to_offsets(lengths))
