"""Bags from scikit-learn's arguments: ``y`` and ``groups``, one entry per row."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d
from torch import Tensor

from llpkit._arrays import Array, read, refuse, whole_array
from llpkit.bags import Bags
from llpkit.bags.groups import Groups, group
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.evidence.counts import CountNaming
from llpkit.evidence.support import checked_evidence
from llpkit.likelihood.classes import as_binary
from llpkit.ragged import to_offsets

_AS_EVIDENCE = "y = Bags.from_proportions(groups, proportions).evidence"


@dataclass(frozen=True)
class _Rows(CountNaming):
    """Names a count by the first row of its bag ``(B,)``, an index into ``y``."""

    rows: Array = field(kw_only=True)

    @property
    def remedy(self) -> str:
        return f"y is a count; for proportions give {_AS_EVIDENCE}, for a missing count Evidence"

    @property
    def for_shares(self) -> str:
        return f"give {_AS_EVIDENCE}"

    @property
    def of_size(self) -> str:
        return (
            "if these rows are part of a table, chosen by a splitter or drawn with replacement, "
            f"choose whole bags, as GroupKFold does; for proportions give {_AS_EVIDENCE}"
        )

    def bag(self, b: int) -> str:
        return f"bag {self.ids[b]!r}"

    def entry(self, value: object, *index: int) -> str:
        place = "".join(f"[{k}]" for k in (int(self.rows[index[0]]), *index[1:]))
        return f"y{place} = {value}"


ROUTING = "sklearn.set_config(enable_metadata_routing=True)"


def bags_of(
    X: Any, y: Any, groups: Any, classes: Array | None = None, multiplicity: Any = None
) -> tuple[Bags, Array]:
    """The bags, and the classes whose instances are counted.

    Args:
        X: The rows, ``(N, D)``.
        y: With ``groups``, what is known about each row's bag: its positives ``(N,)``, its class
            counts ``(N, K)``, or :class:`~llpkit.Evidence` with an entry per row, or an entry per
            bag in the order of the sorted distinct ids. Without ``groups``, the label of each row.
        groups: The bag of every row, ``(N,)``, or ``None``.
        classes: The allowed labels; by default those found in ``y``.
        multiplicity: How many instances every row represents, ``(N,)``. Counts are then those of
            instances and may exceed the number of rows.

    >>> bags, classes = bags_of(np.zeros((3, 1)), [1, 1, 0], ["a", "a", "b"])
    >>> bags.counts, classes
    (tensor([1, 0]), array([0, 1]))
    >>> bags_of(np.zeros((2, 1)), ["no", "yes"], None)[1]
    array(['no', 'yes'], dtype='<U3')
    """
    if y is None:
        raise LLPError(
            "fit requires y to be passed, but the target y is None; give the count of each row's "
            "bag or, without groups, each row's label"
        )
    if isinstance(y, list | tuple) and y and isinstance(y[0], Evidence):
        y = Evidence.concat(list(y))
    if isinstance(y, Bags):
        raise LLPError("y is Bags; give y = bags.evidence, and the bag of every row as groups")
    if not isinstance(y, Evidence):
        y = read(y, "y")
        if groups is None and multiplicity is None and (y.ndim < 2 or y.shape[1:] == (1,)):
            return _labelled(X, y, classes)
    groups = np.arange(num_rows(X)) if groups is None else groups
    bags, sizes = _grouped(X, y, groups, multiplicity)
    if bags.num_classes == 2:
        evidence = as_binary(bags.evidence, to_offsets(sizes))
        bags = bags.replace(evidence=evidence)
    number = bags.num_classes or 2
    if classes is not None and len(classes) != number:
        raise LLPError(
            f"y has counts of {number} classes, but the estimator was fitted to {len(classes)}; "
            "give that many counts per bag"
        )
    return bags, np.arange(number) if classes is None else classes


def num_rows(X: Any) -> int:
    """The rows of an array, a sparse matrix, a table or a list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _labelled(X: Any, y: Array, classes: Array | None) -> tuple[Bags, Array]:
    """Labels as the exact counts of bags of one."""
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    if classes is None:
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise LLPError(f"y has 1 class, {classes.tolist()}; give rows of two classes or more")
    else:
        codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        unknown = classes[codes] != y
        if unknown.any():
            row = int(unknown.argmax())
            raise LLPError(
                f"y[{row}] = {y[row]} is not a class; the classes are {classes.tolist()}; if y "
                f"holds counts of bags, pass groups (in a search, after {ROUTING})"
            )
    counts = codes if len(classes) == 2 else codes[:, None] == np.arange(len(classes))
    rows = torch.arange(len(y))
    ids = range(len(y))
    return Bags.unchecked(
        torch.arange(len(y) + 1), rows, Evidence.exact(counts), ids, len(y)
    ), classes


