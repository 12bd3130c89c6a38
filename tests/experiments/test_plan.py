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
from llpkit.experiments._plan import names, stated
from llpkit.methods import METHODS


def test_every_method_runs_every_fold_alike():
    runs = plan("convergence", Settings("cifar10"))
    assert len(runs) == 10 * len(names())
    assert {run.bag_size for run in runs} == {(1, 12)}
    own = {"method": "", "fold": 0, "lr": 0.0, "network": "", "method_options": {}}
    assert len({replace(run, **own).id for run in runs}) == 1
    first = [run.name for run in runs[: len(names())]]
    assert first == names()  # fold by fold: any part of the list is a fair comparison


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
    for changes in ({"lr": 0.01}, {"grid": False}):
        assert "grid" not in dict(everything(Settings("cifar10", **changes)))


def test_all_gives_folds_to_the_comparisons_and_epochs_to_all_but_times():
    parts = dict(everything(Settings("cifar10", folds=[0, 1, 2, 3, 4], epochs=60)))
    assert {run.fold for run in plan("convergence", parts["convergence"])} == set(range(5))
    assert {run.fold for run in plan("epoch-time", parts["epoch-time"])} == set(range(3))
    assert {run.epochs for run in plan("epoch-time", parts["epoch-time"])} == {10}
    assert (parts["grid"].folds, parts["grid"].epochs) == (None, 60)
    with pytest.raises(LLPError, match="epochs = 2; the first 2 of a timed run are not counted"):
        plan("epoch-time", Settings("cifar10", epochs=2))


def test_each_turn_of_timed_runs_begins_with_another_method():
    methods = ["supervised", "mle", "dllp"]
    runs = plan("epoch-time", Settings("digits", methods=methods))
    turns = [[run.name for run in runs if run.fold == fold] for fold in range(3)]
    assert [turn[0] for turn in turns] == methods
    assert [sorted(turn) for turn in turns] == 3 * [sorted(methods)]
    assert [run.fold for run in runs] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


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
        ({"methods": ["mle", "dllp", "mle"]}, "methods: mle is there twice"),
        ({"bag_sizes": [2, 4, 2]}, "bag_sizes: 2 is there twice"),
        ({"network": "conv-large"}, "takes images of at least 16 x 16 pixels, these are 8 x 8"),
        ({"augment": "paper"}, "augment = 'paper' is for images, but digits are rows of numbers"),
    ],
)
def test_settings_that_are_wrong(changes, message):
    with pytest.raises(LLPError, match=message):
        small(**changes)


@pytest.mark.parametrize(
    ("experiment", "changes", "message"),
    [
        ("bag-size", {"bag_sizes": [2, 500]}, "digits in bags of 500 has 4 bags, too few for 10"),
        ("convergence", {"held_out": 0.001}, "held_out = 0.001 leaves 0 to select by"),
        ("bag-size", {"bag_sizes": [2, 128], "held_out": 0.01}, "bags of 128 has 15 bags, of whi"),
    ],
)
def test_bags_that_are_too_few_are_told_before_any_run(store, place, experiment, changes, message):
    with pytest.raises(LLPError, match=message):
        reproduce(experiment, small(folds=[0], **changes), store, place)
    assert not store.home.exists()


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


def test_a_run_holds_every_option_of_its_method(monkeypatch):
    def only(**changes):
        return plan("convergence", small(folds=[0], **{"methods": ["mle"]} | changes))[0]

    plain = only()
    assert plain.method_options == {"refresh": "running", "step": 1.0}
    assert plain.id == only(method_options={"mle": {"refresh": "running", "step": 1}}).id
    paper = only(methods=["mle-pass"])
    monkeypatch.setattr(METHODS["mle"].__init__, "__defaults__", ("running", 1.5))
    assert only().id != plain.id  # another default is another run
    assert only(methods=["mle-pass"]).id == paper.id  # but the paper's algorithm stays what it is
    assert only(methods=["llp-gan"]).method_options == {"weight": 1.0}


def test_a_variant_is_a_method_with_options_and_a_name_of_its_own():
    settings = small(methods=["mle", "mle-pass"], folds=[0])
    runs = plan("convergence", settings)
    assert [(run.method, run.name, run.method_options["refresh"]) for run in runs] == [
        ("mle", "mle", "running"),
        ("mle", "mle-pass", "pass"),
    ]
    for experiment, there in (("convergence", 1), ("epoch-time", 1), ("bag-size", 0)):
        names = [run.name for run in plan(experiment, small(methods=[], folds=[0], epochs=5))]
        assert names.count("mle-pass") == there
    twice = small(methods=["mle", "mle-pass"], method_options={"mle": {"refresh": "pass"}})
    with pytest.raises(LLPError, match="methods: mle with these options is mle-pass, which is"):
        plan("convergence", twice)


def test_protocols_name_networks_and_methods_that_exist():
    from llpkit.augment import PRESETS
    from llpkit.datasets import DATASETS
    from llpkit.networks import NETWORKS

    for name, protocol in PROTOCOLS.items():
        assert name in DATASETS
        assert DATASETS[name].random_bags == (protocol.bag_size is not None)
        assert protocol.network in NETWORKS
        assert protocol.augment in PRESETS


def test_compiled_networks_make_other_timed_runs_and_no_others():
    for experiment, others in (("epoch-time", True), ("convergence", False)):
        settings = small(methods=["mle"], folds=[0], epochs=5)
        [plain] = plan(experiment, settings)
        [compiled] = plan(experiment, settings, compiled=True)
        assert (plain.id != compiled.id) == others


def test_an_option_of_k_classes_leaves_the_runs_as_they_were():
    assert stated("mle") == {"refresh": "running", "step": 1.0}
    assert stated("direct") == {}
