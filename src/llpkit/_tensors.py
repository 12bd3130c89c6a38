"""Values from users as tensors."""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import Array
from llpkit._counts import CountNaming, whole_counts
from llpkit.errors import LLPError


def whole_tensor(values: Any, name: str) -> Tensor:
    """Values as int64 ``(B,)`` or ``(B, K)``; negative or fractional ones are refused."""
    return on_device_of(values, whole_counts(values, CountNaming(name=name)))


def on_device_of(values: Any, array: Array) -> Tensor:
    """The array as a tensor, on the device of ``values`` if these are a tensor."""
    tensor = torch.from_numpy(array)
    return tensor.to(values.device) if isinstance(values, Tensor) else tensor


def real_tensor(values: Any, name: str) -> Tensor:
    """A dense tensor of reals, copied."""
    try:
        # A copy, so that the caller cannot change the evidence later.
        copied = isinstance(values, Tensor)
        tensor = values.detach().clone() if copied else torch.from_numpy(np.array(values))
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise LLPError(f"{name} is not an array of numbers: {error}") from error
    if tensor.dtype.is_complex or tensor.layout != torch.strided:
        raise LLPError(f"{name} is {tensor.layout} {tensor.dtype}; give a dense array of reals")
    return tensor


def shared_tensor(array: Array) -> Tensor:
    """A tensor on the memory of an array, to be read only.

    torch warns of arrays that are not writable, such as those of pandas 3 and of memory maps.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(np.ascontiguousarray(array))
