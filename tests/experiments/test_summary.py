"""What the records say in numbers, against numbers worked out by hand."""

import math
from dataclasses import replace
from statistics import stdev

import numpy as np
import pytest
from scipy.stats import linregress, pearsonr, t, ttest_ind

from experiments.conftest import written
from llpkit.experiments import Run, _groups, _summary, _times
from llpkit.experiments._run import VARIANTS

PAPERS = VARIANTS["mle-pass"][1]
RUNNING = {"refresh": "running", "step": 1.0}
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
    assert group.told == (
        "network conv-large, 2 epochs, augmentation paper, batches of 128, 32-true, "
        "bags of 1 to 12, stated defaults"
    )
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
    written(store, run("mle", method_options=PAPERS), [0.5, 0.6])
    written(store, run("mle", lr=0.5), [0.5, 0.6], chosen_by="options")
    assert sizes(only(store)) == {"mle": 2, "mle, lr 0.5": 1, "mle-pass": 1}


def sizes(group) -> dict[str, int]:
    return {name: len(records) for name, records in group.runs.items()}


def by_source(store, grids=(), experiment="convergence") -> dict[str, dict[str, int]]:
    found = _groups.groups(store.read(), experiment, grids)
    return {group.source: sizes(group) for group in found}


def grid_that_chose(choices: dict[str, dict], **changes) -> dict:
    """A grid on bird and cat, as the records of its runs would tell."""
    about = {"network": "conv-large", "data_options": {}, "epochs": 40, "batch_size": 128}
    about |= {"augment": "paper", "precision": "32-true", "seed": 0}
    methods = {name: {"chosen": chosen} for name, chosen in choices.items()}
    return {"dataset": "cifar10", "settings": about | changes, "methods": methods}


def test_what_the_grid_chose_and_the_defaults_are_compared_apart(store):
    chosen = {"lr": 0.001, "weight_decay": 0.0}
    faster = chosen | {"lr": 0.003}
    for experiment, size in (("convergence", (1, 12)), ("bag-size", 4)):
        given = {"experiment": experiment, "bag_size": size}
        for fold in range(3):
            written(store, run("mle", fold, method_options=RUNNING, **given), [0.5])
            for method in ("supervised", "dllp"):
                written(store, run(method, fold, **given), [0.5])
        tuned = run("mle", lr=0.003, method_options=RUNNING, **given)
        written(store, tuned, [0.6], chosen_by="grid of 40 epochs")
        softer = replace(tuned, method_options=RUNNING | {"step": 0.3})
        written(store, softer, [0.6], chosen_by="grid, options")
        written(store, run("dllp", lr=0.01, **given), [0.6], chosen_by="options")
        grid = grid_that_chose({"supervised": chosen, "mle": faster, "dllp": chosen})
        assert by_source(store, [grid], experiment) == {
            "grid": {"supervised": 3, "mle": 1, "mle, step 0.3": 1, "dllp": 3},
            "defaults": {"supervised": 3, "mle": 3, "dllp": 3, "dllp, lr 0.01": 1},
        }
        unfinished = grid_that_chose({"supervised": chosen, "mle": faster})
        unfinished["methods"]["dllp"] = {"chosen": None}
        assert by_source(store, [unfinished], experiment)["grid"] == {
            "supervised": 3,
            "mle": 1,
            "mle, step 0.3": 1,
        }


def test_defaults_that_the_grid_chose_are_the_grids(store):
    for method in ("supervised", "mle"):
        written(store, run(method), [0.5])
    chosen = {"lr": 0.001, "weight_decay": 0.0}
    grid = grid_that_chose(dict.fromkeys(("supervised", "mle"), chosen))
    assert by_source(store, [grid]) == {"grid": {"supervised": 1, "mle": 1}}
    written(store, run("mle", lr=0.5), [0.5], chosen_by="options")
    assert by_source(store, [grid]) == {"grid": {"supervised": 1, "mle": 1, "mle, lr 0.5": 1}}
    other = grid_that_chose({"mle": chosen | {"lr": 0.01}}, network="small-cnn")
    assert list(by_source(store, [other])) == ["defaults"]
    far = grid_that_chose({"mle": chosen | {"lr": 0.01}}, augment="none", seed=3)
    assert by_source(store, [far, grid]) == by_source(store, [grid])  # which is more alike


