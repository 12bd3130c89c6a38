"""Evidence, proportions and labels of bags, checked against the bag sizes."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import Array, refuse
from llpkit._text import several
from llpkit._validation import number, option, whole
from llpkit.errors import LLPError
from llpkit.evidence.counts import CountNaming, exact_counts
from llpkit.evidence.evidence import Evidence
from llpkit.evidence.weights import NO_BOUND
from llpkit.ragged import bag_index, ranges, segment_sum

MAX_DECIMALS = 12


def check_shape(array: Array, num_bags: int, name: str) -> None:
    """Check that there is one entry per bag, or one per bag and class."""
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] < 2):
        raise LLPError(f"{name} has shape {array.shape}; give (B,), or (B, K) for K > 1 classes")
    if len(array) != num_bags:
        raise LLPError(
            f"{name} has {len(array)} entries but there are {num_bags} bags; give one per bag"
        )


def checked_evidence(counts: Any, sizes: Array, naming: CountNaming) -> Evidence:
    """The counts as evidence, checked to be possible in bags of these sizes."""
    if isinstance(counts, Evidence):
        evidence = counts
        check_shape(evidence.low.cpu().numpy(), len(sizes), "evidence")
    else:
        y = exact_counts(counts, naming, sizes)
        check_shape(y, len(sizes), naming.name)
        evidence = Evidence.unchecked(torch.from_numpy(y))
    check_support(evidence, sizes, naming)
    return evidence


def check_support(evidence: Evidence, sizes: Array, naming: CountNaming) -> None:
    """Refuse bags whose evidence allows no count that is possible for their size."""
    low, high = evidence.low.cpu().numpy(), evidence.high.cpu().numpy()
    n = sizes if low.ndim == 1 else sizes[:, None]

    def known(*i: int) -> str:
        ends = zip(np.ravel(low[i]), np.ravel(high[i]), strict=True)
        cells = [
            f"{a}" if a == b else f"{a} or more" if b == NO_BOUND else f"{a} to {b}"
            for a, b in ends
        ]
        return f"{naming.entry(', '.join(cells), *i)} but {naming.has(i[0], sizes)}"

    refuse((low > n) | (high < 0), lambda *i: f"{known(*i)}; {naming.of_size}")
    if low.ndim == 2:
        # Counts within their ranges can sum to any number between the sums of the ends.
        refuse(
            (low.sum(1) > sizes) | (np.minimum(high, n).sum(1) < sizes),
            lambda b: f"{known(b)}; the counts of all classes must sum to that; {naming.of_size}",
        )
    if len(evidence.table):
        weighted = evidence.weighted.cpu().numpy()
        possible = segment_sum((evidence.table > -torch.inf).double(), evidence.table_offsets)
        refuse(
            weighted & (high != n),
            lambda *i: (
                f"the evidence has weights for counts 0 to {high[i]} but "
                f"{naming.has(i[0], sizes)}; give n + 1 weights for n instances"
            ),
        )
        refuse(
            weighted & (possible.cpu().numpy().reshape(low.shape) == 0),
            lambda *i: (
                f"the evidence of {naming.bag(i[0])} gives no count a weight; give one above -inf"
            ),
        )


def within_bounds(evidence: Evidence, bounds: Evidence) -> tuple[Evidence, Tensor]:
    """Evidence and bounds (intervals) together, and which cells still have a possible count."""
    # A weighted cell keeps its ends, because its table has an entry for every count between them;
    # counts outside the bounds get weight zero instead.
    weighted = evidence.weighted
    low = torch.where(weighted, evidence.low, evidence.low.maximum(bounds.low))
    high = torch.where(weighted, evidence.high, evidence.high.minimum(bounds.high))
    table, offsets, possible = evidence.table, evidence.table_offsets, low <= high
    if len(table):
        cell = bag_index(offsets)
        count = ranges(evidence.low.reshape(-1), offsets.diff())
        inside = (count >= bounds.low.reshape(-1)[cell]) & (count <= bounds.high.reshape(-1)[cell])
        table = torch.where(inside, table, -torch.inf)
        some = segment_sum((table > -torch.inf).double(), offsets) > 0
        possible &= ~weighted | some.reshape(evidence.shape)
    return Evidence(low, high, table, offsets), possible


def proportion_evidence(
    p: Array, sizes: Array, tolerance: float, decimals: int | None, naming: CountNaming
) -> Evidence:
    """The count near ``n * p``, within ``tolerance``; or all counts that round to ``p``."""
    check_shape(p, len(sizes), naming.name)
    n = sizes if p.ndim == 1 else sizes[:, None]
    number("tolerance", tolerance, 0, below=0.5)
    refuse(
        ~((p >= 0) & (p <= 1)),
        lambda *i: (
            f"{naming.entry_of_bag(p[i], *i)} is not between 0 and 1; divide percentages by 100, "
            f"{naming.for_counts}"
        ),
    )
    # The fewest decimals that all proportions have, for the hint.
    written = next(
        d for d in range(MAX_DECIMALS + 1) if d == MAX_DECIMALS or _has_decimals(p, d).all()
    )
    remedy = f"if it was rounded, use {option('decimals', written)}"
    expected, reach = n * p, np.full_like(n, tolerance, dtype=np.float64)
    if decimals is not None:
        digits = whole("decimals", decimals, 0, MAX_DECIMALS)
        refuse(
            ~_has_decimals(p, digits),
            lambda *i: (
                f"{naming.entry_of_bag(p[i], *i)} has more decimals; use "
                f"{option('decimals', written)}"
            ),
        )
        remedy = f"check it, and whether a {naming.unit} of the bag is missing"
        expected, reach = n * np.round(p, digits), n * 0.5 * 10.0**-digits
    reach = reach + 1e-7  # n * p is rounded too
    if p.ndim == 2:
        refuse(
            # Each class may be off by its reach, so their sum by K times that.
            np.abs(expected.sum(1) - sizes) > p.shape[1] * reach[:, 0],
            lambda b: (
                f"{naming.entry_of_bag(p[b], b)} sum to {p[b].sum():.6g}; all classes together "
                "must sum to 1"
            ),
        )
    low, high = np.ceil(expected - reach), np.floor(expected + reach)
    refuse(
        low > high,
        lambda *i: (
            f"{naming.entry_of_bag(p[i], *i)} makes {(n * p)[i]:.6g} of its "
            f"{several(int(sizes[i[0]]), naming.unit)}, not a whole count; {remedy}"
        ),
    )
    # Shares near 0 and 1 reach beyond the possible counts.
    first = np.maximum(low, 0).astype(np.int64)
    last = np.minimum(high, n).astype(np.int64)
    evidence = Evidence.exact(first) if decimals is None else Evidence.interval(first, last)
    check_support(evidence, sizes, naming)
    return evidence


def _has_decimals(p: Array, decimals: int) -> Array:
    """Which shares have at most this many decimals; float32 is off by up to 1e-7."""
    exact: Array = np.abs(p - np.round(p, decimals)) <= 0.01 * 10.0**-decimals + 1e-7
    return exact


def label_counts(labels: Array, sizes: Array, num_classes: int | None) -> Evidence:
    """The counts of labels, which are in the order of the bags."""
    num_bags, k = len(sizes), num_classes or 2
    cells = np.repeat(np.arange(num_bags) * k, sizes) + labels
    counts = np.bincount(cells, minlength=num_bags * k).reshape(num_bags, k)
    return Evidence.exact(counts if num_classes else counts[:, 1].copy())
