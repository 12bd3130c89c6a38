"""Data sets: built in, downloaded by the user, or the user's own tables.

:func:`load` gives a :class:`DataSet` by name; :data:`DATASETS` lists them. :class:`Table`,
:class:`FeatureEncoder` and :class:`ImageFiles` are the pieces that tables are made of.
"""

from llpkit.datasets._base import DataSet
from llpkit.datasets._counts import CountColumns
from llpkit.datasets._features import FeatureEncoder
from llpkit.datasets._inputs import BadImage, ImageFiles, Inputs
from llpkit.datasets._registry import DATASETS, Entry, load
from llpkit.datasets._table import Table
from llpkit.datasets.image_table import image_files

__all__ = [
    "DATASETS",
    "BadImage",
    "CountColumns",
    "DataSet",
    "Entry",
    "FeatureEncoder",
    "ImageFiles",
    "Inputs",
    "Table",
    "image_files",
    "load",
]
