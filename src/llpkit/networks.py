r"""Networks: ConvLarge, a small CNN, an MLP, a linear model, and the pair of LLP-GAN.

A network is built by name for the shape of one input, and takes a batch: images ``(n, C, H, W)`` or
features ``(n, D)``, scaled to roughly zero mean and unit variance. It returns logits ``(n,)`` for
one output and ``(n, K)`` for K. Any other ``nn.Module`` that does the same works too.

Weights are drawn when a network is built, from torch's global random numbers, with the variance of
He et al.: :math:`2 / ((1 + a^2)\, \text{fan-in})` before a leaky ReLU of slope :math:`a`. Nothing
here sets a seed; the caller does, and restores the global state:

>>> import torch
>>> with torch.random.fork_rng(devices=[]):
...     _ = torch.manual_seed(0)
...     network = make("small-cnn", input_shape=(1, 8, 8), num_outputs=1)
>>> network(torch.zeros(5, 1, 8, 8)).shape
torch.Size([5])

He, Zhang, Ren & Sun, *Delving deep into rectifiers*, ICCV 2015.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from llpkit._registry import Registry, did_you_mean
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


class ConvLarge(Classifier):
    """The "ConvLarge" of the semi-supervised literature, for images of 16 × 16 pixels or more.

    3 × (3×3-128), max-pool 2, dropout 0.5; 3 × (3×3-256), max-pool 2, dropout 0.5; 3×3-512 without
    padding, 1×1-256, 1×1-128; global average; dense. Batch norm and leaky ReLU 0.1 after every
    convolution, which therefore needs no bias. The paper refers to a list of layers that could not
    be checked, so its network may differ.

    In smaller images, batch norm would see a single value per channel if a batch is one instance.
    """

    def __init__(self, input_shape: Shape, num_outputs: int) -> None:
        channels = _image(input_shape, "conv-large", least=16)[0]
        body = nn.Sequential(
            *(_conv(i, 128, slope=0.1) for i in (channels, 128, 128)),
            nn.MaxPool2d(2),
            nn.Dropout(0.5),
            *(_conv(i, 256, slope=0.1) for i in (128, 256, 256)),
            nn.MaxPool2d(2),
            nn.Dropout(0.5),
            _conv(256, 512, padding=0, slope=0.1),
            _conv(512, 256, kernel=1, padding=0, slope=0.1),
            _conv(256, 128, kernel=1, padding=0, slope=0.1),
            _GlobalAverage(),
        )
        super().__init__(body, 128, num_outputs)
        _initialise(self, slope=0.1)


class SmallCNN(Classifier):
    """A CNN that trains in seconds on a CPU, for images of 4 × 4 pixels or more.

    3×3-32, then a max-pool and a 3×3 convolution of 64, 128, 128, … channels for every halving that
    leaves the shorter side at 4 pixels or more; batch norm and ReLU. The result is averaged to a
    2 × 2 grid, which keeps a rough sense of place, then dropout 0.5 and a dense layer.
    """

    def __init__(self, input_shape: Shape, num_outputs: int) -> None:
        channels, height, width = _image(input_shape, "small-cnn", least=4)
        layers: list[nn.Module] = [_conv(channels, 32)]
        wide = 32
        while min(height, width) >= 8:
            height, width, narrow, wide = height // 2, width // 2, wide, min(2 * wide, 128)
            layers += [nn.MaxPool2d(2), _conv(narrow, wide)]
        # Rounded up, so that two cells cover the side whatever its length.
        cell = (-(-height // 2), -(-width // 2))
        layers += [nn.AvgPool2d(cell, ceil_mode=True), nn.Flatten(), nn.Dropout(0.5)]
        super().__init__(nn.Sequential(*layers), 4 * wide, num_outputs)
        _initialise(self)


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
        widths = [_size(input_shape), *_widths(hidden)]
        super().__init__(_dense(widths, slope=0.0), widths[-1], num_outputs)
        _initialise(self)


class Linear(Classifier):
    """Logistic regression: one dense layer; images are flattened."""

    def __init__(self, input_shape: Shape, num_outputs: int) -> None:
        super().__init__(nn.Flatten(), _size(input_shape), num_outputs)
        _initialise(self)


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
        channels = _image(input_shape, "llp-gan")[0]

        def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
            layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)
            return nn.Sequential(layer, nn.LeakyReLU(0.2))

        body = nn.Sequential(
            nn.Dropout(0.2),
            conv(channels, 64),
            conv(64, 64),
            conv(64, 64, stride=2),
            nn.Dropout(0.5),
            conv(64, 128),
            conv(128, 128),
            conv(128, 128, stride=2),
            nn.Dropout(0.5),
            conv(128, 256),
            conv(256, 128, kernel=1),
            conv(128, 64, kernel=1),
            _GlobalAverage(),
        )
        super().__init__(body, 64, num_classes)
        _initialise(self, slope=0.2)


class LLPGANFeatureDiscriminator(Discriminator):
    """LLP-GAN's discriminator of feature vectors: dense 128, 128, 64 with leaky ReLU 0.2."""

    def __init__(self, input_shape: Shape, num_classes: int) -> None:
        widths = [_size(input_shape), 128, 128, 64]
        super().__init__(_dense(widths, slope=0.2), 64, num_classes)
        _initialise(self, slope=0.2)


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
        channels, *self.size = _image(input_shape, "llp-gan")
        self.grid = [max(2, -(-side // 8)) for side in self.size]
        self.dense = nn.Linear(self.noise_size, 512 * self.grid[0] * self.grid[1], bias=False)

        def up(inputs: int, outputs: int, bias: bool = False) -> nn.ConvTranspose2d:
            return nn.ConvTranspose2d(inputs, outputs, 5, 2, 2, output_padding=1, bias=bias)

        self.body = nn.Sequential(
            *(nn.BatchNorm2d(512), nn.LeakyReLU(0.2), up(512, 256)),
            *(nn.BatchNorm2d(256), nn.LeakyReLU(0.2), up(256, 128)),
            *(nn.BatchNorm2d(128), nn.LeakyReLU(0.2), up(128, channels, bias=True), nn.Tanh()),
        )
        _initialise(self, slope=0.2)

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
        hidden = _dense([self.noise_size, 128, 128], slope=0.2)
        self.body = nn.Sequential(hidden, nn.Linear(128, _size(input_shape)))
        _initialise(self, slope=0.2)

    def forward(self, z: Tensor) -> Tensor:
        """Fakes ``(n, D)`` from noise ``(n, 100)``."""
        fakes: Tensor = self.body(z)
        return fakes


def discriminator_for(input_shape: Shape, num_outputs: int) -> Discriminator:
    """LLP-GAN's discriminator of images or features; one output counts as two classes."""
    of_images = len(_shape(input_shape)) == 3
    kind = LLPGANDiscriminator if of_images else LLPGANFeatureDiscriminator
    return kind(input_shape, max(2, whole("num_outputs", num_outputs)))


def generator_for(input_shape: Shape) -> Generator:
    """LLP-GAN's generator of images or features.

    >>> generator_for((3, 72, 90)).draw(2).shape
    torch.Size([2, 3, 72, 90])
    """
    of_images = len(_shape(input_shape)) == 3
    return LLPGANGenerator(input_shape) if of_images else LLPGANFeatureGenerator(input_shape)


Builder = Callable[..., nn.Module]


class Entry(NamedTuple):
    """A registered network: a summary, and ``build(input_shape, num_outputs, **options)``."""

    summary: str
    build: Builder


NETWORKS: Registry[Entry] = Registry("network")


def register(name: str, summary: str) -> Callable[[Builder], Builder]:
    """Add a network: a decorator of ``build(input_shape, num_outputs, **options)``."""

    def add(build: Builder) -> Builder:
        NETWORKS.register(name, Entry(summary, build))
        return build

    return add


for _name, _summary, _build in (
    ("conv-large", "nine convolutions, for images of 16 x 16 or more", ConvLarge),
    ("small-cnn", "a small CNN that is quick on a CPU, for images of any size", SmallCNN),
    ("mlp", "dense layers for features; hidden=(64, 64)", MLP),
    ("linear", "logistic regression", Linear),
    ("llp-gan", "LLP-GAN's discriminator, for images or features", discriminator_for),
):
    NETWORKS.register(_name, Entry(_summary, _build))


def make(name: str, *, input_shape: Shape, num_outputs: int, **options: Any) -> nn.Module:
    """A network by name, with fresh weights.

    Args:
        name: One of :data:`NETWORKS`.
        input_shape: Shape of one input: ``(C, H, W)`` or ``(D,)``.
        num_outputs: 1 for binary labels, else the number of classes. For binary labels ``llp-gan``
            has two logits, all others one.
        **options: Further options of the network, such as ``hidden`` of ``mlp``.

    >>> make("mlp", input_shape=(30,), num_outputs=3, hidden=(16,))(torch.zeros(2, 30)).shape
    torch.Size([2, 3])
    """
    build = NETWORKS[name].build
    known = [k for k in inspect.signature(build).parameters if k not in _ALWAYS]
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known) if known else "it takes none"
            raise LLPError(f"network {name!r} has no option {option!r}; {hint}")
    return build(input_shape, num_outputs, **options)


_ALWAYS = ("input_shape", "num_outputs")


class _GlobalAverage(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))  # (n, C)


def _conv(
    inputs: int, outputs: int, kernel: int = 3, padding: int = 1, slope: float = 0.0
) -> nn.Sequential:
    """Convolution, batch norm, rectifier."""
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), _rectifier(slope))


