"""Inputs on their way to the network: resident on the device, copied over, or read from files."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from llpkit.errors import LLPError


class Files(Protocol):
    """Images that are read when they are needed (see ``llpkit.datasets.ImageFiles``)."""

    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def load(self, rows: Any) -> Tensor: ...


Inputs = Tensor | Files


def as_inputs(inputs: Any) -> Inputs:
    """Arrays as tensors; files as they are."""
    if isinstance(inputs, np.ndarray):
        inputs = torch.from_numpy(np.ascontiguousarray(inputs))
    if isinstance(inputs, Tensor):
        if inputs.dim() < 2:
            raise LLPError(
                f"inputs has shape {tuple(inputs.shape)}; expected features (rows, D) or images "
                "(rows, C, H, W)"
            )
        if inputs.dtype == torch.uint8 or inputs.dtype.is_floating_point:
            return inputs
        return inputs.to(torch.float32)
    if hasattr(inputs, "load") and hasattr(inputs, "nbytes"):
        return inputs  # type: ignore[no-any-return]
    raise LLPError(
        f"inputs is a {type(inputs).__name__}; pass a tensor or an array of features or images, "
        "or llpkit.datasets.ImageFiles"
    )


class Feed:
    """Gives the inputs of any rows, on the training device.

    Args:
        inputs: What there is.
        device: Where it is wanted.
        resident: Keep all of it on the device: ``True``, ``False``, or ``"auto"``, which does so if
            it takes no more than half of the device's free memory.
        workers: Processes that read files, where files are not resident.
    """

    def __init__(
        self,
        inputs: Inputs,
        device: torch.device,
        resident: bool | str = "auto",
        workers: int = 2,
    ) -> None:
        size = inputs.nbytes
        if resident not in (True, False, "auto"):
            raise LLPError(f'resident = {resident!r}; give True, False or "auto"')
        self.resident = size <= _free_memory(device) // 2 if resident == "auto" else bool(resident)
        self.device = device
        self.workers = workers
        self.inputs = inputs
        if self.resident:
            whole = inputs if isinstance(inputs, Tensor) else inputs.load(range(len(inputs)))
            self.inputs = whole.to(device)

    def __len__(self) -> int:
        return len(self.inputs)

    def stream(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """The raw inputs of each batch of row numbers, in order."""
        if isinstance(self.inputs, Tensor):
            for rows in batches:
                if self.resident:
                    yield self.inputs[rows]
                elif self.device.type == "cuda":
                    some = self.inputs[rows.cpu()].pin_memory()
                    yield some.to(self.device, non_blocking=True)
                else:
                    yield self.inputs[rows].to(self.device)
            return
        loader = DataLoader(
            _Reader(self.inputs, [rows.cpu() for rows in batches]),
            batch_size=None,
            shuffle=False,
            num_workers=self.workers if len(batches) > 1 else 0,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # so that it draws nothing from the run's own numbers
        )
        for raw in loader:
            yield raw.to(self.device, non_blocking=True)


class _Reader(Dataset[Tensor]):
    """Batch ``i`` is read in whichever worker is asked for it."""

    def __init__(self, files: Files, batches: list[Tensor]) -> None:
        self.files = files
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Tensor:
        return self.files.load(self.batches[index])


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo") as lines:
            free = next(line for line in lines if line.startswith("MemAvailable"))
        return int(free.split()[1]) * 1024
    except (OSError, StopIteration):
        return 4 * 2**30


class Preprocess(nn.Module):
    """Raw inputs as the network sees them: floats, centred and scaled channel by channel."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    @classmethod
    def of(cls, sample: Tensor, symmetric: bool = False) -> "Preprocess":
        """Fitted to some raw inputs; ``symmetric`` puts images into ``[-1, 1]`` instead."""
        x = to_float(sample)
        axes = [0, *range(2, x.dim())]
        mean = x.mean(axes, keepdim=True)[0]
        scale = x.std(axes, correction=0, keepdim=True)[0]
        if symmetric and x.dim() > 2:
            mean, scale = torch.full_like(mean, 0.5), torch.full_like(scale, 0.5)
        return cls(mean, torch.where(scale > 0, scale, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


def to_float(raw: Tensor) -> Tensor:
    """uint8 images as floats in ``[0, 1]``; floats in single precision."""
    return raw.to(torch.float32) / 255 if raw.dtype == torch.uint8 else raw.to(torch.float32)
