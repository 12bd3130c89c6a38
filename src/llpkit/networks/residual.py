"""Residual networks for the ten-class benchmarks of small images.

He, Zhang, Ren & Sun, *Deep residual learning for image recognition*, CVPR 2016. Zagoruyko &
Komodakis, *Wide residual networks*, BMVC 2016. The ResNet-9 is that of the DAWNBench entries.
"""

import torch
from torch import Tensor, nn

from llpkit.networks.layers import (
    Classifier,
    GlobalAverage,
    Shape,
    conv,
    image_shape,
    initialise,
    rectifier,
)

_SMALL_START = 0.125
"""Factor of the initial weights of the last layer: the first predictions carry no
information, so they should be close to even."""


class Residual(nn.Module):
    """The sum of a body's output and a shortcut, the input itself by default."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity() if shortcut is None else shortcut

    def forward(self, x: Tensor) -> Tensor:
        """``body(x) + shortcut(x)``."""
        out: Tensor = self.body(x) + self.shortcut(x)
        return out


class ResNet9(Classifier):
    """A small network that trains fast on a GPU: 6.57 million weights.

    3×3-64; 3×3-128, max-pool 2, a residual block of two 3×3-128; 3×3-256, max-pool 2; 3×3-512,
    max-pool 2, a residual block of two 3×3-512; global maximum; dense. Batch norm and ReLU after
    every convolution.
    """

    def __init__(self, input_shape: Shape, num_outputs: int) -> None:
        channels = image_shape(input_shape, "resnet-9", least=16)[0]
        body = nn.Sequential(
            conv(channels, 64),
            conv(64, 128),
            nn.MaxPool2d(2),
            Residual(nn.Sequential(conv(128, 128), conv(128, 128))),
            conv(128, 256),
            nn.MaxPool2d(2),
            conv(256, 512),
            nn.MaxPool2d(2),
            Residual(nn.Sequential(conv(512, 512), conv(512, 512))),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )
        super().__init__(body, 512, num_outputs)
        _start(self)


class ResNet18(Classifier):
    """ResNet-18 with a 3×3 stem of stride 1 and no max-pool: 11.17 million weights.

    Four stages of two basic blocks, of 64, 128, 256 and 512 channels; stages two to four halve the
    sides. Global average, dense.
    """

    def __init__(self, input_shape: Shape, num_outputs: int) -> None:
        channels = image_shape(input_shape, "resnet-18", least=16)[0]
        layers: list[nn.Module] = [conv(channels, 64)]
        before = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            for first in (True, False):
                layers += _basic(before, width, stride if first else 1)
                before = width
        super().__init__(nn.Sequential(*layers, GlobalAverage()), 512, num_outputs)
        _start(self)


class WideResNet(Classifier):
    """WRN-28-2: 28 layers of twice the usual width, 1.47 million weights.

    3×3-16; three stages of four pre-activation blocks, of 32, 64 and 128 channels, the last two of
    which halve the sides; batch norm, leaky ReLU 0.1, global average, dense.
    """

    def __init__(self, input_shape: Shape, num_outputs: int) -> None:
        channels = image_shape(input_shape, "wrn-28-2", least=8)[0]
        layers: list[nn.Module] = [nn.Conv2d(channels, 16, 3, padding=1, bias=False)]
        before = 16
        for width, stride in ((32, 1), (64, 2), (128, 2)):
            for unit in range(4):
                layers += _pre_activation(before, width, stride if unit == 0 else 1)
                before = width
        layers += [nn.BatchNorm2d(before), rectifier(_LEAK), GlobalAverage()]
        super().__init__(nn.Sequential(*layers), before, num_outputs)
        _start(self, _LEAK)


_LEAK = 0.1


def _basic(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    """Two convolutions with batch norm around which the input is added, then ReLU."""
    body = nn.Sequential(
        *conv(inputs, outputs, stride=stride),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
    )
    shortcut = None
    if inputs != outputs or stride > 1:
        narrow = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        shortcut = nn.Sequential(narrow, nn.BatchNorm2d(outputs))
    return [Residual(body, shortcut), rectifier(0.0)]


def _pre_activation(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    """Batch norm and rectifier before each of two convolutions, around which the input is added.

    Where the width changes, the shortcut starts from the activated input, too.
    """
    before = [nn.BatchNorm2d(inputs), rectifier(_LEAK)]
    body = [
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        rectifier(_LEAK),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
    ]
    if inputs == outputs:
        return [Residual(nn.Sequential(*before, *body))]
    shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
    return [*before, Residual(nn.Sequential(*body), shortcut)]


@torch.no_grad()
def _start(network: Classifier, slope: float = 0.0) -> None:
    initialise(network, slope)
    network.head.weight.mul_(_SMALL_START)
