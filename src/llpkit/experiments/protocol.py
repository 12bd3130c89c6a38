"""A protocol: everything that the runs of a results folder have in common."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

from llpkit._settings import Check, Settings, setting
from llpkit._validation import flag, mapping, number, one_of, share, text, whole
from llpkit.augment import AUGMENTATIONS
from llpkit.datasets import DATASETS
from llpkit.errors import LLPError
from llpkit.methods import METHODS
from llpkit.networks import NETWORKS
from llpkit.recipe import Recipe

EXPERIMENTS = ("grid", "convergence", "bag-size", "epoch-time")
"""In the order in which ``all`` runs them: the others use the grid's choice."""

RATES = ("lr", "weight_decay")
"""Axes of a grid that are settings of a recipe; the others are options of a method."""

WARM_UP = 2
"""Epochs at the start of a timed run that are not counted."""

OWN = ("method", "folds")
"""Keys of an entry of ``methods`` that are not settings of its recipe."""


# Checks of single keys: ``check(place, value)`` returns the value to keep


def _known(names: Iterable[str]) -> Check:
    def check(place: str, value: Any) -> str:
        try:
            return one_of(place, value, names)
        except LLPError as error:
            own = "if a plugin has it, load it with llpkit --plugin"
            raise LLPError(f"{error} ({own})") from None

    return check


def _options(place: str, value: Any) -> Mapping[str, Any]:
    """Options that a record, which is JSON, returns unchanged: no dates, no infinite numbers."""
    found = mapping(place, value)
    for key, own in found.items():
        try:
            same = json.loads(json.dumps(own, allow_nan=False)) == own
        except (TypeError, ValueError):
            same = False
        if not same:
            raise LLPError(f"{place}: {key} = {own!r}; give text, finite numbers or lists of them")
    return found


_NAMES: dict[str, Iterable[str]] = {
    "network": NETWORKS,
    "augment": AUGMENTATIONS,
    "strong_augment": AUGMENTATIONS,
}


def _recipe(place: str, value: Any) -> dict[str, Any]:
    """Settings of a recipe, except those that a protocol has elsewhere."""
    found = mapping(place, value)
    if taken := [key for key in ("method", "seed") if key in found]:
        raise LLPError(f"{place}: {taken[0]} does not belong here; remove it")
    if found.get("patience") is not None:
        raise LLPError(f"{place}: runs of a protocol have the same epochs; remove patience")
    for key, names in _NAMES.items():
        if found.get(key) is not None:
            _known(names)(f"{place}: {key}", found[key])
    _options(f"{place}: method_options", found.get("method_options", {}))
    recipe = Recipe.from_dict(found, lambda name: f"{place}: {name}").to_dict()
    return {key: recipe[key] for key in found}


def _methods(place: str, value: Any) -> dict[str, Any]:
    """Methods by name, and variants of a method, which name it by the key ``method``."""
    found = {}
    for name, own in mapping(place, value).items():
        at = f"{place}: {name}"
        given = mapping(at, own)
        if "method" not in given:
            _known(METHODS)(place, name)
        elif not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
            raise LLPError(f"{at} is not a name; use small letters, digits, dots and dashes")
        checks = {"method": _known(METHODS), "folds": whole}
        more = {key: checks[key](f"{at}: {key}", given[key]) for key in OWN if key in given}
        found[name] = more | _recipe(at, {k: v for k, v in given.items() if k not in OWN})
    return found


def _by_method(check: Check) -> Check:
    def checked(place: str, value: Any) -> dict[str, Any]:
        found = mapping(place, value)
        return {_known(METHODS)(place, k): check(f"{place}: {k}", own) for k, own in found.items()}

    return checked


def _ladder(check: Check) -> Check:
    def checked(place: str, value: Any) -> tuple[Any, ...]:
        several = isinstance(value, list | tuple)
        found = tuple(check(place, each) for each in value) if several else ()
        if not several or len(set(found)) < len(found):
            raise LLPError(f"{place} = {value!r}; give a list of different values")
        return found

    return checked


def _scalar(place: str, value: Any) -> Any:
    if isinstance(value, float):
        return number(place, value)
    if value is not None and not isinstance(value, str | int):
        raise LLPError(f"{place} = {value!r}; give a number, text, true, false or null")
    return value


_rates = _ladder(partial(number, least=0))


def _ladders(place: str, value: Any) -> dict[str, Any]:
    """Ladders by axis: of the two rates, or of options of a method."""
    return {
        axis: (_rates if axis in RATES else _ladder(_scalar))(f"{place}: {axis}", own)
        for axis, own in mapping(place, value).items()
    }


def _bag_size(place: str, value: Any) -> int | tuple[int, int]:
    if not isinstance(value, list | tuple):
        return whole(place, value)
    if len(value) != 2:
        raise LLPError(f"{place} = {value!r}; give a number, or the two ends of a range")
    least = whole(place, value[0])
    return least, whole(place, value[1], least)


