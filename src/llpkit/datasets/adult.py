"""Adult: the census table of 1994, whether a person earns more than 50,000 dollars a year."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llpkit._registry import did_you_mean
from llpkit._validation import one_of
from llpkit.bags import Bags
from llpkit.datasets.base import BagSize, DataSet, in_random_bags
from llpkit.datasets.files import BROKEN, data_folder, first_of, not_found, unpacked
from llpkit.datasets.registry import register
from llpkit.errors import LLPError
from llpkit.tables import FeatureEncoder, Table

SOURCE = "the UCI repository, archive.ics.uci.edu/dataset/2/adult, has its two files"
SAVE_AS = "adult.data and adult.test, or adult.data.gz and adult.test.gz"

COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
FEATURES = tuple(name for name in COLUMNS if name not in ("fnlwgt", "income"))
"""All but the label and the census bureau's sampling weight, which does not describe the person."""
CLASSES = ("up to 50K", "more than 50K")

_PARTS = {"train": ("data",), "test": ("test",), "all": ("data", "test")}


@register(
    "adult",
    summary="48,842 people of the 1994 census: who earns more than 50,000 dollars",
    source=SOURCE,
    save_as=SAVE_AS,
    files=("adult.data", "adult.data.gz"),
)
def adult(
    *,
    data_dir: str | os.PathLike[str] | None = None,
    bag_size: BagSize | None = None,
    seed: int = 0,
    split: str = "train",
    key: str | None = None,
) -> DataSet:
    """Adult as features: standardised numbers and one-hot categories, fitted to the training part.

    No row is left out (32,561 for training, 16,281 for testing, with duplicates). A question mark
    is a missing value. The column ``fnlwgt`` is not a feature.

    Args:
        data_dir: Where to look; ``LLPKIT_DATA`` or the user's cache folder by default.
        bag_size: Instances per random bag: a number, or the ends of a range; 1 to 12 by default.
        seed: Seed for random bags.
        split: ``"train"`` (``adult.data``), ``"test"`` (``adult.test``) or ``"all"``, in that
            order.
        key: Instead of random bags, one bag for each combination of values in these columns, such
            as ``"occupation,education"``.
    """
    table = adult_table(split, data_dir)
    train = table if split == "train" else adult_table("train", data_dir)
    encoder = FeatureEncoder.fit(train, FEATURES, numeric=NUMBERS)
    inputs, truth = encoder.apply(table), torch.from_numpy(labels(table))
    if key is None:
        bags = in_random_bags("adult", inputs, truth, CLASSES, bag_size, seed).bags
    else:
        if bag_size is not None:
            raise LLPError(f"bag_size = {bag_size!r} but key = {key!r} makes the bags; give one")
        bags = Bags.from_labels(truth, groups(table, key)).in_row_order()
    notes = (f"the {split} rows of {table.path.parent}",)
    return DataSet("adult", inputs, bags, truth, CLASSES, notes, encoder)


def adult_table(split: str = "train", data_dir: str | os.PathLike[str] | None = None) -> Table:
    """The raw table with all fifteen columns; the label has no full stop."""
    import pyarrow as pa

    parts = _PARTS[one_of("split", split, _PARTS)]
    folder = data_folder(data_dir)
    files = [first_of(folder, (f"adult.{part}", f"adult.{part}.gz")) for part in parts]
    if None in files:
        raise not_found("adult", folder, SOURCE, SAVE_AS)
    rows = [row for file in files if file is not None for row in _read(file)]
    columns: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(COLUMNS)}
    for name in ("fnlwgt", *NUMBERS):
        columns[name] = np.array(columns[name], np.int64)
    last = files[-1]
    assert last is not None
    return Table(last, pa.table(columns))


def labels(table: Table) -> Any:
    """The labels of a table, int64 ``(R,)``: 1 for an income above 50,000 dollars."""
    return (np.array(table.words("income").to_pylist()) == ">50K").astype(np.int64)


def groups(table: Table, key: str) -> list[str]:
    """The bag of every row: the values of some columns, joined."""
    names = [name.strip() for name in key.split(",")]
    for name in names:
        if name not in COLUMNS[:-1]:
            raise LLPError(f"key has {name!r}; {did_you_mean(name, COLUMNS[:-1])}")
    values = [table.text(name).to_pylist() for name in names]
    return [" / ".join(map(str, row)) for row in zip(*values, strict=True)]


def _read(path: Path) -> list[list[str]]:
    """The rows of a file, checked."""
    try:
        text = unpacked(path).decode("utf-8")
    except (*BROKEN, UnicodeDecodeError) as error:
        raise LLPError(f"{path} cannot be read: {error}; get it again: {SOURCE}") from error
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("|"):  # the test file begins with a comment line
            continue
        row = [value.strip() for value in line.split(",")]
        # Labels in the test file end with a full stop.
        row[-1] = row[-1].rstrip(".")
        numeric = all(row[COLUMNS.index(name)].isdecimal() for name in NUMBERS if len(row) == 15)
        if len(row) != len(COLUMNS) or row[-1] not in ("<=50K", ">50K") or not numeric:
            raise LLPError(
                f"{path}: line {number} is not a row of Adult: {line[:50]!r}; get the file again: "
                f"{SOURCE}"
            )
        rows.append(row)
    if not rows:
        raise LLPError(f"{path} has no rows; get it again: {SOURCE}")
    return rows
