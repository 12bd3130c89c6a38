r"""Networks by name: plain and residual classifiers, and the pair of LLP-GAN.

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
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from llpkit._registry import Registry, check_options
from llpkit.networks.layers import Classifier, Shape
from llpkit.networks.llp_gan import (
    Discriminator,
    Generator,
    LLPGANDiscriminator,
    LLPGANFeatureDiscriminator,
    LLPGANFeatureGenerator,
    LLPGANGenerator,
    discriminator_for,
    generator_for,
)
from llpkit.networks.plain import MLP, ConvLarge, Linear, SmallCNN
from llpkit.networks.residual import ResNet9, ResNet18, WideResNet

Builder = Callable[..., nn.Module]


class Entry(NamedTuple):
    """A registered network: a summary, and ``build(input_shape, num_outputs, **options)``."""

    summary: str
    build: Builder


NETWORKS: Registry[Entry] = Registry("network")


def register(name: str, summary: str) -> Callable[[Builder], Builder]:
    """Add a network: a decorator of ``build(input_shape, num_outputs, **options)``."""

    def add(build: Builder) -> Builder:
        NETWORKS.add(name, Entry(summary, build))
        return build

    return add


for _name, _summary, _build in (
    ("conv-large", "nine convolutions, for images of 16 x 16 or more", ConvLarge),
    ("small-cnn", "a small CNN that is quick on a CPU, for images of any size", SmallCNN),
    ("resnet-9", "a small, fast residual network, for images of 16 x 16 or more", ResNet9),
    ("resnet-18", "ResNet-18 with a 3 x 3 stem, for images of 16 x 16 or more", ResNet18),
    ("wrn-28-2", "wide ResNet of depth 28 and width 2, for images of 8 x 8 or more", WideResNet),
    ("mlp", "dense layers for features; hidden=(64, 64)", MLP),
    ("linear", "logistic regression", Linear),
    ("llp-gan", "LLP-GAN's discriminator, for images or features", discriminator_for),
):
    register(_name, _summary)(_build)


def make(name: str, *, input_shape: Shape, num_outputs: int, **options: Any) -> nn.Module:
    """A network by name, with fresh weights.

    Args:
        name: One of :data:`NETWORKS`.
        input_shape: Shape of one input: ``(C, H, W)`` or ``(D,)``.
        num_outputs: 1 for binary labels, else the number of classes. For binary labels ``llp-gan``
            has two logits, all others one.
        **options: Further options of the network, such as ``hidden`` of ``mlp``.

    >>> import torch
    >>> make("mlp", input_shape=(30,), num_outputs=3, hidden=(16,))(torch.zeros(2, 30)).shape
    torch.Size([2, 3])
    """
    build = NETWORKS[name].build
    known = [k for k in inspect.signature(build).parameters if k not in _ALWAYS]
    check_options(f"network {name!r}", options, known)
    return build(input_shape, num_outputs, **options)


_ALWAYS = ("input_shape", "num_outputs")


__all__ = [
    "MLP",
    "NETWORKS",
    "Classifier",
    "ConvLarge",
    "Discriminator",
    "Entry",
    "Generator",
    "LLPGANDiscriminator",
    "LLPGANFeatureDiscriminator",
    "LLPGANFeatureGenerator",
    "LLPGANGenerator",
    "Linear",
    "ResNet9",
    "ResNet18",
    "Shape",
    "SmallCNN",
    "WideResNet",
    "discriminator_for",
    "generator_for",
    "make",
    "register",
]
