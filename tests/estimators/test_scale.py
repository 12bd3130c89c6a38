"""Many rows and bags: array code throughout, and answers."""

import time

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from llpkit.estimators import LLPClassifier, LLPLogisticRegression
from llpkit.estimators._bags_from_y import bags_of
from llpkit.estimators.base import bag_sums, solve


def test_many_bags_of_one_are_answered():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300_000, 2))
    labels = (X[:, 0] + 0.5 * rng.normal(size=len(X)) > 0).astype(int)
    model = LLPLogisticRegression().fit(X, labels, np.arange(len(X)))
    assert (model.predict(X[:1000]) == labels[:1000]).mean() > 0.8
    plain = LogisticRegression().fit(X[:20_000], labels[:20_000])
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=0.15)


@pytest.mark.parametrize("bags", ["many small", "few large"])
def test_bookkeeping_is_linear_in_the_rows(bags):
    """Ten times the rows take less than 25 times as long: quadratic code would take 100 times."""
    rates = []
    for rows in (50_000, 500_000):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(rows, 2))
        groups = rng.permutation(rows) // (4 if bags == "many small" else rows // 50)
        counts = np.bincount(groups, X[:, 0] > 0).astype(int)[groups]
        best = np.inf
        for _ in range(3):  # noise only ever adds
            start = time.process_time()
            known, _ = bags_of(X, counts, groups)
            solve(X[:, 0], known)
            bag_sums(X, known)
            best = min(best, time.process_time() - start)
        rates.append(rows / best)
    assert rates[1] > rates[0] / 2.5


def test_em_on_many_bags():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 3)).astype(np.float32)
    labels = X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=len(X)) > 0
    groups = rng.permutation(len(X)) // 7
    counts = np.bincount(groups, labels).astype(int)[groups]
    model = LLPClassifier(LogisticRegression(), tol=1e-2).fit(X, counts, groups)
    assert (model.predict(X) == labels).mean() > 0.85
