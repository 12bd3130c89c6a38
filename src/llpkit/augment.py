r"""Augmentation: random changes to a batch of images, each image with its own draw.

An image is flipped, moved by one affine map, blurred, changed in colour and partly covered, in that
order, on the device of its batch. With :math:`u` uniform in :math:`[-1, 1]`, drawn separately each
time:

- *flip*: left and right are swapped with probability 1/2, and with *vertical* so are top and
  bottom, independently;
- *rotate*, *scale*, *shift*: a rotation by :math:`u` times ``rotate`` degrees, a magnification of
  :math:`1 + u` ``scale``, a shift along each side by :math:`u` ``shift`` of its length; beyond its
  edges the image is mirrored; a shift alone is by whole pixels, so nothing is blurred;
- *blur*: a Gaussian whose standard deviation is :math:`|u|` ``blur`` of the shorter side;
- *colour*: channel :math:`c` becomes :math:`g_c\,(m + k\,(x_c - m))` with the image's mean
  :math:`m`, a contrast :math:`k = 1 + u` ``colour``, and a gain :math:`g_c` that is a brightness
  :math:`1 + u` ``colour`` times, in colour images, a tint :math:`1 + u` ``colour`` / 2;
- *cutout*: a square whose side is ``cutout`` of the shorter side, centred anywhere in the image,
  gets the image's mean colour.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from llpkit._registry import Registry, first_line
from llpkit._validation import flag, number
from llpkit.errors import LLPError

_LIMITS = {"blur": 0.25, "colour": 1.0, "shift": 0.5, "rotate": 180.0, "scale": 0.9, "cutout": 1.0}
_FLIP, _ROTATE, _SCALE, _RIGHT, _DOWN, _BLUR, _CONTRAST, _BRIGHTNESS, _TINT = range(9)


@dataclass(frozen=True)
class Augment:
    """Random changes to a batch of images; the module's docstring explains each setting.

    Zero leaves a change out. The default is :meth:`paper`.

    >>> images = torch.rand(8, 3, 32, 32)
    >>> augment = Augment(flip=True, blur=0, colour=0.3, rotate=6)
    >>> augment(images, torch.Generator().manual_seed(0)).shape
    torch.Size([8, 3, 32, 32])
    """

    flip: bool = True
    blur: float = 0.03
    colour: float = 0.2
    shift: float = 0.0
    rotate: float = 0.0
    scale: float = 0.0
    cutout: float = 0.0
    vertical: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value, limit = getattr(self, field.name), _LIMITS.get(field.name)
            if limit is None:
                flag(field.name, value)
            else:
                number(field.name, value, 0, limit)

    @classmethod
    def paper(cls) -> "Augment":
        """The paper's augmentation: flips, blur and colour."""
        return cls()

    @classmethod
    def authors(cls) -> "Augment":
        """As in the code of the paper's authors: like paper, with vertical flips."""
        return cls(vertical=True)

    @classmethod
    def geometric(cls) -> "Augment":
        """Flips, small shifts, rotations and scalings, contrast and colour."""
        return cls(blur=0.0, shift=0.05, rotate=6.0, scale=0.05)

    @classmethod
    def weak(cls) -> "Augment":
        """Flips, and shifts by up to an eighth of the side in whole pixels."""
        return cls(blur=0.0, colour=0.0, shift=0.125)

    @classmethod
    def strong(cls) -> "Augment":
        """Everything at once: flips, affine maps, colour and a square cut out."""
        return cls(blur=0.0, colour=0.5, shift=0.125, rotate=30.0, scale=0.2, cutout=0.5)

    @classmethod
    def none(cls) -> "Augment":
        """No change at all."""
        return cls(flip=False, blur=0.0, colour=0.0)

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Changed images of the same shape, type and device.

        Args:
            images: Floats in ``[0, 1]``, ``(n, C, H, W)``.
            generator: A generator on the device of the images; torch's global one by default.
        """
        return self.apply(images, self.draw(images, generator))

    def draw(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The random numbers for a batch, uniform in ``[0, 1)``: one row per image."""
        if images.dim() != 4 or not images.is_floating_point():
            raise LLPError(
                f"images are {images.dtype} of shape {tuple(images.shape)}; give floats in [0, 1] "
                "of shape (n, C, H, W), bytes divided by 255"
            )
        if generator is not None and generator.device.type != images.device.type:
            raise LLPError(
                f"the generator is on {generator.device} but the images are on {images.device}; "
                f"use torch.Generator({str(images.device)!r})"
            )
        # The draws of cut-out come last, so that the others do not depend on it.
        size = (images.shape[0], _TINT + images.shape[1] + (2 if self.cutout else 0))
        return torch.rand(size, generator=generator, device=images.device)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Change the images by these draws: deterministic, so it compiles as one graph."""
        if self == Augment.none():
            return images
        # Half precision is too coarse for coordinates and sums.
        x = images.float() if images.dtype in (torch.float16, torch.bfloat16) else images
        u = draws.to(x.dtype)[:, :, None, None]  # (n, 8 + C, 1, 1), or 10 + C
        if self.flip:
            x = torch.where(u[:, _FLIP : _FLIP + 1] < 0.5, x, x.flip(3))
        if self.vertical:
            # The next binary digit of the same draw, which is independent of the first.
            x = torch.where((2 * u[:, _FLIP : _FLIP + 1]).frac() < 0.5, x, x.flip(2))
        if self.rotate or self.scale or self.shift:
            x = self._move(x, u)
        if self.blur:
            x = self._blur(x, u)
        if self.colour:
            x = self._colour(x, u)
        if self.cutout:
            x = self._cut(x, u)
        return x.clamp_(0, 1).to(images.dtype)  # in place is safe: every change made a new tensor

    def _move(self, x: Tensor, u: Tensor) -> Tensor:
        height, width = x.shape[2:]
        signed = 2 * u - 1
        angle = math.radians(self.rotate) * signed[:, _ROTATE]  # (n, 1, 1)
        zoom = 1 + self.scale * signed[:, _SCALE]
        # grid_sample needs the source of each new pixel, hence the inverse map.
        cos, sin = angle.cos() / zoom, angle.sin() / zoom
        # Centres of the new pixels and their sources, in units of half a side from the middle.
        across = (2 * torch.arange(width, device=x.device, dtype=x.dtype) + 1) / width - 1
        down = (2 * torch.arange(height, device=x.device, dtype=x.dtype)[:, None] + 1) / height - 1
        # The ratio of sides makes this a rotation in pixels; otherwise it would shear.
        old_across = cos * across - sin * (height / width) * down
        old_down = sin * (width / height) * across + cos * down
        right, below = self.shift * signed[:, _RIGHT], self.shift * signed[:, _DOWN]
        if not (self.rotate or self.scale):
            right, below = (right * width).round() / width, (below * height).round() / height
        old_across, old_down = old_across - 2 * right, old_down - 2 * below
        grid = torch.stack((old_across, old_down), -1)  # (n, H, W, 2)
        return F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)

    def _blur(self, x: Tensor, u: Tensor) -> Tensor:
        largest = self.blur * min(x.shape[2:])
        reach = max(1, round(2 * largest))
        sigma = largest * (1 - u[:, _BLUR : _BLUR + 1])  # never zero
        # A symmetric kernel: each tap weighs two neighbours, so only half of it is computed.
        taps = [torch.exp(-0.5 * (k / sigma) ** 2) for k in range(reach + 1)]
        total = 2 * sum(taps) - 1
        for dim, pad in ((3, (reach, reach, 0, 0)), (2, (0, 0, reach, reach))):
            size, padded = x.shape[dim], F.pad(x, pad, mode="replicate")
            x = padded.narrow(dim, reach, size) * (taps[0] / total)
            for k in range(1, reach + 1):
                both = padded.narrow(dim, reach - k, size) + padded.narrow(dim, reach + k, size)
                x.addcmul_(both, taps[k] / total)
        return x

    def _colour(self, x: Tensor, u: Tensor) -> Tensor:
        signed = 2 * u - 1
        contrast = 1 + self.colour * signed[:, _CONTRAST : _CONTRAST + 1]  # (n, 1, 1, 1)
        gain = 1 + self.colour * signed[:, _BRIGHTNESS : _BRIGHTNESS + 1]
        if x.shape[1] > 1:
            gain = gain * (
                1 + self.colour / 2 * signed[:, _TINT : _TINT + x.shape[1]]
            )  # (n, C, 1, 1)
        mean = x.mean((1, 2, 3), keepdim=True)  # (n, 1, 1, 1)
        return torch.addcmul(gain * mean * (1 - contrast), x, gain * contrast)

    def _cut(self, x: Tensor, u: Tensor) -> Tensor:
        height, width = x.shape[2:]
        half = self.cutout * min(height, width) / 2
        down, across = (torch.arange(n, device=x.device) + 0.5 for n in (height, width))
        inside = ((down[:, None] - u[:, -2:-1] * height).abs() < half) & (
            (across - u[:, -1:] * width).abs() < half
        )  # (n, 1, H, W)
        return torch.where(inside, x.mean((2, 3), keepdim=True), x)


Augmentation = Callable[[Tensor], Tensor]
"""A function of a float batch ``(n, C, H, W)``."""


class Entry(NamedTuple):
    """A registered augmentation: a summary, and the function."""

    summary: str
    augment: Augmentation


AUGMENTATIONS: Registry[Entry] = Registry("augmentation")


def register(name: str, summary: str | None = None) -> Callable[[Augmentation], Augmentation]:
    """Add an augmentation: a decorator of a function of a float batch.

    The summary is the first line of its docstring by default.
    """

    def add(augment: Augmentation) -> Augmentation:
        line = first_line(augment) if summary is None else summary
        AUGMENTATIONS.add(name, Entry(line, augment))
        return augment

    return add


for _name in ("paper", "authors", "geometric", "weak", "strong", "none"):
    _preset = getattr(Augment, _name)
    register(_name, first_line(_preset))(_preset())
for _name in ("weak", "strong"):
    _no_flip = replace(getattr(Augment, _name)(), flip=False)
    register(f"{_name}-no-flip", f"Like {_name} without flips, for digits and letters.")(_no_flip)


def make(name: str) -> Augmentation:
    """An augmentation by name.

    >>> make("none") == Augment.none()
    True
    """
    return AUGMENTATIONS[name].augment
