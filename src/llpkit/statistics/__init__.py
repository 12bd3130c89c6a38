"""How sure is the answer: standard errors, shares of groups with intervals, random effects.

The functions take a fitted estimator and the arguments of its ``fit``. :func:`summary` has standard
errors and predictions with intervals; :func:`shares` answers how the members of a group are
labelled; :func:`bounds` and :func:`goodman` answer that without a model.
"""

from llpkit.statistics.ecological import Bounds, Goodman, bounds, goodman
from llpkit.statistics.shares import Shares, shares
from llpkit.statistics.summary import Prediction, Summary, summary

__all__ = [
    "Bounds",
    "Goodman",
    "Prediction",
    "Shares",
    "Summary",
    "bounds",
    "goodman",
    "shares",
    "summary",
]
