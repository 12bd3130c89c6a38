"""The configuration of a run: one YAML file, or the same settings as options.

Every setting is a field of :class:`Data`, :class:`~llpkit.training.Recipe`,
:class:`~llpkit.training.Execution`, :class:`Choice`, :class:`Cluster` or :class:`Tracking`. In the
file, those of ``Data`` are under ``data``, all others at the top. All problems of a configuration
are reported in one error.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from llpkit._registry import did_you_mean, nearest
from llpkit._settings import Settings, raise_all, setting
from llpkit._validation import flag, mapping, one_of, option, share, text, whole
from llpkit._yaml import read_yaml
from llpkit.errors import LLPError
from llpkit.recipe import AUTO, Execution, Recipe

Values = dict[str, Any]


def _numbers(value: Any) -> list[int] | None:
    """One or two positive numbers: ``8``, ``[1, 12]``, ``"1-12"`` or ``"90x72"``."""
    if isinstance(value, str):
        value = re.split(r"\s*(?:-|\.\.|,|x|×)\s*", value.strip().lower())
    parts = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(p, int) or (isinstance(p, str) and p.isdecimal()) for p in parts):
        return None
    found = [int(p) for p in parts]
    return found if len(found) in (1, 2) and min(found) >= 1 else None


def _bag_size(place: str, value: Any) -> int | tuple[int, int]:
    found = _numbers(value)
    if found is None or found != sorted(found):
        raise LLPError(f"{place} = {value!r}; give a number, or a range such as 1-12")
    return found[0] if len(found) == 1 else (found[0], found[1])


def _height_and_width(place: str, value: Any) -> tuple[int, int]:
    found = _numbers(value)
    if found is None or len(found) != 2:
        raise LLPError(f"{place} = {value!r}; give height and width, such as 90x72")
    return found[0], found[1]


def _columns(place: str, value: Any) -> str | list[str]:
    if isinstance(value, str):
        return value
    names = list(value) if isinstance(value, list | tuple) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise LLPError(f"{place} = {value!r}; give the name of a column, or one per class")
    return names[0] if len(names) == 1 else names


def _names(place: str, value: Any) -> list[str]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(v, str) for v in given):
        raise LLPError(f"{place} = {value!r}; give a list of names")
    return list(given)


def _dataset(place: str, value: Any) -> str:
    from llpkit.datasets import DATASETS

    own = [name for name in DATASETS if name not in TABLES]
    if value in DATASETS and value not in own:
        raise LLPError(f"{place} = {value!r}; name your file as the table instead")
    if value not in own:
        raise LLPError(f"{place} = {value!r}; {did_you_mean(value, own)}")
    return str(value)


def _estimator(place: str, value: Any) -> str:
    from llpkit.estimators import ESTIMATORS

    if value not in ESTIMATORS:
        raise LLPError(f"{place} = {value!r}; {did_you_mean(value, ESTIMATORS)}")
    return str(value)


def _noise(place: str, value: Any) -> str:
    from llpkit.tables.noise import CountNoise

    CountNoise.parse(value, place)
    return str(value)


TABLES = ("feature-table", "image-table")
"""Data sets that the options of a table stand for."""

# Columns of a table; the second kind may be given several times.
column = partial(setting, check=text, metavar="COLUMN", panel="Table", text=True)
several = partial(setting, check=_columns, metavar="COLUMN", panel="Table", text=True, many=True)


@dataclass(frozen=True, kw_only=True)
class Data(Settings):
    """What to learn from: a data set by name, or a table."""

    dataset: str | None = setting(
        None, "Data set; llpkit datasets lists them.", _dataset, "NAME", text=True
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
        None, "Instances per random bag: 8, or a range, 1-12.", _bag_size, "N", text=True
    )
    table: str | None = setting(
        None, "Table, in place of the configuration's.", text, "FILE", panel="Table", text=True
    )
    bag: str | None = column(None, "Column of the bag.")
    count: str | list[str] | None = several(
        None, "Column of positives per bag; repeat it, once per class, for more than two classes."
    )
    count_low: str | list[str] | None = several(
        None, "Column of the lowest possible count; with --count, for bags without one."
    )
    count_high: str | list[str] | None = several(
        None, "Column of the highest possible count; with --count, for bags without one."
    )
    proportion: str | list[str] | None = several(None, "Column of the share of positives.")
    decimals: int | None = setting(
        None,
        "Decimals that the proportions were rounded to.",
        lambda place, value: whole(place, value, 0, 15),
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
        False,
        "Leave out bags of the counts table that have no rows.",
        flag,
        "",
        panel="Table",
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
        None, "Column of labels known for some rows, empty for the others; learned from."
    )
    features: list[str] | None = several(
        None, "Column to learn from; repeatable (all others).", check=_names
    )
    drop: list[str] = several([], "Column to leave out of the features; repeatable.", check=_names)
    numeric: list[str] = several([], "Feature that must be a number; repeatable.", check=_names)
    categorical: list[str] = several(
        [], "Feature that is a category though it looks like a number; repeatable.", check=_names
    )
    image: str | None = column(None, "Column of image paths, or of encoded images (Parquet).")
    image_root: str | None = column(
        None, "Folder that the paths start from (the table's).", metavar="DIR"
    )
    image_size: tuple[int, int] | None = column(
        None, "Resize images to height x width, 64x64.", check=_height_and_width, metavar="HxW"
    )
    grey: bool = setting(False, "Read images as grey.", flag, "", panel="Table")
    skip_bad: bool = setting(
        False, "Leave out bags with an image that cannot be read.", flag, "", panel="Table"
    )
    label: str | None = column(None, "Column of true labels, for evaluation only.")
    class_names: list[str] | None = several(
        None,
        "Name of a class, in order; repeatable.",
        check=_names,
        metavar="NAME",
        option="--class-name",
    )

    def problems(self) -> Iterator[LLPError]:
        """Settings that contradict each other."""
        given = {
            name for name, value in self.to_dict().items() if value not in (None, [], {}, False)
        }
        if not given & {"dataset", "table"}:
            yield LLPError("there is no data to learn from; name a dataset or a table")
        elif given >= {"dataset", "table"}:
            yield LLPError("name a dataset or a table, not both")
        elif self.dataset is not None:
            yield from _stray(given & set(TABLE_KEYS), "a table, not with a dataset")
        else:
            yield from _stray(given & set(DATASET_KEYS), "a dataset, not with a table")
            if self.bag is None:
                yield LLPError(f"a table needs the name of its bag column; give {option('bag')}")
            if self.image is None:
                yield from _stray(given & set(IMAGE_KEYS), "an image column")
            else:
                yield from _stray(given & set(FEATURE_KEYS), "a table of features, not images")

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


FEATURE_KEYS = ("features", "drop", "numeric", "categorical")
IMAGE_KEYS = ("image", "image_root", "image_size", "grey", "skip_bad")
DATASET_KEYS = ("options", "data_dir", "bag_size")
TABLE_KEYS = tuple(
    name for name in Data.settings() if name not in ("dataset", "table", *DATASET_KEYS)
)
PATH_KEYS = ("table", "counts_table", "image_root", "data_dir")


def _stray(names: set[str], place: str) -> Iterator[LLPError]:
    for name in sorted(names):
        yield LLPError(f"{option(name)} goes with {place}")


@dataclass(frozen=True, kw_only=True)
class Choice(Settings):
    """An estimator instead of a network, and the share of bags for testing."""

    estimator: str | None = setting(
        None,
        "In place of a network, for tables of features: hist-gradient-boosting, logistic, …; "
        "llpkit estimators lists them.",
        _estimator,
        "NAME",
        text=True,
    )
    estimator_options: Values = setting(
        {},
        "Option of the estimator, such as max_leaf_nodes=15; repeatable.",
        mapping,
        "KEY=VALUE",
        many=True,
        option="--estimator-option",
    )
    search: int | None = setting(
        None,
        "Try up to N settings of the estimator, and keep the best for held-out training bags.",
        lambda place, value: whole(place, value, 2, 10_000),
        "N",
    )
    test_fraction: float | None = setting(None, "Share of bags kept for testing.", share, "SHARE")


def _engine(place: str, value: Any) -> str:
    return one_of(place, value, ("memory", "dask"))


@dataclass(frozen=True, kw_only=True)
class Cluster(Settings):
    """Where tables that do not fit into memory are processed."""

    engine: str = setting(
        "memory",
        "memory, or dask for Parquet tables that do not fit into memory: --estimator xgboost or "
        "logistic (memory).",
        _engine,
        "NAME",
        text=True,
    )
    scheduler: str | None = setting(
        None,
        "Address of a Dask scheduler, tcp://HOST:8786 (--workers processes on this machine).",
        text,
        "ADDRESS",
        text=True,
    )
    memory_limit: str | None = setting(
        None,
        "Memory of each local Dask worker, 4GB (an equal share of the machine's).",
        text,
        "SIZE",
        text=True,
    )


def _loggers(place: str, value: Any) -> list[str]:
    from llpkit.integrations.loggers import LOGGERS

    return list(dict.fromkeys(one_of(place, name, LOGGERS) for name in _names(place, value)))


@dataclass(frozen=True, kw_only=True)
class Tracking(Settings):
    """Where the run is logged besides its folder."""

    log: list[str] = setting(
        [],
        "Log the run to tensorboard, mlflow or wandb; repeatable.",
        _loggers,
        "NAME",
        many=True,
        text=True,
    )


LARGE = ("logistic", "xgboost")
"""The estimators that Dask fits."""


@dataclass(frozen=True)
class Config:
    """The complete configuration of one run, as in its ``config.yaml``."""

    data: Data
    recipe: Recipe = field(default_factory=Recipe)
    choice: Choice = field(default_factory=Choice)
    execution: Execution = field(default_factory=Execution)
    cluster: Cluster = field(default_factory=Cluster)
    tracking: Tracking = field(default_factory=Tracking)

    @property
    def name(self) -> str:
        """The estimator or the method."""
        return self.choice.estimator or self.recipe.method

    def problems(self) -> Iterator[LLPError]:
        """Settings that contradict each other."""
        yield from self.data.problems()
        yield from self._large_problems()
        recipe = self.recipe
        if recipe.patience is not None and recipe.held_out is None:
            needed = option("held_out", 0.1)
            yield LLPError(f"patience needs held-out bags; give {needed}, for example")
        if self.choice.estimator is None:
            if self.choice.estimator_options:
                yield LLPError(f"{option('estimator_options')} goes with an estimator; name one")
            if self.choice.search is not None:
                yield LLPError(f"{option('search')} goes with an estimator; name one")
            return
        yield from self._search_problems()
        if self.data.image is not None:
            yield LLPError("an estimator takes tables of features, not images; choose a network")
        yield from _stray(self.of_networks(), "a network, not with an estimator")

    def _search_problems(self) -> Iterator[LLPError]:
        """A search that has nothing to try."""
        if self.choice.search is None:
            return
        from llpkit.estimators.searches import grid_of

        try:
            grid_of(self.choice.estimator or "", self.choice.estimator_options)
        except LLPError as error:
            yield error

    def of_networks(self) -> set[str]:
        """Settings that only networks have, and that differ from their defaults."""
        usual = Recipe.defaults()
        of_both = ("seed", "held_out", "precision")
        given = self.recipe.to_dict().items()
        return {name for name, value in given if value != usual[name] and name not in of_both}

    @property
    def is_open(self) -> bool:
        """Whether the method is still to be picked; see :mod:`llpkit.auto`."""
        return self.recipe.method == AUTO and self.choice.estimator is None

    def _large_problems(self) -> Iterator[LLPError]:
        """Settings that do not go with the engine."""
        if self.cluster.engine == "memory":
            given = {k for k, v in self.cluster.to_dict().items() if v not in (None, "memory")}
            yield from _stray(given, option("engine", "dask"))
            return
        if self.choice.estimator not in LARGE:
            yield LLPError(
                f"{option('engine', 'dask')} needs {option('estimator', 'xgboost')} or "
                f"{option('estimator', 'logistic')}"
            )
        wrong = {
            "dataset": self.data.dataset,
            "image": self.data.image,
            "counts_table": self.data.counts_table,
            "held_out": self.recipe.held_out,
            "test_fraction": self.choice.test_fraction,
            "search": self.choice.search,
        }
        yield from _stray({k for k, v in wrong.items() if v}, f"{option('engine', 'memory')}")

    def flat(self) -> Values:
        """All settings in the layout of a configuration file."""
        found: Values = {"data": self.data.to_dict()}
        for section in (self.recipe, self.choice, self.execution, self.cluster, self.tracking):
            found |= section.to_dict()
        return found


SECTIONS: dict[
    str, type[Recipe] | type[Choice] | type[Execution] | type[Cluster] | type[Tracking]
] = {
    "recipe": Recipe,
    "choice": Choice,
    "execution": Execution,
    "cluster": Cluster,
    "tracking": Tracking,
}


def read(path: Path) -> Values:
    """The settings in a YAML file; paths are relative to the file's folder."""
    content = read_yaml(path, "configuration")
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise LLPError(f"{path} holds no settings; write lines such as 'method: mle'")
    data = content.get("data")
    if isinstance(data, dict):
        home = {key: data[key] for key in PATH_KEYS if isinstance(data.get(key), str)}
        content["data"] = data | {key: str(_absolute(v, path.parent)) for key, v in home.items()}
    return content


