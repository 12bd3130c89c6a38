"""The settings of a configuration as options of the commands."""

import ast
import functools
import inspect
import re
import reprlib
import shlex
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import typer

from llpkit.errors import LLPError

_SHORT = reprlib.Repr()

DATA, TABLE, TRAINING, MACHINE = "Data", "Table", "Training", "Machine"


class Setting(NamedTuple):
    """A setting of the configuration as an option: its path there, its help, its value's name."""

    path: str
    help: str
    value: str
    panel: str
    many: bool = False
    flag: str = ""

    @property
    def name(self) -> str:
        """The option."""
        return self.flag or "--" + self.path.removeprefix("data.").replace("_", "-")

    def parameter(self) -> inspect.Parameter:
        """The parameter of a command that typer makes the option of; ``None`` if not given."""
        kind: Any = list[str] | None if self.many else str | None if self.value else bool | None
        option = typer.Option(
            self.name,
            help=self.help,
            metavar=self.value or None,
            rich_help_panel=self.panel,
            show_default=False,
        )
        name = self.path.replace(".", "_")
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
        )


# Values stay text here, so that the configuration is checked in one place and all at once.
SETTINGS = [
    Setting("data.dataset", "Data set by name; see llpkit datasets.", "NAME", DATA),
    Setting(
        "data.options",
        "An option of the data set, such as classes=bird,cat; repeat.",
        "KEY=VALUE",
        DATA,
        True,
        "--data-option",
    ),
    Setting("data.data_dir", "Its folder (LLPKIT_DATA, else a cache folder).", "DIR", DATA),
    Setting("data.bag_size", "Instances in a random bag: 8, or a range, 1-12.", "N", DATA),
    Setting("data.table", "Table, over that of the configuration.", "FILE", TABLE),
    Setting("data.bag", "Column of the bag.", "COLUMN", TABLE),
    Setting(
        "data.count",
        "Column of the bag's positives; repeat, one per class, for more than two classes.",
        "COLUMN",
        TABLE,
        True,
    ),
    Setting("data.count_low", "Column of the least the count may be.", "COLUMN", TABLE, True),
    Setting("data.count_high", "Column of the most it may be.", "COLUMN", TABLE, True),
    Setting("data.proportion", "Column of the share of positives.", "COLUMN", TABLE, True),
    Setting("data.decimals", "Decimals that the proportions were rounded to.", "N", TABLE),
    Setting("data.counts_table", "A second table with the counts, one row per bag.", "FILE", TABLE),
    Setting("data.features", "Column to learn from; repeat (all others).", "COLUMN", TABLE, True),
    Setting("data.numeric", "Feature that must be a number; repeat.", "COLUMN", TABLE, True),
    Setting(
        "data.categorical",
        "Feature that is a category though it looks like a number; repeat.",
        "COLUMN",
        TABLE,
        True,
    ),
    Setting("data.image", "Column of the image's path.", "COLUMN", TABLE),
    Setting("data.image_root", "Folder that paths start from (the table's).", "DIR", TABLE),
    Setting("data.image_size", "Resize images to width x height, 64x64.", "WxH", TABLE),
    Setting("data.grey", "Read images as grey.", "", TABLE),
    Setting("data.skip_bad", "Leave out bags with an image that cannot be read.", "", TABLE),
    Setting("data.label", "Column of true labels, for evaluation alone.", "COLUMN", TABLE),
    Setting(
        "data.class_names",
        "Name of a class, in order; repeat.",
        "NAME",
        TABLE,
        True,
        "--class-name",
    ),
    Setting("method", "mle, direct, amle, dllp, llp-gan or supervised (mle).", "NAME", TRAINING),
    Setting(
        "method_options",
        "An option of the method: refresh=pass, approximation=sinkhorn (many classes), …; repeat.",
        "KEY=VALUE",
        TRAINING,
        True,
        "--method-option",
    ),
    Setting(
        "network", "small-cnn, conv-large, mlp or linear (small-cnn or mlp).", "NAME", TRAINING
    ),
    Setting(
        "estimator",
        "In place of a network, for tables: hist-gradient-boosting, logistic, …; see llpkit "
        "estimators.",
        "NAME",
        TRAINING,
    ),
    Setting(
        "estimator_options",
        "An option of the estimator, such as max_leaf_nodes=15; repeat.",
        "KEY=VALUE",
        TRAINING,
        True,
        "--estimator-option",
    ),
    Setting("epochs", "Passes over the data (30).", "N", TRAINING),
    Setting("batch_size", "Instances a step (128).", "N", TRAINING),
    Setting("optimizer", "adam or sgd (adam).", "NAME", TRAINING),
    Setting("lr", "Learning rate (the method's own).", "RATE", TRAINING),
    Setting("weight_decay", "Decoupled weight decay (0).", "RATE", TRAINING),
    Setting("schedule", "tail, cosine or constant (tail).", "NAME", TRAINING),
    Setting("augment", "paper, geometric or none (none).", "NAME", TRAINING),
    Setting(
        "held_out",
        "Share of bags held out: the epoch with their best likelihood is kept.",
        "SHARE",
        TRAINING,
    ),
    Setting("patience", "Stop after so many epochs without a better one.", "N", TRAINING),
    Setting(
        "measure",
        "Training bags to measure after an epoch: auto (within a budget), all or off.",
        "WHICH",
        TRAINING,
    ),
    Setting("test_fraction", "Share of bags kept for testing.", "SHARE", TRAINING),
    Setting("seed", "All randomness follows from it (0).", "N", TRAINING),
    Setting("device", "auto, cpu, cuda, cuda:1, … (auto).", "NAME", MACHINE),
    Setting("precision", "32-true, bf16-mixed, 16-mixed or auto (auto).", "NAME", MACHINE),
    Setting("resident", "Keep all data on the device: true, false or auto.", "WHICH", MACHINE),
    Setting("cuda_graph", "Replay steps as a CUDA graph (true).", "true|false", MACHINE),
    Setting("compile", "Compile the network; pays in long runs on a GPU.", "true|false", MACHINE),
    Setting("workers", "Processes that read image files (2).", "N", MACHINE),
    Setting("threads", "CPU threads (as torch chooses).", "N", MACHINE),
]
OF_NEW_DATA = [
    "data.options",
    "data.data_dir",
    "data.bag_size",
    "data.counts_table",
    "data.image_root",
    "data.image_size",
    "data.skip_bad",
    "data.label",
    "data.class_names",
]

