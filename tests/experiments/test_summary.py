"""Statistics over folds, against numbers worked out by hand or by scipy."""

import math
from dataclasses import replace
from statistics import stdev

import numpy as np
import pytest
from scipy.stats import linregress, pearsonr, t, ttest_ind

from experiments.conftest import by_method, record
from llpkit.experiments.statistics import (
    difference,
    held_out_bags,
    interval,
    pitman_morgan,
    unpaired,
)
from llpkit.experiments.summary import accuracies, calibration, differences, size_accuracies, slopes
from llpkit.experiments.times import epoch_times, times_to_accuracy
from llpkit.report.spread import Interval


def runs(**curves_of: list[list[float]]):
    """Runs by method from a learning curve per fold; underscores in names are dashes."""
    return by_method(
        *(
            record(name.replace("_", "-"), fold, curve)
            for name, folds in curves_of.items()
            for fold, curve in enumerate(folds)
        )
    )


def test_accuracy_is_that_of_the_last_epoch_over_a_methods_own_folds():
    found = accuracies(runs(supervised=[[0.9], [0.9]], mle=[[0.9, 0.6], [0.9, 0.8], [0.7, 0.7]]))
    bound, mle = found
    assert (bound.accuracy.mean, bound.gap) == (pytest.approx(90), None)
    assert (mle.accuracy.number, mle.accuracy.mean) == (3, pytest.approx(70))
    assert mle.accuracy.sd == pytest.approx(stdev([60, 80, 70]))
    assert mle.gap == pytest.approx(-20)  # of the two folds that both have
    assert mle.selected is None
    deviations = [stdev([90, 90, 70]), stdev([60, 80, 70])]
    assert mle.band == pytest.approx(sum(deviations) / 2)
    sampled = [100 * math.sqrt(p * (1 - p) / 10) for p in (0.6, 0.8, 0.7)]
    assert mle.sampling_sd == pytest.approx(sum(sampled) / 3)
    [alone] = accuracies(runs(mle=[[0.5]]))
    assert (alone.accuracy.sd, alone.band) == (None, None)


def test_selected_accuracy_stands_beside():
    made = replace(record("mle", 0, [0.7, 0.6]), selected={"epoch": 1, "accuracy": 0.7})
    [found] = accuracies(by_method(made))
    assert (found.accuracy.mean, found.selected.mean) == (60, pytest.approx(70))


def test_differences_are_paired_by_fold():
    its = runs(mle=[[0.80], [0.84], [0.82], [0.90]], dllp=[[0.78], [0.83], [0.78]])
    [found] = differences(its)
    points = [2.0, 1.0, 4.0]
    # t of 2 degrees of freedom, 97.5 %; a test part of 10 instances for 90 to train on
    half = 4.302653 * stdev(points) * math.sqrt(1 / 3 + 10 / 90)
    assert (found.rival, found.folds) == ("dllp", 3)
    ends = (found.last.mean, found.last.low, found.last.high)
    assert ends == pytest.approx((7 / 3, 7 / 3 - half, 7 / 3 + half), rel=1e-6)
    [back] = differences(its, "dllp")
    assert back.last.mean == pytest.approx(-found.last.mean)
    assert differences(its, "amle") == []
    [single] = differences(runs(mle=[[0.8]], dllp=[[0.7]]))
    assert (single.last.low, single.equal_spread) == (None, None)


def test_differences_along_the_way():
    mle = [[0.5, 0.8, 0.9], [0.5, 0.7, 0.9], [0.7, 0.9, 0.9]]
    [found] = differences(runs(mle=mle, dllp=[[0.6, 0.6, 0.9]] * 3))
    points = [10 / 3, 0, 40 / 3]  # of each fold, the mean of its three epochs
    half = 4.302653 * stdev(points) * math.sqrt(1 / 3 + 10 / 90)
    assert found.along.mean == pytest.approx(50 / 9)
    assert found.along.low == pytest.approx(50 / 9 - half, rel=1e-6)
    assert (found.ahead, found.epochs) == (1, 3)  # below after the first, even after the last
    [found] = differences(runs(mle=[[0.8, 0.8]], dllp=[[0.7]]))
    assert (found.along, found.ahead) == (None, None)


