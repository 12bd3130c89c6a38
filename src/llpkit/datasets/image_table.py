"""A table of image files, one row per instance."""

import os
from pathlib import Path

import numpy as np
import torch

from llpkit._text import several
from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.datasets.base import DataSet
from llpkit.datasets.images import BadImage, ImageFiles, Size
from llpkit.datasets.parquet_images import ParquetImages, is_image_column, table_without_images
from llpkit.datasets.registry import register
from llpkit.errors import LLPError
from llpkit.tables import CountColumns, Table
from llpkit.tables.files import parquet_files


@register(
    "image-table", summary="your own images: a table with a bag column, image paths and counts"
)
def image_table(
    *,
    table: str | os.PathLike[str],
    bag: str,
    image: str,
    count_columns: CountColumns,
    image_root: str | os.PathLike[str] | None = None,
    image_size: Size | None = None,
    grey: bool = False,
    label: str | None = None,
    skip_bad: bool = False,
) -> DataSet:
    """A table of image files: a bag column, an image path, and counts.

    Images are decoded on demand. A Parquet file may hold the images themselves and exceed memory;
    see :class:`ParquetImages`. A missing or damaged image is an error that names its file and row;
    with ``skip_bad`` its bag is left out, and the notes list it.

    Args:
        table: The file: CSV, Parquet, Feather, JSON lines or Excel.
        bag: The column of bag names.
        image: The column of image paths, or of encoded images in a Parquet file.
        count_columns: The columns of counts; :func:`~llpkit.datasets.load` takes their options.
        image_root: The folder that paths are relative to; by default the table's folder.
        image_size: Height and width to resize images to; by default those of the first image.
        grey: Whether images are read as grey.
        label: The column of true labels, for evaluation only.
        skip_bad: Check all images first and leave out the bags of bad ones.
    """
    data = table_without_images(table, image)
    bags, truth, notes = count_columns.read_with_labels(data, bag, label)
    channels = 1 if grey else 3
    files = image_files(
        data, image, root=image_root, size=image_size, channels=channels, check=not skip_bad
    )
    names = count_columns.class_names_in(data)
    complete = DataSet("image-table", files, bags, truth, names, tuple(notes))
    return _without_bad(complete, files) if skip_bad else complete


def image_files(
    table: Table,
    column: str,
    *,
    root: str | os.PathLike[str] | None = None,
    size: Size | None = None,
    channels: int = 3,
    check: bool = True,
) -> ImageFiles:
    """The image files named in a column of a table; ``check`` makes sure that all exist.

    For a Parquet file with a column of encoded images, those images.
    """
    import pyarrow.compute as pc

    if column not in table.names and is_image_column(parquet_files(table.path)[0], column):
        return ParquetImages(table.path, column, size=size, channels=channels)

    home = table.path.parent if root is None else Path(os.path.expanduser(root))
    written = table.text(column)
    if written.null_count:
        row = pc.index(written.is_null(), True).as_py()
        raise LLPError(f"{table.cell(row, column)} is empty; give the path of its image")
    paths = [home / path for path in written.to_pylist()]
    for row, path in enumerate(paths):
        if check and not os.path.isfile(path):
            raise BadImage(
                f"{table.cell(row, column)}: there is no file {path}; correct it, name the folder "
                f"that paths are relative to with {option('image_root')}, or leave its bag out "
                f"with {option('skip_bad')}"
            )
    return ImageFiles(paths, size=size, channels=channels)


def _without_bad(data: DataSet, files: ImageFiles) -> DataSet:
    """The data set without the rows of bags that have a bad image."""
    bad = files.bad_rows()
    if not bad:
        return data
    bag_of_row = np.empty(data.bags.num_rows, np.int64)
    bag_of_row[data.bags.rows] = data.bags.bag_index
    # Reversed, so that the first bad image of a bag gives the reason.
    dropped = {int(bag_of_row[row]): reason for row, reason in reversed(bad.items())}
    if len(dropped) == len(data.bags):
        raise LLPError(f"every bag has a bad image; the first: {next(iter(bad.values()))}")
    kept = torch.tensor([b for b in range(len(data.bags)) if b not in dropped])
    rows = torch.from_numpy(np.flatnonzero(~np.isin(bag_of_row, list(dropped))))
    part = data.bags[kept]
    # Rows are renumbered without gaps: searchsorted gives the new number of each kept row.
    bags = Bags(
        part.offsets,
        part.evidence,
        rows=torch.searchsorted(rows, part.rows),
        ids=part.ids,
        num_rows=len(rows),
    )
    notes = list(data.notes)
    notes += [
        f"bag {data.bags.ids[b]!r} ({several(data.bags[b].size, 'row')}) is left out: {dropped[b]}"
        for b in sorted(dropped)
    ]
    truth = None if data.truth is None else data.truth[rows]
    return DataSet(data.name, files.select(rows), bags, truth, data.class_names, tuple(notes))
