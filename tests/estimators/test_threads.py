"""Small fits use one thread, unless the user chose a number."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from threadpoolctl import threadpool_info, threadpool_limits

from llpkit import _threads
from llpkit.estimators import LLPClassifier, LLPLogisticRegression


@pytest.fixture(autouse=True)
def four(monkeypatch):
    """Four threads by default, whatever this machine has."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    with threadpool_limits(4):
        torch.set_num_threads(4)
        yield
    torch.set_num_threads(before)


class Noting(ClassifierMixin, BaseEstimator):
    """A classifier that notes how many threads it may use."""

    threads = 0

    def fit(self, X, y, sample_weight=None):  # noqa: ARG002
        type(self).threads = largest()
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


def largest():
    pools = [pool["num_threads"] for pool in threadpool_info()]
    return max([*pools, torch.get_num_threads()])


def fitted(columns=2):
    groups = np.arange(40) // 4
    X = np.random.default_rng(0).normal(size=(40, columns))
    LLPClassifier(Noting(), start="proportion").fit(X, np.full(40, 2), groups)
    return Noting.threads


@pytest.mark.filterwarnings("ignore")
def test_a_small_table_is_fitted_in_one_thread():
    assert fitted() == 1
    assert largest() == 4


@pytest.mark.filterwarnings("ignore")
def test_a_large_table_gets_a_thread_for_every_part_of_it(monkeypatch):
    monkeypatch.setattr(_threads, "CELLS", 40)
    assert fitted(columns=2) == 3
    assert fitted(columns=20) == 4  # no more than there are


@pytest.mark.filterwarnings("ignore")
def test_a_number_that_the_user_chose_is_kept(monkeypatch):
    with _threads.threads(3):
        assert fitted() == 3
    with _threads.threads(None):
        assert fitted() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert fitted() == 4


def test_a_failed_fit_restores_the_threads():
    with pytest.raises(ValueError, match="y"):
        LLPLogisticRegression().fit(np.zeros((4, 1)), [9, 9, 9, 9], [0, 0, 1, 1])
    assert largest() == 4
