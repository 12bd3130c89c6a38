"""Statistics over folds, against numbers worked out by hand or by scipy."""

import math
from dataclasses import replace
from statistics import stdev

import numpy as np
import pytest
from scipy.stats import linregress, t

from experiments.conftest import by_method, record, runs
from llpkit.experiments.summary import (
    accuracies,
    bounds,
    difference,
    epoch_times,
    final_mean,
    held_out_bags,
    interval,
    reference,
    slopes,
)


def test_accuracy_is_that_of_the_last_epoch_over_a_methods_own_folds():
    found = accuracies(runs(supervised=[[0.9], [0.9]], mle=[[0.9, 0.6], [0.9, 0.8], [0.7, 0.7]]))
    assert found["supervised"].mean == pytest.approx(90)
    assert (found["mle"].number, found["mle"].mean) == (3, pytest.approx(70))
    assert found["mle"].sd == pytest.approx(stdev([60, 80, 70]))
    assert accuracies(runs(mle=[[0.5]]))["mle"].sd is None


def test_other_measures_are_means_over_the_folds_that_have_them():
    [records] = runs(mle=[[0.5], [0.5], [0.5]]).values()
    values = (-1.0, None, -2.0)
    known = [replace(r, final={"x": x}) for r, x in zip(records, values, strict=True)]
    assert final_mean(known, "x") == -1.5
    assert final_mean(known, "y") is None


def test_differences_are_paired_by_fold():
    its = runs(mle=[[0.80], [0.84], [0.82], [0.90]], dllp=[[0.78], [0.83], [0.78]])
    found = difference(its["mle"], its["dllp"])
    points = [2.0, 1.0, 4.0]
    # t of 2 degrees of freedom, 97.5 %; a test part of 10 instances for 90 to train on
    half = 4.302653 * stdev(points) * math.sqrt(1 / 3 + 10 / 90)
    ends = (found.mean, found.low, found.high)
    assert ends == pytest.approx((7 / 3, 7 / 3 - half, 7 / 3 + half), rel=1e-6)
    assert difference(its["dllp"], its["mle"]).mean == pytest.approx(-found.mean)
    assert difference(its["mle"], []) is None
    single = difference(its["mle"][:1], its["dllp"])
    assert (single.mean, single.low) == (pytest.approx(2), None)


def test_the_first_learner_from_counts_is_the_reference():
    assert reference(runs(supervised=[[0.9]], dllp=[[0.8]], mle=[[0.8]])) == "dllp"
    assert reference(runs(supervised=[[0.9]])) is None


def test_a_variant_that_sees_labels_is_a_bound():
    every = by_method(*(record(n, 0, [0.9], variant=f"{n}-2") for n in ("supervised", "mle")))
    assert (bounds(every), reference(every)) == (["supervised-2"], "mle-2")


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


def test_epoch_times_leave_out_the_warm_up():
    timed = [
        record(name, fold, [0.5] * 4, history={"seconds": [9.0, 9.0, s + fold, s + fold + 0.2]})
        for name, s in (("supervised", 1.0), ("mle", 1.5))
        for fold in (0, 1)
    ]
    found = epoch_times(by_method(*timed))["mle"]
    assert found.seconds.mean == pytest.approx(2.1)
    assert (found.seconds.number, found.turns) == (4, 2)
    assert found.ratio.mean == pytest.approx((1.6 / 1.1 + 2.6 / 2.1) / 2)


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
