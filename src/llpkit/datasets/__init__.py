"""Data sets: built in, downloaded by the user, or the user's own tables.

:func:`load` returns a :class:`DataSet` by name; :data:`DATASETS` lists them all, and
:func:`register` adds one.
"""

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
from llpkit.datasets.base import DataSet, in_random_bags
from llpkit.datasets.files import data_folder
from llpkit.datasets.image_table import image_files
from llpkit.datasets.images import BadImage, ImageFiles, Inputs
from llpkit.datasets.parquet_images import ParquetImages, table_without_images, write_images
from llpkit.datasets.registry import DATASETS, Entry, load, register

__all__ = [
    "DATASETS",
    "BadImage",
    "DataSet",
    "Entry",
    "ImageFiles",
    "Inputs",
    "ParquetImages",
    "adult",
    "cifar10",
    "data_folder",
    "digits",
    "fashion_mnist",
    "feature_table",
    "group_photos",
    "image_files",
    "image_table",
    "in_random_bags",
    "load",
    "register",
    "synthetic",
    "table_without_images",
    "write_images",
]
