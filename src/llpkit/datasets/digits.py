"""Scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels, no download."""

from collections.abc import Collection

import numpy as np
import torch

from llpkit._validation import whole
from llpkit.datasets.base import BagSize, DataSet, in_random_bags
from llpkit.datasets.registry import register
from llpkit.errors import LLPError

ODD = (1, 3, 5, 7, 9)
_TRAINING = 1500
"""The first rows are the training split where there is one; scikit-learn defines none."""


@register("digits", summary="1,797 handwritten digits of 8 x 8 pixels, odd against even; built in")
def digits(
    *,
    bag_size: BagSize | None = None,
    seed: int = 0,
    positive: Collection[int] = ODD,
    classes: int = 2,
) -> DataSet:
    """Digits in random bags.

    Args:
        bag_size: Instances per bag: a number, or the ends of a range; 1 to 12 by default.
        seed: Seed for the bags.
        positive: The digits that count as positive; the odd ones by default.
        classes: 2, or 10 for one class per digit.
    """
    from sklearn.datasets import load_digits

    pixels, digit = load_digits(return_X_y=True)  # 0 … 16
    images = torch.from_numpy(np.rint(pixels * (255 / 16)).astype(np.uint8)).view(-1, 1, 8, 8)
    if classes == 10:
        if tuple(positive) != ODD:
            raise LLPError("positive implies two classes; leave out positive or classes=10")
        names, labels = [str(k) for k in range(10)], digit
    elif classes == 2:
        names, labels = _two_classes(positive), np.isin(digit, list(positive))
    else:
        raise LLPError(f"classes = {classes!r}; give 2, or 10 for one class per digit")
    truth = torch.from_numpy(labels.astype(np.int64))
    # Rows are ordered by writer, so the last ones were written by others.
    test = torch.arange(len(truth)) >= _TRAINING
    return in_random_bags("digits", images, truth, names, bag_size, seed, test=test)


def _two_classes(positive: Collection[int]) -> list[str]:
    if not isinstance(positive, Collection) or isinstance(positive, str):
        raise LLPError(f"positive = {positive!r}; give a list of digits")
    chosen = {whole("a digit in positive", k, 0, 9) for k in positive}
    if not 0 < len(chosen) < 10:
        raise LLPError(f"positive = {sorted(chosen)}; give some digits, but not all ten")
    if chosen == set(ODD):
        return ["even", "odd"]
    return [", ".join(map(str, sorted(part))) for part in (set(range(10)) - chosen, chosen)]
