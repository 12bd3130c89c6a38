"""Inputs by row: tensors, or image files that are decoded on demand.

Image sizes are height and width, in that order, as in the shape ``(C, H, W)`` of a tensor: in
arguments, messages and the command line's ``--image-size``.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit._validation import option, whole
from llpkit.errors import LLPError
from llpkit.files import check_limit, check_regular, limit

Size = tuple[int, int]
Pixels = NDArray[np.uint8]

# Pillow's other formats include EPS, which passes the file to an interpreter.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_CHUNK = 64
_LARGEST = 2**14


class BadImage(LLPError):
    """An image that is missing or cannot be decoded."""


class ImageFiles:
    """Images that stay in their files until they are loaded, one per row.

    Args:
        paths: The file of every row.
        size: ``(height, width)`` to resize images to. Without it all must have the size of the
            first readable image.
        channels: 3 for colour, 1 for grey.
        rows: Row numbers in the user's table, counted from 0, for messages.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        size: Size | None = None,
        channels: int = 3,
        rows: Sequence[int] | None = None,
    ) -> None:
        self.paths = [Path(path) for path in paths]
        self.rows = range(len(self.paths)) if rows is None else rows
        self._check_length()
        if channels not in (1, 3):
            raise LLPError(f"channels = {channels!r}; give 3 for colour or 1 for grey")
        if size is not None:
            if not isinstance(size, Sequence) or len(size) != 2:
                raise LLPError(f"{option('image_size')} = {size!r}; give height and width")
            size = (
                whole(f"{option('image_size')}", size[0], 1, _LARGEST),
                whole(f"{option('image_size')}", size[1], 1, _LARGEST),
            )
        self.channels = channels
        # Without a size, an image that differs from the first is an error, not resized.
        self.resize = size is not None
        self.size = size or self._first_size()

    def _check_length(self) -> None:
        if not self.paths or len(self.rows) != len(self.paths):
            found = f"{len(self.paths)} paths and {len(self.rows)} rows"
            raise LLPError(f"there are {found}; give one path per row, and at least one")

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        height, width = self.size
        return f"ImageFiles({len(self)} images, {self.channels} x {height} x {width})"

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(R, C, H, W)`` of all images together."""
        return len(self), self.channels, *self.size

    @property
    def nbytes(self) -> int:
        """Memory that all images take when loaded, one byte per pixel and channel."""
        return int(np.prod(self.shape))

    def load(self, rows: Iterable[int] | Tensor) -> Tensor:
        """The images of these rows, uint8 ``(n, C, H, W)``."""
        chosen = [int(row) for row in rows]
        images = np.empty((len(chosen), *self.shape[1:]), np.uint8)
        for image, row in zip(images, chosen, strict=True):
            image[:] = self._read(row, self.size)
        return torch.from_numpy(images)

    def bad_rows(self) -> dict[int, str]:
        """The reason for each missing or unreadable image, by its position here."""
        bad: dict[int, str] = {}

        def check(rows: range) -> None:
            for row in rows:
                try:
                    self._read(row, self.size, remedy="")
                except BadImage as error:
                    bad[row] = str(error)

        self._over_all(check)
        return dict(sorted(bad.items()))

    def select(self, rows: Iterable[int] | Tensor) -> "ImageFiles":
        """Only the files of these rows; messages keep their original row numbers."""
        chosen = [int(row) for row in rows]
        part = ImageFiles.__new__(ImageFiles)
        vars(part).update(vars(self))
        part.paths = [self.paths[row] for row in chosen]
        part.rows = [self.rows[row] for row in chosen]
        return part

    def _over_all(self, work: Callable[[range], None]) -> None:
        """Run ``work`` on all rows in chunks, in threads: Pillow decodes without Python's lock."""
        chunks = [range(len(self))[i : i + _CHUNK] for i in range(0, len(self), _CHUNK)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            try:
                list(pool.map(work, chunks))
            except BaseException:  # an interrupt must not wait for all remaining images
                pool.shutdown(cancel_futures=True)
                raise

    def _first_size(self) -> Size:
        failed: BadImage | None = None
        for row in range(len(self)):
            try:
                _, height, width = self._read(row, None).shape
                return height, width
            except BadImage as error:
                # If no image can be read, the first one is reported.
                failed = failed or error
        assert failed is not None  # there is at least one row
        raise failed

    def _read(self, row: int, size: Size | None, remedy: str | None = None) -> Pixels:
        if remedy is None:
            remedy = f"; put the right file there, or leave its bag out with {option('skip_bad')}"
        name, image = self._pixels(row, size if self.resize else None, remedy)
        if size is not None and image.shape[1:] != size:
            raise LLPError(
                f"{name} is {_by(image.shape[1:])} pixels (height x width) but the first image is "
                f"{_by(size)}; give the size that all are resized to with {option('image_size')}"
            )
        return image

    def _pixels(self, row: int, size: Size | None, remedy: str) -> tuple[str, Pixels]:
        """The name of an image in messages, and its pixels."""
        name = f"row {self.rows[row] + 1}: {self.paths[row]}"
        return name, read_image(self.paths[row], name, self.channels, size, remedy=remedy)


def read_image(
    source: Path | bytes,
    name: str,
    channels: int = 3,
    size: Size | None = None,
    *,
    remedy: str = "; get it again from its source",
) -> Pixels:
    """One image as uint8 ``(C, H, W)``, turned upright and resized to ``(height, width)``.

    ``name`` identifies it in errors. Of 16-bit images, only the upper eight bits are kept.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with open_image(source, name) as opened:
            ImageOps.exif_transpose(opened, in_place=True)
            image: Image.Image = opened
            if image.mode.startswith("I;16"):
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            elif image.mode in ("I", "F"):
                raise BadImage(f"{name} has 32-bit pixels of unknown range; save it with 8 or 16")
            mode = "RGB" if channels == 3 else "L"
            if image.mode != mode:
                image = image.convert(mode)
            if size is not None and image.size != (size[1], size[0]):
                image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            pixels = np.array(image)
    except BadImage:
        raise
    except FileNotFoundError as error:
        raise BadImage(f"{name} does not exist{remedy}") from error
    except UnidentifiedImageError as error:
        raise BadImage(f"{name} is not an image that can be read{remedy}") from error
    except Exception as error:  # Pillow's decoders raise errors of all kinds for damaged files
        raise BadImage(f"{name} cannot be read as an image: {error}{remedy}") from error
    return pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1)


def open_image(source: Path | bytes, name: str, formats: tuple[str, ...] = _FORMATS) -> Any:
    """Open an image, reading only its header; too many pixels are an error."""
    from PIL import Image

    if isinstance(source, Path):
        check_regular(source)
    most = limit("LLPKIT_MAX_PIXELS")
    if most > (Image.MAX_IMAGE_PIXELS or most):
        Image.MAX_IMAGE_PIXELS = most  # the user's limit is above Pillow's
    image, pixels = None, most + 1
    with contextlib.suppress(Image.DecompressionBombError, Image.DecompressionBombWarning):
        file = BytesIO(source) if isinstance(source, bytes) else source
        image = Image.open(file, formats=formats)
        pixels = image.width * image.height
    try:
        check_limit("LLPKIT_MAX_PIXELS", pixels, f"{name} has", "pixels")
    except LLPError as error:
        if image is not None:
            image.close()
        raise BadImage(str(error)) from error
    return image


def _by(shape: Any) -> str:
    height, width = shape
    return f"{height} x {width}"


Inputs = Tensor | ImageFiles
"""Tensor: uint8 images ``(R, C, H, W)`` or float features ``(R, D)``; or images in files."""
