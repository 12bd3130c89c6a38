"""ConvLarge, a small CNN, an MLP and a linear model."""

from collections.abc import Sequence

from torch import nn

from llpkit.networks.layers import (
    Classifier,
    GlobalAverage,
    Shape,
    conv,
    dense,
    image_shape,
    initialise,
    size_of,
    widths_of,
)


class ConvLarge(Classifier):
    """The "ConvLarge" of the semi-supervised literature, for images of 16 × 16 pixels or more.

    3 × (3×3-128), max-pool 2, dropout 0.5; 3 × (3×3-256), max-pool 2, dropout 0.5; 3×3-512 without
    padding, 1×1-256, 1×1-128; global average; dense. Batch norm and leaky ReLU 0.1 after every
    convolution, which therefore needs no bias. The paper refers to a list of layers that could not
    be checked, so its network may differ.

    In smaller images, batch norm would see a single value per channel if a batch is one instance.
    """

    def __init__(self, input_shape: Shape, num_outputs: int) -> None:
        channels = image_shape(input_shape, "conv-large", least=16)[0]
        body = nn.Sequential(
            *(conv(i, 128, slope=0.1) for i in (channels, 128, 128)),
            nn.MaxPool2d(2),
            nn.Dropout(0.5),
            *(conv(i, 256, slope=0.1) for i in (128, 256, 256)),
            nn.MaxPool2d(2),
            nn.Dropout(0.5),
            conv(256, 512, padding=0, slope=0.1),
            conv(512, 256, kernel=1, padding=0, slope=0.1),
            conv(256, 128, kernel=1, padding=0, slope=0.1),
            GlobalAverage(),
        )
        super().__init__(body, 128, num_outputs)
        initialise(self, slope=0.1)


class SmallCNN(Classifier):
    """A CNN that trains in seconds on a CPU, for images of 4 × 4 pixels or more.

    3×3-32, then a max-pool and a 3×3 convolution of 64, 128, 128, … channels for every halving that
    leaves the shorter side at 4 pixels or more; batch norm and ReLU. The result is averaged to a
    2 × 2 grid, which keeps a rough sense of place, then dropout 0.5 and a dense layer.
    """

    def __init__(self, input_shape: Shape, num_outputs: int) -> None:
        channels, height, width = image_shape(input_shape, "small-cnn", least=4)
        layers: list[nn.Module] = [conv(channels, 32)]
        wide = 32
        while min(height, width) >= 8:
            height, width, narrow, wide = height // 2, width // 2, wide, min(2 * wide, 128)
            layers += [nn.MaxPool2d(2), conv(narrow, wide)]
        # Rounded up, so that two cells cover the side whatever its length.
        cell = (-(-height // 2), -(-width // 2))
        layers += [nn.AvgPool2d(cell, ceil_mode=True), nn.Flatten(), nn.Dropout(0.5)]
        super().__init__(nn.Sequential(*layers), 4 * wide, num_outputs)
        initialise(self)


class MLP(Classifier):
    """Dense layers with ReLU; images are flattened.

    Args:
        input_shape: Shape of one input.
        num_outputs: Logits per input.
        hidden: Widths of the hidden layers.
    """

    def __init__(
        self, input_shape: Shape, num_outputs: int, hidden: Sequence[int] = (64, 64)
    ) -> None:
        widths = [size_of(input_shape), *widths_of(hidden)]
        super().__init__(dense(widths, slope=0.0), widths[-1], num_outputs)
        initialise(self)


class Linear(Classifier):
    """Logistic regression: one dense layer; images are flattened."""

    def __init__(self, input_shape: Shape, num_outputs: int) -> None:
        super().__init__(nn.Flatten(), size_of(input_shape), num_outputs)
        initialise(self)
