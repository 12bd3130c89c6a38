"""Which runs an experiment has, and what reaches the training."""

from dataclasses import replace

import pytest
import torch

from experiments.conftest import small
from llpkit import LLPError
from llpkit.experiments import (
    EXPERIMENTS,
    PROTOCOLS,
    Settings,
    _work,
    carry_out,
    everything,
    parse_folds,
    plan,
    reproduce,
)
from llpkit.methods import METHODS


def test_every_method_runs_every_fold_alike():
    runs = plan("convergence", Settings("cifar10"))
    assert len(runs) == 10 * len(METHODS)
    assert {run.bag_size for run in runs} == {(1, 12)}
    own = {"method": "", "fold": 0, "lr": 0.0, "network": ""}
    assert len({replace(run, **own).id for run in runs}) == 1
    first = [run.method for run in runs[: len(METHODS)]]
    assert first == list(METHODS)  # fold by fold: any part of the list is a fair comparison


def test_bag_sizes_are_those_of_the_paper_for_all_methods():
    runs = plan("bag-size", Settings("cifar10"))
    sizes = {method: [r.bag_size for r in runs if r.method == method] for method in METHODS}
    assert set(map(tuple, sizes.values())) == {(2, 4, 8, 16, 32, 64, 128) * 3}


def test_group_photos_have_their_own_bags():
    [run, *_] = plan("convergence", Settings("group-photos", size="half"))
    assert (run.bag_size, run.data_options) == (None, {"size": "half"})
    with pytest.raises(LLPError, match="group-photos has bags of its own; bag-size needs random"):
        plan("bag-size", Settings("group-photos"))
    assert "bag-size" not in dict(everything(Settings("group-photos")))
    assert list(dict(everything(Settings("cifar10")))) == list(EXPERIMENTS)


def test_all_gives_folds_to_the_comparisons_and_epochs_to_all_but_times():
    parts = dict(everything(Settings("cifar10", folds=[0, 1, 2, 3, 4], epochs=60)))
    assert {run.fold for run in plan("convergence", parts["convergence"])} == set(range(5))
    assert {run.fold for run in plan("epoch-time", parts["epoch-time"])} == set(range(3))
    assert {run.epochs for run in plan("epoch-time", parts["epoch-time"])} == {10}
    assert (parts["grid"].folds, parts["grid"].epochs) == (None, 60)
    with pytest.raises(LLPError, match="epochs = 2; the first 2 of a timed run are not counted"):
        plan("epoch-time", Settings("cifar10", epochs=2))


@pytest.mark.parametrize("text", ["0", "11", "0-10", "5-3", "one", "", "3-", "-1"])
def test_folds_that_are_none(text):
    with pytest.raises(LLPError, match="give a count such as 5, a range such as 0-4"):
        parse_folds(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "cifar"}, "dataset = 'cifar'; did you mean cifar10"),
        ({"methods": ["mel"]}, "method = 'mel'; did you mean mle"),
        ({"method_options": {"dlp": {}}}, "method = 'dlp'; did you mean dllp"),
        ({"size": "half"}, "size = 'half' is for group-photos, not for digits"),
        ({"folds": [10]}, "fold 10 is not one of the 10"),
    ],
)
def test_settings_that_are_wrong(changes, message):
    with pytest.raises(LLPError, match=message):
        small(**changes)


def test_too_few_bags_for_the_folds(store, place):
    done = reproduce("bag-size", small(bag_sizes=[500], folds=[0]), store, place)
    assert "digits in bags of 500 has 4 bags, too few for 10 folds" in done.failed[0]["error"]


def test_every_data_set_is_tested_by_whole_bags_it_was_not_trained_on(place):
    run = plan("convergence", Settings("digits"))[0]
    data, _ = _work.load(run)
    seen = []
    for fold in range(10):
        train, test = _work.divide(replace(run, fold=fold), data.bags)
        assert not set(train.rows.tolist()) & set(test.rows.tolist())
        assert train.num_instances + test.num_instances == len(data.inputs)
        seen += test.rows.tolist()
    assert sorted(seen) == list(range(len(data.inputs)))
    assert place.jobs == 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("experiment", ["convergence", "grid"])
def test_labels_reach_the_training_of_supervised_alone(monkeypatch, place, method, experiment):
    given = {}
    fit = _work.fit

    def spy(network, bags, inputs, *arguments, **options):
        given.update(options, bags=bags)
        return fit(network, bags, inputs, *arguments, **options)

    monkeypatch.setattr(_work, "fit", spy)
    [run] = plan("convergence", small(methods=[method], folds=[2], epochs=1))
    run = replace(run, experiment=experiment, held_out=0.1 if experiment == "grid" else None)
    assert carry_out(run, place) == "done"
    assert (given["labels"] is not None) == (method == "supervised")
    data, _ = _work.load(run)
    _, test = _work.divide(run, data.bags)
    assert not torch.isin(given["bags"].rows, test.rows).any()
    watching = [type(callback).__name__ for callback in given["callbacks"]]
    assert ("Watch" in watching) == (experiment == "convergence")


def test_an_option_that_says_what_holds_anyway_is_no_other_run():
    plain, told, other = (
        plan("convergence", small(methods=["mle"], folds=[0], method_options=options))[0]
        for options in ({}, {"mle": {"refresh": "running"}}, {"mle": {"refresh": "pass"}})
    )
    assert plain.id == told.id != other.id


def test_protocols_name_networks_and_methods_that_exist():
    from llpkit.augment import PRESETS
    from llpkit.datasets import DATASETS
    from llpkit.networks import NETWORKS

    for name, protocol in PROTOCOLS.items():
        assert name in DATASETS
        assert DATASETS[name].random_bags == (protocol.bag_size is not None)
        assert protocol.network in NETWORKS
        assert protocol.augment in PRESETS
