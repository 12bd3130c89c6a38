"""Features for models that have to learn from a few dozen counts.

A network needs more counts than a person gives in the first hour. So images get fixed descriptors,
and the principal components of all items, counted or not, are the features.
"""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

_LANDMARKS = 1000
_COMPONENTS = 64
_ORIENTATIONS = 8
_LEVELS = 4
_SMALL = 16  # images of at most this side are compared pixel by pixel
_MIRRORED = 0.3


class Features:
    r"""Principal components of a Gaussian kernel over the items: ``(R, D)`` from their inputs.

    The kernel's width is the median distance between items. Beyond a thousand items, a random
    thousand of them represent all (the Nyström method). It is scikit-learn's ``KernelPCA`` in a few
    lines: the page opens without the second that importing that takes.

    Args:
        inputs: Inputs of all items: uint8 images ``(R, C, H, W)``, or rows ``(R, D)``.
        seed: Seed for the choice of a thousand items.

    >>> rows = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    >>> Features(rows)(rows[:3]).shape
    torch.Size([3, 49])
    """

    def __init__(self, inputs: Tensor, seed: int = 0) -> None:
        self._images = inputs.dim() == 4
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(inputs)))
        self._landmarks = self._described(inputs[order[:_LANDMARKS].sort().values])
        distances = torch.cdist(self._landmarks, self._landmarks).square()
        self._width = float(distances.median()) or 1.0
        kernel = torch.exp(-distances / self._width)
        self._mean = kernel.mean(0)
        centred = kernel - self._mean - self._mean[:, None] + self._mean.mean()
        values, vectors = torch.linalg.eigh(centred)  # ascending
        kept = max(1, min(_COMPONENTS, int((values > 1e-9 * len(values)).sum())))
        spread = values[-kept:].clamp(min=1e-9)
        # Scaled so that the features of an item have a length of about one.
        self._axes = vectors[:, -kept:] / spread.sqrt() / (spread.sum() / len(values)).sqrt()

    def __call__(self, inputs: Tensor) -> Tensor:
        """The features of the same items or of others, float64 ``(R, D)``."""
        return torch.cat([self._projected(batch) for batch in inputs.split(1024)])

    def _projected(self, inputs: Tensor) -> Tensor:
        distances = torch.cdist(self._described(inputs), self._landmarks).square()
        kernel = torch.exp(-distances / self._width)
        centred = kernel - kernel.mean(1, keepdim=True) - self._mean + self._mean.mean()
        projected: Tensor = centred @ self._axes
        return projected

    def _described(self, inputs: Tensor) -> Tensor:
        return (describe(inputs) if self._images else inputs).double()


def describe(images: Tensor) -> Tensor:
    """Edges and colours of images, float32 ``(R, D)``.

    Very small images are described by their pixels. For larger ones, the descriptors of the image
    and of its mirror image are replaced by their sum and their difference; the difference has less
    weight, because most things look alike from both sides.

    Args:
        images: uint8 ``(R, C, H, W)``.
    """
    if max(images.shape[2:]) <= _SMALL:
        return images.flatten(1) / 255
    x, mirrored = _edges_and_colours(images), _edges_and_colours(images.flip(-1))
    return torch.cat([x + mirrored, _MIRRORED * (x - mirrored)], 1) / 2


def _edges_and_colours(images: Tensor) -> Tensor:
    """Histograms of oriented gradients (Dalal and Triggs, CVPR 2005), and colours by place."""
    x = images.float() / 255
    padded = functional.pad(x, (1, 1, 1, 1), mode="replicate")
    dx = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    dy = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    strength, channel = (dx.square() + dy.square()).max(1, keepdim=True)  # (R, 1, H, W)
    angle = torch.atan2(dy, dx).gather(1, channel) % math.pi
    # An edge between two directions counts for both, in proportion.
    directions = torch.arange(_ORIENTATIONS).view(1, -1, 1, 1)
    gap = (angle * (_ORIENTATIONS / math.pi) - directions).abs()
    share = (1 - torch.minimum(gap, _ORIENTATIONS - gap)).clamp(min=0)  # angles wrap around
    edges = strength.sqrt() * share  # (R, O, H, W)
    blocks = [_blocks(edges, side) for side in (4, 8)]
    return torch.cat([*blocks, _colours(x), functional.avg_pool2d(x, 8).flatten(1)], 1)


def _blocks(edges: Tensor, side: int) -> Tensor:
    """Histograms of cells, normalised in overlapping squares of two by two cells."""
    cells = functional.avg_pool2d(edges, side)
    squares = functional.unfold(cells, 2)  # (R, 4 O, number of squares)
    return 5 * functional.normalize(squares, dim=1, eps=0.02).clamp(max=0.2).flatten(1)


def _colours(x: Tensor) -> Tensor:
    """The square root of the share of pixels of each colour, scaled, ``(R, LEVELS ** C)``."""
    level = (x * _LEVELS).long().clamp(max=_LEVELS - 1)  # (R, C, H, W)
    weights = _LEVELS ** torch.arange(x.shape[1]).view(1, -1, 1, 1)
    colour = (level * weights).sum(1).flatten(1)  # (R, H W)
    counts = torch.zeros(len(x), _LEVELS ** x.shape[1])
    counts.scatter_add_(1, colour, torch.ones(colour.shape))
    return 8 * (counts / colour.shape[1]).sqrt()
