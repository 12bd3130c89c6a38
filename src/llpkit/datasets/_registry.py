"""All data sets by name, and the one function that loads them."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llpkit.datasets import (
    adult,
    cifar10,
    digits,
    fashion_mnist,
    feature_table,
    group_photos,
    image_table,
    synthetic,
)
from llpkit.datasets._base import BagSize, DataSet
from llpkit.datasets._words import did_you_mean
from llpkit.errors import LLPError

_COMMON = ("data_dir", "bag_size", "seed")


@dataclass(frozen=True)
class Entry:
    """A data set that :func:`load` knows.

    Args:
        loader: Gives the :class:`DataSet`; its keyword arguments are the options.
        summary: One line on what it is.
        source: Where to get it; empty if nothing is to be got.
        place: What to put into the data folder; empty if nothing.
    """

    loader: Callable[..., DataSet]
    summary: str
    source: str = ""
    place: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """The options and their defaults; ``inspect.Parameter.empty`` where one must be given."""
        parameters = inspect.signature(self.loader).parameters
        return {name: p.default for name, p in parameters.items() if name not in _COMMON}

    @property
    def random_bags(self) -> bool:
        """Whether ``bag_size`` and ``seed`` make the bags; else it has bags of its own."""
        return "bag_size" in inspect.signature(self.loader).parameters


DATASETS: dict[str, Entry] = {
    "digits": Entry(
        digits.digits, "1,797 handwritten digits of 8 x 8 pixels, odd against even; built in"
    ),
    "synthetic": Entry(
        synthetic.synthetic, "Gaussian classes at a stated distance, in any dimension; built in"
    ),
    "cifar10": Entry(
        cifar10.cifar10,
        "32 x 32 colour photos, bird against cat as in the paper, or any classes of the ten",
        cifar10.SOURCE,
        cifar10.PLACE,
    ),
    "group-photos": Entry(
        group_photos.group_photos,
        "the paper's faces: 1,913 group photos as bags, how many of the faces are women",
        group_photos.SOURCE,
        group_photos.PLACE,
    ),
    "fashion-mnist": Entry(
        fashion_mnist.fashion_mnist,
        "28 x 28 grey images of clothes, pullover against coat or any classes of the ten",
        fashion_mnist.SOURCE,
        fashion_mnist.PLACE,
    ),
    "adult": Entry(
        adult.adult,
        "48,842 people of the 1994 census: who earns more than 50,000 dollars",
        adult.SOURCE,
        adult.PLACE,
    ),
    "image-table": Entry(
        image_table.image_table,
        "your images: a CSV or Parquet table with a bag, an image path and counts",
    ),
    "feature-table": Entry(
        feature_table.feature_table,
        "your table: CSV or Parquet with a bag, counts, numbers and categories",
    ),
}


def load(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    bag_size: BagSize | None = None,
    seed: int = 0,
    **options: Any,
) -> DataSet:
    """Load a data set by name.

    Args:
        name: A key of :data:`DATASETS`.
        data_dir: The folder with the data; the environment variable ``LLPKIT_DATA`` or the user's
            cache folder unless given.
        bag_size: Instances in a random bag: a number, or the ends of their range; 1 to 12 unless
            given. A data set with bags of its own takes none.
        seed: For the random bags.
        options: The data set's own options, see :attr:`Entry.options`.

    >>> load("digits", bag_size=8, positive=[8]).bags[0].size
    8
    """
    if name not in DATASETS:
        raise LLPError(f"there is no data set {name!r}; {did_you_mean(name, DATASETS)}")
    entry = DATASETS[name]
    known = entry.options
    for option in options:
        if option not in known:
            raise LLPError(f"{name} has no option {option!r}; {did_you_mean(option, known)}")
    needed = [o for o, default in known.items() if default is inspect.Parameter.empty]
    if missing := [option for option in needed if option not in options]:
        raise LLPError(f"{name} needs the option {missing[0]!r}; it must have {', '.join(needed)}")
    if bag_size is not None and not entry.random_bags:
        raise LLPError(f"bag_size = {bag_size!r} but {name} has bags of its own; leave it out")
    common = {"data_dir": data_dir, "bag_size": bag_size, "seed": seed}
    parameters = inspect.signature(entry.loader).parameters
    return entry.loader(**{k: v for k, v in common.items() if k in parameters}, **options)
