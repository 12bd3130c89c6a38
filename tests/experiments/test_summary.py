"""What the records say in numbers, against numbers worked out by hand."""

import math
from statistics import stdev

import pytest

from experiments.conftest import written
from llpkit.experiments import Run, _groups, _summary

BASE = Run("convergence", "cifar10", "mle", bag_size=(1, 12), augment="paper")


def run(method: str, fold: int = 0, **changes) -> Run:
    network = "llp-gan" if method == "llp-gan" else "conv-large"
    given = vars(BASE) | {"method": method, "fold": fold, "network": network} | changes
    return Run(**given)


def only(store, experiment="convergence") -> _groups.Group:
    [group] = _groups.groups(store.read(), experiment)
    return group


def test_methods_of_one_setting_are_compared_whatever_network_llp_gan_brings(store):
    for method in ("llp-gan", "mle", "supervised"):
        written(store, run(method), [0.5, 0.6])
    group = only(store)
    assert list(group.runs) == ["supervised", "mle", "llp-gan"]
    assert group.told == "conv-large, augmentation paper, batches of 128, 32-true, bags of 1 to 12"
    assert group.folds == "1"


def test_settings_are_told_apart(store):
    for method in ("mle", "llp-gan"):
        for augment in ("paper", "geometric"):
            written(store, run(method, augment=augment), [0.5])
    written(store, run("mle", fold=1), [0.5])
    found = _groups.groups(store.read(), "convergence")
    assert [list(group.runs) for group in found] == [["mle", "llp-gan"]] * 2
    assert _groups.told_apart(found) == ["augmentation paper", "augmentation geometric"]
    assert found[0].folds == "1 to 2"
    assert _groups.told_apart(found[:1]) == [""]


def test_variants_of_a_method_have_names_of_their_own(store):
    for fold in range(2):
        written(store, run("mle", fold), [0.5, 0.6])
    written(store, run("mle", method_options={"refresh": "pass"}), [0.5, 0.6])
    written(store, run("mle", lr=0.5), [0.5, 0.6])
    written(store, run("mle"), [0.5])
    names = {name: len(records) for name, records in only(store).runs.items()}
    assert names == {"mle": 2, "mle, refresh pass": 1, "mle, lr 0.5": 1, "mle, 1 epochs": 1}


def test_accuracy_is_the_last_epochs_and_never_the_best(store):
    written(store, run("mle", 0), [0.9, 0.6])
    written(store, run("mle", 1), [0.9, 0.8])
    records = only(store).runs["mle"]
    found = _summary.final(records, "accuracy", 100)
    assert (found.mean, found.number) == (pytest.approx(70), 2)
    assert found.sd == pytest.approx(stdev([60, 80]))
    assert _summary.selected(records, "accuracy") is None
    assert _summary.mean_curve(records) == pytest.approx([0.9, 0.7])


def test_selected_accuracy_has_its_own_place(store):
    kept = {"epoch": 1, "accuracy": 0.7}
    written(store, run("mle", held_out=0.1), [0.7, 0.6], selected=kept)
    [record] = only(store).runs["mle"]
    assert _summary.selected([record], "accuracy").mean == 0.7
    assert _summary.final([record], "accuracy").mean == 0.6


def test_differences_are_paired_by_fold(store):
    ours, theirs = [0.80, 0.84, 0.82, 0.90], [0.78, 0.83, 0.78]
    for fold, value in enumerate(ours):
        written(store, run("mle", fold), [value])
    for fold, value in enumerate(theirs):
        written(store, run("dllp", fold), [value])
    [found] = _summary.differences(only(store))
    points = [2.0, 1.0, 4.0]
    half = 4.302653 * stdev(points) / math.sqrt(3)  # t of 2 degrees of freedom, 97.5 %
    assert (found.rival, found.folds) == ("dllp", 3)
    assert found.mean == pytest.approx(7 / 3)
    assert (found.low, found.high) == pytest.approx((7 / 3 - half, 7 / 3 + half), rel=1e-6)
    [back] = _summary.differences(only(store), "dllp")
    assert back.mean == pytest.approx(-found.mean)


