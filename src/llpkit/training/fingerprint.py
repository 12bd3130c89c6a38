"""Checksums of data and names of settings: a run resumes only with those it began with."""

import hashlib
import os
from collections.abc import Sized
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from llpkit.augment import Augment
from llpkit.bags import Bags
from llpkit.methods import Method
from llpkit.training.inputs import Inputs

MOST_BYTES = 2**28
"""Maximum bytes to hash, a few tenths of a second; larger inputs give evenly spaced rows."""
MOST_FILES = 4096
"""Maximum number of files to check the length of; the names of all files are compared."""


def of_tensors(*tensors: Tensor | None) -> str:
    """One checksum over values, shapes and types.

    >>> of_tensors(torch.zeros(2)) == of_tensors(torch.zeros(2, 1))
    False
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            digest.update(b"none")
            continue
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def of_bags(bags: Bags | None) -> str:
    """Checksum of rows and counts; the names of bags do not matter."""
    if bags is None:
        return "none"
    known = bags.evidence
    return of_tensors(
        bags.offsets, bags.rows, known.low, known.high, known.table, known.table_offsets
    )


def of_inputs(inputs: Inputs) -> str:
    """Checksum of the values, or an even sample of them; for files, of names and lengths."""
    if isinstance(inputs, Tensor):
        rows = max(1, MOST_BYTES * len(inputs) // max(1, inputs.nbytes))
        some = inputs if rows >= len(inputs) else inputs[_even(inputs, rows)]
        if some.is_floating_point():
            some = some.float()  # as the network gets them
        return of_tensors(torch.tensor(len(inputs)), some)
    digest = hashlib.sha256(f"{len(inputs)} {inputs.nbytes}".encode())
    paths = getattr(inputs, "paths", None)
    if paths is not None:
        names = [os.path.basename(path) for path in paths]  # the folder may have moved
        digest.update("\0".join(names).encode(errors="surrogateescape"))
        for row in _even(paths, min(MOST_FILES, len(paths))).tolist():
            path = paths[row]
            digest.update(f" {os.path.getsize(path) if os.path.exists(path) else -1}".encode())
    return digest.hexdigest()


def name_of(value: Any) -> str | float | None:
    """A setting as plain data: names and numbers unchanged, anything else by qualified name."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Real):
        return float(f"{float(value):.6g}")  # 0.2 as float32 is still 0.2
    if isinstance(value, Augment | list | tuple | dict):
        return repr(value)
    if isinstance(value, partial):
        more = [*map(repr, value.args), *(f"{k}={v!r}" for k, v in sorted(value.keywords.items()))]
        return f"{name_of(value.func)}({', '.join(more)})"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def options_of(method: Method) -> dict[str, Any]:
    """All options of a method, defaults included, as plain data."""
    return {name: name_of(value) for name, value in sorted(method.options.items())}


def _even(inputs: Sized, number: int) -> Tensor:
    return torch.linspace(0, len(inputs) - 1, number, dtype=torch.float64).long()
