"""What the classical estimators share."""

import warnings
from collections.abc import Callable
from math import inf
from numbers import Real
from sys import float_info

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.estimators._base import Array
from llpkit.estimators._check import check_number, check_whole
from llpkit.estimators._logistic import _minimise


def exact_counts(bags: Bags, estimator: object) -> NDArray[np.int64]:
    """The counts ``(B,)`` or ``(B, K)``, where the method has no use for anything less."""
    if not bags.evidence.is_exact:
        raise LLPError(
            f"{type(estimator).__name__} takes exact counts, but some of these are intervals or "
            "weights; use LLPClassifier or LLPLogisticRegression for them"
        )
    counts: NDArray[np.int64] = bags.counts.numpy()
    return counts


def positive(name: str, value: object) -> float:
    """A parameter that must be a finite number above zero."""
    check_number(name, value, above=0, high=float_info.max)
    return float(value)  # type: ignore[arg-type]


def not_negative(name: str, value: object) -> float:
    """A parameter that must be a finite number, zero or above."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < inf:
        raise LLPError(f"{name} = {value!r}; give a number from 0 on")
    return float(value)


def minimise(
    objective: Callable[[Array], tuple[float, Array]],
    start: Array,
    tol: object,
    max_iter: int,
    estimator: object,
) -> tuple[Array, int]:
    """The minimum by L-BFGS and the iterations taken, with a warning if these were too few."""
    check_whole("max_iter", max_iter, low=1)
    found = _minimise(objective, start, positive("tol", tol), max_iter)
    if not found.converged:
        warnings.warn(
            f"{type(estimator).__name__} did not converge in {found.n_iter} iterations; scale the "
            "features, or raise max_iter",
            ConvergenceWarning,
            stacklevel=4,
        )
    return found.weights, found.n_iter
