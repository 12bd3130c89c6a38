"""The one check of counts, whether from arrays, mappings, table cells or the engine.

Callers pass a :class:`CountNaming` along with the counts, so that errors name a count the way the
user knows it.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from llpkit._arrays import Array, named_entry, on_device_of, read, refuse, whole_array
from llpkit._text import several
from llpkit.errors import LLPError


@dataclass(frozen=True)
class CountNaming:
    """How errors name the counts of bags, and which remedies they offer.

    Args:
        ids: The id of every bag, if known.
        name: The argument: ``counts`` or ``proportions``.
        keyed: Whether it was a mapping from ids.
    """

    ids: Sequence[Hashable] = ()
    name: str = "counts"
    keyed: bool = False

    unit = "instance"
    """The noun for the members of a bag."""

    @property
    def remedy(self) -> str:
        """What to do about a value that is not a count."""
        if self.name != "counts":
            return "give non-negative whole numbers"
        return "for proportions use Bags.from_proportions, for a missing count Evidence.unknown"

    @property
    def as_integers(self) -> str:
        """What to do about counts that are written as 0.0 and 1.0."""
        return "give integers if they are counts, as counts.astype(int) does"

    @property
    def for_shares(self) -> str:
        """What to do with proportions."""
        return "use Bags.from_proportions"

    @property
    def for_counts(self) -> str:
        """What to do with counts that were given as proportions."""
        return "give counts to Bags.from_groups"

    @property
    def of_size(self) -> str:
        """What to do about a count that a bag of this size cannot have."""
        return "if these are proportions use Bags.from_proportions"

    def bag(self, b: int) -> str:
        """A bag."""
        name = self.ids[b]
        return f"bag {b}" if type(name) is int and name == b else f"bag {b} (id {name!r})"

    def entry(self, value: object, *index: int) -> str:
        """A value: of a bag, or of a bag and a class."""
        if not self.keyed or not index:
            return named_entry(self.name)(value, *index)
        return (
            f"{self.name}[{self.ids[index[0]]!r}]{''.join(f'[{k}]' for k in index[1:])} = {value}"
        )

    def entry_of_bag(self, value: object, *index: int) -> str:
        """A value and its bag."""
        of_bag = f" of {self.bag(index[0])}" if index and index[0] < len(self.ids) else ""
        return self.entry(value, *index) + of_bag

    def has(self, b: int, sizes: Array) -> str:
        """A bag and its size."""
        return f"{self.bag(b)} has {several(int(sizes[b]), self.unit)}"


def whole_counts(values: Any, naming: CountNaming) -> Array:
    """A copy of the counts, whole numbers from 0, as int64 ``(B,)`` or ``(B, K)``."""
    y = whole_array(values, naming.name, naming.remedy, naming.entry_of_bag)
    if y.ndim not in (1, 2):
        raise LLPError(f"{naming.name} has shape {y.shape}; give (B,), or (B, K) for K classes")
    refuse(y < 0, lambda *i: f"{naming.entry_of_bag(y[i], *i)} is negative; {naming.remedy}")
    return y


def whole_tensor(values: Any, name: str) -> Tensor:
    """Values as int64 ``(B,)`` or ``(B, K)``; negative or fractional ones are refused."""
    return on_device_of(values, whole_counts(values, CountNaming(name=name)))


def exact_counts(values: Any, naming: CountNaming, sizes: Array | None = None) -> Array:
    """:func:`whole_counts`, refusing floats that may be shares in bags of these sizes."""
    y = whole_counts(values, naming)
    if y.ndim == 1 and _of_floats(values):
        check_not_shares(y, naming, sizes)
    return y


def _of_floats(values: Any) -> bool:
    array = read(values, "counts")
    if array.dtype.kind == "O":
        return any(isinstance(x, float | np.floating) for x in array.flat)
    return array.dtype.kind == "f"


def check_not_shares(y: Array, naming: CountNaming, sizes: Array | None = None) -> None:
    """Refuse counts that are all 0.0 or 1.0: 1.0 may mean one instance or the whole bag.

    In a bag of one instance both are the same. Counts of K classes need no such rule, because
    shares do not sum to the size of the bag.
    """
    if not (y <= 1).all():
        return
    if sizes is not None and len(sizes) != len(y):
        sizes = None  # a separate check reports the wrong length later

    def message(b: int) -> str:
        size = "" if sizes is None else f" but {naming.has(b, sizes)}"
        return (
            f"{naming.entry('1.0', b)}{size}, and all values are 0.0 or 1.0, as shares are; "
            f"{naming.as_integers}; for shares {naming.for_shares}"
        )

    refuse((y == 1) if sizes is None else (y == 1) & (sizes > 1), message)
