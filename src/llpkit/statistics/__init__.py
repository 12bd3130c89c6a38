"""How sure is the answer: standard errors, shares of groups with intervals, random effects.

The functions take a fitted estimator and the arguments of its ``fit``. :func:`summary` has standard
errors and predictions with intervals; :func:`shares` estimates how the members of a group are
labelled; :func:`bounds` and :func:`goodman` do so without a model. :func:`overdispersion` tests
whether bags differ more than the model allows, and :func:`bootstrap` refits any estimator.
"""

from llpkit.statistics.assumptions import Model, assume
from llpkit.statistics.bootstrap import Bootstrap, bootstrap
from llpkit.statistics.ecological import Bounds, Goodman, bounds, goodman
from llpkit.statistics.goodness import Goodness, bag_calibration, goodness_of_fit
from llpkit.statistics.identifiability import (
    Identifiability,
    Problem,
    identifiability,
    warn_unidentified,
)
from llpkit.statistics.information import bag_information
from llpkit.statistics.overdispersion import Overdispersion, overdispersion
from llpkit.statistics.planning import Information, Plan, compare, next_bags, plan
from llpkit.statistics.prediction import Prediction
from llpkit.statistics.share_table import Shares
from llpkit.statistics.shares import shares
from llpkit.statistics.summary import Summary, summary

__all__ = [
    "Bootstrap",
    "Bounds",
    "Goodman",
    "Goodness",
    "Identifiability",
    "Information",
    "Model",
    "Overdispersion",
    "Plan",
    "Prediction",
    "Problem",
    "Shares",
    "Summary",
    "assume",
    "bag_calibration",
    "bag_information",
    "bootstrap",
    "bounds",
    "compare",
    "goodman",
    "goodness_of_fit",
    "identifiability",
    "next_bags",
    "overdispersion",
    "plan",
    "shares",
    "summary",
    "warn_unidentified",
]
