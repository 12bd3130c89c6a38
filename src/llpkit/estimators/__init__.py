"""Classifiers of rows that learn from the counts of bags, in scikit-learn's conventions.

All take ``fit(X, y, groups)``, where ``groups`` is the bag of every row and ``y`` what is known of
that bag; see :class:`BaseLLP`. :class:`LLPClassifier` is EM around any classifier,
:class:`LLPLogisticRegression` maximises the exact likelihood directly, and the classical methods
stand beside them.
"""

from llpkit.estimators._alter import AlterSVMClassifier
from llpkit.estimators._base import BaseLLP
from llpkit.estimators._dllp import DLLPClassifier
from llpkit.estimators._em import LLPClassifier
from llpkit.estimators._invcal import InvCalClassifier
from llpkit.estimators._logistic import LLPLogisticRegression
from llpkit.estimators._mean_map import MeanMapClassifier
from llpkit.estimators._persist import load, save
from llpkit.estimators._scorers import bag_log_likelihood, neg_proportion_error

__all__ = [
    "AlterSVMClassifier",
    "BaseLLP",
    "DLLPClassifier",
    "InvCalClassifier",
    "LLPClassifier",
    "LLPLogisticRegression",
    "MeanMapClassifier",
    "bag_log_likelihood",
    "load",
    "neg_proportion_error",
    "save",
]