def merge(settings: Values, options: Mapping[str, Any]) -> Values:
    """Settings of a file, overridden by options given by dotted path.

    >>> merge({"epochs": 5, "data": {"dataset": "digits"}}, {"epochs": 9, "data.bag_size": 4})
    {'epochs': 9, 'data': {'dataset': 'digits', 'bag_size': 4}}
    """
    merged = dict(settings)
    found = merged.get("data", {})
    data = dict(found) if isinstance(found, dict) else {}
    # Data named on the command line replace those of the file, and so do their settings.
    if "data.table" in options and "data.dataset" not in options:
        data = {k: v for k, v in data.items() if k in TABLE_KEYS}
    elif "data.dataset" in options:
        data = {k: v for k, v in data.items() if k == "data_dir"}
    for path, value in options.items():
        section, _, key = path.rpartition(".")
        target = data if section else merged
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            value = target[key] | value
        target[key] = value
    if data or "data" not in merged:
        merged["data"] = data
    return merged


def check(settings: Values, *, options: Mapping[str, str] | None = None) -> Config:
    """The configuration, or one error that lists all problems.

    Args:
        settings: The result of :func:`read` and :func:`merge`.
        options: For each dotted path that was given as an option, the option's name.

    >>> check({"data": {"dataset": "digits"}, "epoch": 3})
    Traceback (most recent call last):
    llpkit.errors.LLPError: epoch is unknown; did you mean 'epochs'?
    """
    names = options or {}
    errors: list[LLPError] = []

    def place(path: str) -> str:
        return names.get(path, path)

    def made(kind: type[Any], values: Values, where: Callable[[str], str]) -> Any:
        return kind.gathered(values, where, errors)

    given = settings.get("data", {})
    if not isinstance(given, dict):
        errors.append(LLPError(f"{place('data')} = {given!r}; give names and values"))
        # A placeholder, so that the other settings are still checked.
        given = {"dataset": "digits"}
    known = {name: name for kind in SECTIONS.values() for name in kind.settings()}
    of_data = {name: f"data.{name}" for name in Data.settings()}
    for path in [name for name in settings if name != "data" and name not in known]:
        errors.append(_unknown(path, path, known | of_data))
    for name in [name for name in given if name not in of_data]:
        errors.append(_unknown(f"data.{name}", name, known | of_data))
    data = made(
        Data,
        {k: v for k, v in given.items() if k in of_data},
        lambda name: place(f"data.{name}"),
    )
    sections = {
        key: made(kind, {k: v for k, v in settings.items() if k in kind.settings()}, place)
        for key, kind in SECTIONS.items()
    }
    config = Config(data, **sections)
    raise_all(errors or config.problems())
    return config


def _unknown(path: str, name: str, known: Mapping[str, str]) -> LLPError:
    """The error for an unknown setting; ``known`` maps names of settings to their paths."""
    near = nearest(name, known)
    hint = did_you_mean(name, known) if near is None else f"did you mean {known[near]!r}?"
    return LLPError(f"{path} is unknown; {hint}")


def to_yaml(config: Config) -> str:
    """The configuration as YAML with every setting, defaults included; see :func:`read`."""
    import yaml  # type: ignore[import-untyped]

    values = config.flat()
    # YAML has no tuples, and data settings that were not given are left out.
    values["data"] = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in values["data"].items()
        if value
    }
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None)
    return text


def absolute(config: Config) -> Config:
    """The same configuration with absolute paths."""
    paths = {key: getattr(config.data, key) for key in PATH_KEYS}
    update = {key: str(_absolute(path, Path.cwd())) for key, path in paths.items() if path}
    return replace(config, data=config.data.replace(**update))


def _absolute(path: str, home: Path) -> Path:
    return (home.resolve() / Path(path).expanduser()).resolve()
