"""L-BFGS with a warning where it has not converged."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

Array = NDArray[np.float64]


def lbfgs(
    value_and_gradient: Callable[[Array], tuple[float, Array]],
    start: Array,
    max_iter: int,
    tol: float,
    estimator: object,
) -> tuple[Array, int]:
    """The minimum and the iterations taken; ``tol`` bounds the gradient's largest component."""
    found: Any = minimize(
        value_and_gradient,
        start,
        jac=True,
        method="L-BFGS-B",
        # Only the gradient decides: the fall of one iteration says little about what is left.
        options={"maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": tol, "ftol": 0.0},
    )
    if np.abs(found.jac).max(initial=0.0) > tol:
        warnings.warn(
            f"{type(estimator).__name__} did not converge in {found.nit} iterations; standardise "
            "the features, or raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=5,
        )
    return np.asarray(found.x), int(found.nit)
