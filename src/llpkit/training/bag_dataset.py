"""Whole bags as items of a torch ``Dataset``, for training loops other than llpkit's."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from torch.utils.data._utils.collate import default_collate_fn_map

from llpkit._arrays import Array
from llpkit._validation import whole
from llpkit.bags import Bags
from llpkit.bags.indices import positions
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.ragged import to_offsets
from llpkit.training.frames import checked_inputs


class BagItem(NamedTuple):
    """One bag."""

    inputs: Tensor
    """``(n, …)``, one row per instance."""
    evidence: Evidence
    """What is known about its counts, one entry."""
    rows: Tensor
    """The rows ``(n,)`` of its instances in the table."""
    number: int
    """The number of the bag; in a part of a data set, its number in the whole."""


class BagBatch(NamedTuple):
    """Several bags, in the form that :mod:`llpkit.losses` and :mod:`llpkit.likelihood` take."""

    inputs: Tensor
    """The instances of all bags, ``(N, …)``, one bag after the other."""
    offsets: Tensor
    """Where the bags start and end, ``(B + 1,)``."""
    evidence: Evidence
    """What is known about the counts, ``B`` entries."""
    rows: Tensor
    """The rows ``(N,)`` of the instances in the table."""
    numbers: Tensor
    """Which bags these are, ``(B,)``."""

    @property
    def counts(self) -> Tensor:
        """The counts ``(B,)`` or ``(B, K)``; an error if some are not known exactly."""
        return self.evidence.counts

    def to(self, device: torch.device | str) -> "BagBatch":
        """The same batch on another device."""
        inputs, offsets, evidence, rows, numbers = (part.to(device) for part in self)
        return BagBatch(inputs, offsets, evidence, rows, numbers)  # type: ignore[arg-type]


class BagDataset(Dataset[BagItem]):
    """Whole bags, for a ``DataLoader``, which collates them with :func:`collate_bags`.

    Inputs are passed on unchanged: standardise them yourself if the network needs it. A data frame
    is encoded, which standardises its numbers; the encoder is kept as ``encoder``.

    Args:
        bags: The bags; each becomes an item.
        inputs: The inputs of all rows of the table, as for :func:`llpkit.fit`.

    >>> from torch.utils.data import DataLoader
    >>> from llpkit.losses import count_loss
    >>> data = BagDataset(Bags([0, 2, 5], [1, 3]), torch.randn(5, 4))
    >>> network = torch.nn.Linear(4, 1)
    >>> for batch in DataLoader(data, batch_size=2):
    ...     logits = network(batch.inputs)[:, 0]  # (N,)
    ...     loss = count_loss(logits, batch.evidence, batch.offsets).mean()
    >>> batch.offsets, batch.counts
    (tensor([0, 2, 5]), tensor([1, 3]))
    """

    def __init__(self, bags: Bags, inputs: Any) -> None:
        self.inputs, self.encoder = checked_inputs(inputs, bags, stacklevel=3)
        self.bags = bags.to("cpu")
        self.numbers: Array = np.arange(len(bags))  # a part keeps the numbers of the whole

    def __len__(self) -> int:
        return len(self.bags)

    def __iter__(self) -> Iterator[BagItem]:
        return map(self._item, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> BagItem: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | Tensor | Array) -> "BagDataset": ...
    def __getitem__(self, index: Any) -> "BagItem | BagDataset":
        """A bag for an integer; a :class:`BagDataset` for a slice, a list, an array or a mask."""
        if isinstance(index, slice | list | tuple) or getattr(index, "ndim", 0) > 0:
            part, chosen = copy(self), positions(index, len(self))
            part.bags, part.numbers = self.bags[chosen], self.numbers[chosen]
            return part
        return self._item(whole("index", index, -len(self), len(self) - 1) % len(self))

    def _item(self, index: int) -> BagItem:
        start, stop = self.bags.offsets[index : index + 2].tolist()
        rows = self.bags.rows[start:stop]
        inputs = self.inputs
        some = inputs[rows] if isinstance(inputs, Tensor) else inputs.load(rows)
        number = int(self.numbers[index])
        return BagItem(some, self.bags.evidence[index : index + 1], rows, number)


def collate_bags(items: Sequence[BagItem]) -> BagBatch:
    """Several items of a :class:`BagDataset` as one batch, for ``collate_fn=``."""
    items = list(items) if isinstance(items, Iterable) else [items]
    if not items:
        raise LLPError("there are no bags to collate; give at least one")
    for i, item in enumerate(items):
        if not isinstance(item, BagItem):
            raise LLPError(
                f"item {i} of the batch is a {type(item).__name__}; a batch is made of the items "
                "of a BagDataset, BagDataset(bags, inputs)"
            )
    inputs, evidence, rows, numbers = zip(*items, strict=True)
    sizes = torch.tensor([len(some) for some in rows])
    return BagBatch(
        torch.cat(inputs),
        to_offsets(sizes),
        Evidence.concat(list(evidence)),
        torch.cat(rows),
        torch.tensor(numbers),
    )


def _collate(items: Sequence[BagItem], **_: Any) -> BagBatch:
    return collate_bags(items)


# A loader without collate_fn would try to stack bags of different sizes. torch documents this map,
# but exports it from a private module only.
default_collate_fn_map[BagItem] = _collate