def _dense(widths: Sequence[int], slope: float) -> nn.Sequential:
    """Dense layers of these widths; the first is that of the flattened input."""
    layers = [nn.Sequential(nn.Linear(i, o), _rectifier(slope)) for i, o in pairwise(widths)]
    return nn.Sequential(nn.Flatten(), *layers)


def _rectifier(slope: float) -> nn.Module:
    return nn.LeakyReLU(slope, inplace=True) if slope else nn.ReLU(inplace=True)


@torch.no_grad()
def _initialise(network: nn.Module, slope: float = 0.0) -> None:
    """Draw the weights after He et al.; the last layer has no rectifier after it."""
    kinds = nn.Linear | nn.Conv2d | nn.ConvTranspose2d
    layers = [module for module in network.modules() if isinstance(module, kinds)]
    for layer in layers:
        fan_in: float = layer.weight[0].numel()
        if isinstance(layer, nn.ConvTranspose2d):
            # Its first axis is the input channels; one tap in stride² reaches an output pixel.
            taps = layer.weight[0, 0].numel() / (layer.stride[0] * layer.stride[1])
            fan_in = layer.in_channels * taps
        gain = 1.0 if layer is layers[-1] else 2 / (1 + slope**2)
        layer.weight.normal_(0, (gain / fan_in) ** 0.5)
        if layer.bias is not None:
            layer.bias.zero_()


def _widths(hidden: Any) -> list[int]:
    if not isinstance(hidden, Sequence) or isinstance(hidden, str):
        raise LLPError(f"hidden = {hidden!r}; give the widths of the hidden layers, as (64, 64)")
    return [whole(f"hidden[{i}]", width) for i, width in enumerate(hidden)]


def _shape(input_shape: Any) -> tuple[int, ...]:
    if not isinstance(input_shape, Sequence) or len(input_shape) not in (1, 3):
        raise LLPError(
            f"input_shape = {input_shape!r}; give that of one input, (C, H, W) of an image or "
            "(D,) of features"
        )
    return tuple(whole(f"input_shape[{i}]", side) for i, side in enumerate(input_shape))


def _size(input_shape: Any) -> int:
    return math.prod(_shape(input_shape))


def _image(input_shape: Any, name: str, least: int = 1) -> tuple[int, int, int]:
    shape = _shape(input_shape)
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
