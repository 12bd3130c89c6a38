"""Building blocks of networks: layers, initial weights, and checks of input shapes."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from llpkit._validation import whole
from llpkit.errors import LLPError

Shape = Sequence[int]


class Classifier(nn.Module):
    """A body from inputs to ``(n, width)``, and a dense layer from there to the logits."""

    def __init__(self, body: nn.Module, width: int, num_outputs: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, whole("num_outputs", num_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(n,)``, or ``(n, K)`` for K > 1 outputs."""
        z: Tensor = self.head(self.body(x))
        return z.squeeze(1) if self.head.out_features == 1 else z


class GlobalAverage(nn.Module):
    """The mean over all pixels."""

    def forward(self, x: Tensor) -> Tensor:
        """From ``(n, C, H, W)`` to ``(n, C)``."""
        return x.mean((2, 3))  # (n, C)


def conv(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    padding: int = 1,
    slope: float = 0.0,
    stride: int = 1,
) -> nn.Sequential:
    """Convolution, batch norm, rectifier."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), rectifier(slope))


def dense(widths: Sequence[int], slope: float) -> nn.Sequential:
    """Dense layers of these widths; the first is that of the flattened input."""
    layers = [nn.Sequential(nn.Linear(i, o), rectifier(slope)) for i, o in pairwise(widths)]
    return nn.Sequential(nn.Flatten(), *layers)


def rectifier(slope: float) -> nn.Module:
    """ReLU, or leaky ReLU with a slope."""
    return nn.LeakyReLU(slope, inplace=True) if slope else nn.ReLU(inplace=True)


@torch.no_grad()
def initialise(network: nn.Module, slope: float = 0.0) -> None:
    """Draw the weights after He et al.; the last layer has no rectifier after it."""
    kinds = nn.Linear | nn.Conv2d | nn.ConvTranspose2d
    layers = [module for module in network.modules() if isinstance(module, kinds)]
    for layer in layers:
        fan_in: float = layer.weight[0].numel()
        if isinstance(layer, nn.ConvTranspose2d):
            # Its first axis is the input channels; one tap in stride² reaches an output pixel.
            taps = layer.weight[0, 0].numel() / (layer.stride[0] * layer.stride[1])
            fan_in = layer.in_channels * taps
        # The rectifier keeps (1 + slope²) / 2 of the mean square, which the gain makes up for.
        gain = 1.0 if layer is layers[-1] else 2 / (1 + slope**2)
        layer.weight.normal_(0, (gain / fan_in) ** 0.5)
        if layer.bias is not None:
            layer.bias.zero_()


def widths_of(hidden: Any) -> list[int]:
    """The widths of hidden layers, checked."""
    if not isinstance(hidden, Sequence) or isinstance(hidden, str):
        raise LLPError(
            f"hidden = {hidden!r}; give the widths of the hidden layers, such as (64, 64)"
        )
    return [whole(f"hidden[{i}]", width) for i, width in enumerate(hidden)]


def shape_of(input_shape: Any) -> tuple[int, ...]:
    """The shape of one input, checked."""
    if not isinstance(input_shape, Sequence) or len(input_shape) not in (1, 3):
        raise LLPError(
            f"input_shape = {input_shape!r}; give the shape of one input, (C, H, W) for images or "
            "(D,) for features"
        )
    return tuple(whole(f"input_shape[{i}]", side) for i, side in enumerate(input_shape))


def size_of(input_shape: Any) -> int:
    """The number of values of one input."""
    return math.prod(shape_of(input_shape))


def image_shape(input_shape: Any, name: str, least: int = 1) -> tuple[int, int, int]:
    """The shape of one image, of at least ``least`` pixels each way."""
    shape = shape_of(input_shape)
    if len(shape) != 3:
        raise LLPError(
            f"network {name!r} takes images (C, H, W), but input_shape = {shape}; for features use "
            "'mlp' or 'linear'"
        )
    channels, height, width = shape
    if min(height, width) < least:
        raise LLPError(
            f"network {name!r} takes images of at least {least} x {least} pixels, these are "
            f"{height} x {width}; enlarge them or use " + ("'small-cnn'" if least > 4 else "'mlp'")
        )
    return channels, height, width
