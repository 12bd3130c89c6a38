"""From rows of the table to what the network sees: reading, augmentation, preprocessing."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from llpkit._arrays import Files, shared_tensor
from llpkit.augment import Augment, Augmentation
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.methods import as_logits, at_least_single
from llpkit.training.batches import Blocks
from llpkit.training.dataset import DatasetInputs, is_dataset

Inputs = Tensor | Files

BATCH = 512
"""Fewest rows of a batch without gradients, which takes less memory than one in training."""
EXAMPLES = 8
"""Inputs to try a network on before training."""


def blocks_of(inputs: Inputs, bags: Bags) -> Blocks | None:
    """The blocks that the bags' inputs are read in; ``None`` if rows are read one by one."""
    of_row = getattr(inputs, "blocks", None)
    if of_row is None:
        return None
    first = bags.rows.cpu()[bags.offsets[:-1].cpu().clamp(max=bags.num_instances - 1)]
    return Blocks(of_row[first], int(getattr(inputs, "window", 1)))


def as_inputs(inputs: Any) -> Inputs:
    """Turn arrays into tensors, and data sets into inputs; files are returned unchanged."""
    if isinstance(inputs, np.ndarray):
        inputs = shared_tensor(inputs)
    if isinstance(inputs, Tensor):
        if inputs.dim() < 2:
            raise LLPError(
                f"inputs has shape {tuple(inputs.shape)}; expected features (rows, D) or images "
                "(rows, C, H, W)"
            )
        if inputs.dtype == torch.uint8 or inputs.dtype.is_floating_point:
            return inputs
        return inputs.to(torch.float32)
    if all(hasattr(inputs, name) for name in ("load", "nbytes", "shape")):
        return inputs  # type: ignore[no-any-return]
    if is_dataset(inputs):
        return DatasetInputs(inputs)
    raise LLPError(
        f"inputs is a {type(inputs).__name__}; pass a tensor or an array of features or images, "
        "a data frame, a map-style Dataset, or llpkit.datasets.ImageFiles"
    )


def check_shape(inputs: Any, input_shape: tuple[int, ...], name: str = "inputs has") -> None:
    """Refuse inputs whose rows do not have the shape that a model was trained on."""
    if tuple(inputs.shape[1:]) != input_shape:
        raise LLPError(
            f"{name} shape {tuple(inputs.shape)}; this model takes "
            f"(rows, {', '.join(map(str, input_shape))})"
        )


class Feed:
    """Gives the inputs of any rows, on the training device.

    Args:
        inputs: The inputs of all rows.
        device: The training device.
        resident: Keep all inputs on the device: ``True``, ``False``, or ``"auto"``, which does so
            if they take no more than half of the device's free memory.
        workers: Processes that read files which are not resident.
        rows: The rows that are needed; all by default. Only these become resident.
        processes: How many processes share the memory of the device.
    """

    def __init__(
        self,
        inputs: Inputs,
        device: torch.device,
        resident: bool | str = "auto",
        workers: int = 2,
        rows: Tensor | None = None,
        processes: int = 1,
    ) -> None:
        size = inputs.nbytes if rows is None else inputs.nbytes * len(rows) // max(1, len(inputs))
        free = _free_memory(device) // (2 * processes)
        self.resident = size <= free if resident == "auto" else bool(resident)
        self.device = device
        self.workers = workers
        self.inputs = inputs
        self._number = len(inputs)
        self._index_of: Tensor | None = None
        if not self.resident:
            return
        if rows is None or (isinstance(inputs, Tensor) and inputs.device.type == device.type):
            every = inputs if isinstance(inputs, Tensor) else inputs.load(range(len(inputs)))
            self.inputs = every.to(device)
            return
        part = inputs[rows] if isinstance(inputs, Tensor) else inputs.load(rows)
        self.inputs = part.to(device)
        self._index_of = torch.full((self._number,), -1, device=device)
        self._index_of[rows.to(device)] = torch.arange(len(rows), device=device)

    def __len__(self) -> int:
        return self._number

    def stream(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """The raw inputs of each batch of row numbers, in order."""
        if isinstance(self.inputs, Tensor):
            for rows in batches:
                if self.resident:
                    yield self.inputs[rows if self._index_of is None else self._index_of[rows]]
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
            generator=torch.Generator(),  # the loader must not draw from the run's random numbers
        )
        for raw in loader:
            yield raw.to(self.device, non_blocking=True)