def test_runs_at_the_defaults_alone_are_not_shown_as_the_grids(store):
    for method in ("supervised", "mle", "llp-gan"):
        lr = 0.0003 if method == "llp-gan" else 0.001
        options = {"weight": 1.0} if method == "llp-gan" else {}
        written(store, run(method, lr=lr, method_options=options), [0.5])
    chosen = {"lr": 0.001, "weight_decay": 0.0}
    gan = {"lr": 0.0003, "weight_decay": 0.0, "weight": 0.1}
    grid = grid_that_chose({"supervised": chosen, "mle": chosen, "llp-gan": gan})
    assert list(by_source(store, [grid])) == ["defaults"]
    tuned = run("llp-gan", lr=0.0003, method_options={"weight": 0.1})
    written(store, tuned, [0.5], chosen_by="grid")
    every = {"supervised": 1, "mle": 1, "llp-gan": 1}
    assert by_source(store, [grid]) == {"grid": every, "defaults": every}


def test_where_the_grid_is_not_there_its_records_tell_what_it_chose(store):
    for fold in range(3):
        written(store, run("mle", fold), [0.5])
    written(store, run("mle", lr=0.003), [0.6], chosen_by="grid")
    assert by_source(store) == {"grid": {"mle": 1}, "defaults": {"mle": 3}}
    written(store, run("mle", lr=0.01), [0.6], chosen_by="grid of augmentation none")
    assert by_source(store) == {
        "grid": {"mle, lr 0.003": 1, "mle, lr 0.01": 1},
        "defaults": {"mle": 3},
    }


def test_the_bound_and_the_reference_are_found_by_what_was_run(store):
    odd = RUNNING | {"step": 0.5}
    for fold in range(3):
        written(store, run("supervised", fold, lr=0.5), [0.9], chosen_by="options")
        written(store, run("mle", fold, method_options=odd), [0.8], chosen_by="options")
    written(store, run("supervised", 9), [0.9])
    written(store, run("mle", 9, method_options=RUNNING), [0.9])
    part = _groups.compared(only(store))[0]
    assert list(part.runs) == ["supervised, lr 0.5", "mle, step 0.5"]
    assert part.named("supervised") == "supervised, lr 0.5"
    assert part.named("mle") == "mle, step 0.5"
    assert only(store).named("mle") == "mle"
    assert part.named("mle-pass") is None
    found = _times.reaches(part, {}, "mle, step 0.5")
    assert [row.compared for row in found] == [False, False]


@pytest.mark.parametrize("by", ["grid", "defaults"])
def test_options_that_a_user_gave_do_not_take_the_plain_name(store, by):
    own = {"refresh": "running", "step": 1.0}
    given = {"grid": "grid of augmentation none, options", "defaults": "options"}[by]
    for fold in range(2):
        written(store, run("mle", fold, method_options=own), [0.5], chosen_by=by)
        softer = own | {"step": 0.5}
        written(store, run("mle", fold, method_options=softer), [0.6], chosen_by=given)
    assert sizes(only(store)) == {"mle": 2, "mle, step 0.5": 2}
    softer = PAPERS | {"step": 0.5}
    written(store, run("mle", method_options=softer), [0.6], chosen_by=by)
    assert list(only(store).runs) == ["mle", "mle, step 0.5", "mle-pass, step 0.5"]
    written(store, run("mle", method_options=PAPERS), [0.6], chosen_by=by)
    assert list(only(store).runs) == ["mle", "mle, step 0.5", "mle-pass", "mle-pass, step 0.5"]


def test_of_two_defaults_the_plain_name_goes_to_todays(store):
    for step in (0.7, 1.0):
        written(store, run("mle", method_options={"refresh": "running", "step": step}), [0.5])
    assert sizes(only(store)) == {"mle": 1, "mle, step 0.7": 1}