def _part(kind: type[Settings]) -> Check:
    def check(place: str, value: Any) -> Any:
        if isinstance(value, kind):
            return value
        return kind.from_dict(mapping(place, value), lambda name: f"{place}: {name}")

    return check


def _key(default: Any, check: Check, help: str, text: bool = False) -> Any:
    return setting(default, help, check, "", text=text)


@dataclass(frozen=True)
class Grid(Settings):
    """The hyper-parameter search: one axis at a time, by the likelihood of held-out bags.

    Each axis is a ladder of ascending values. The search starts with the middle three values (all
    if there are no more) and goes one step beyond an end if the best value is there.
    """

    folds: int = _key(2, whole, "How many folds a candidate is trained on.")
    epochs: int = _key(30, whole, "Epochs of each run.")
    held_out: float = _key(0.1, share, "Share of the training bags that score candidates.")
    lr: tuple[float, ...] = _key(
        (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2), _rates, "Ladder of learning rates."
    )
    weight_decay: tuple[float, ...] = _key((0.0, 0.05), _rates, "Ladder of weight decays.")
    methods: Mapping[str, Mapping[str, tuple[Any, ...]]] = _key(
        {}, _by_method(_ladders), "Ladders by method: for its own options, or instead of the above."
    )
    own_epochs: Mapping[str, int] = _key(
        {}, _by_method(whole), "Epochs by method, for those that learn more slowly."
    )

    def axes(self, method: str) -> dict[str, tuple[Any, ...]]:
        """The axes of a method in the order in which they are searched.

        >>> Grid(methods={"llp-gan": {"weight": (0.1, 1, 10)}}).axes("llp-gan").keys()
        dict_keys(['weight', 'lr', 'weight_decay'])
        """
        usual = {"lr": self.lr, "weight_decay": self.weight_decay}
        own = self.methods.get(method, {})
        # A method's own options first, then the usual axes with its own ladders.
        every = {axis: own[axis] for axis in own if axis not in usual} | usual | dict(own)
        return {axis: ladder for axis, ladder in every.items() if ladder}


@dataclass(frozen=True)
class Sizes(Settings):
    """Accuracy against bag size: the sizes, and how to train on them."""

    sizes: tuple[int, ...] = _key((2, 4, 8, 16, 32, 64, 128), _ladder(whole), "The bag sizes.")
    folds: int = _key(3, whole, "Number of folds.")
    epochs: int = _key(30, whole, "Epochs of each run.")
    held_out: float | None = _key(None, share, "Share of the training bags held out.")
    bags_per_step: int | None = _key(
        None, whole, "Fewest bags per step of whole-bag methods: larger bags get larger batches."
    )


@dataclass(frozen=True)
class Times(Settings):
    """Epoch times: methods take turns, each alone on the machine."""

    turns: int = _key(3, whole, "How often each method is timed.")
    epochs: int = _key(10, partial(whole, least=WARM_UP + 1), "Epochs of each turn.")