class _Reader(Dataset[Tensor]):
    """Reads batch ``i`` in a worker process."""

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
    """Centres and scales float inputs, channel by channel."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    @classmethod
    def of(cls, sample: Tensor, symmetric: bool = False) -> "Preprocess":
        """Fit to raw inputs; with ``symmetric``, scale images to ``[-1, 1]`` instead."""
        x = to_float(sample)
        axes = [0, *range(2, x.dim())]  # all but the channels, or the features
        mean = x.mean(axes, keepdim=True)[0]  # (C, 1, 1) or (D,)
        scale = x.std(axes, correction=0, keepdim=True)[0]
        if symmetric and x.dim() > 2:
            mean, scale = torch.full_like(mean, 0.5), torch.full_like(scale, 0.5)
        return cls(mean, torch.where(scale > 0, scale, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


def to_float(raw: Tensor) -> Tensor:
    """uint8 images as floats in ``[0, 1]``; floats in single precision."""
    return raw.to(torch.float32) / 255 if raw.dtype == torch.uint8 else raw.to(torch.float32)


AT_ONCE = 2**24
"""Input values that a CUDA device prepares at once: enough to keep it busy, 64 MiB as floats."""

Views = tuple[Tensor, Tensor | None]
"""A batch, and the same instances under the strong augmentation where a method asks for it."""


class Pipeline:
    """Reads, augments and preprocesses the inputs of training steps.

    Args:
        feed: The raw inputs.
        preprocess: Applied last.
        augment: Applied to float batches.
        strong: The augmentation of the second view; without it, that view is not augmented.
        num_views: One or two.
    """

    def __init__(
        self,
        feed: Feed,
        preprocess: Preprocess,
        augment: Augmentation | None = None,
        strong: Augmentation | None = None,
        num_views: int = 1,
    ) -> None:
        self.feed, self.preprocess = feed, preprocess
        self.augment, self.strong, self.num_views = augment, strong, num_views

    def views(self, raw: Tensor) -> Views:
        """The inputs of one batch, ready for the network."""
        x = to_float(raw)
        weak = x if self.augment is None else self.augment(x)
        if self.num_views == 1:
            return self.preprocess(weak), None
        strong = x if self.strong is None else self.strong(x)
        return self.preprocess(weak), self.preprocess(strong)

    def stream(self, rows: Sequence[Tensor]) -> Iterator[Views]:
        """The inputs of each batch of row numbers, in order."""
        for raw in self.feed.stream(rows):
            yield self.views(raw)

    def stream_equal(self, rows: Sequence[Tensor]) -> Iterator[Views]:
        """Like :meth:`stream` for batches of one size; a CUDA device prepares many at once.

        A user's augmentation may treat a batch as a whole, so it gets its batches one by one.
        """
        ours = all(a is None or isinstance(a, Augment) for a in (self.augment, self.strong))
        many = 1
        if rows and self.feed.resident and self.feed.device.type == "cuda" and ours:
            assert isinstance(self.feed.inputs, Tensor)
            values = len(rows[0]) * prod(self.feed.inputs.shape[1:])
            many = max(1, AT_ONCE // max(1, values))
        # One gather and one augmentation for many steps saves launches of small kernels.
        groups = [rows[i : i + many] for i in range(0, len(rows), many)]
        for raw, group in zip(
            self.feed.stream([torch.cat(list(g)) for g in groups]), groups, strict=True
        ):
            weak, strong = map(_channels_last, self.views(raw))
            assert weak is not None
            size = len(group[0])  # all batches have this size
            seconds = [None] * len(group) if strong is None else strong.split(size)
            yield from zip(weak.split(size), seconds, strict=True)

    def logits(self, network: nn.Module, rows: Sequence[Tensor], num_classes: int | None) -> Tensor:
        """Logits of batches of rows."""
        parts = [as_logits(z, num_classes) for z in self._evaluated(network, rows)]
        if not parts:
            return torch.zeros((0,) if num_classes is None else (0, num_classes))
        return torch.cat(parts)

    def outputs(self, network: nn.Module, rows: Sequence[Tensor]) -> Tensor:
        """The network's outputs for batches of rows, which have at least one instance."""
        return torch.cat(list(self._evaluated(network, rows)))

    def _evaluated(self, network: nn.Module, rows: Sequence[Tensor]) -> Iterator[Tensor]:
        """The network's outputs for each batch, in evaluation mode, without augmentation.

        They are not in half precision, and the network's mode is restored afterwards.
        """
        training = network.training
        network.eval()
        weights = next(network.parameters(), None)
        dtype = torch.float32 if weights is None else weights.dtype  # not so in 64-true
        try:
            for raw in self.feed.stream(rows):
                with torch.no_grad():
                    yield at_least_single(network(self.preprocess(to_float(raw)).to(dtype)))
        finally:
            network.train(training)


def _channels_last(x: Tensor | None) -> Tensor | None:
    if x is None or x.dim() != 4:
        return x
    return x.contiguous(memory_format=torch.channels_last)