_LOADER_NAMES = {"root": "image_root", "size": "image_size", "counts": "counts_table"}
"""What the loaders call an option that has a longer name here."""

Command = Callable[..., None]


def takes(paths: Collection[str]) -> Callable[[Command], Command]:
    """Give a command these settings as options; it gets those that were given as a mapping."""

    def wrap(command: Command) -> Command:
        settings = [setting for setting in SETTINGS if setting.path in paths]
        parameters = [s.parameter() for s in settings]

        @functools.wraps(command)
        def wrapped(**arguments: Any) -> None:
            values = {
                s.path: arguments.pop(p.name) for s, p in zip(settings, parameters, strict=True)
            }
            given = {path: v for path, v in values.items() if v not in (None, [], ())}
            for path in ("data.options", "method_options", "estimator_options"):
                if path in given:
                    given[path] = key_values(given[path])
            command(**arguments, given=given)

        own = inspect.signature(command, eval_str=True).parameters.values()
        kept = [parameter for parameter in own if parameter.name != "given"]
        wrapped.__signature__ = inspect.Signature([*kept, *parameters])  # type: ignore[attr-defined]
        return wrapped

    return wrap


def as_flags(text: str) -> str:
    """A message with the options it names in backticks as they are typed here.

    >>> as_flags("`bag` = 3; keep it a category: `categorical='zip code'`")
    "--bag = 3; keep it a category: --categorical 'zip code'"
    """
    flags = {setting.path.removeprefix("data."): setting.name for setting in SETTINGS}
    flags |= {short: flags[name] for short, name in _LOADER_NAMES.items()}

    def typed(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in flags:
            return found[0]
        if value is None:
            return flags[name]
        try:
            given = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return found[0]
        values = given if isinstance(given, list | tuple) else [given]
        return " ".join(f"{flags[name]} {shlex.quote(str(each))}" for each in values)

    return re.sub(r"`([a-z_]+)(?:=([^`]+))?`", typed, text)


def key_values(texts: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` texts, each value read as YAML: numbers, words, and lists of them.

    >>> key_values(["refresh=pass", "step=0.5", "classes=[2, 3]", "day=2020-13-45"])
    {'refresh': 'pass', 'step': 0.5, 'classes': [2, 3], 'day': '2020-13-45'}
    """
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise LLPError(f"{_SHORT.repr(text)} is not KEY=VALUE")
        found[key.strip()] = _value(key, value)
    return found


def _value(key: str, text: str) -> Any:
    """A value of YAML without dates, references and tags: an option has no use for them."""
    import yaml  # type: ignore[import-untyped]

    from llpkit.config import plain_loader

    kinds = ("null", "bool", "int", "float", "str", "seq", "map")
    known = {f"tag:yaml.org,2002:{kind}" for kind in kinds}

    class Loader(plain_loader(key)):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag in known]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if isinstance(event, yaml.AliasEvent) or event.tag is not None:
                raise yaml.YAMLError("a reference or a tag")
            return super().compose_node(parent, index)

    try:
        return yaml.load(text, Loader)
    except LLPError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise LLPError(
            f"{key}={_SHORT.repr(text)}: the value cannot be read; give a number, a word or a list "
            "such as [1, 2]; in quotes, anything is a word"
        ) from error
