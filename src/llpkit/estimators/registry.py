"""Estimators by name, for the command line and its plugins."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC

from llpkit._package import package
from llpkit._registry import Registry, check_options
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

ESTIMATORS: Registry[Callable[[], BaseLLP]] = Registry("estimator")
"""Classes, or functions without arguments, that create an estimator; see their docstrings.

A plugin adds its own with ``ESTIMATORS.register("my-name", MyClassifier)``, or as a decorator.
"""

ESTIMATORS.register("ensemble", LLPEnsembleClassifier)
ESTIMATORS.register("logistic", LLPLogisticRegression)
ESTIMATORS.register("mixed-logistic", LLPMixedLogisticRegression)
ESTIMATORS.register("network", LLPNetworkClassifier)


@ESTIMATORS.register("hist-gradient-boosting")
def _boosting() -> BaseLLP:
    """EM around histogram gradient boosting."""
    # Given by name, so that its options can be set.
    return LLPClassifier(HistGradientBoostingClassifier(early_stopping=False))


@ESTIMATORS.register("random-forest")
def _forest() -> BaseLLP:
    """EM around a random forest."""
    return LLPClassifier(RandomForestClassifier(min_samples_leaf=5))


@ESTIMATORS.register("lightgbm")
def _lightgbm() -> BaseLLP:
    """EM around LightGBM, if it is installed."""
    return LLPClassifier(package("lightgbm").LGBMClassifier(verbose=-1))


@ESTIMATORS.register("xgboost")
def _xgboost() -> BaseLLP:
    """EM around XGBoost, if it is installed; also for tables larger than memory."""
    return LLPClassifier(package("xgboost").XGBClassifier())


@ESTIMATORS.register("svc")
def _svc() -> BaseLLP:
    """EM around a kernel support vector machine, for a few thousand rows."""
    return LLPClassifier(SVC())


@ESTIMATORS.register("naive-bayes")
def _naive_bayes() -> BaseLLP:
    """EM around naive Bayes."""
    return LLPClassifier(GaussianNB())


ESTIMATORS.register("alter-svm", AlterSVMClassifier)
ESTIMATORS.register("inv-cal", InvCalClassifier)
ESTIMATORS.register("mean-map", MeanMapClassifier)
ESTIMATORS.register("dllp", DLLPClassifier)


def summary(name: str) -> str:
    """One line on a registered estimator: the first of its docstring.

    >>> summary("random-forest")
    'EM around a random forest.'
    """
    return (inspect.getdoc(ESTIMATORS[name]) or "").partition("\n")[0]


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
    estimator = ESTIMATORS[name]()
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
