"""The settings of a configuration as options of the commands, and back."""

import functools
import inspect
import itertools
import json
import reprlib
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from llpkit._settings import Setting, Settings
from llpkit.config import (
    Cluster,
    Config,
    Data,
    EstimatorSettings,
    Split,
    Tracking,
    check,
    merge,
    read,
)
from llpkit.errors import LLPError
from llpkit.recipe import Execution, Recipe

_DEPTH = 15
"""Maximum nesting depth of lists in the value of an option; YAML files may nest deeper."""

Command = Callable[..., None]


class Option(NamedTuple):
    """A setting as a command-line option, with its dotted path in the configuration."""

    path: str
    setting: Setting
    panel: str

    @property
    def name(self) -> str:
        """The option as the user types it."""
        return self.setting.option or "--" + self.path.removeprefix("data.").replace("_", "-")

    def parameter(self) -> inspect.Parameter:
        """The function parameter that typer turns into the option; its default is ``None``."""
        metavar = self.setting.metavar
        kind: Any = str | None if metavar else bool | None
        if self.setting.many:
            kind = list[str] | None
        option = typer.Option(
            self.name, help=self.setting.help, metavar=metavar or None, rich_help_panel=self.panel
        )
        return inspect.Parameter(
            self.path.replace(".", "_"),
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kind, option],
        )


def _options(kind: type[Settings], panel: str, prefix: str = "") -> list[Option]:
    return [
        Option(prefix + name, setting, setting.panel or panel)
        for name, setting in kind.settings().items()
    ]


OPTIONS = [
    *_options(Data, "Data", "data."),
    *_options(Recipe, "Training"),
    *_options(EstimatorSettings, "Training"),
    *_options(Split, "Training"),
    *_options(Execution, "Machine"),
    *_options(Tracking, "Machine"),
    *_options(Cluster, "Tables larger than memory"),
]
OF_NEW_DATA = [
    "data.options",
    "data.data_dir",
    "data.bag_size",
    "data.counts_table",
    "data.ignore_empty",
    "data.count_noise",
    "data.image_root",
    "data.image_size",
    "data.skip_bad",
    "data.label",
    "data.class_names",
]
"""Options that may differ when a run is applied to other data."""

_NAMES = {option.path.removeprefix("data."): option.name for option in OPTIONS}
_NAMES |= {
    name: f"--{name.replace('_', '-')}"
    for name in ("bootstrap", "force", "multiplicity", "order", "out", "port", "prefix", "project",
                 "resume", "size", "trust_model")
}  # fmt: skip
_NAMES |= {"C": "--estimator-option C=", "way": "--bags"}


def as_typed(name: str, *value: Any) -> str:
    """How messages name an option on the command line.

    See :func:`llpkit._validation.options_named`.

    >>> as_typed("bag"), as_typed("categorical", "zip code"), as_typed("resume", True)
    ('--bag', "--categorical 'zip code'", '--resume')
    """
    flag = _NAMES.get(name, name)
    if not value or value[0] is True:
        return flag
    values = value[0] if isinstance(value[0], list | tuple) else value
    gap = "" if flag.endswith("=") else " "
    return " ".join(f"{flag}{gap}{shlex.quote(str(each))}" for each in values)


def takes(paths: Collection[str]) -> Callable[[Command], Command]:
    """Add settings to a command as options; those that are given arrive as ``settings``."""

    def wrap(command: Command) -> Command:
        options = [option for option in OPTIONS if option.path in paths]
        parameters = [option.parameter() for option in options]

        @functools.wraps(command)
        def wrapped(**arguments: Any) -> None:
            settings = {}
            for option, parameter in zip(options, parameters, strict=True):
                value = arguments.pop(parameter.name)
                if value not in (None, [], ()):
                    pairs = option.setting.metavar == "KEY=VALUE"
                    settings[option.path] = key_values(value) if pairs else value
            command(**arguments, settings=settings)

        # typer reads the signature: one parameter per setting takes the place of "settings".
        own = inspect.signature(command, eval_str=True).parameters.values()
        kept = [parameter for parameter in own if parameter.name != "settings"]
        wrapped.__signature__ = inspect.Signature([*kept, *parameters])  # type: ignore[attr-defined]
        return wrapped

    return wrap


def configuration(
    source: str | None, settings: Mapping[str, Any], saved: Mapping[str, Any] | None = None
) -> Config:
    """The configuration from a command's first argument and its options, which take precedence.

    Args:
        source: A configuration file or a table.
        settings: The options that were given, by dotted path.
        saved: The settings to start from, without a configuration file.
    """
    names = {option.path: option.name for option in OPTIONS if option.path in settings}
    base = dict(saved or {})
    if source is not None and Path(source).suffix.lower() in (".yaml", ".yml"):
        base = read(Path(source))
    elif source is not None:
        from llpkit.datasets import DATASETS

        if source in DATASETS and not Path(source).exists():
            raise LLPError(f"{source} is a data set, not a table; give --dataset {source}")
        if "data.table" in settings:
            raise LLPError(f"two tables, {source} and {settings['data.table']}; give one")
        settings = {**settings, "data.table": source}
        names["data.table"] = "table"
    return check(merge(base, settings), options=names)


def key_values(texts: Sequence[str]) -> dict[str, Any]:
    """Parse ``KEY=VALUE`` texts.

    >>> key_values(["first=network", "step=1e-1", "classes=[2, 3]", "C=inf", "approximation=none"])
    {'first': 'network', 'step': 0.1, 'classes': [2, 3], 'C': inf, 'approximation': None}
    """
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise LLPError(f"{reprlib.repr(text)} is not KEY=VALUE")
        pairs[key.strip()] = _value(text, value.strip())
    return pairs


def _value(option: str, text: str) -> Any:
    """JSON, a number as Python writes it, a constant in any case, or else text."""
    if text.startswith(("[", "{")):
        depths = itertools.accumulate((c in "[{") - (c in "]}") for c in text)
        if max(depths) > _DEPTH:  # would overflow the stack of whoever prints or writes them
            raise LLPError(f"{reprlib.repr(option)} has lists more than {_DEPTH} levels deep")
        try:
            return json.loads(text)
        except ValueError:
            raise LLPError(
                f"{reprlib.repr(option)} is not JSON; write lists as [1, 2] or "
                '["a", "b"], in single quotes for the shell'
            ) from None
    for parse in (json.loads, int, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
