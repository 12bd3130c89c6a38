"""Comparisons for the tables about the paper, against numbers worked out by hand or by scipy."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import stdev

import numpy as np
import pytest
from scipy.stats import pearsonr, ttest_ind

from experiments.conftest import runs
from llpkit.report import Interval


@pytest.fixture(scope="module")
def comparison():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "tools")
        import comparison

        yield comparison


def test_differences_along_the_way(comparison):
    mle = [[0.5, 0.8, 0.9], [0.5, 0.7, 0.9], [0.7, 0.9, 0.9]]
    its = runs(mle=mle, dllp=[[0.6, 0.6, 0.9]] * 3, direct=[[0.7]])
    found, ahead, epochs = comparison.along(its["mle"], its["dllp"])
    points = [10 / 3, 0, 40 / 3]  # of each fold, the mean of its three epochs
    half = 4.302653 * stdev(points) * math.sqrt(1 / 3 + 10 / 90)
    assert found.mean == pytest.approx(50 / 9)
    assert found.low == pytest.approx(50 / 9 - half, rel=1e-6)
    assert (ahead, epochs) == (1, 3)  # below after the first, even after the last
    assert comparison.along(its["mle"], its["direct"]) == (None, None, None)


def test_spread_over_folds(comparison):
    [records] = runs(mle=[[0.9, 0.6], [0.9, 0.8], [0.7, 0.7]]).values()
    deviations = [stdev([90, 90, 70]), stdev([60, 80, 70])]
    assert comparison.band(records) == pytest.approx(sum(deviations) / 2)
    sampled = [100 * math.sqrt(p * (1 - p) / 10) for p in (0.6, 0.8, 0.7)]
    assert comparison.sampling_sd(records) == pytest.approx(sum(sampled) / 3)


def test_pitman_morgan_is_the_correlation_of_sum_and_difference(comparison):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 10))
    assert comparison.pitman_morgan(x.tolist(), y.tolist()) == pytest.approx(
        pearsonr(x + y, x - y).pvalue
    )
    assert comparison.pitman_morgan((9 * x).tolist(), y.tolist()) < 0.001
    assert comparison.pitman_morgan([1.0, 2.0, 3.0], [2.0, 3.0, 4.0]) is None  # alike to the digit


def test_unpaired_means_have_the_interval_of_welch(comparison):
    one, other = [0.86, 0.84, 0.79], [0.90, 0.92, 0.94]
    test = ttest_ind([100 * v for v in one], [100 * v for v in other], equal_var=False)
    low, high = test.confidence_interval(0.95)
    its = runs(mle=[[v] for v in one], dllp=[[v] for v in other])
    # Next to nothing to test, so that nothing overlaps.
    alone = [
        [replace(r, data=replace(r.data, train_instances=10**9, test_instances=1)) for r in records]
        for records in its.values()
    ]
    found = comparison.unpaired(*alone)
    assert (found.mean, found.low, found.high) == pytest.approx((-9, low, high), rel=1e-6)


def test_time_to_accuracy_counts_epochs(comparison):
    its = runs(
        mle=[[0.60, 0.745, 0.80, 0.82]],
        dllp=[[0.60, 0.65, 0.70, 0.75]],
        direct=[[0.60, 0.65, 0.70, 0.95]],
    )
    found = {row.method: row for row in comparison.times_to_accuracy(its, "mle")}
    dllp, direct, mle = found["dllp"], found["direct"], found["mle"]
    assert dllp.target == pytest.approx(0.74)
    assert (dllp.epochs.mean, dllp.reference_epochs, dllp.ratio) == (4, 2, Interval(2.0))
    assert (direct.epochs.mean, direct.reference_epochs, direct.ratio) == (4, None, None)
    assert (mle.epochs.mean, mle.ratio) == (4, None)


def test_epochs_to_accuracy_have_an_interval_over_folds(comparison):
    late = [3 + fold % 2 for fold in range(5)]
    its = runs(
        mle=[[0.5, 0.79, 0.8, 0.8, 0.8, 0.8]] * 5, dllp=[[0.5] * n + [0.78] * (6 - n) for n in late]
    )
    mle, dllp = comparison.times_to_accuracy(its, "mle")
    assert mle.epochs == Interval(2, 2, 2)
    assert dllp.epochs == Interval(5, 4, 5)
    assert (dllp.ratio.low, dllp.ratio.high) == (2.0, 2.5)


def test_a_ratio_to_own_accuracies_does_not_gain_by_a_better_end(comparison):
    slow = [5 + fold % 2 for fold in range(3)]
    its = runs(
        mle=[[0.75] * (n - 1) + [0.9] * (9 - n) for n in slow], dllp=[[0.5] * 3 + [0.7] * 5] * 3
    )
    _, row = comparison.times_to_accuracy(its, "mle")
    assert (row.epochs.mean, row.reference_epochs, row.ratio.mean) == (4, 1, 4.0)
    assert row.own_ratio.mean == pytest.approx(4 / 6)
    assert (row.own_ratio.low, row.own_ratio.high) == pytest.approx((4 / 6, 4 / 5))
