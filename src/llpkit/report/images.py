"""Small images inside a page, as ``data:`` addresses."""

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from llpkit.errors import LLPError

CRISP = 40  # images up to this side are enlarged with square pixels
LARGEST = 112  # larger images are reduced to this side: the page must stay small


def data_uri(image: NDArray[Any], place: str) -> str:
    """An image ``(C, H, W)`` as a ``data:`` address: PNG when small, JPEG when larger."""
    array = np.asarray(image)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[0] not in (1, 3):
        raise LLPError(
            f"the image of {place} has shape {array.shape} and type {array.dtype}; "
            "pass uint8 of shape (1, H, W) or (3, H, W)"
        )
    picture = Image.fromarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0))
    stream = io.BytesIO()
    if is_crisp(array):
        picture.save(stream, "PNG", optimize=True)
        kind = "png"
    else:
        picture.thumbnail((LARGEST, LARGEST))
        picture.save(stream, "JPEG", quality=82)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


def is_crisp(image: NDArray[Any]) -> bool:
    """Whether an image is small enough to be shown with square pixels."""
    return bool(max(image.shape[1:]) <= CRISP)