@dataclass(frozen=True)
class Protocol(Settings):
    """What the runs of a results folder share: data, partition and recipe.

    An entry of ``methods`` holds the settings of a method that differ from the shared recipe. With
    the key ``method`` it is a *variant*, which has a name of its own; ``folds`` limits the number
    of its folds.

    >>> Protocol("Digits", "digits", methods={"mle": {"lr": 0.003}}).recipe_of("mle").lr
    0.003
    >>> protocol = Protocol("Sizes", "digits", methods={"large": {"method": "mle", "lr": 0.01}})
    >>> protocol.recipe_of("large").method
    'mle'
    """

    title: str = _key("Experiments", text, "A line for the reader.", text=True)
    dataset: str = _key("digits", _known(DATASETS), "The name of a data set.", text=True)
    data_options: Mapping[str, Any] = _key({}, _options, "Options of the data set.")
    bag_size: int | tuple[int, int] | None = _key(
        None, _bag_size, "Size of random bags, or the ends of a range; none if the data have bags."
    )
    seed: int = _key(
        0, partial(whole, least=0), "Of bags, folds and, together with the fold, the training."
    )
    folds: int = _key(10, partial(whole, least=2, most=1000), "How many parts the bags make.")
    official: bool = _key(
        False, flag, "Test on the data's own test split; folds are seeds that redraw the bags."
    )
    concentration: float | None = _key(
        None, partial(number, above=0), "With official, clusters bags by class: see random_bags."
    )
    flat: bool = _key(False, flag, "Whether images are passed to the network as rows of numbers.")
    recipe: Mapping[str, Any] = _key({}, _recipe, "Settings that all methods share.")
    methods: Mapping[str, Mapping[str, Any]] = _key(
        {}, _methods, "The methods and variants to run, each with its own settings."
    )
    grid: Grid | None = _key(None, _part(Grid), "The hyper-parameter search, if there is one.")
    sizes: Sizes | None = _key(None, _part(Sizes), "The experiment on bag sizes, if there is one.")
    times: Times | None = _key(None, _part(Times), "The epoch times, if they are measured.")

    @property
    def experiments(self) -> list[str]:
        """The experiments of this protocol, in the order in which they run."""
        return [name for name in EXPERIMENTS if name == "convergence" or self._part(name)]

    def _part(self, experiment: str) -> Grid | Sizes | Times | None:
        return {"grid": self.grid, "bag-size": self.sizes, "epoch-time": self.times}.get(experiment)

    def folds_of(self, experiment: str, name: str = "") -> int:
        """Number of folds of an experiment, or of one of its methods, unless the user says so."""
        part = self._part(experiment)
        if isinstance(part, Times):
            return part.turns
        most = self.folds if part is None else min(self.folds, part.folds)
        own = self.methods.get(name, {}).get("folds", most)
        return most if experiment == "grid" else min(most, int(own))

    def fold_limit(self, experiment: str) -> int:
        """The number of folds that an experiment can have; of epoch times, the turns."""
        return self.folds_of(experiment) if experiment == "epoch-time" else self.folds

    def method_of(self, name: str) -> str:
        """The method of a variant; a method is its own."""
        return str(self.methods.get(name, {}).get("method", name))

    def variant(self, name: str) -> str:
        """The name if it is that of a variant, else empty."""
        return "" if self.method_of(name) == name else name

    def settings_of(self, name: str, experiment: str, bag_size: int | None) -> dict[str, Any]:
        """The protocol's settings for a method or variant in an experiment."""
        own, method = self.methods.get(name, {}), self.method_of(name)
        values = {**self.recipe, **{k: v for k, v in own.items() if k not in OWN}}
        values |= {"method": method, "seed": self.seed}
        part = self._part(experiment)
        if part is not None:
            values |= {"epochs": part.epochs, "held_out": getattr(part, "held_out", None)}
        if isinstance(part, Grid):  # slow methods may have more epochs
            values["epochs"] = part.own_epochs.get(method, part.epochs)
        if isinstance(part, Sizes) and part.bags_per_step and METHODS[method].batches == "bags":
            least = part.bags_per_step * (bag_size or 1)
            values["batch_size"] = max(Recipe.from_dict(values).batch_size, least)
        return values

    def recipe_of(
        self,
        name: str,
        experiment: str = "convergence",
        bag_size: int | None = None,
        **chosen: Any,
    ) -> Recipe:
        """The full recipe of a method or variant in an experiment.

        Args:
            name: Of the method or variant.
            experiment: Sets the epochs and the share of held-out bags.
            bag_size: In ``bag-size``, the size of the bags.
            chosen: The grid's choice, for settings that the protocol does not set.
        """
        own = METHODS[self.method_of(name)]
        # The protocol's settings override the grid's choice, which overrides the default rate.
        values = {"lr": own.lr, **chosen, **self.settings_of(name, experiment, bag_size)}
        if own.network_name is not None:
            values["network"] = own.network_name
        return Recipe.from_dict(values)

    def quick(self) -> "Protocol":
        """The same protocol with few folds and epochs, to see that everything works."""
        few = min(self.folds, 3)
        epochs = min(int(self.recipe.get("epochs", 30)), 3)
        methods = {
            name: {k: v if k != "epochs" else epochs for k, v in own.items()}
            for name, own in self.methods.items()
        }
        sizes = self.sizes and replace(self.sizes, sizes=(2, 16), folds=2, epochs=epochs)
        return replace(
            self,
            title=f"{self.title} (quick)",
            folds=few,
            recipe={**self.recipe, "epochs": epochs},
            methods=methods,
            grid=self.grid and Grid(1, epochs, lr=self.grid.lr and (1e-3, 3e-3), weight_decay=()),
            sizes=sizes,
            times=self.times and Times(turns=2, epochs=WARM_UP + 2),
        )

    def searched(self, name: str) -> bool:
        """Whether the grid tunes a method: not if the protocol sets its hyper-parameters."""
        own = self.methods.get(name, {})
        axes = [*(self.grid.axes(self.method_of(name)) if self.grid else ()), "method_options"]
        return self.grid is not None and not any(axis in own for axis in axes)

    def chosen(self, name: str) -> list[str]:
        """The settings of a recipe that the grid chooses for a method."""
        if self.grid is None or not self.searched(name):
            return []
        axes = self.grid.axes(self.method_of(name))
        return list(dict.fromkeys(a if a in RATES else "method_options" for a in axes))

    def plain(self) -> dict[str, Any]:
        """Plain values; :func:`llpkit.experiments.protocol_file.parse` reads them."""
        return dict(_plain(self))


def _plain(value: Any) -> Any:
    """Dataclasses as mappings without absent parts, and tuples as lists, at any depth."""
    if is_dataclass(value):
        every = {item.name: getattr(value, item.name) for item in fields(value)}
        return {name: _plain(own) for name, own in every.items() if own is not None}
    if isinstance(value, Mapping):
        return {key: _plain(own) for key, own in value.items()}
    return [_plain(own) for own in value] if isinstance(value, list | tuple) else value