def test_one_fold_has_a_difference_but_no_interval(store):
    written(store, run("mle"), [0.8])
    written(store, run("dllp"), [0.7])
    [found] = _summary.differences(only(store))
    assert (found.mean, found.low, found.high) == (pytest.approx(10), None, None)


def test_epoch_times_leave_out_warm_up_and_shared_machines(store):
    for fold in range(2):
        for method, seconds in (("supervised", 1.0), ("mle", 1.5)):
            times = [9.0, 9.0, seconds, seconds + 0.2]
            timed = run(method, fold, experiment="epoch-time")
            written(store, timed, [0.5] * 4, history={"seconds": times})
    shared = run("mle", 2, experiment="epoch-time")
    written(store, shared, [0.5] * 4, history={"seconds": [99.0] * 4}, jobs=4)
    found = {row.method: row for row in _summary.epoch_times(only(store, "epoch-time"))}
    assert found["mle"].epoch_seconds == pytest.approx(1.6)
    assert found["mle"].epoch_seconds_sd == pytest.approx(stdev([1.5, 1.7] * 2))
    assert found["mle"].epoch_ratio == pytest.approx(1.6 / 1.1)
    assert found["mle"].epochs == 4
    assert (found["mle"].paper, found["mle"].paper_ratio) == (7.78, pytest.approx(7.78 / 3.65))


def test_time_to_accuracy_is_counted_in_epochs_and_in_seconds_measured_alone(store):
    written(store, run("mle"), [0.60, 0.745, 0.80, 0.82])
    written(store, run("dllp"), [0.60, 0.65, 0.70, 0.75])
    written(store, run("direct"), [0.60, 0.65, 0.70, 0.95])
    for method, seconds in (("mle", 2.0), ("dllp", 3.0)):
        timed = run(method, experiment="epoch-time")
        written(store, timed, [0.5] * 3, history={"seconds": [9.0, 9.0, seconds]})
    alone = _summary.alone(only(store), _groups.groups(store.read(), "epoch-time"))
    assert alone == {"mle": 2.0, "dllp": 3.0}
    found = {row.rival: row for row in _summary.reaches(only(store), alone)}
    assert found["dllp"].target == pytest.approx(0.74)
    assert (found["dllp"].rival_epochs, found["dllp"].reference_epochs) == (4, 2)
    assert (found["dllp"].rival_seconds, found["dllp"].reference_seconds) == (12.0, 4.0)
    assert (found["direct"].rival_epochs, found["direct"].reference_epochs) == (4, None)
    assert found["direct"].rival_seconds is None


def test_times_of_compiled_networks_are_told_apart(store):
    for fold, compiled in enumerate((False, True)):
        written(store, run("mle", fold, experiment="epoch-time"), [0.5] * 3, compiled=compiled)
    found = _groups.groups(store.read(), "epoch-time")
    assert sorted(_groups.told_apart(found)) == ["", "compiled"]


def test_times_of_other_hardware_are_not_borrowed(store):
    written(store, run("mle"), [0.6])
    slow = {"processor": "another"}
    written(store, run("mle", experiment="epoch-time"), [0.5] * 3, hardware=slow)
    assert _summary.alone(only(store), _groups.groups(store.read(), "epoch-time")) == {}


def test_calibration_pools_the_folds(store):
    bins = {"mean_predicted": [0.04, 0.97], "fraction_positive": [0.0, 1.0], "number": [2, 8]}
    written(store, run("mle", 0), [0.8])
    written(store, run("mle", 1), [0.8], calibration=bins)
    pooled = _summary.calibration("mle", only(store).runs["mle"])
    assert pooled.bins == [
        (pytest.approx((0.02 * 6 + 0.04 * 2) / 8), pytest.approx(0.1 * 6 / 8), 8),
        (pytest.approx(0.97), pytest.approx((0.9 * 4 + 8) / 12), 12),
    ]
