"""scikit-learn's own checks of estimators, one test per check.

They fit labels, not bags, so EM fits its classifier once: one linear model stands for all of them.
Boosting has code of its own (``rounded``), and a classifier without probabilities runs EM. Of
variants that share their code, one is checked.
"""

import os
import subprocess
import sys
import unittest

import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from llpkit.estimators import (
    AlterSVMClassifier,
    DLLPClassifier,
    InvCalClassifier,
    LLPClassifier,
    LLPEnsembleClassifier,
    LLPLogisticRegression,
    LLPMixedLogisticRegression,
    LLPNetworkClassifier,
    MeanMapClassifier,
)

ESTIMATORS = [
    LLPLogisticRegression(),
    LLPMixedLogisticRegression(),
    LLPClassifier(LogisticRegression()),
    LLPClassifier(HistGradientBoostingClassifier(max_iter=10), random_state=0),
    LLPClassifier(SVC(), out_of_fold=False, max_iter=2),
    InvCalClassifier(),
    AlterSVMClassifier(kernel="rbf", C_p=10, n_init=2, random_state=0),
    MeanMapClassifier(laplacian=0.1),
    DLLPClassifier(),
    LLPNetworkClassifier(hidden_layer_sizes=(4,), random_state=0),
    LLPEnsembleClassifier([LLPLogisticRegression(), LLPLogisticRegression(C=10)], random_state=0),
]


@pytest.mark.filterwarnings("ignore")  # of unscaled features, and numbers taken for labels
@parametrize_with_checks(ESTIMATORS)
def test_check(estimator, check):
    try:
        check(estimator)
    except unittest.SkipTest:
        assert check.func.__name__ == "check_array_api_input"  # which has a test of its own, below


# X is read by EM, which leaves its values to the classifier, or by the base class.
ONE_PER_READER = [LLPLogisticRegression(), LLPClassifier(LogisticRegression())]
ARRAY_API = """
import runpy, sys
sys.path[:0] = {path!r}
module = runpy.run_path({file!r})
for each in module["ONE_PER_READER"]:
    for estimator, check in module["estimator_checks_generator"](each):
        if check.func.__name__ == "check_array_api_input":
            check(estimator)
            print("passed")
"""


def test_arrays_of_other_libraries():
    """In a process of its own, as SciPy's support has to be switched on before the import."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ARRAY_API.format(path=sys.path, file=__file__)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
    )
    assert done.returncode == 0, done.stderr
    checks = [c.func.__name__ for _, c in estimator_checks_generator(ONE_PER_READER[0])]
    expected = checks.count("check_array_api_input") * len(ONE_PER_READER)
    assert expected > 0
    assert done.stdout.count("passed") == expected