def test_epochs_and_data_are_part_of_the_setting(store):
    written(store, run("mle"), [0.5, 0.6])
    written(store, run("mle", 1), [0.5])
    written(store, run("mle", 2), [0.5], data={"sha256": "1" * 64})
    found = _groups.groups(store.read(), "convergence")
    assert sorted(_groups.told_apart(found)) == [
        "1 epochs, data 00000000",
        "1 epochs, data 11111111",
        "2 epochs, data 00000000",
    ]


def test_bags_of_a_size_are_all_of_the_same_data(store):
    for fold in range(3):
        for size in (2, 4):
            odd = {"sha256": "12"[fold == 1] * 64} if size == 2 else {}
            written(store, run("mle", fold, experiment="bag-size", bag_size=size), [0.5], data=odd)
    group = only(store, "bag-size")
    assert group.of_other_data == 1
    assert [(r["run"]["bag_size"], r["run"]["fold"]) for r in group.runs["mle"]] == [
        (2, 0),
        (2, 2),
        (4, 0),
        (4, 1),
        (4, 2),
    ]


def test_methods_are_compared_over_folds_they_share(store):
    for fold in range(4):
        for method in ("supervised", "mle"):
            written(store, run(method, fold), [0.9 if fold < 2 else 0.5])
    for fold in (0, 1, 9):
        written(store, run("llp-gan", fold), [0.8])
    most, common = _groups.compared(only(store))
    assert sizes(most) == {"supervised": 4, "mle": 4}
    assert sizes(common) == {"supervised": 2, "mle": 2, "llp-gan": 2}
    assert _summary.final(common.runs["mle"], "accuracy").mean == pytest.approx(0.9)
    [difference] = [d for d in _summary.differences(common) if d.rival == "llp-gan"]
    assert difference.mean == pytest.approx(10)


def test_a_method_that_has_more_folds_than_all_others_is_cut(store):
    for fold in range(3):
        written(store, run("mle", fold), [0.5])
    for fold in (1, 2):
        written(store, run("dllp", fold), [0.5])
    [part] = _groups.compared(only(store))
    assert sizes(part) == {"mle": 2, "dllp": 2}
    written(store, run("amle", 7), [0.5])
    parts = _groups.compared(only(store))  # which shares nothing, so that a note tells of it
    assert [sizes(part) for part in parts] == [{"mle": 2, "dllp": 2}]
    rest = _groups.left_out(only(store), parts)
    assert {n: [r["run"]["fold"] for r in its] for n, its in rest.items()} == {
        "mle": [0],
        "amle": [7],
    }


def test_folds_that_overlap_in_part_are_compared_where_they_do(store):
    for method, folds in {"mle": range(4), "dllp": range(2, 6), "amle": range(5, 9)}.items():
        for fold in folds:
            written(store, run(method, fold), [0.5])
    parts = _groups.compared(only(store))
    assert [(sizes(part), part.part) for part in parts] == [
        ({"mle": 2, "dllp": 2}, ""),
        ({"dllp": 1, "amle": 1}, "with amle"),
    ]
    assert {r["run"]["fold"] for r in parts[0].records} == {2, 3}


def test_methods_that_share_nothing_are_not_compared(store):
    for method, fold in (("mle", 0), ("mle", 1), ("dllp", 2)):
        written(store, run(method, fold), [0.5])
    assert [sizes(part) for part in _groups.compared(only(store))] == [{"mle": 2}]


def test_accuracy_is_the_last_epochs_and_never_the_best(store):
    written(store, run("mle", 0), [0.9, 0.6])
    written(store, run("mle", 1), [0.9, 0.8])
    records = only(store).runs["mle"]
    found = _summary.final(records, "accuracy", 100)
    assert (found.mean, found.number) == (pytest.approx(70), 2)
    assert found.sd == pytest.approx(stdev([60, 80]))
    assert _summary.selected(records, "accuracy") is None


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
    # t of 2 degrees of freedom, 97.5 %; a test part of 10 instances for 90 to train on
    half = 4.302653 * stdev(points) * math.sqrt(1 / 3 + 10 / 90)
    assert (found.rival, found.folds) == ("dllp", 3)
    assert found.mean == pytest.approx(7 / 3)
    assert (found.low, found.high) == pytest.approx((7 / 3 - half, 7 / 3 + half), rel=1e-6)
    [back] = _summary.differences(only(store), "dllp")
    assert back.mean == pytest.approx(-found.mean)


