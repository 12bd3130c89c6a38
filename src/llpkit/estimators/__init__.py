"""Per-row classifiers that learn from the counts of bags, with scikit-learn's conventions.

All take ``fit(X, y, groups)``, where ``groups`` is the bag of every row and ``y`` what is known
about that bag; see :class:`BaseLLP`. :class:`LLPClassifier` is EM around any classifier,
:class:`LLPLogisticRegression` and :class:`LLPNetworkClassifier` maximise the exact likelihood
directly, :class:`LLPEnsembleClassifier` combines these three by the likelihood of held-out bags,
and the others are classical methods for comparison.
"""

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
from llpkit.estimators.persistence import load, save
from llpkit.estimators.registry import ESTIMATORS, register
from llpkit.estimators.scorers import bag_log_likelihood, neg_proportion_error
from llpkit.estimators.searches import search, tried
from llpkit.progress import progress

__all__ = [
    "ESTIMATORS",
    "AlterSVMClassifier",
    "BaseLLP",
    "DLLPClassifier",
    "InvCalClassifier",
    "LLPClassifier",
    "LLPEnsembleClassifier",
    "LLPLogisticRegression",
    "LLPMixedLogisticRegression",
    "LLPNetworkClassifier",
    "MeanMapClassifier",
    "bag_log_likelihood",
    "load",
    "neg_proportion_error",
    "progress",
    "register",
    "save",
    "search",
    "tried",
]
