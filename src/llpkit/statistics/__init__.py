"""How sure is the answer: standard errors, shares of groups with intervals, random effects.

The functions take a fitted estimator and the arguments of its ``fit``. In the order in which
one asks: :func:`bounds` says what the counts imply without any model.
"""

from llpkit.statistics.assumptions import Model, assume
from llpkit.statistics.ecological import Bounds, bounds
from llpkit.statistics.goodness import Goodness, bag_calibration, goodness_of_fit
from llpkit.statistics.identifiability import (
    Identifiability,
    Problem,
    identifiability,
    warn_unidentified,
)
from llpkit.statistics.information import bag_information
from llpkit.statistics.planning import Information, Plan, compare, next_bags, plan

__all__ = [
    "Bounds",
    "Goodness",
    "Identifiability",
    "Information",
    "Model",
    "Plan",
    "Problem",
    "assume",
    "bag_calibration",
    "bag_information",
    "bounds",
    "compare",
    "goodness_of_fit",
    "identifiability",
    "next_bags",
    "plan",
    "warn_unidentified",
]