def test_differences_along_the_way(store):
    curves = {"mle": [[0.5, 0.8, 0.9], [0.5, 0.7, 0.9], [0.7, 0.9, 0.9]], "dllp": [[0.6, 0.6, 0.9]]}
    for method, its in curves.items():
        for fold in range(3):
            written(store, run(method, fold), its[fold % len(its)])
    [found] = _summary.differences(only(store))
    assert found.mean == pytest.approx(0)
    points = [10 / 3, 0, 40 / 3]  # of each fold, the mean of its three epochs
    half = 4.302653 * stdev(points) * math.sqrt(1 / 3 + 10 / 90)
    ends = (50 / 9 - half, 50 / 9 + half)
    assert found.along == pytest.approx(50 / 9)
    assert (found.along_low, found.along_high) == pytest.approx(ends, rel=1e-6)
    assert (found.ahead, found.epochs) == (1, 3)  # below after the first, even after the last


def test_nothing_is_told_of_the_way_where_it_was_not_measured(store):
    written(store, run("mle"), [0.5, 0.8])
    written(store, run("dllp"), [0.4, 0.7], history={"test_accuracy": [None, 0.7]})
    [found] = _summary.differences(only(store))
    assert found.mean == pytest.approx(10)
    assert (found.along, found.ahead) == (None, None)


def test_sampling_the_test_instances_alone_gives_a_deviation(store):
    for fold, (value, number) in enumerate(((0.8, 100), (0.9, 400))):
        data = {"instances": [900, number]}
        written(store, run("mle", fold), [value], data=data)
    assert _summary.sampling_sd(only(store).runs["mle"]) == pytest.approx((4.0 + 1.5) / 2)


def test_the_band_is_the_mean_over_epochs_of_the_deviation_over_folds(store):
    written(store, run("mle", 0), [0.5, 0.8, 0.9])
    [alone] = only(store).runs.values()
    assert _summary.band(alone) is None
    written(store, run("mle", 1), [0.7, 0.8, 0.8])
    deviations = [20 / 2**0.5, 0, 10 / 2**0.5]
    assert _summary.band(only(store).runs["mle"]) == pytest.approx(sum(deviations) / 3)


def test_one_fold_has_a_difference_but_no_interval(store):
    written(store, run("mle"), [0.8])
    written(store, run("dllp"), [0.7])
    [found] = _summary.differences(only(store))
    assert (found.mean, found.low, found.high) == (pytest.approx(10), None, None)
    assert (found.sd_reference, found.equal_spread) == (None, None)


def test_the_corrected_interval_covers_what_the_plain_one_does_not():
    """Folds that share most of their training data: values with a common part."""
    rng, covered = np.random.default_rng(0), {"corrected": 0, "plain": 0}
    one = [{"run": {"held_out": None}, "data": {"bags": [90, 10], "instances": [90, 10]}}]
    for _ in range(400):
        values = (rng.normal(0, math.sqrt(0.1)) + rng.normal(0, math.sqrt(0.9), 10)).tolist()
        _, low, high = _summary.interval(values, one)
        half = 2.262157 * stdev(values) / math.sqrt(10)
        covered["corrected"] += low < 0 < high
        covered["plain"] += abs(sum(values) / 10) < half
    assert covered["corrected"] > 0.93 * 400 > covered["plain"]


