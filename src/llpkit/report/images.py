"""Small images inside a page, as ``data:`` addresses."""

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CRISP = 40  # images up to this side are enlarged with square pixels
LARGEST = 112  # larger images are reduced to this side: the page must stay small


def is_picture(image: Any) -> bool:
    """Whether an array can be shown: uint8 ``(1, H, W)`` or ``(3, H, W)``."""
    return image.ndim == 3 and image.dtype == np.uint8 and len(image) in (1, 3)


def is_crisp(image: NDArray[np.uint8]) -> bool:
    """Whether a picture is small enough to be shown with square pixels."""
    return bool(max(image.shape[1:]) <= CRISP)


def data_uri(image: NDArray[np.uint8]) -> str:
    """A picture as a ``data:`` address: PNG when small, JPEG when larger."""
    picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
    stream = io.BytesIO()
    if is_crisp(image):
        picture.save(stream, "PNG", optimize=True)
        kind = "png"
    else:
        picture.thumbnail((LARGEST, LARGEST))
        picture.save(stream, "JPEG", quality=82)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