def test_the_corrected_interval_covers_what_the_plain_one_does_not():
    """Folds that share most of their training data: values with a common part."""
    rng, covered = np.random.default_rng(0), {"corrected": 0, "plain": 0}
    one = [record("mle", 0, [0.5])]
    for _ in range(400):
        values = (rng.normal(0, math.sqrt(0.1)) + rng.normal(0, math.sqrt(0.9), 10)).tolist()
        found = interval(values, one)
        half = 2.262157 * stdev(values) / math.sqrt(10)
        covered["corrected"] += found.low < 0 < found.high
        covered["plain"] += abs(sum(values) / 10) < half
    assert covered["corrected"] > 0.93 * 400 > covered["plain"]


def test_held_out_bags_are_not_trained_on():
    kept = record("mle", 0, [0.5], recipe={"held_out": 0.1})
    kept = replace(kept, data=replace(kept.data, train_bags=90, train_instances=900))
    kept = replace(kept, data=replace(kept.data, test_instances=100))
    assert held_out_bags(kept) == 9
    found = interval([1.0, 2.0, 4.0], [kept])
    half = 4.302653 * stdev([1.0, 2.0, 4.0]) * math.sqrt(1 / 3 + 100 / 810)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=1e-6)


def test_pitman_morgan_is_the_correlation_of_sum_and_difference():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 10))
    assert pitman_morgan(x.tolist(), y.tolist()) == pytest.approx(pearsonr(x + y, x - y).pvalue)
    assert pitman_morgan((9 * x).tolist(), y.tolist()) < 0.001
    assert pitman_morgan([1.0, 2.0, 3.0], [2.0, 3.0, 4.0]) is None  # alike to the digit


def test_calibration_pools_the_folds():
    bins = {"mean_predicted": [0.04, 0.97], "fraction_positive": [0.0, 1.0], "number": [2, 8]}
    other = {"mean_predicted": [0.02, 0.97], "fraction_positive": [0.1, 0.9], "number": [6, 4]}
    records = [record("mle", f, [0.8], calibration=c) for f, c in enumerate((bins, other))]
    found = calibration(records)
    assert found.mean_predicted == pytest.approx([(0.02 * 6 + 0.04 * 2) / 8, 0.97])
    assert found.fraction_positive == pytest.approx([0.1 * 6 / 8, (0.9 * 4 + 8) / 12])
    assert found.number.tolist() == [8, 12]
    gaps = [abs(0.025 - 0.075), abs(0.97 - 11.6 / 12)]
    assert found.error == pytest.approx((8 * gaps[0] + 12 * gaps[1]) / 20)


def test_epoch_times_leave_out_the_warm_up():
    timed = [
        record(name, fold, [0.5] * 4, history={"seconds": [9.0, 9.0, s + fold, s + fold + 0.2]})
        for name, s in (("supervised", 1.0), ("mle", 1.5))
        for fold in (0, 1)
    ]
    _, found = epoch_times(by_method(*timed))
    assert found.seconds.mean == pytest.approx(2.1)
    assert (found.seconds.number, found.turns) == (4, 2)
    assert found.ratio.mean == pytest.approx((1.6 / 1.1 + 2.6 / 2.1) / 2)


def test_time_to_accuracy_counts_epochs():
    its = runs(
        mle=[[0.60, 0.745, 0.80, 0.82]],
        dllp=[[0.60, 0.65, 0.70, 0.75]],
        direct=[[0.60, 0.65, 0.70, 0.95]],
    )
    found = {row.method: row for row in times_to_accuracy(its)}
    dllp, direct, mle = found["dllp"], found["direct"], found["mle"]
    assert dllp.target == pytest.approx(0.74)
    assert (dllp.epochs.mean, dllp.reference_epochs, dllp.ratio) == (4, 2, Interval(2.0))
    assert (direct.epochs.mean, direct.reference_epochs, direct.ratio) == (4, None, None)
    assert (mle.epochs.mean, mle.ratio) == (4, None)


