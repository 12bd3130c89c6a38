"""LLP-GAN's pair of networks: a discriminator that classifies, and a generator of fakes."""

import torch
from torch import Tensor, nn

from llpkit._validation import whole
from llpkit.errors import LLPError
from llpkit.networks.layers import (
    GlobalAverage,
    Shape,
    dense,
    image_shape,
    initialise,
    shape_of,
    size_of,
)


class Discriminator(nn.Module):
    """LLP-GAN's classifier, which also returns the features that the generator has to match.

    It has one logit per class, so two for binary labels; the logit of "fake" is fixed at zero and
    is part of the loss.
    """

    def __init__(self, body: nn.Module, width: int, num_classes: int) -> None:
        super().__init__()
        if whole("num_classes", num_classes) < 2:
            raise LLPError("num_classes = 1; LLP-GAN has a logit per class, so give 2 or more")
        self.body = body
        self.head = nn.Linear(width, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Matching features ``(n, F)``."""
        features: Tensor = self.body(x)
        return features

    def forward_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits ``(n, K)`` and features ``(n, F)`` in one pass."""
        features = self.features(x)
        return self.head(features), features

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(n, K)``."""
        return self.forward_features(x)[0]


class LLPGANDiscriminator(Discriminator):
    """LLP-GAN's discriminator of images in ``[-1, 1]``, of any size.

    Dropout 0.2; 3×3-64, 64, 64 of stride 2; dropout 0.5; 3×3-128, 128, 128 of stride 2; dropout
    0.5; 3×3-256, 1×1-128, 1×1-64; global average (the 64 features); dense. Leaky ReLU 0.2, biases,
    no normalisation.
    """

    def __init__(self, input_shape: Shape, num_classes: int) -> None:
        channels = image_shape(input_shape, "llp-gan")[0]

        def leaky(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
            layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)
            return nn.Sequential(layer, nn.LeakyReLU(0.2))

        body = nn.Sequential(
            nn.Dropout(0.2),
            leaky(channels, 64),
            leaky(64, 64),
            leaky(64, 64, stride=2),
            nn.Dropout(0.5),
            leaky(64, 128),
            leaky(128, 128),
            leaky(128, 128, stride=2),
            nn.Dropout(0.5),
            leaky(128, 256),
            leaky(256, 128, kernel=1),
            leaky(128, 64, kernel=1),
            GlobalAverage(),
        )
        super().__init__(body, 64, num_classes)
        initialise(self, slope=0.2)


class LLPGANFeatureDiscriminator(Discriminator):
    """LLP-GAN's discriminator of feature vectors: dense 128, 128, 64 with leaky ReLU 0.2."""

    def __init__(self, input_shape: Shape, num_classes: int) -> None:
        widths = [size_of(input_shape), 128, 128, 64]
        super().__init__(dense(widths, slope=0.2), 64, num_classes)
        initialise(self, slope=0.2)


class Generator(nn.Module):
    """LLP-GAN's generator: fakes from noise ``z``, uniform in ``[-1, 1]^100``."""

    noise_size = 100

    def draw(self, number: int, generator: torch.Generator | None = None) -> Tensor:
        """``number`` fakes, from noise drawn on the device of the weights."""
        weight = next(self.parameters())
        size = (number, self.noise_size)
        z = torch.rand(size, generator=generator, device=weight.device, dtype=weight.dtype)
        fakes: Tensor = self(2 * z - 1)
        return fakes


class LLPGANGenerator(Generator):
    """LLP-GAN's generator of images ``(n, C, H, W)`` in ``[-1, 1]``.

    Dense to a grid of 512 channels, then three transposed 5×5 convolutions of stride 2 to 256, 128
    and C channels; batch norm by channel and leaky ReLU 0.2 between them, tanh at the end. The grid
    is 4 × 4 for 32 × 32 images. For other sizes it is the smallest that covers the image, at least
    2 × 2, and the excess is cropped evenly.
    """

    def __init__(self, input_shape: Shape) -> None:
        super().__init__()
        channels, *self.size = image_shape(input_shape, "llp-gan")
        self.grid = [max(2, -(-side // 8)) for side in self.size]
        self.dense = nn.Linear(self.noise_size, 512 * self.grid[0] * self.grid[1], bias=False)

        # With these paddings every side doubles exactly.
        def up(inputs: int, outputs: int, bias: bool = False) -> nn.ConvTranspose2d:
            return nn.ConvTranspose2d(inputs, outputs, 5, 2, 2, output_padding=1, bias=bias)

        self.body = nn.Sequential(
            *(nn.BatchNorm2d(512), nn.LeakyReLU(0.2), up(512, 256)),
            *(nn.BatchNorm2d(256), nn.LeakyReLU(0.2), up(256, 128)),
            *(nn.BatchNorm2d(128), nn.LeakyReLU(0.2), up(128, channels, bias=True), nn.Tanh()),
        )
        initialise(self, slope=0.2)

    def forward(self, z: Tensor) -> Tensor:
        """Fakes ``(n, C, H, W)`` from noise ``(n, 100)``."""
        x: Tensor = self.body(self.dense(z).unflatten(1, (512, *self.grid)))
        height, width = self.size
        top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
        return x[:, :, top : top + height, left : left + width]


class LLPGANFeatureGenerator(Generator):
    """LLP-GAN's generator of feature vectors: dense 128, 128, leaky ReLU 0.2, a linear output."""

    def __init__(self, input_shape: Shape) -> None:
        super().__init__()
        hidden = dense([self.noise_size, 128, 128], slope=0.2)
        self.body = nn.Sequential(hidden, nn.Linear(128, size_of(input_shape)))
        initialise(self, slope=0.2)

    def forward(self, z: Tensor) -> Tensor:
        """Fakes ``(n, D)`` from noise ``(n, 100)``."""
        fakes: Tensor = self.body(z)
        return fakes


def discriminator_for(input_shape: Shape, num_outputs: int) -> Discriminator:
    """LLP-GAN's discriminator of images or features; one output counts as two classes."""
    of_images = len(shape_of(input_shape)) == 3
    kind = LLPGANDiscriminator if of_images else LLPGANFeatureDiscriminator
    return kind(input_shape, max(2, whole("num_outputs", num_outputs)))


def generator_for(input_shape: Shape) -> Generator:
    """LLP-GAN's generator of images or features.

    >>> generator_for((3, 72, 90)).draw(2).shape
    torch.Size([2, 3, 72, 90])
    """
    of_images = len(shape_of(input_shape)) == 3
    return LLPGANGenerator(input_shape) if of_images else LLPGANFeatureGenerator(input_shape)
