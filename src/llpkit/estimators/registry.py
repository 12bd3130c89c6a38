"""Estimators by name, for the command line and its plugins."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC

from llpkit._package import package
from llpkit._registry import Registry, check_options, first_line
from llpkit.estimators.alter_svm import AlterSVMClassifier
from llpkit.estimators.base import BaseLLP
from llpkit.estimators.dllp import DLLPClassifier
from llpkit.estimators.em import LLPClassifier
from llpkit.estimators.ensemble import LLPEnsembleClassifier
from llpkit.estimators.invcal import InvCalClassifier
from llpkit.estimators.logistic import LLPLogisticRegression
from llpkit.estimators.mean_map import MeanMapClassifier
from llpkit.estimators.mixed import LLPMixedLogisticRegression
from llpkit.estimators.network import LLPNetworkClassifier

Build = Callable[[], BaseLLP]
Grid = Mapping[str, Sequence[Any]]
_Build = TypeVar("_Build", bound=Build)


class Entry(NamedTuple):
    """A registered estimator: a summary, and ``build()``, a class or function that makes one."""

    summary: str
    build: Build
    grid: Grid
    """Values that a search tries, by parameter."""
    dask: bool
    """Whether Dask can fit it to tables larger than memory."""


ESTIMATORS: Registry[Entry] = Registry("estimator")
"""Estimators by name; :func:`register` adds one. ``ESTIMATORS[name].grid`` has the values that
:func:`search` tries. ``ensemble`` has none: it weights its members by held-out bags already."""


def register(
    name: str, summary: str | None = None, *, grid: Grid | None = None, dask: bool = False
) -> Callable[[_Build], _Build]:
    """Add an estimator: a decorator of a class, or of a function without arguments.

    Args:
        name: Its name.
        summary: One line for lists; by default the first line of the docstring.
        grid: Values that a search tries, by parameter; none if it cannot be searched by name.
        dask: Whether Dask can fit it, which only knows logistic regression and XGBoost.
    """

    def add(build: _Build) -> _Build:
        line = first_line(build) if summary is None else summary
        ESTIMATORS.add(name, Entry(line, build, grid or {}, dask))
        return build

    return add


_STRENGTHS = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0]
_TREES: dict[str, list[Any]] = {
    "learning_rate": [0.03, 0.1, 0.3],
    "n_estimators": [50, 100, 200],
    "reg_lambda": [0.0, 1.0, 10.0],
}

register("ensemble")(LLPEnsembleClassifier)
register("logistic", grid={"C": _STRENGTHS}, dask=True)(LLPLogisticRegression)
register("mixed-logistic", grid={"C": _STRENGTHS})(LLPMixedLogisticRegression)
register(
    "network",
    grid={"C": [0.01, 0.1, 1.0, 10.0], "hidden_layer_sizes": [[8], [32], [64], [32, 32]]},
)(LLPNetworkClassifier)


@register(
    "hist-gradient-boosting",
    grid={
        "learning_rate": [0.03, 0.1, 0.3],
        "estimator__max_iter": [50, 100, 200],  # not the iterations of EM
        "max_leaf_nodes": [4, 8, 16, 31],
        "min_samples_leaf": [5, 20, 80],
        "l2_regularization": [0.0, 1.0, 10.0],
    },
)
def _boosting() -> BaseLLP:
    """EM around histogram gradient boosting."""
    # Given by name, so that its options can be set.
    return LLPClassifier(HistGradientBoostingClassifier(early_stopping=False))


@register(
    "random-forest",
    grid={"min_samples_leaf": [1, 3, 5, 10, 20, 40], "max_features": ["sqrt", 0.5, 1.0]},
)
def _forest() -> BaseLLP:
    """EM around a random forest."""
    return LLPClassifier(RandomForestClassifier(min_samples_leaf=5))


@register(
    "lightgbm", grid=_TREES | {"num_leaves": [4, 8, 16, 31], "min_child_samples": [5, 20, 80]}
)
def _lightgbm() -> BaseLLP:
    """EM around LightGBM, if it is installed."""
    return LLPClassifier(package("lightgbm").LGBMClassifier(verbose=-1))


@register(
    "xgboost",
    grid=_TREES | {"max_depth": [2, 3, 4, 6], "min_child_weight": [1, 5, 20]},
    dask=True,
)
def _xgboost() -> BaseLLP:
    """EM around XGBoost, if it is installed; also for tables larger than memory."""
    return LLPClassifier(package("xgboost").XGBClassifier())


@register("svc", grid={"C": [0.1, 1.0, 10.0, 100.0], "gamma": ["scale", 0.01, 0.1, 1.0]})
def _svc() -> BaseLLP:
    """EM around a kernel support vector machine, for a few thousand rows."""
    return LLPClassifier(SVC())


@register("naive-bayes", grid={"var_smoothing": [1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1]})
def _naive_bayes() -> BaseLLP:
    """EM around naive Bayes."""
    return LLPClassifier(GaussianNB())


register("alter-svm", grid={"C": [0.01, 0.1, 1.0, 10.0], "kernel": ["linear", "rbf"]})(
    AlterSVMClassifier
)
register("inv-cal", grid={"C": [0.01, 0.1, 1.0, 10.0, 100.0], "kernel": ["linear", "rbf"]})(
    InvCalClassifier
)
register(
    "mean-map", grid={"C": [0.01, 0.1, 1.0, 10.0, 100.0], "laplacian": [None, 0.1, 1.0, 10.0]}
)(MeanMapClassifier)
register("dllp", grid={"C": [0.1, 1.0, 10.0, 100.0], "hidden_layer_sizes": [[], [8], [32]]})(
    DLLPClassifier
)


def make(name: str, options: Mapping[str, Any], seed: int, threads: int | None = None) -> BaseLLP:
    """An estimator by name.

    Args:
        name: A key of :data:`ESTIMATORS`.
        options: Parameters by the names of ``get_params``; those of a classifier within EM also
            without ``estimator__``.
        seed: Seed for its random state.
        threads: For its ``n_jobs`` and that of a classifier within EM, unless in ``options``.

    >>> make("hist-gradient-boosting", {"max_leaf_nodes": 8, "tol": 0.01}, seed=0).tol
    0.01
    """
    estimator = ESTIMATORS[name].build()
    for key, value in options.items():
        estimator.set_params(**{full_name(key, estimator, name): value})
    known = estimator.get_params(deep=True)
    if "random_state" in known and "random_state" not in options:
        estimator.set_params(random_state=seed)
    if threads is not None and not {"n_jobs", "estimator__n_jobs"} & options.keys():
        jobs = [key for key in ("n_jobs", "estimator__n_jobs") if key in known]
        estimator.set_params(**dict.fromkeys(jobs, threads))
    return estimator


def full_name(key: str, estimator: Any, owner: str) -> str:
    """A parameter as ``get_params`` names it; the prefix ``estimator__`` may be left out.

    ``owner`` is how errors name the estimator.
    """
    known = estimator.get_params(deep=True)
    if key in known:
        return key
    check_options(owner, [key], sorted({name.removeprefix("estimator__") for name in known}))
    return f"estimator__{key}"
