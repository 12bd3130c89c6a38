"""Checks that the classical estimators share."""

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llpkit.bags import Bags
from llpkit.errors import LLPError


def number(
    name: str,
    value: Any,
    *,
    zero: bool = False,
    infinite: bool = False,
    words: tuple[str, ...] = (),
) -> float:
    """A parameter that must be a finite number above zero; or may be zero, or infinite.

    ``words`` are what else the parameter may be, for the message.
    """
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not (value >= 0 if zero else value > 0) or (value == np.inf and not infinite):
        known = ["a number from 0" if zero else "a number above 0", *map(repr, words)]
        known += ["inf"] if infinite else []
        raise LLPError(f"{name} = {value!r}; give {' or '.join(known)}")
    return float(value)


def exact_counts(bags: Bags, estimator: object) -> NDArray[np.int64]:
    """The counts ``(B,)`` or ``(B, K)``, where the method has no use for anything less."""
    if not bags.evidence.is_exact:
        raise LLPError(
            f"{type(estimator).__name__} takes exact counts, but some of these are intervals or "
            "weights; use LLPClassifier or LLPLogisticRegression for them"
        )
    counts: NDArray[np.int64] = bags.counts.numpy()
    return counts
