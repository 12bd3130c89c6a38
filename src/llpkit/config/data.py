"""The data of a run: a data set by name, or a table and its columns."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from llpkit._settings import Settings, setting
from llpkit._validation import flag, mapping, option, registered, share, text, whole
from llpkit.errors import LLPError

Values = dict[str, Any]


def _numbers(value: Any, separators: str) -> list[int] | None:
    """One or two positive numbers, as a list or as text with a separator (a pattern)."""
    if isinstance(value, str):
        value = re.split(rf"\s*(?:{separators})\s*", value.strip().lower())
    parts = list(value) if isinstance(value, list | tuple) else [value]
    digits = [isinstance(p, str) and p.isdecimal() and len(p) < 10 for p in parts]
    try:
        found = [whole("", int(p) if d else p) for p, d in zip(parts, digits, strict=True)]
    except LLPError:
        return None
    return found if len(found) in (1, 2) else None


def bag_size(place: str, value: Any) -> int | tuple[int, int]:
    """A size, or the two ends of a range."""
    found = _numbers(value, r"-|\.\.|,")
    if found is None or found != sorted(found):
        raise LLPError(f"{place} = {value!r}; give a number, or a range such as 1-12")
    return found[0] if len(found) == 1 else (found[0], found[1])


def _height_and_width(place: str, value: Any) -> tuple[int, int]:
    found = _numbers(value, "x|×|,")
    if found is None or len(found) != 2:
        raise LLPError(f"{place} = {value!r}; give height and width, such as 90x72")
    return found[0], found[1]


def _columns(place: str, value: Any) -> str | list[str]:
    if isinstance(value, str):
        return value
    columns = list(value) if isinstance(value, list | tuple) else []
    if not columns or not all(isinstance(name, str) for name in columns):
        raise LLPError(f"{place} = {value!r}; give the name of a column, or one per class")
    return columns[0] if len(columns) == 1 else columns


def names(place: str, value: Any) -> list[str]:
    """One name or a list of names."""
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list | tuple) or not all(isinstance(v, str) for v in several):
        raise LLPError(f"{place} = {value!r}; give a list of names")
    return list(several)


def _dataset(place: str, value: Any) -> str:
    from llpkit.datasets import DATASETS

    if value in TABLE_DATASETS:
        raise LLPError(f"{place} = {value!r}; name your file as the table instead")
    return registered(place, value, [name for name in DATASETS if name not in TABLE_DATASETS])


def _decimals(place: str, value: Any) -> int:
    from llpkit.evidence.support import MAX_DECIMALS

    return whole(place, value, 0, MAX_DECIMALS)


def _noise(place: str, value: Any) -> str:
    from llpkit.tables.noise import CountNoise

    CountNoise.parse(value, place)
    return str(value)


TABLE_DATASETS = ("feature-table", "image-table")
"""Data sets that the options of a table describe; they have no name of their own."""

# Columns of a table; those of the second kind may be repeated.
column = partial(setting, check=text, metavar="COLUMN", panel="Table", text=True)
several = partial(setting, check=_columns, metavar="COLUMN", panel="Table", text=True, many=True)


@dataclass(frozen=True, kw_only=True)
class Data(Settings):
    """The data to learn from: a data set by name, or a table."""

    dataset: str | None = setting(
        None, "Data set, as listed by llpkit datasets.", _dataset, "NAME", text=True
    )
    options: Values = setting(
        {},
        "Option of the data set, such as classes=bird,cat; repeatable.",
        mapping,
        "KEY=VALUE",
        many=True,
        option="--data-option",
    )
    data_dir: str | None = setting(
        None, "Folder of the data set (LLPKIT_DATA, else a cache folder).", text, "DIR", text=True
    )
    bag_size: int | tuple[int, int] | None = setting(
        None, "Instances per random bag, such as 8 or 1-12.", bag_size, "N", text=True
    )
    table: str | None = setting(
        None,
        "Table, instead of the one in the configuration file.",
        text,
        "FILE",
        panel="Table",
        text=True,
    )
    bag: str | None = column(None, "Column with the bag ids.")
    count: str | list[str] | None = several(
        None, "Column with the positives per bag; with several classes, once per class."
    )
    count_low: str | list[str] | None = several(
        None, "Column with the lowest possible count; with --count, for bags whose count is empty."
    )
    count_high: str | list[str] | None = several(
        None, "Column with the highest possible count; with --count, for bags whose count is empty."
    )
    proportion: str | list[str] | None = several(
        None, "Column with the share of positives, instead of --count."
    )
    decimals: int | None = setting(
        None,
        "Decimals that the proportions were rounded to.",
        _decimals,
        "N",
        panel="Table",
    )
    counts_table: str | None = setting(
        None,
        "A second table with the counts, one row per bag.",
        text,
        "FILE",
        panel="Table",
        text=True,
    )
    ignore_empty: bool = setting(
        False, "Leave out bags of the counts table that have no rows.", flag, "", panel="Table"
    )
    count_noise: str | None = setting(
        None,
        "How counts were published: laplace:2, laplace:epsilon=0.5, gaussian:3, geometric:2, "
        "binomial:0.9, rounded:5, suppressed:10.",
        _noise,
        "KIND:VALUE",
        panel="Table",
        text=True,
    )
    known_label: str | None = column(
        None, "Column with labels to learn from, known for some rows and empty for others."
    )
    features: list[str] | None = several(
        None, "Column to learn from; repeatable (all other columns).", check=names
    )
    drop: list[str] = several([], "Column to leave out of the features; repeatable.", check=names)
    numeric: list[str] = several([], "Feature that must be numeric; repeatable.", check=names)
    categorical: list[str] = several(
        [], "Feature to treat as categories even if it looks numeric; repeatable.", check=names
    )
    image: str | None = column(None, "Column with image paths, or with encoded images (Parquet).")
    image_root: str | None = column(
        None, "Folder that image paths are relative to (the folder of the table).", metavar="DIR"
    )
    image_size: tuple[int, int] | None = column(
        None,
        "Resize images to height x width, such as 64x64.",
        check=_height_and_width,
        metavar="HxW",
    )
    grey: bool = setting(False, "Read images in greyscale.", flag, "", panel="Table")
    skip_bad: bool = setting(False, "Skip bags with unreadable images.", flag, "", panel="Table")
    label: str | None = column(None, "Column with true labels, for evaluation only.")
    class_names: list[str] | None = several(
        None,
        "Name of a class; repeat it for all classes, in order.",
        check=names,
        metavar="NAME",
        option="--class-name",
    )

    def problems(self) -> Iterator[LLPError]:
        """Errors for settings that contradict each other."""
        given = {key for key, value in self.to_dict().items() if value not in (None, [], {}, False)}
        if not given & {"dataset", "table"}:
            yield LLPError("there is no data to learn from; name a table or a data set")
        elif given >= {"dataset", "table"}:
            yield LLPError("name a table or a data set, not both")
        elif self.dataset is not None:
            yield from misplaced(given & set(TABLE_KEYS), "a table, not with a data set")
        else:
            yield from misplaced(given & set(DATASET_KEYS), "a data set, not with a table")
            if self.bag is None:
                yield LLPError(f"a table needs the name of its bag column; give {option('bag')}")
            if self.image is None:
                yield from misplaced(given & set(IMAGE_KEYS), "an image column")
            else:
                yield from misplaced(given & set(FEATURE_KEYS), "a table of features, not images")

    def arguments(self) -> tuple[str, Values]:
        """Name and options for :func:`llpkit.datasets.load`, without the seed."""
        if self.dataset is not None:
            return self.dataset, {
                "data_dir": self.data_dir,
                "bag_size": self.bag_size,
                **self.options,
            }
        values = {name: getattr(self, name) for name in ("table", *TABLE_KEYS)}
        if self.image is None:
            return "feature-table", {k: v for k, v in values.items() if k not in IMAGE_KEYS}
        return "image-table", {k: v for k, v in values.items() if k not in FEATURE_KEYS}


@dataclass(frozen=True, kw_only=True)
class Split(Settings):
    """Bags that a run does not learn from, besides those that the recipe holds out."""

    test_fraction: float | None = setting(
        None, "Share of bags to set aside for testing.", share, "SHARE"
    )


FEATURE_KEYS = ("features", "drop", "numeric", "categorical")
IMAGE_KEYS = ("image", "image_root", "image_size", "grey", "skip_bad")
DATASET_KEYS = ("options", "data_dir", "bag_size")
TABLE_KEYS = tuple(
    name for name in Data.settings() if name not in ("dataset", "table", *DATASET_KEYS)
)
PATH_KEYS = ("table", "counts_table", "image_root", "data_dir")


def misplaced(settings: set[str], owner: str) -> Iterator[LLPError]:
    """An error for each setting that only goes with something else."""
    for name in sorted(settings):
        yield LLPError(f"{option(name)} goes with {owner}")