def test_pitman_morgan_is_the_correlation_of_sum_and_difference():
    rng = np.random.default_rng(0)
    false = 0
    for _ in range(200):
        x = rng.normal(size=10)
        y = x + rng.normal(size=10)
        x += rng.normal(size=10)
        p = _summary.pitman_morgan(x.tolist(), y.tolist())
        assert p == pytest.approx(pearsonr(x + y, x - y).pvalue)
        false += p < 0.05
    assert false < 20  # equal variances
    assert _summary.pitman_morgan((9 * x).tolist(), y.tolist()) < 0.001
    assert _summary.pitman_morgan([1.0, 2.0, 3.0], [2.0, 3.0, 4.0]) is None  # alike to the digit


def test_epoch_times_leave_out_warm_up_and_shared_machines(store):
    for fold in range(2):
        for method, seconds in (("supervised", 1.0), ("mle", 1.5)):
            times = [9.0, 9.0, seconds, seconds + 0.2]
            timed = run(method, fold, experiment="epoch-time")
            written(store, timed, [0.5] * 4, history={"seconds": times})
    shared = run("mle", 2, experiment="epoch-time")
    written(store, shared, [0.5] * 4, history={"seconds": [99.0] * 4}, jobs=4)
    found = {row.method: row for row in _times.epoch_times(only(store, "epoch-time"))}
    assert found["mle"].epoch_seconds == pytest.approx(1.6)
    assert found["mle"].epoch_seconds_sd == pytest.approx(stdev([1.5, 1.7] * 2))
    assert found["mle"].epoch_ratio == pytest.approx(1.6 / 1.1)
    assert found["mle"].epochs == 4
    assert (found["mle"].paper, found["mle"].paper_ratio) == (7.78, pytest.approx(7.78 / 3.65))
    assert _times.PAPER_SECONDS["cifar10"]["mle-pass"] == 7.78  # whose time it is


def test_time_to_accuracy_is_counted_in_epochs_and_in_seconds_measured_alone(store):
    written(store, run("mle"), [0.60, 0.745, 0.80, 0.82])
    written(store, run("dllp"), [0.60, 0.65, 0.70, 0.75])
    written(store, run("direct"), [0.60, 0.65, 0.70, 0.95])
    for method, seconds in (("mle", 2.0), ("dllp", 3.0)):
        timed = run(method, experiment="epoch-time")
        written(store, timed, [0.5] * 3, history={"seconds": [9.0, 9.0, seconds]})
    alone = _times.alone(only(store), _groups.groups(store.read(), "epoch-time"))
    assert alone == {"mle": 2.0, "dllp": 3.0}
    found = {row.method: row for row in _times.reaches(only(store), alone)}
    assert found["dllp"].target == pytest.approx(0.74)
    assert (found["dllp"].epochs, found["dllp"].reference_epochs) == (4, 2)
    assert (found["dllp"].seconds, found["dllp"].reference_seconds) == (12.0, 4.0)
    assert (found["dllp"].ratio, found["dllp"].ratio_low) == (2.0, None)  # of one fold
    assert (found["direct"].epochs, found["direct"].reference_epochs) == (4, None)
    assert found["direct"].seconds is None
    assert (found["mle"].epochs, found["mle"].seconds) == (4, 8.0)  # to its own last accuracy


def test_epochs_to_accuracy_have_an_interval_over_folds(store):
    for fold in range(5):
        written(store, run("mle", fold), [0.5, 0.79, 0.8, 0.8, 0.8, 0.8])
        late = 3 + fold % 2
        written(store, run("dllp", fold), [0.5] * late + [0.78] * (6 - late))
    found = {row.method: row for row in _times.reaches(only(store), {})}
    assert (found["mle"].epochs_low, found["mle"].epochs, found["mle"].epochs_high) == (2, 2, 2)
    assert (found["dllp"].epochs_low, found["dllp"].epochs, found["dllp"].epochs_high) == (4, 5, 5)
    assert (found["dllp"].ratio_low, found["dllp"].ratio_high) == (2.0, 2.5)


