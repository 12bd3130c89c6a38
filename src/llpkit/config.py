"""What a run is told: one YAML file, or the same things as options, checked all at once.

The models mirror the file. All that is wrong with it is told in one error, each point with its
path, and a key that is not known with the nearest one that is.
"""

import difflib
import re
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    field_validator,
    model_validator,
)

from llpkit import _bounds
from llpkit._limits import check_limit, check_regular
from llpkit.errors import LLPError

Settings = dict[str, Any]

_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2
_DEPTH = 20
"""Levels of a configuration; its own sections have three."""
_NOTHING = "what is there to learn from? Name a dataset or a table"


def _numbers(value: Any) -> list[int] | None:
    """One or two positive numbers: ``8``, ``[1, 12]``, ``"1-12"`` or ``"72x90"``."""
    if isinstance(value, str):
        value = re.split(r"\s*(?:-|\.\.|,|x|×)\s*", value.strip().lower())
    parts = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(p, int) or (isinstance(p, str) and p.isdecimal()) for p in parts):
        return None
    found = [int(p) for p in parts]
    return found if len(found) in (1, 2) and min(found) >= 1 else None


def _bag_size(value: Any) -> int | tuple[int, int] | None:
    if value is None:
        return None
    found = _numbers(value)
    if found is None or found != sorted(found):
        raise ValueError("give a number, or a range such as 1-12")
    return found[0] if len(found) == 1 else (found[0], found[1])


