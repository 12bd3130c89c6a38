"""A protocol: everything that the runs of a results folder have in common."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from llpkit.methods import METHODS
from llpkit.recipe import Recipe

EXPERIMENTS = ("grid", "convergence", "bag-size", "epoch-time")
"""In the order in which ``all`` runs them: the others use the grid's choice."""

RATES = ("lr", "weight_decay")
"""Axes of a grid that are settings of a recipe; the others are options of a method."""

WARM_UP = 2
"""Epochs at the start of a timed run that are not counted."""


@dataclass(frozen=True)
class Grid:
    """The hyper-parameter search: one axis at a time, by the likelihood of held-out bags.

    Each axis is a ladder of ascending values. The search starts with the middle three values (all
    if there are no more) and goes one step beyond an end if the best value is there.

    Args:
        folds: How many folds a candidate is trained on.
        epochs: Epochs of each run.
        held_out: Share of the training bags that candidates are scored by.
        lr: Ladder of learning rates.
        weight_decay: Ladder of weight decays.
        methods: Ladders by method: for its own options, or instead of those above.
        own_epochs: Epochs by method, for those that learn more slowly.
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
        # A method's own options first, then the usual axes with its own ladders.
        every = {axis: own[axis] for axis in own if axis not in usual} | usual | dict(own)
        return {axis: ladder for axis, ladder in every.items() if ladder}


@dataclass(frozen=True)
class Sizes:
    """Accuracy against bag size: the sizes, and how to train on them."""

    sizes: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128)
    folds: int = 3
    epochs: int = 30
    held_out: float | None = None


@dataclass(frozen=True)
class Times:
    """Epoch times: methods take turns, each alone on the machine."""

    turns: int = 3
    epochs: int = 10


@dataclass(frozen=True)
class Protocol:
    """What the runs of a results folder share: data, partition and recipe.

    Args:
        title: A line for the reader.
        dataset: The name of a data set.
        data_options: Options of the data set.
        bag_size: Size of random bags, or the ends of a range; ``None`` for a data set that comes
            with bags.
        seed: Seed of the bags, the folds and, together with the fold, the training.
        folds: How many folds the bags are divided into.
        official: Test on the data set's own test split instead of a fold. Folds are then seeds:
            each draws new bags from the training split.
        concentration: With ``official``, clusters the bags by class, see
            :func:`llpkit.random_bags`.
        flat: Whether images are passed to the network as rows of numbers.
        recipe: Settings of :class:`llpkit.training.recipe.Recipe` that all methods share.
        methods: The methods to run, each with its own settings.
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
    official: bool = False
    concentration: float | None = None
    flat: bool = False
    recipe: Mapping[str, Any] = field(default_factory=dict)
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grid: Grid | None = None
    sizes: Sizes | None = None
    times: Times | None = None

    @property
    def experiments(self) -> list[str]:
        """The experiments of this protocol, in the order in which they run."""
        parts = {"grid": self.grid, "bag-size": self.sizes, "epoch-time": self.times}
        return [name for name in EXPERIMENTS if parts.get(name, True) is not None]

    def folds_of(self, experiment: str) -> int:
        """Number of folds of an experiment, unless the user names others."""
        parts = {"grid": self.grid, "bag-size": self.sizes}
        if experiment == "epoch-time":
            return self.times.turns if self.times else 0
        part = parts.get(experiment)
        return min(self.folds, part.folds) if part is not None else self.folds

    def fold_limit(self, experiment: str) -> int:
        """The number of folds that an experiment can have; of epoch times, the turns."""
        return self.folds_of(experiment) if experiment == "epoch-time" else self.folds

    def settings(self, method: str, experiment: str = "convergence") -> dict[str, Any]:
        """The protocol's settings for a method in an experiment."""
        values = {**self.recipe, **self.methods.get(method, {})}
        values |= {"method": method, "seed": self.seed}
        part = {"grid": self.grid, "bag-size": self.sizes, "epoch-time": self.times}.get(experiment)
        if part is not None:
            values |= {"epochs": part.epochs, "held_out": getattr(part, "held_out", None)}
        # Slow methods may have more epochs in the grid.
        if part is self.grid is not None:
            values["epochs"] = self.grid.own_epochs.get(method, self.grid.epochs)
        return values

    def recipe_of(self, method: str, experiment: str = "convergence", **chosen: Any) -> Recipe:
        """The full recipe of a method in an experiment.

        Args:
            method: By name.
            experiment: Sets the epochs and the share of held-out bags.
            chosen: The grid's choice, for settings that the protocol does not set.
        """
        own = METHODS[method]
        # The protocol's settings override the grid's choice, which overrides the default rate.
        values = {"lr": own.lr, **chosen, **self.settings(method, experiment)}
        if own.network_name is not None:
            values["network"] = own.network_name
        return Recipe.from_dict(values)

    def quick(self) -> "Protocol":
        """The same protocol with few folds and epochs, to see that everything works."""
        few = min(self.folds, 3)
        epochs = min(int(self.recipe.get("epochs", 30)), 3)
        return replace(
            self,
            title=f"{self.title} (quick)",
            folds=few,
            recipe={**self.recipe, "epochs": epochs},
            grid=self.grid and Grid(1, epochs, lr=self.grid.lr and (1e-3, 3e-3), weight_decay=()),
            sizes=self.sizes and Sizes((2, 16), 2, epochs, self.sizes.held_out),
            times=self.times and Times(turns=2, epochs=WARM_UP + 2),
        )

    def searched(self, method: str) -> bool:
        """Whether the grid tunes a method: not if the protocol sets its hyper-parameters."""
        own = self.methods.get(method, {})
        axes = [*(self.grid.axes(method) if self.grid else ()), "method_options"]
        return self.grid is not None and not any(axis in own for axis in axes)

    def chosen(self, method: str) -> list[str]:
        """The settings of a recipe that the grid chooses for a method."""
        if self.grid is None or not self.searched(method):
            return []
        axes = self.grid.axes(method)
        return list(dict.fromkeys(a if a in RATES else "method_options" for a in axes))

    def to_dict(self) -> dict[str, Any]:
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