def test_a_ratio_of_epochs_to_own_accuracies_does_not_gain_by_a_better_end(store):
    for fold in range(3):
        slow = 5 + fold % 2  # the reference is at the rival's end at once, and late at its own
        written(store, run("mle", fold), [0.75] * (slow - 1) + [0.9] * (9 - slow))
        written(store, run("dllp", fold), [0.5, 0.5, 0.5, 0.7, 0.7, 0.7, 0.7, 0.7])
    [_, row] = _times.reaches(only(store), {})
    assert (row.epochs, row.reference_epochs, row.ratio) == (4, 1, 4.0)
    assert row.own_ratio == pytest.approx(4 / 6)
    assert (row.own_ratio_low, row.own_ratio_high) == pytest.approx((4 / 6, 4 / 5))
    assert (row.ratio_low, row.ratio_high) == (4.0, 4.0)


def sized(store, accuracies: dict[int, list[float]], **changes) -> list[dict]:
    """Records of ``mle`` by size of bags, and as if nothing but each of them had been learnt."""
    for size, values in accuracies.items():
        for fold, value in enumerate(values):
            its = run("mle", fold, experiment="bag-size", bag_size=size, **changes)
            written(store, its, [value])
    return only(store, "bag-size").runs["mle"]


def alone(records: list[dict]) -> list[dict]:
    """The same with next to nothing to test by, where training sets do not matter."""
    return [r | {"data": r["data"] | {"instances": [10**9, 1]}} for r in records]


def test_a_doubling_costs_what_a_line_through_all_runs_says(store):
    by_size = {2: [0.90, 0.92, 0.91], 4: [0.84, 0.88, 0.86, 0.85], 8: [0.80, 0.83, 0.79]}
    records = sized(store, by_size)
    x = [math.log2(size) for size, values in by_size.items() for _ in values]
    y = [100 * value for values in by_size.values() for value in values]
    line = linregress(x, y)
    half = t.ppf(0.975, 8) * line.stderr
    found = _summary.slope(alone(records))
    assert (found.sizes, found.runs) == ([2, 4, 8], 10)
    assert found.mean == pytest.approx(line.slope)
    assert (found.low, found.high) == pytest.approx((line.slope - half, line.slope + half))
    wider = _summary.slope(records)
    assert wider.mean == found.mean
    assert wider.low < found.low  # 10 instances tested by for 90 to learn from
    assert _summary.slope(records[:2] + records[3:]).low is None  # two folds of a size
    assert _summary.slope(records[:3]) is None


def test_a_step_from_size_to_size_is_not_paired(store):
    small, large = [0.90, 0.92, 0.94], [0.86, 0.84, 0.79]
    records = sized(store, {2: small, 8: large})
    test = ttest_ind([100 * v for v in large], [100 * v for v in small], equal_var=False)
    low, high = test.confidence_interval(0.95)
    found = _summary.doubling(alone(records), (2, 8))
    assert found.mean == pytest.approx((83 - 92) / 2)  # a doubling, of two
    assert (found.low, found.high) == pytest.approx((low / 2, high / 2), rel=1e-6)
    assert _summary.doubling(records, (2, 8)).low < found.low
    swapped = [r | {"run": r["run"] | {"fold": 2 - r["run"]["fold"]}} for r in records[:3]]
    again = _summary.doubling([*swapped, *records[3:]], (2, 8))
    assert vars(again) == vars(_summary.doubling(records, (2, 8)))
    assert _summary.doubling(records, (8, 16)) is None


def test_bags_that_are_held_out_are_not_learnt_from(store):
    values = [0.80, 0.84, 0.82]
    for fold, value in enumerate(values):
        data = {"bags": [90, 10], "instances": [900, 100]}
        written(store, run("mle", fold, held_out=0.1), [value], data=data)
    records = only(store).runs["mle"]
    assert {_summary.held_out_bags(record) for record in records} == {9}
    points = [100 * value for value in values]
    _, low, high = _summary.interval(points, records)
    half = 4.302653 * stdev(points) * math.sqrt(1 / 3 + 100 / 810)
    assert (high - low) / 2 == pytest.approx(half, rel=1e-6)


