"""The other settings of a run, and which settings go together."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from llpkit._settings import Settings, setting
from llpkit._validation import mapping, one_of, option, registered, text, whole
from llpkit.config.data import Data, Split, Values, misplaced, names
from llpkit.errors import LLPError
from llpkit.recipe import AUTO, Execution, Recipe


def _estimator(place: str, value: Any) -> str:
    from llpkit.estimators import ESTIMATORS

    return registered(place, value, ESTIMATORS)


@dataclass(frozen=True, kw_only=True)
class EstimatorSettings(Settings):
    """An estimator instead of a network."""

    estimator: str | None = setting(
        None,
        "An estimator instead of a network, for tables of features: hist-gradient-boosting, "
        "logistic, …, as listed by llpkit estimators.",
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
        "Try up to N settings of the estimator, and keep the best by cross-validation over bags.",
        lambda place, value: whole(place, value, 2, 10_000),
        "N",
    )


@dataclass(frozen=True, kw_only=True)
class Cluster(Settings):
    """Where tables that do not fit into memory are processed."""

    engine: str = setting(
        "memory",
        "memory, or dask for Parquet tables that do not fit into memory, which needs --estimator "
        "xgboost or logistic (memory).",
        lambda place, value: one_of(place, value, ("memory", "dask")),
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
        "Memory of each local Dask worker, such as 4GB (an equal share of the machine's).",
        text,
        "SIZE",
        text=True,
    )


def _loggers(place: str, value: Any) -> list[str]:
    from llpkit.integrations.loggers import LOGGERS

    return list(dict.fromkeys(one_of(place, name, LOGGERS) for name in names(place, value)))


@dataclass(frozen=True, kw_only=True)
class Tracking(Settings):
    """Where the run is logged, in addition to its folder."""

    log: list[str] = setting(
        [],
        "Log the run to tensorboard, mlflow or wandb; repeatable.",
        _loggers,
        "NAME",
        many=True,
        text=True,
    )


@dataclass(frozen=True)
class Config:
    """The complete configuration of one run, as in its ``config.yaml``."""

    data: Data
    recipe: Recipe = field(default_factory=Recipe)
    estimator: EstimatorSettings = field(default_factory=EstimatorSettings)
    split: Split = field(default_factory=Split)
    execution: Execution = field(default_factory=Execution)
    cluster: Cluster = field(default_factory=Cluster)
    tracking: Tracking = field(default_factory=Tracking)

    @property
    def name(self) -> str:
        """The estimator or the method."""
        return self.estimator.estimator or self.recipe.method

    def problems(self) -> Iterator[LLPError]:
        """Errors for settings that contradict each other."""
        yield from self.data.problems()
        yield from self._large_problems()
        yield from self.recipe.problems(self.recipe.held_out)
        if self.estimator.estimator is None:
            if self.estimator.estimator_options:
                yield LLPError(f"{option('estimator_options')} goes with an estimator; name one")
            if self.estimator.search is not None:
                yield LLPError(f"{option('search')} goes with an estimator; name one")
            return
        yield from self._search_problems()
        if self.data.image is not None:
            yield LLPError("an estimator takes tables of features, not images; choose a network")
        yield from misplaced(self.of_networks(), "a network, not with an estimator")

    def of_networks(self) -> set[str]:
        """Settings that only networks have, and that differ from their defaults."""
        of_both = {"seed", "held_out", "threads", "workers"}
        if self.execution.device == "cpu":  # where estimators run
            of_both.add("device")
        defaults = Recipe.defaults() | Execution.defaults()
        values = self.recipe.to_dict() | self.execution.to_dict()
        changed = {name for name, value in values.items() if value != defaults[name]}
        return changed - of_both

    @property
    def is_open(self) -> bool:
        """Whether the method is still to be picked; see :mod:`llpkit.auto`."""
        return self.recipe.method == AUTO and self.estimator.estimator is None

    def _search_problems(self) -> Iterator[LLPError]:
        """The error for a search that has nothing to try."""
        if self.estimator.search is None:
            return
        from llpkit.estimators.searches import grid_of

        try:
            grid_of(self.estimator.estimator or "", self.estimator.estimator_options)
        except LLPError as error:
            yield error

    def _large_problems(self) -> Iterator[LLPError]:
        """Errors for settings that do not go with the engine."""
        if self.cluster.engine == "memory":
            for_dask = {k for k, v in self.cluster.to_dict().items() if v not in (None, "memory")}
            yield from misplaced(for_dask, option("engine", "dask"))
            return
        from llpkit.estimators import ESTIMATORS

        able = [name for name, entry in ESTIMATORS.items() if entry.dask]
        if self.estimator.estimator not in able:
            named = " or ".join(option("estimator", name) for name in able)
            yield LLPError(f"{option('engine', 'dask')} needs {named}")
        memory_only = {
            "dataset": self.data.dataset,
            "image": self.data.image,
            "counts_table": self.data.counts_table,
            "held_out": self.recipe.held_out,
            "test_fraction": self.split.test_fraction,
            "search": self.estimator.search,
        }
        yield from misplaced({k for k, v in memory_only.items() if v}, option("engine", "memory"))

    def flat(self) -> Values:
        """All settings in the layout of a configuration file."""
        flat: Values = {"data": self.data.to_dict()}
        for section in SECTIONS:
            if section != "data":
                flat |= getattr(self, section).to_dict()
        return flat


SECTIONS: dict[str, type[Settings]] = {
    "recipe": Recipe,
    "estimator": EstimatorSettings,
    "split": Split,
    "execution": Execution,
    "cluster": Cluster,
    "tracking": Tracking,
    "data": Data,
}