def _grouped(X: Any, y: Any, groups: Any, multiplicity: Any) -> tuple[Bags, Tensor]:
    """Bags in order of appearance, and how many instances each has ``(B,)``."""
    grouped = group(groups)
    rows, sizes, ids = grouped.rows.numpy(), grouped.sizes, grouped.ids
    if len(rows) != num_rows(X):
        raise LLPError(
            f"groups has {len(rows)} rows but X has {num_rows(X)}; give one bag id per row"
        )
    starts = np.cumsum(sizes) - sizes
    if isinstance(y, Evidence) and len(y) == len(sizes) != len(rows):
        _check_order(grouped)
    else:
        if isinstance(y, Evidence) and len(sizes) == len(rows):
            _check_same(y, rows)
        y = _of_bags(y, rows, np.append(starts, len(rows)), ids)
    if multiplicity is not None:
        sizes = np.add.reduceat(checked_multiplicity(multiplicity, len(rows))[rows], starts)
    evidence = checked_evidence(y, sizes, _Rows(ids, rows=rows[starts]))
    # The order of Bags.in_row_order, in which their sizes must be too.
    order = torch.from_numpy(rows[starts]).argsort()
    return Bags.of_groups(grouped, evidence).in_row_order(), torch.from_numpy(sizes)[order]


def checked_multiplicity(values: Any, rows: int) -> NDArray[np.int64]:
    """How many instances every row represents: whole numbers from 0, ``(N,)``."""
    m = whole_array(values, "multiplicity", "give non-negative whole numbers")
    if m.shape != (rows,):
        raise LLPError(
            f"multiplicity has shape {m.shape}, but X has {rows} rows; give one number per row"
        )
    refuse(m < 0, lambda i: f"multiplicity[{i}] = {m[i]}; give non-negative whole numbers", "rows")
    return m


def _check_order(grouped: Groups) -> None:
    """Refuse one entry per bag if the ids have no order."""
    if not grouped.in_order:
        raise LLPError(
            f"groups has ids that cannot be sorted, such as {grouped.ids[0]!r} and "
            f"{grouped.ids[1]!r}, so it is not known which entry of y belongs to which bag; give y "
            "an entry per row, or ids that can be sorted"
        )


def _check_same(y: Evidence, rows: Array) -> None:
    """Refuse evidence that means different things by rows and by sorted bags."""
    if _differs(y, y[rows]).any():
        raise LLPError(
            "every bag has one row, and groups is not sorted, so the entries of y may be in the "
            "order of the rows or of the sorted bags; sort the rows by bag, or give an entry per "
            "row and leave groups out"
        )


def _of_bags(y: Any, rows: Array, offsets: Array, ids: Any) -> Any:
    """One entry per bag from one per row; the rows of a bag must agree."""
    if not isinstance(y, Evidence):
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim not in (1, 2):
            raise LLPError(f"y has shape {y.shape}; give (N,), or (N, K) for K classes")
    if len(y) != len(rows):
        raise LLPError(
            f"y has {len(y)} entries but groups has {len(rows)} rows; give the count of its bag in "
            "every row, or y = Bags.from_groups(groups, counts).evidence"
        )
    starts = rows[offsets[:-1]]  # (B,)
    first = np.repeat(starts, np.diff(offsets))  # (N,) the first row of the row's bag
    differs = _differs(y[rows], y[first])
    if differs.any():
        # Of all rows that disagree with the first of their bag, name the first in the table.
        bad = np.flatnonzero(differs)
        place = bad[rows[bad].argmin()]
        one, two = int(first[place]), int(rows[place])
        name = ids[int(np.searchsorted(offsets, place, side="right")) - 1]
        if isinstance(y, Evidence):
            what = f"the evidence of rows {one} and {two}, both in bag {name!r}, differs"
        else:
            what = f"y[{one}] = {y[one]} but y[{two}] = {y[two]}, both in bag {name!r}"
        raise LLPError(f"{what}; y describes the whole bag, so all its rows must agree")
    return y[starts]


def _differs(a: Any, b: Any) -> Array:
    """Which entries of two arrays, or of two pieces of evidence, differ, ``(N,)``."""
    if not isinstance(a, Evidence):
        # NaN equals NaN here; a missing count is refused later, with its own message.
        unequal: Array = (a != b) & ~((a != a) & (b != b))
        return np.asarray(unequal.reshape(len(a), -1).any(1))
    lengths = a.table_offsets.diff()
    unequal = _differs(a.low.numpy(), b.low.numpy()) | _differs(a.high.numpy(), b.high.numpy())
    # Weights per count are ragged: compare them entry by entry if they are laid out alike.
    if torch.equal(a.table_offsets, b.table_offsets):
        cell = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        wrong = cell[a.table != b.table] // (a.num_classes or 1)
        unequal[wrong.numpy()] = True
        return unequal
    other = b.table_offsets.diff().reshape(len(b), -1)
    return unequal | _differs(lengths.reshape(len(a), -1).numpy(), other.numpy())