def _width_and_height(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    found = _numbers(value)
    if found is None or len(found) != 2:
        raise ValueError("give width and height, such as 72x90")
    return found[0], found[1]


def _columns(value: Any) -> str | list[str] | None:
    if value is None or isinstance(value, str):
        return value
    names = list(value) if isinstance(value, list | tuple) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError("give the name of a column, or a list with one per class")
    return names[0] if len(names) == 1 else names


def _resident(value: Any) -> bool | str:
    known: dict[Any, bool | str] = {"true": True, "false": False, "auto": "auto"}
    found = known.get(str(value).lower())
    if found is None:
        raise ValueError("give true, false or auto")
    return found


def _measure(value: Any) -> str:
    # YAML reads a bare off as false.
    known = {"auto": "auto", "all": "all", "true": "all", "off": "off", "false": "off"}
    found = known.get(str(value).lower())
    if found is None:
        raise ValueError("give auto, all or off")
    return found


Columns = Annotated[str | list[str] | None, PlainValidator(_columns)]
Share = Annotated[float, Field(gt=0, lt=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Data(_Section):
    """What to learn from: a data set by name, or a table."""

    dataset: str | None = None
    """A key of :data:`llpkit.datasets.DATASETS`."""
    options: Settings = {}
    """The data set's own options."""
    data_dir: str | None = None
    bag_size: Annotated[int | tuple[int, int] | None, PlainValidator(_bag_size)] = None

    table: str | None = None
    """A CSV or Parquet file, one row per instance."""
    bag: str | None = None
    count: Columns = None
    count_low: Columns = None
    count_high: Columns = None
    proportion: Columns = None
    decimals: Annotated[int, Field(ge=0, le=15)] | None = None
    counts_table: str | None = None
    features: list[str] | None = None
    numeric: list[str] = []
    categorical: list[str] = []
    image: str | None = None
    image_root: str | None = None
    image_size: Annotated[tuple[int, int] | None, PlainValidator(_width_and_height)] = None
    grey: bool = False
    skip_bad: bool = False
    label: str | None = None
    """The column of true labels, for evaluation and the supervised bound alone."""
    class_names: list[str] | None = None

    @field_validator("dataset")
    @classmethod
    def _known_dataset(cls, value: str | None) -> str | None:
        from llpkit.datasets import DATASETS

        own = [name for name in DATASETS if not name.endswith("-table")]
        if value is None or value in own:
            return value
        if value in DATASETS:
            raise ValueError("name your file as the table instead")
        raise ValueError(_nearest(value, own))

    @model_validator(mode="after")
    def _one_source(self) -> "Data":
        if self.dataset is None and self.table is None:
            raise ValueError(_NOTHING)
        if self.dataset is not None and self.table is not None:
            raise ValueError("name a dataset or a table, not both")
        given = {name for name in self.model_fields_set if getattr(self, name) not in (None, [])}
        if self.dataset is not None:
            wrong = sorted(given & set(TABLE_KEYS))
            if wrong:
                raise ValueError(f"`{wrong[0]}` goes with a table, not with a dataset")
            return self
        wrong = sorted(given & {"options", "data_dir", "bag_size"})
        if wrong:
            raise ValueError(f"`{wrong[0]}` goes with a dataset, not with a table")
        if self.bag is None:
            raise ValueError("a table needs the name of its bag column; give `bag`")
        image, feature = ("image_root", "image_size", "grey", "skip_bad"), FEATURE_KEYS
        wrong = sorted(given & set(image if self.image is None else feature))
        if wrong:
            other = "an image column" if self.image is None else "a table of features, not images"
            raise ValueError(f"`{wrong[0]}` goes with {other}")
        return self

    def arguments(self) -> tuple[str, Settings]:
        """Name and options for :func:`llpkit.datasets.load`, less the seed."""
        if self.dataset is not None:
            common = {"data_dir": self.data_dir, "bag_size": self.bag_size}
            return self.dataset, common | self.options
        names = ("table", "bag", "count", "count_low", "count_high", "proportion", "decimals")
        options: Settings = {name: getattr(self, name) for name in names}
        options |= {"counts": self.counts_table, "label": self.label}
        options |= {"class_names": self.class_names}
        if self.image is None:
            return "feature-table", options | {k: getattr(self, k) for k in FEATURE_KEYS}
        return "image-table", options | {
            "image": self.image,
            "root": self.image_root,
            "size": self.image_size,
            "channels": 1 if self.grey else 3,
            "skip_bad": self.skip_bad,
        }


FEATURE_KEYS = ("features", "numeric", "categorical")
TABLE_KEYS = tuple(
    name
    for name in Data.model_fields
    if name not in ("dataset", "options", "data_dir", "bag_size", "table")
)
NETWORK_KEYS = (
    "method",
    "method_options",
    "network",
    "epochs",
    "batch_size",
    "optimizer",
    "lr",
    "weight_decay",
    "schedule",
    "augment",
    "patience",
    "measure",
)
PATH_KEYS = ("table", "counts_table", "image_root", "data_dir")


class Config(_Section):
    """One run, complete: what ``llpkit fit`` does and what its ``config.yaml`` holds."""

    data: Data
    method: str = "mle"
    method_options: Settings = {}
    network: str | None = None
    estimator: str | None = None
    """In place of a network, an estimator by name, for tables of features."""
    estimator_options: Settings = {}
    epochs: Annotated[int, Field(ge=1, le=_bounds.EPOCHS)] = 30
    batch_size: Annotated[int, Field(ge=1)] = 128
    optimizer: Literal["adam", "sgd"] = "adam"
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    schedule: Literal["tail", "cosine", "constant"] = "tail"
    augment: str | None = None
    held_out: Share | None = None
    patience: Annotated[int, Field(ge=1)] | None = None
    measure: Annotated[str, PlainValidator(_measure)] = "auto"
    test_fraction: Share | None = None
    seed: Annotated[int, Field(ge=0, le=_bounds.SEED)] = 0
    device: str = "auto"
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = "auto"
    resident: Annotated[bool | str, PlainValidator(_resident)] = "auto"
    cuda_graph: bool = True
    compile: bool = False
    workers: Annotated[int, Field(ge=0, le=_bounds.WORKERS)] = 2
    threads: Annotated[int, Field(ge=1, le=_bounds.THREADS)] | None = None

    @field_validator("method")
    @classmethod
    def _known_method(cls, value: str) -> str:
        from llpkit.methods import METHODS, OWN

        return _known(value, METHODS, OWN)

    @field_validator("network")
    @classmethod
    def _known_network(cls, value: str | None) -> str | None:
        from llpkit.networks import NETWORKS

        return None if value is None else _known(value, NETWORKS)

    @field_validator("augment")
    @classmethod
    def _known_augment(cls, value: str | None) -> str | None:
        from llpkit.augment import PRESETS

        return None if value is None else _known(value, PRESETS)

    @field_validator("estimator")
    @classmethod
    def _known_estimator(cls, value: str | None) -> str | None:
        if value is None:
            return None
        from llpkit.estimators._named import ESTIMATORS

        return _known(value, ESTIMATORS)

    @model_validator(mode="after")
    def _network_or_estimator(self) -> "Config":
        if self.estimator is None:
            if self.estimator_options:
                raise ValueError("`estimator_options` goes with an estimator; name one")
            return self
        if self.data.image is not None:
            raise ValueError("an estimator takes tables of features, not images; choose a network")
        for key in NETWORK_KEYS:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"`{key}` goes with a network, not with an estimator")
        return self

    @model_validator(mode="after")
    def _patience_has_bags(self) -> "Config":
        if self.patience is not None and self.held_out is None:
            raise ValueError("patience is judged by held-out bags; give `held_out`, 0.1 say")
        return self


def read(path: Path) -> Settings:
    """The settings in a YAML file; paths in it start from the file's own folder."""
    import yaml  # type: ignore[import-untyped]

    try:
        check_regular(path)
        check_limit("LLPKIT_MAX_CONFIG", path.stat().st_size, f"{path} has", "bytes")
        content = yaml.load(path.read_bytes(), plain_loader(path))
    except LLPError:
        raise
    except FileNotFoundError as error:
        raise LLPError(f"{path} does not exist; check the path of the configuration") from error
    except OSError as error:
        raise LLPError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        told = " ".join(str(error).split())
        raise LLPError(f"{path} is not YAML: {told}") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise LLPError(f"{path} holds no settings; write lines such as 'method: mle'")
    data = content.get("data")
    if isinstance(data, dict):
        home = {key: data[key] for key in PATH_KEYS if isinstance(data.get(key), str)}
        content["data"] = data | {key: str(_absolute(v, path.parent)) for key, v in home.items()}
    return content


def plain_loader(where: object) -> Any:
    """A loader of plain YAML: no references, few levels, every key once.

    ``where`` stands in messages.
    """
    import yaml

    def refuse(node: Any, wrong: str) -> None:
        raise LLPError(f"{where}: line {node.start_mark.line + 1} {wrong}")

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if isinstance(event, yaml.AliasEvent):  # a few lines of them can stand for billions
                refuse(
                    event,
                    f"refers to *{event.anchor}; references are not read in a configuration, "
                    "write the value itself",
                )
            self.depth += 1
            if self.depth > _DEPTH:  # the scanner's time grows with the square of the depth
                refuse(event, f"is nested more than {_DEPTH} levels deep; settings need a few")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            content = super().construct_mapping(node, deep=deep)
            if len(content) < len(node.value):
                seen = set()
                for part, _ in node.value:
                    key = self.construct_object(part, deep=True)
                    if key in seen:
                        refuse(part, f"gives {key!r} a second time; keep one of the two")
                    seen.add(key)
            return content

    return Loader


def merge(settings: Settings, options: Mapping[str, Any]) -> Settings:
    """Settings of a file, and over them options by their dotted paths.

    >>> merge({"epochs": 5, "data": {"dataset": "digits"}}, {"epochs": 9, "data.bag_size": 4})
    {'epochs': 9, 'data': {'dataset': 'digits', 'bag_size': 4}}
    """
    merged = dict(settings)
    found = merged.get("data", {})
    data = dict(found) if isinstance(found, dict) else {}
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


def check(settings: Settings, *, options: Mapping[str, str] | None = None) -> Config:
    """The configuration, or one error that tells all that is wrong.

    Args:
        settings: What :func:`read` and :func:`merge` gave.
        options: For each dotted path that was given as an option, the option's name.

    >>> check({"data": {"dataset": "digits"}, "epoch": 3})
    Traceback (most recent call last):
    llpkit.errors.LLPError: epoch is not known; did you mean epochs?
    """
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        lines = list(dict.fromkeys(_told(e, options or {}) for e in error.errors()))
    if len(lines) == 1:
        raise LLPError(lines[0])
    raise LLPError("\n  ".join([f"{len(lines)} settings are wrong:", *lines]))


def to_yaml(config: Config) -> str:
    """The configuration with every setting, defaults and all; read back by :func:`read`."""
    import yaml

    data = {key: value for key, value in config.data.model_dump().items() if value}
    text: str = yaml.safe_dump(
        {"data": data} | config.model_dump(exclude={"data"}),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
    )
    return text


def absolute(config: Config) -> Config:
    """The same configuration with paths that hold in any working directory."""
    paths = {key: getattr(config.data, key) for key in PATH_KEYS}
    update = {key: str(_absolute(path, Path.cwd())) for key, path in paths.items() if path}
    return config.model_copy(update={"data": config.data.model_copy(update=update)})


def _absolute(path: str, home: Path) -> Path:
    return (home.resolve() / Path(path).expanduser()).resolve()


def _known(value: str, names: Iterable[str], more: str = "") -> str:
    if value not in names:
        hint = _nearest(value, names)
        raise ValueError("; ".join(filter(None, [hint, "" if "did you" in hint else more])))
    return value


def _nearest(value: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(value, list(names), 1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"


def _told(error: Any, options: Mapping[str, str]) -> str:
    """One validation error in our words."""
    path = ".".join(map(str, error["loc"]))
    known = next((p for p in options if path == p or path.startswith(f"{p}.")), None)
    name = options[known] if known else path
    if error["type"] == "extra_forbidden":
        return f"{path} is not known; {_nearest_key(path)}"
    if error["type"] == "missing":
        return _NOTHING
    if error["type"] == "value_error":
        told = str(error["ctx"]["error"])  # of a section as a whole, which names its keys itself
        whole = isinstance(error["input"], dict) and path in ("", "data")
        return told if whole else f"{name} = {_SHORT.repr(error['input'])}; {told}"
    message = error["msg"].removeprefix("Input ").removeprefix("Value ")
    return f"{name} = {_SHORT.repr(error['input'])} {message}"


def _nearest_key(path: str) -> str:
    own = list(Config.model_fields)
    of_data = {name: f"data.{name}" for name in Data.model_fields}
    section, _, key = path.rpartition(".")
    names = {**{name: name for name in own}, **of_data}
    if section:
        names = {**{name: name for name in own}, **of_data} if section == "data" else {}
    near = difflib.get_close_matches(key, list(names), 1)
    if near:
        return f"did you mean {names[near[0]]}?"
    return f"known are {', '.join(of_data if section else own)}"