def test_epochs_to_accuracy_have_an_interval_over_folds():
    late = [3 + fold % 2 for fold in range(5)]
    its = runs(
        mle=[[0.5, 0.79, 0.8, 0.8, 0.8, 0.8]] * 5, dllp=[[0.5] * n + [0.78] * (6 - n) for n in late]
    )
    mle, dllp = times_to_accuracy(its)
    assert mle.epochs == Interval(2, 2, 2)
    assert dllp.epochs == Interval(5, 4, 5)
    assert (dllp.ratio.low, dllp.ratio.high) == (2.0, 2.5)


def test_a_ratio_to_own_accuracies_does_not_gain_by_a_better_end():
    slow = [5 + fold % 2 for fold in range(3)]
    its = runs(
        mle=[[0.75] * (n - 1) + [0.9] * (9 - n) for n in slow], dllp=[[0.5] * 3 + [0.7] * 5] * 3
    )
    _, row = times_to_accuracy(its)
    assert (row.epochs.mean, row.reference_epochs, row.ratio.mean) == (4, 1, 4.0)
    assert row.own_ratio.mean == pytest.approx(4 / 6)
    assert (row.own_ratio.low, row.own_ratio.high) == pytest.approx((4 / 6, 4 / 5))


def sized(accuracy: dict[int, list[float]], method: str = "mle", alone: bool = False):
    """Records by size of bags; ``alone`` with next to nothing to test, so that nothing overlaps."""
    made = [
        replace(record(method, fold, [value]), bag_size=size)
        for size, values in accuracy.items()
        for fold, value in enumerate(values)
    ]
    if not alone:
        return made
    return [replace(r, data=replace(r.data, train_instances=10**9, test_instances=1)) for r in made]


def test_the_slope_is_that_of_a_line_through_all_runs():
    by_size = {2: [0.90, 0.92, 0.91], 4: [0.84, 0.88, 0.86, 0.85], 8: [0.80, 0.83, 0.79]}
    x = [math.log2(size) for size, values in by_size.items() for _ in values]
    y = [100 * value for values in by_size.values() for value in values]
    line = linregress(x, y)
    half = t.ppf(0.975, 8) * line.stderr
    found = slopes({"mle": sized(by_size, alone=True)})["mle"]
    ends = (found.mean, found.low, found.high)
    assert ends == pytest.approx((line.slope, line.slope - half, line.slope + half))
    wider = slopes({"mle": sized(by_size)})["mle"]
    assert wider.low < found.low  # 10 instances to test by for 90 to learn from
    few = slopes({"mle": sized(by_size | {2: [0.9, 0.92]})})["mle"]
    assert few.low is None
    assert slopes({"mle": sized({2: [0.9]})}) == {}


def test_unpaired_means_have_the_interval_of_welch():
    one, other = [0.86, 0.84, 0.79], [0.90, 0.92, 0.94]
    test = ttest_ind([100 * v for v in one], [100 * v for v in other], equal_var=False)
    low, high = test.confidence_interval(0.95)
    found = unpaired(sized({8: one}, alone=True), sized({2: other}, alone=True))
    assert (found.mean, found.low, found.high) == pytest.approx((-9, low, high), rel=1e-6)


def test_the_selected_epoch_has_accuracies_and_differences_of_its_own():
    mle = [replace(r, selected={"epoch": 2, "accuracy": 0.95}) for r in sized({2: [0.9, 0.8]})]
    dllp = [replace(r, selected={"epoch": 1, "accuracy": 0.9}) for r in sized({2: [0.7]}, "dllp")]
    assert size_accuracies({"mle": mle})["mle"][2].mean == pytest.approx(85)
    assert size_accuracies({"mle": mle}, selected=True)["mle"][2].mean == pytest.approx(95)
    assert difference(mle, dllp).mean == pytest.approx(20)  # of the fold that both have
    assert difference(mle, dllp, selected=True).mean == pytest.approx(5)
    assert difference(mle, []) is None
