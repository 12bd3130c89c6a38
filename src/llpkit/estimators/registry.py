"""Estimators by name, for the command line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llpkit.datasets._words import did_you_mean
from llpkit.errors import LLPError
from llpkit.estimators.alter_svm import AlterSVMClassifier
from llpkit.estimators.base import BaseLLP
from llpkit.estimators.dllp import DLLPClassifier
from llpkit.estimators.em import LLPClassifier
from llpkit.estimators.invcal import InvCalClassifier
from llpkit.estimators.logistic import LLPLogisticRegression
from llpkit.estimators.mean_map import MeanMapClassifier


@dataclass(frozen=True)
class Named:
    """How to make an estimator, and one line on what it is."""

    make: Callable[[], BaseLLP]
    summary: str


def _boosting() -> BaseLLP:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return LLPClassifier(HistGradientBoostingClassifier(early_stopping=False))


def _forest() -> BaseLLP:
    from sklearn.ensemble import RandomForestClassifier

    return LLPClassifier(RandomForestClassifier(min_samples_leaf=5))


def _svc() -> BaseLLP:
    from sklearn.svm import SVC

    return LLPClassifier(SVC())


def _naive_bayes() -> BaseLLP:
    from sklearn.naive_bayes import GaussianNB

    return LLPClassifier(GaussianNB())


def _lightgbm() -> BaseLLP:
    try:
        from lightgbm import LGBMClassifier
    except ImportError as error:
        raise LLPError("the estimator lightgbm needs the package lightgbm; install it") from error
    return LLPClassifier(LGBMClassifier(verbose=-1))


ESTIMATORS = {
    "logistic": Named(LLPLogisticRegression, "logistic regression by the exact likelihood"),
    "hist-gradient-boosting": Named(_boosting, "EM around histogram gradient boosting"),
    "random-forest": Named(_forest, "EM around a random forest"),
    "lightgbm": Named(_lightgbm, "EM around LightGBM, where it is installed"),
    "svc": Named(_svc, "EM around a kernel support vector machine, for some thousand rows"),
    "naive-bayes": Named(_naive_bayes, "EM around naive Bayes"),
    "alter-svm": Named(AlterSVMClassifier, "alter-∝SVM, a support vector machine with its labels"),
    "inv-cal": Named(InvCalClassifier, "InvCal, support vector regression of bag means"),
    "mean-map": Named(MeanMapClassifier, "the mean map"),
    "dllp": Named(DLLPClassifier, "a bag's mean prediction is its proportion"),
}
"""All that :func:`make` knows."""


def make(name: str, options: Mapping[str, Any], seed: int, threads: int | None = None) -> BaseLLP:
    """An estimator by name.

    Args:
        name: A key of :data:`ESTIMATORS`.
        options: Parameters, by the names of ``get_params``; those of a classifier within EM also
            without their ``estimator__``.
        seed: For its random state.
        threads: For its ``n_jobs`` and that of a classifier within EM, where ``options`` has none.

    >>> make("hist-gradient-boosting", {"max_leaf_nodes": 8, "tol": 0.01}, seed=0).tol
    0.01
    """
    if name not in ESTIMATORS:
        raise LLPError(f"there is no estimator {name!r}; {did_you_mean(name, ESTIMATORS)}")
    estimator = ESTIMATORS[name].make()
    known = estimator.get_params(deep=True)
    for key, value in options.items():
        full = key if key in known else f"estimator__{key}"
        if full not in known:
            plain = [other.removeprefix("estimator__") for other in known]
            raise LLPError(f"{name} has no option {key!r}; {did_you_mean(key, sorted(set(plain)))}")
        estimator.set_params(**{full: value})
    if "random_state" in known and "random_state" not in options:
        estimator.set_params(random_state=seed)
    if threads is not None and not {"n_jobs", "estimator__n_jobs"} & options.keys():
        jobs = [key for key in ("n_jobs", "estimator__n_jobs") if key in known]
        estimator.set_params(**dict.fromkeys(jobs, threads))
    return estimator