def test_times_of_other_options_or_of_compiled_networks_are_not_borrowed(store):
    written(store, run("mle", method_options=PAPERS), [0.6])
    written(store, run("dllp"), [0.6])
    written(store, run("mle", experiment="epoch-time"), [0.5] * 3)
    written(store, run("dllp", experiment="epoch-time"), [0.5] * 3, compiled=True)
    assert _times.alone(only(store), _groups.groups(store.read(), "epoch-time")) == {}
    written(store, run("mle", experiment="epoch-time", method_options=PAPERS), [0.5] * 3)
    timed = _groups.groups(store.read(), "epoch-time")
    assert list(_times.alone(only(store), timed)) == ["mle-pass"]


def test_times_are_taken_from_runs_with_the_same_work(store):
    gan = {"weight": 0.1}
    softer = RUNNING | {"step": 0.3}
    written(store, run("llp-gan", method_options=gan), [0.6], compiled=True)
    written(store, run("mle", lr=0.003, weight_decay=0.05, method_options=softer), [0.6])
    timed = run("llp-gan", experiment="epoch-time", method_options={"weight": 1.0})
    written(store, timed, [0.5] * 3, history={"seconds": [9.0, 9.0, 5.0]}, compiled=True)
    for fold, step in enumerate((1.0, 0.7)):
        timed = run("mle", fold, experiment="epoch-time", method_options=softer | {"step": step})
        written(store, timed, [0.5] * 3, history={"seconds": [9.0, 9.0, 2.0 + fold]})
    slower = run("mle", 2, experiment="epoch-time", method_options=PAPERS)
    written(store, slower, [0.5] * 3, history={"seconds": [9.0, 9.0, 4.0]})
    times = _groups.groups(store.read(), "epoch-time")
    found = {}
    for group in _groups.groups(store.read(), "convergence"):
        found |= _times.alone(group, times)
    assert set(found.values()) == {2.5, 5.0}


def test_times_of_compiled_networks_are_told_apart(store):
    for fold, compiled in enumerate((False, True)):
        written(store, run("mle", fold, experiment="epoch-time"), [0.5] * 3, compiled=compiled)
    found = _groups.groups(store.read(), "epoch-time")
    assert sorted(_groups.told_apart(found)) == ["", "compiled"]


def test_times_of_other_hardware_are_not_borrowed(store):
    written(store, run("mle"), [0.6])
    slow = {"processor": "another"}
    written(store, run("mle", experiment="epoch-time"), [0.5] * 3, hardware=slow)
    assert _times.alone(only(store), _groups.groups(store.read(), "epoch-time")) == {}


def test_calibration_pools_the_folds(store):
    bins = {"mean_predicted": [0.04, 0.97], "fraction_positive": [0.0, 1.0], "number": [2, 8]}
    written(store, run("mle", 0), [0.8])
    written(store, run("mle", 1), [0.8], calibration=bins)
    pooled = _summary.calibration("mle", only(store).runs["mle"])
    assert pooled.bins == [
        (pytest.approx((0.02 * 6 + 0.04 * 2) / 8), pytest.approx(0.1 * 6 / 8), 8),
        (pytest.approx(0.97), pytest.approx((0.9 * 4 + 8) / 12), 12),
    ]


def test_no_record_is_lost_where_a_method_gained_an_option(store):
    """Older records of a method lack an option that newer ones have."""
    for fold in range(3):
        options = {"refresh": "running"}
        written(store, run("mle", fold, method_options=options), [0.5, 0.6])
        written(store, run("mle", fold, method_options=options | {"step": 1.0}), [0.5, 0.7])
    found = only(store).runs
    assert {name: len(records) for name, records in found.items()} == {"mle": 3, "mle, no step": 3}


def test_an_option_of_the_users_is_not_called_the_grids(store):
    """The weight of llp-gan is for a grid to choose; here the user gave it."""
    kept = "grid of 40 epochs"
    for fold in range(3):
        written(store, run("mle", fold, lr=3e-3), [0.5, 0.6], chosen_by=kept)
        gan = run("llp-gan", fold, lr=1e-4, method_options={"weight": 1.0})
        written(store, gan, [0.5, 0.6], chosen_by=f"{kept}, options")
    assert only(store).source == ""
