"""How sure is the answer: standard errors, shares of groups with intervals, random effects.

The functions take a fitted estimator and the arguments of its ``fit``. In the order in which
one asks: :func:`bounds` says what the counts imply without any model.
"""

from llpkit.statistics.ecological import Bounds, bounds
from llpkit.statistics.identifiability import (
    Identifiability,
    Problem,
    identifiability,
    warn_unidentified,
)

__all__ = [
    "Bounds",
    "Identifiability",
    "Problem",
    "bounds",
    "identifiability",
    "warn_unidentified",
]
