"""A protocol: everything that the runs of one results folder have in common, as a YAML file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from llpkit._files import write_text
from llpkit._registry import did_you_mean
from llpkit._validation import number, share, whole
from llpkit.errors import LLPError
from llpkit.methods import METHODS
from llpkit.training.recipe import Recipe

FILE = "protocol.yaml"
EXPERIMENTS = ("grid", "convergence", "bag-size", "epoch-time")
"""In the order in which ``all`` runs them: the others use what the grid chose."""

WARM_UP = 2
"""Epochs at the start of a timed run that are not counted."""

_PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True)
class Grid:
    """How hyper-parameters are searched: axis by axis, by the likelihood of held-out bags.

    Each axis is a ladder of values in rising order. The search starts with its middle three values
    (all of them if there are no more) and takes one step beyond an end where the best value lies.

    Args:
        folds: How many folds a candidate is trained on.
        epochs: Epochs of each run.
        held_out: Share of the training bags that candidates are scored by.
        lr: Ladder of learning rates.
        weight_decay: Ladder of weight decays.
        methods: Ladders of single methods, by method: of their own options, or in place of those
            above.
        own_epochs: Epochs of methods that learn more slowly than the others, by method.
    """

    folds: int = 2
    epochs: int = 30
    held_out: float = 0.1
    lr: tuple[float, ...] = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
    weight_decay: tuple[float, ...] = (0.0, 0.05)
    methods: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    own_epochs: Mapping[str, int] = field(default_factory=dict)

    def axes(self, method: str) -> dict[str, tuple[Any, ...]]:
        """The axes of a method in the order in which they are searched.

        >>> Grid(methods={"llp-gan": {"weight": (0.1, 1, 10)}}).axes("llp-gan").keys()
        dict_keys(['weight', 'lr', 'weight_decay'])
        """
        usual = {"lr": self.lr, "weight_decay": self.weight_decay}
        own = self.methods.get(method, {})
        every = {axis: own[axis] for axis in own if axis not in usual} | usual | dict(own)
        return {axis: ladder for axis, ladder in every.items() if ladder}


@dataclass(frozen=True)
class Sizes:
    """Accuracy against bag size: which sizes, and how each is trained."""

    sizes: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128)
    folds: int = 3
    epochs: int = 30
    held_out: float | None = None


@dataclass(frozen=True)
class Times:
    """Epoch times: each method alone, the methods taking turns."""

    turns: int = 3
    epochs: int = 10


@dataclass(frozen=True)
class Protocol:
    """What the runs of a results folder share: data, partition and recipe.

    Args:
        title: A line for the reader.
        dataset: A data set by name.
        data_options: Options of the data set.
        bag_size: Size of random bags, or the ends of a range; ``None`` for a data set with bags of
            its own.
        seed: Seed of the bags, the folds and, together with the fold, the training.
        folds: How many folds the bags are divided into.
        flat: Whether images are passed to the network as rows of numbers.
        recipe: Settings of :class:`llpkit.training.recipe.Recipe` that all methods share.
        methods: The methods to run, and the settings that are a method's own.
        grid, sizes, times: The optional experiments.

    >>> Protocol("Digits", "digits", methods={"mle": {"lr": 0.003}}).recipe_of("mle").lr
    0.003
    """

    title: str
    dataset: str
    data_options: Mapping[str, Any] = field(default_factory=dict)
    bag_size: int | tuple[int, int] | None = None
    seed: int = 0
    folds: int = 10
    flat: bool = False
    recipe: Mapping[str, Any] = field(default_factory=dict)
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grid: Grid | None = None
    sizes: Sizes | None = None
    times: Times | None = None

    @property
    def experiments(self) -> list[str]:
        """Those that this protocol has, in the order in which they run."""
        parts = {"grid": self.grid, "bag-size": self.sizes, "epoch-time": self.times}
        return [name for name in EXPERIMENTS if parts.get(name, True) is not None]

    def folds_of(self, experiment: str) -> int:
        """How many folds of an experiment run unless the user names others."""
        parts = {"grid": self.grid, "bag-size": self.sizes}
        if experiment == "epoch-time":
            return self.times.turns if self.times else 0
        part = parts.get(experiment)
        return min(self.folds, part.folds) if part is not None else self.folds

    def settings(self, method: str, experiment: str = "convergence") -> dict[str, Any]:
        """What the protocol says of a method's recipe in an experiment."""
        values = {**self.recipe, **self.methods.get(method, {})}
        values |= {"method": method, "seed": self.seed}
        part = {"grid": self.grid, "bag-size": self.sizes, "epoch-time": self.times}.get(experiment)
        if part is not None:
            values |= {"epochs": part.epochs, "held_out": getattr(part, "held_out", None)}
        if part is self.grid is not None:
            values["epochs"] = self.grid.own_epochs.get(method, self.grid.epochs)
        return values

    def recipe_of(self, method: str, experiment: str = "convergence", **chosen: Any) -> Recipe:
        """The full recipe of a method in an experiment.

        Args:
            method: By name.
            experiment: Sets the epochs and the share of held-out bags.
            chosen: What a grid chose, for settings that the protocol does not have.
        """
        own = METHODS[method]
        values = {"lr": own.lr, **chosen, **self.settings(method, experiment)}
        if own.network_name is not None:
            values["network"] = own.network_name
        return Recipe.from_dict(values, "recipe")

    def quick(self) -> "Protocol":
        """The same with few folds and epochs, to see that everything works."""
        few = min(self.folds, 3)
        epochs = min(int(self.recipe.get("epochs", 30)), 3)
        return replace(
            self,
            title=f"{self.title} (quick)",
            folds=few,
            recipe={**self.recipe, "epochs": epochs},
            grid=self.grid and Grid(1, epochs, lr=(1e-3, 3e-3), weight_decay=()),
            sizes=self.sizes and Sizes((2, 16), 2, epochs, self.sizes.held_out),
            times=self.times and Times(turns=2, epochs=WARM_UP + 2),
        )

    def searched(self, method: str) -> bool:
        """Whether the grid chooses for a method: not where the protocol has its settings."""
        own = self.methods.get(method, {})
        axes = [*(self.grid.axes(method) if self.grid else ()), "method_options"]
        return self.grid is not None and not any(axis in own for axis in axes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; :func:`parse` takes them back."""
        return dict(_plain(self))


def parse(values: Any, place: str = "protocol") -> Protocol:
    """A protocol from plain values; errors name ``place`` and the key.

    >>> parse({"title": "A", "dataset": "digits", "fold": 3})
    Traceback (most recent call last):
        ...
    llpkit.errors.LLPError: protocol: there is no key 'fold'; did you mean 'folds'?
    """
    found: Protocol = _build(Protocol, place, values)
    if found.grid is not None:
        whole(f"{place}: grid: folds", found.grid.folds, 1, found.folds)
    if found.sizes is not None:
        whole(f"{place}: sizes: folds", found.sizes.folds, 1, found.folds)
        if found.bag_size is None:
            raise LLPError(f"{place}: sizes needs random bags; set bag_size, or remove sizes")
    return found


def load(name: str | Path) -> Protocol:
    """A protocol that is shipped with llpkit, by name, or one from a file.

    >>> load("digits").dataset
    'digits'
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = _PRESETS / f"{name}.yaml"
        if str(name) not in presets():
            hint = did_you_mean(str(name), presets())
            raise LLPError(f"there is no protocol {str(name)!r}; {hint} (or give a .yaml file)")
    return read(path)


def presets() -> list[str]:
    """The protocols that are shipped with llpkit."""
    return sorted(path.stem for path in _PRESETS.glob("*.yaml"))


def read(path: Path) -> Protocol:
    """The protocol in a file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise LLPError(f"{path} cannot be read ({error}); give the file of a protocol") from error
    except yaml.YAMLError as error:
        raise LLPError(f"{path} is not YAML: {error}") from error
    return parse(values, str(path))


def write(protocol: Protocol, path: Path) -> Path:
    """Write a protocol that :func:`read` returns unchanged."""
    text = yaml.safe_dump(protocol.to_dict(), sort_keys=False, default_flow_style=None, width=100)
    return write_text(path, text)


# Reading plain values: one check per key


def _build(kind: Any, place: str, values: Any) -> Any:
    given = _mapping(place, values)
    for key in given:
        if key not in _CHECKS[kind]:
            hint = did_you_mean(key, _CHECKS[kind])
            raise LLPError(f"{place}: there is no key {key!r}; {hint}")
    for item in fields(kind):
        if item.default is item.default_factory and item.name not in given:  # both are missing
            raise LLPError(f"{place}: the key {item.name!r} is missing; add it")
    return kind(**{k: _CHECKS[kind][k](f"{place}: {k}", value) for k, value in given.items()})


def _text(place: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise LLPError(f"{place} = {value!r}; give a text")
    return value


def _flag(place: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise LLPError(f"{place} = {value!r}; give true or false")
    return value


def _mapping(place: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise LLPError(f"{place} = {value!r}; give keys and values")
    return dict(value)


def _mappings(check: Callable[[str, Any], Any], place: str, value: Any) -> dict[str, Any]:
    return {key: check(f"{place}: {key}", own) for key, own in _mapping(place, value).items()}


def _settings(place: str, value: Any) -> dict[str, Any]:
    """Settings of a recipe, less those that a protocol has in other places."""
    found = _mapping(place, value)
    if taken := [key for key in ("method", "seed") if key in found]:
        raise LLPError(f"{place}: {taken[0]} does not belong here; remove it")
    Recipe.from_dict(found, place)
    return found


def _ladder(check: Callable[[str, Any], Any], place: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or len(set(map(str, value))) < len(value):
        raise LLPError(f"{place} = {value!r}; give a list of different values")
    return tuple(check(place, each) for each in value)


def _bag_size(place: str, value: Any) -> int | tuple[int, int]:
    if not isinstance(value, list | tuple):
        return whole(place, value)
    if len(value) != 2:
        raise LLPError(f"{place} = {value!r}; give a number, or the two ends of a range")
    least = whole(place, value[0])
    return least, whole(place, value[1], least)


_rates = partial(_ladder, partial(number, least=0))
_CHECKS: dict[type, dict[str, Callable[[str, Any], Any]]] = {
    Grid: {
        "folds": whole,
        "epochs": whole,
        "held_out": share,
        "lr": _rates,
        "weight_decay": _rates,
        "methods": partial(_mappings, partial(_mappings, partial(_ladder, lambda _, value: value))),
        "own_epochs": partial(_mappings, whole),
    },
    Sizes: {
        "sizes": partial(_ladder, whole),
        "folds": whole,
        "epochs": whole,
        "held_out": share,
    },
    Times: {"turns": whole, "epochs": partial(whole, least=WARM_UP + 1)},
    Protocol: {
        "title": _text,
        "dataset": _text,
        "data_options": _mapping,
        "bag_size": _bag_size,
        "seed": partial(whole, least=0),
        "folds": partial(whole, least=2),
        "flat": _flag,
        "recipe": _settings,
        "methods": partial(_mappings, _settings),
        "grid": partial(_build, Grid),
        "sizes": partial(_build, Sizes),
        "times": partial(_build, Times),
    },
}


def _plain(value: Any) -> Any:
    """Dataclasses as mappings without absent parts, and tuples as lists, at any depth."""
    if is_dataclass(value):
        every = {item.name: getattr(value, item.name) for item in fields(value)}
        return {name: _plain(own) for name, own in every.items() if own is not None}
    if isinstance(value, Mapping):
        return {key: _plain(own) for key, own in value.items()}
    return [_plain(own) for own in value] if isinstance(value, list | tuple) else value
