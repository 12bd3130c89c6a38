"""Map-style data sets of other packages as inputs: torch, Hugging Face columns."""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from llpkit._arrays import shared_tensor
from llpkit._text import a_few
from llpkit.errors import LLPError


def is_dataset(value: Any) -> bool:
    """Whether a value gives items by number, as a torch ``Dataset`` or a column does."""
    if isinstance(value, IterableDataset):
        raise LLPError(
            f"inputs is a {type(value).__name__}, an IterableDataset, which has no item numbers; "
            "pass a map-style Dataset, so that items can be found by the rows of the bags"
        )
    plain = isinstance(value, list | tuple | dict | str | bytes)
    return not plain and hasattr(value, "__getitem__") and hasattr(value, "__len__")


class DatasetInputs:
    """Items of a data set, read on demand: tensors, arrays, images, or tuples that begin with one.

    The rest of a tuple, such as a label, is not used.
    """

    def __init__(self, dataset: Any) -> None:
        # A pandas Series is indexed by label, not by position.
        self.dataset = list(dataset) if hasattr(dataset, "iloc") else dataset

    def __len__(self) -> int:
        return len(self.dataset)

    @cached_property
    def _first(self) -> Tensor:
        if not len(self):
            raise LLPError("inputs is an empty data set; there is nothing to learn from")
        return self._item(0)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of items and the shape of each, like a tensor's."""
        return (len(self), *self._first.shape)

    @property
    def nbytes(self) -> int:
        """The size of all items in memory."""
        return len(self) * self._first.nbytes

    def load(self, rows: Any) -> Tensor:
        """The items of these rows, ``(n, …)``."""
        shape = self._first.shape
        numbers = [int(row) for row in rows]
        items = [self._item(row) for row in numbers]
        for row, item in zip(numbers, items, strict=True):
            if item.shape != shape:
                raise LLPError(
                    f"item {row} of inputs has shape {tuple(item.shape)}, but item 0 has "
                    f"{tuple(shape)}; give all the same shape"
                )
            if item.is_floating_point() and not bool(item.isfinite().all()):
                raise LLPError(f"item {row} of inputs has values that are not finite; fill them in")
        return torch.stack(items) if items else self._first.new_zeros((0, *shape))

    def _item(self, row: int) -> Tensor:
        try:
            value = self.dataset[row]
        except Exception as error:  # the user's code may raise anything
            raise LLPError(
                f"item {row} of inputs cannot be read: {error!r}; correct the data set"
            ) from error
        first = value[0] if isinstance(value, tuple | list) and value else None
        if (isinstance(value, tuple) and value) or isinstance(first, Tensor):
            value = first  # but a list of numbers is an item
        try:
            item = value if isinstance(value, Tensor) else shared_tensor(_array(value))
            if item.is_complex() or item.layout != torch.strided:
                raise TypeError("neither complex nor sparse")
        except (TypeError, ValueError) as error:
            what = type(value).__name__
            if isinstance(value, dict):
                what += f" with {a_few(list(value))}"
            raise LLPError(
                f"item {row} of inputs is a {what}; give a tensor, an array, an image, or a tuple "
                "that begins with one, of real numbers: wrap the data set in one that returns them"
            ) from error
        if item.dim() == 0:
            raise LLPError(f"item {row} of inputs is a single number; give one tensor per item")
        if item.numel() == 0:
            raise LLPError(f"item {row} of inputs is empty; give at least one number per item")
        return item if item.dtype == torch.uint8 or item.is_floating_point() else item.float()


def _array(value: Any) -> Any:
    """A number array; images are turned to ``(C, H, W)``."""
    array = np.asarray(value)
    if hasattr(value, "getbands"):  # an image of Pillow
        array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    return array
