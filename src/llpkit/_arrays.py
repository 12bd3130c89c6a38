"""Arrays and random generators from users; errors name the entry, its value and the remedy."""

import warnings
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit._validation import whole
from llpkit.errors import LLPError

Array = NDArray[Any]


class Files(Protocol):
    """Inputs that are read on demand, such as ``llpkit.datasets.ImageFiles``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows, and the shape of each."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all rows in memory."""
        ...

    def __len__(self) -> int: ...

    def load(self, rows: Any) -> Tensor:
        """The inputs of some rows, images ``(n, C, H, W)`` or features ``(n, D)``."""
        ...


def refuse(bad: Array, message: Callable[..., str], noun: str = "bags") -> None:
    """Raise for the first true entry, with ``message(*index)`` and the number of such entries."""
    if bad.any():
        first = np.unravel_index(int(bad.argmax()), bad.shape)
        # Count bags or rows, not their single cells.
        total = int(bad.reshape(*bad.shape[:1], -1).any(-1).sum())
        more = f" ({total} such {noun} in all)" if total > 1 else ""
        raise LLPError(message(*map(int, first)) + more)


_named: ContextVar[tuple[str, Callable[..., str]] | None] = ContextVar("_named", default=None)


def named_entry(name: str) -> Callable[..., str]:
    """How errors name an entry of an array: a function of the value and the index."""
    own = _named.get()
    if own is not None and own[0] == name:
        return own[1]
    return lambda value, *index: f"{name}{list(index) if index else ''} = {value}"


@contextmanager
def entries_named(name: str, entry: Callable[..., str]) -> Iterator[None]:
    """Let errors name the entries of an array by ``entry(value, *index)``."""
    token = _named.set((name, entry))
    try:
        yield
    finally:
        _named.reset(token)


def read(values: Any, name: str, dtype: type | None = None) -> Array:
    """Any array, tensor or nested list as a NumPy array."""
    if np.ma.is_masked(values):
        raise LLPError(f"{name} has masked entries; drop their rows or fill them")
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()  # fails for a tensor without data (meta device)
            if values.is_floating_point():
                values = values.double()  # NumPy has no bfloat16
        return np.asarray(values, dtype)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise LLPError(f"{name} cannot be read as an array: {error}") from error


def numbers(values: Any, name: str, entry: Callable[..., str] | None = None) -> Array:
    """The values as booleans, integers or float64; ``entry(value, *index)`` names one in errors."""
    entry = entry or named_entry(name)
    try:
        array = read(values, name)
    except LLPError:
        _check_lengths(values, entry)
        raise
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # a long double may overflow to inf
            return array.astype(np.float64)
    if array.dtype.kind in "biu":
        return array
    # Objects, text or dates: find the entry that is not a number.
    items = read(values, name, object)
    real = [isinstance(x, Real | np.bool_) and array.dtype.kind not in "mM" for x in items.flat]
    refuse(
        ~np.array(real, dtype=bool).reshape(items.shape),
        lambda *i: f"{entry(repr(items[i]), *i)} is not a number; give an int or a float",
        "entries",
    )
    return read(items, name, np.float64)


def _check_lengths(values: Any, entry: Callable[..., str]) -> None:
    """Refuse a list whose entries, one number per class, differ in length."""
    if isinstance(values, list | tuple):
        sized = [isinstance(v, Sized) and getattr(v, "ndim", 1) > 0 for v in values]
        lengths = np.array([len(v) if s else 0 for v, s in zip(values, sized, strict=True)])
        refuse(
            lengths != lengths[0],
            lambda i: (
                f"{entry(values[i], i)} has {lengths[i] or 1} numbers but the first entry "
                f"has {lengths[0] or 1}; give the same number everywhere, one per class"
            ),
            "entries",
        )


def whole_array(
    values: Any, name: str, remedy: str = "give integers", entry: Callable[..., str] | None = None
) -> Array:
    """A copy of the values as int64."""
    entry = entry or named_entry(name)
    array = numbers(values, name, entry)
    if array.dtype.kind in "fu":
        refuse(
            ~((array == np.floor(array)) & (np.abs(array) < 2**53)),  # float64 is exact below
            lambda *i: f"{entry(array[i], *i)} is not a whole number; {remedy}",
            "entries",
        )
    return array.astype(np.int64)


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
    """A tensor that shares the memory of an array; it must not be written to.

    torch warns of arrays that are not writable, such as those of pandas 3 and of memory maps.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(np.ascontiguousarray(array))


def check_rising(ends: Array) -> None:
    """Refuse offsets that do not start at 0 or that decrease."""
    if ends[0] != 0:
        raise LLPError(f"offsets[0] = {ends[0]}; offsets start at 0")
    refuse(
        np.append(False, ends[1:] < ends[:-1]),
        lambda b: (
            f"offsets[{b}] = {ends[b]} is below offsets[{b - 1}] = {ends[b - 1]}, so bag {b - 1} "
            "would end before it starts; offsets must not decrease"
        ),
    )


def checked_labels(
    labels: Any,
    num_classes: int | None,
    name: str = "labels",
    remedy: str = "give num_classes for more, and number the classes from 0",
    rows: Array | None = None,
) -> Array:
    """True labels ``0 … K - 1``, int64 ``(N,)``; with ``rows``, only those of these rows."""
    values = numbers(labels, name)
    if values.ndim != 1 or len(values) == 0:
        raise LLPError(f"{name} has shape {values.shape}; give one label per row, shape (N,)")
    chosen = np.arange(len(values)) if rows is None else rows

    def entry(value: object, i: int) -> str:
        return f"{name}[{chosen[i]}] = {value}"

    truth = whole_array(values[chosen], name, "drop the row or give its label", entry)
    top = 1 if num_classes is None else whole("num_classes", num_classes, 2) - 1
    refuse(
        (truth < 0) | (truth > top),
        lambda i: f"{entry(truth[i], i)} but labels go from 0 to {top}; {remedy}",
        "rows",
    )
    return truth


def checked_generator(generator: Any, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator, or a new one on this device if it is a seed."""
    if isinstance(generator, torch.Generator):
        return generator
    if isinstance(generator, Integral) and 0 <= int(generator) < 2**63:
        return torch.Generator(device).manual_seed(int(generator))
    raise LLPError(
        f"generator = {generator!r}; give a torch.Generator or a seed from 0 to 2**63 - 1"
    )
