"""A protocol: everything that the runs of a results folder have in common."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

from llpkit._settings import Check, Settings, setting
from llpkit._validation import flag, mapping, number, registered, share, text, whole
from llpkit.config.data import bag_size
from llpkit.datasets import DATASETS
from llpkit.errors import LLPError
from llpkit.experiments import protocol_keys as keys
from llpkit.methods import METHODS, make
from llpkit.recipe import Recipe

EXPERIMENTS = ("grid", "convergence", "bag-size", "epoch-time")
"""In the order of ``all``: the grid first, because the others use its choice."""

WARM_UP = 2
"""Epochs at the start of a timed run that do not count."""


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

    Each axis is a ladder of ascending values. The search tries the middle three values first, then
    one more beyond the best if that is at an end.
    """

    folds: int = _key(2, whole, "How many folds a candidate is trained on.")
    epochs: int = _key(30, whole, "Epochs of each run.")
    held_out: float = _key(0.1, share, "Share of the training bags that score candidates.")
    lr: tuple[float, ...] = _key(
        (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2), keys.rates, "Ladder of learning rates."
    )
    weight_decay: tuple[float, ...] = _key((0.0, 0.05), keys.rates, "Ladder of weight decays.")
    methods: Mapping[str, Mapping[str, tuple[Any, ...]]] = _key(
        {},
        keys.by_method(keys.ladders),
        "Ladders by method: for its options, or in place of those above.",
    )
    own_epochs: Mapping[str, int] = _key(
        {}, keys.by_method(whole), "Epochs by method, for those that learn more slowly."
    )

    def axes(self, method: str) -> dict[str, tuple[Any, ...]]:
        """The axes of a method, in the order of the search.

        >>> Grid(methods={"llp-gan": {"weight": (0.1, 1, 10)}}).axes("llp-gan").keys()
        dict_keys(['weight', 'lr', 'weight_decay'])
        """
        usual = {"lr": self.lr, "weight_decay": self.weight_decay}
        own = self.methods.get(method, {})
        # A method's options come first. Its ladders replace the usual ones.
        every = {axis: own[axis] for axis in own if axis not in usual} | usual | dict(own)
        return {axis: ladder for axis, ladder in every.items() if ladder}


@dataclass(frozen=True)
class Sizes(Settings):
    """Accuracy against bag size: the sizes, and how to train on them."""

    sizes: tuple[int, ...] = _key((2, 4, 8, 16, 32, 64, 128), keys.ladder(whole), "The bag sizes.")
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

    An entry of ``methods`` has the settings in which a method differs from the shared recipe. With
    the key ``method``, it is a *variant* of that method under another name. ``folds`` limits its
    number of folds.

    >>> Protocol("Digits", "digits", methods={"mle": {"lr": 0.003}}).recipe_of("mle").lr
    0.003
    >>> protocol = Protocol("Sizes", "digits", methods={"large": {"method": "mle", "lr": 0.01}})
    >>> protocol.recipe_of("large").method
    'mle'
    """

    title: str = _key("Experiments", text, "A line for the reader.", text=True)
    dataset: str = _key(
        "digits", partial(registered, known=DATASETS), "The name of a data set.", text=True
    )
    data_options: Mapping[str, Any] = _key({}, keys.options, "Options of the data set.")
    bag_size: int | tuple[int, int] | None = _key(
        None,
        bag_size,
        "Size of random bags, or a range; none if the data have bags.",
    )
    seed: int = _key(
        0, partial(whole, least=0), "Seed of bags and folds and, with the fold, of the training."
    )
    folds: int = _key(10, partial(whole, least=2, most=1000), "Number of folds over the bags.")
    official: bool = _key(
        False, flag, "Use the data's own test split; each fold is a seed that redraws the bags."
    )
    concentration: float | None = _key(
        None,
        partial(number, above=0),
        "With official: how much bags differ in their classes; see random_bags.",
    )
    flat: bool = _key(False, flag, "Whether the network gets images as rows of numbers.")
    recipe: Mapping[str, Any] = _key({}, keys.recipe, "Settings that all methods share.")
    methods: Mapping[str, Mapping[str, Any]] = _key(
        {}, keys.methods, "The methods and variants to run, with their settings."
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
        """The default number of folds of an experiment, or of a method in it."""
        part = self._part(experiment)
        if isinstance(part, Times):
            return part.turns
        most = self.folds if part is None else part.folds
        own = self.methods.get(name, {}).get("folds", most)
        return most if experiment == "grid" else min(most, int(own))

    def fold_limit(self, experiment: str) -> int:
        """The largest number of folds of an experiment; for epoch times, of turns."""
        return self.folds_of(experiment) if experiment == "epoch-time" else self.folds

    def method_of(self, name: str) -> str:
        """The method of a variant; the name itself if it is a method."""
        return str(self.methods.get(name, {}).get("method", name))

    def variant(self, name: str) -> str:
        """The name if it is a variant's, else empty."""
        return "" if self.method_of(name) == name else name

    def recipe_of(
        self,
        name: str,
        experiment: str = "convergence",
        bag_size: int | None = None,
        **chosen: Any,
    ) -> Recipe:
        """The full recipe of a method or variant in an experiment.

        Args:
            name: Name of the method or variant.
            experiment: Sets the epochs and the share of held-out bags.
            bag_size: In ``bag-size``, the size of the bags.
            chosen: The grid's choice, for settings that the protocol does not set.
        """
        own, method = self.methods.get(name, {}), METHODS[self.method_of(name)]
        # The protocol's settings override the grid's choice, which overrides the default rate.
        values = {"lr": method.lr, **chosen, **self.recipe}
        values |= {key: value for key, value in own.items() if key not in keys.OWN}
        values |= {"method": self.method_of(name), "seed": self.seed}
        if method.network_name is not None:
            values["network"] = method.network_name
        part = self._part(experiment)
        if part is not None:
            values |= {"epochs": part.epochs, "held_out": getattr(part, "held_out", None)}
        if isinstance(part, Grid):  # slow methods may have more epochs
            values["epochs"] = part.own_epochs.get(values["method"], part.epochs)
        if isinstance(part, Sizes) and part.bags_per_step and method.batches == "bags":
            least = part.bags_per_step * (bag_size or 1)
            values["batch_size"] = max(Recipe.from_dict(values).batch_size, least)
        return Recipe.from_dict(values)

    def quick(self) -> "Protocol":
        """The protocol with few folds and epochs, to see that everything works."""
        few = min(self.folds, 3)
        epochs = min(Recipe.from_dict(self.recipe).epochs, 3)
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
        """Whether the grid tunes a method: only if its entry sets nothing the grid would choose."""
        own = self.methods.get(name, {})
        axes = list(self.grid.axes(self.method_of(name))) if self.grid else []
        return bool(axes) and not any(axis in own for axis in (*axes, "method_options"))

    def chosen(self, name: str) -> list[str]:
        """The settings of a recipe that the grid chooses for a method."""
        if self.grid is None or not self.searched(name):
            return []
        axes = self.grid.axes(self.method_of(name))
        return list(dict.fromkeys(a if a in keys.RATES else "method_options" for a in axes))

    def check(self, place: str = "protocol") -> None:
        """Refuse keys that do not go together; errors name ``place``."""
        for name, part in (("grid", self.grid), ("sizes", self.sizes)):
            if part is not None:
                whole(f"{place}: {name}: folds", part.folds, 1, self.folds)
        if self.concentration is not None and not self.official:
            raise LLPError(f"{place}: concentration needs official: true; add it, or remove this")
        if self.official and self.bag_size is None:
            raise LLPError(f"{place}: official draws random bags; set bag_size")
        if self.sizes is not None and self.bag_size is None:
            raise LLPError(f"{place}: sizes needs random bags; set bag_size, or remove sizes")
        for name in self.methods or METHODS:
            options = [self.recipe_of(name).method_options]
            if self.grid is not None and self.searched(name):
                axes = self.grid.axes(self.method_of(name)).items()
                options += [{k: v} for k, values in axes if k not in keys.RATES for v in values]
            for some in options:
                try:
                    make(self.method_of(name), some)
                except LLPError as error:
                    raise LLPError(f"{place}: {name}: {error}") from None
        for method in self.methods or METHODS:
            # The recipe would override what the grid chooses.
            if taken := [key for key in self.chosen(method) if key in self.recipe]:
                raise LLPError(
                    f"{place}: recipe sets {taken[0]}, which the grid chooses for {method}; remove "
                    f"{taken[0]} from the recipe, or its values from the grid"
                )

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
