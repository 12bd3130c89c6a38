"""Variants of a method in one protocol, folds by method, and the protocols that use them."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.conftest import record, small
from llpkit.errors import LLPError
from llpkit.experiments import Results, load, reproduce
from llpkit.experiments.plan import START, epoch_seconds, estimate, plan
from llpkit.experiments.protocol_file import parse, presets, write
from llpkit.experiments.records import write_run
from llpkit.experiments.results import merge
from llpkit.experiments.summary import paired

VARIANTS = small(
    methods={
        "mle": {},
        "mle-network": {"method": "mle", "method_options": {"first": "network"}, "folds": 1},
        "one-bag": {"method": "dllp", "batch_size": 12, "max_bags": 1},
    },
    times={"turns": 1, "epochs": 3},
)


def test_variants_run_and_are_compared_by_name(settings, llpkit):
    settings = replace(settings, protocol=VARIANTS)
    done = reproduce(settings, VARIANTS.experiments)
    assert {name: outcome.now for name, outcome in done.items()} == {
        "convergence": 5,
        "epoch-time": 3,
    }
    assert {o.before for o in reproduce(settings, VARIANTS.experiments).values()} == {5, 3}
    runs = Results.read(settings.folder).by_method("convergence")
    assert {name: len(records) for name, records in runs.items()} == {
        "mle": 2,
        "mle-network": 1,
        "one-bag": 2,
    }
    curves = {name: its[0].history["test_accuracy"] for name, its in runs.items()}
    assert curves["mle"] != curves["mle-network"]
    shared = [paired(runs["mle"], runs[name])[0] for name in ("mle-network", "one-bag")]
    assert [len(folds) for folds in shared] == [1, 2]
    again = ("--methods", "mle-network", "--device", "cpu")
    one = llpkit("reproduce", "check", settings.folder, "convergence", *again)
    assert "the same to the last digit" in one[1]


def test_folds_that_are_asked_for_override_those_of_a_variant():
    results = Results.of(Path("r"), VARIANTS)
    usual = [(run.method, run.fold) for run in plan(results, "convergence")]
    assert ("mle-network", 1) not in usual
    asked = [(run.method, run.fold) for run in plan(results, "convergence", folds=[1])]
    assert asked == [("mle", 1), ("mle-network", 1), ("one-bag", 1)]


def test_whole_bags_come_in_at_least_so_many_per_step():
    protocol = small(sizes={"sizes": [2, 64], "folds": 1, "epochs": 1, "bags_per_step": 8})
    results = Results.of(Path("r"), protocol)
    found = {(r.method, r.bag_size): r.recipe["batch_size"] for r in plan(results, "bag-size")}
    assert found == {("mle", 2): 256, ("mle", 64): 256, ("dllp", 2): 256, ("dllp", 64): 512}
    for name, size in found:
        recipe = protocol.recipe_of(name, "bag-size", size).to_dict()
        made = record(name, 0, [0.5], protocol, "bag-size", recipe=recipe, bag_size=size)
        Results.of(Path("r"), protocol, [made])


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"methods": {"my mle": {"method": "mle"}}}, "my mle is not a name"),
        ({"methods": {"fast": {"method": "mel"}}}, "fast: method = 'mel'; did you mean 'mle'"),
        ({"methods": {"mle": {"folds": 0}}}, "mle: folds = 0; give a whole number of at least 1"),
    ],
)
def test_variants_are_checked(changes, match):
    with pytest.raises(LLPError, match=match):
        parse(small().plain() | changes)


def test_a_record_of_an_unknown_variant_is_refused():
    with pytest.raises(LLPError, match=r"has no slow; remove it"):
        Results.of(Path("r"), small(), [record("mle", 0, [0.5], variant="slow")])


@pytest.mark.parametrize("name", presets())
def test_every_preset_runs_in_its_quick_form_on_tiny_data(settings, name):
    """Settings, variants and experiments of a preset, with a dense network on a few points."""
    given = load(name).quick()
    recipe = {"network": "mlp", "epochs": 1, "precision": "32-true"}
    plain = {"augment": None, "strong_augment": None}  # points are no images
    tiny = replace(
        given,
        dataset="synthetic",
        data_options={"rows": 240, "features": 16},
        bag_size=(1, 12),
        official=False,
        concentration=None,
        flat=True,
        recipe={k: v for k, v in given.recipe.items() if k != "augment"} | recipe,
        methods={k: own | plain for k, own in given.methods.items()},
        sizes=given.sizes and replace(given.sizes, sizes=(16,), epochs=1),
        grid=None,
        times=None,
    )
    assert parse(tiny.plain()) == tiny
    outcomes = reproduce(replace(settings, protocol=tiny), tiny.experiments, folds=[0])
    assert all(not each.failed and not each.left for each in outcomes.values())
    assert sum(each.now for each in outcomes.values()) == len(tiny.experiments) * len(tiny.methods)


def test_the_time_of_runs_is_that_of_recorded_epochs(llpkit):
    protocol = small(times={"turns": 1, "epochs": 4})
    timed = [
        record(name, 0, [0.5] * 4, protocol, "epoch-time", history={"seconds": [9.0, 9.0, s, s]})
        for name, s in (("mle", 30.0), ("dllp", 60.0))
    ]
    for each in timed:
        write_run(Path("timed"), each)
    write(protocol, Path("timed/protocol.yaml"))
    seconds = epoch_seconds(Results.read(Path("timed")))
    assert seconds == {"mle": 30.0, "dllp": 60.0}
    runs = plan(Results.of(Path("r"), small()), "convergence")
    assert estimate(runs, seconds) == 4 * START + 2 * 2 * (30 + 60)
    assert estimate(runs, {}) is None
    write(small(), Path("p.yaml"))
    shown = llpkit("reproduce", "p.yaml", "--dry-run", "--like", "timed", "--out", "new")[1]
    assert "7 min" in shown  # of 380 seconds
    assert "min" not in llpkit("reproduce", "p.yaml", "--dry-run", "--out", "new")[1]
    assert "digits: " in llpkit("reproduce", "list")[1]


def test_a_run_that_diverged_is_a_result(settings):
    lost = {"method": "amle", "method_options": {"floor": 0.0}, "lr": 0.1, "epochs": 20}
    protocol = small(methods={"mle": {}, "bare": lost})
    settings = replace(settings, protocol=protocol)
    first = reproduce(settings, ["convergence"])["convergence"]
    assert [r.diverged for r in first.failed] == [True, True]
    again = reproduce(settings, ["convergence"])["convergence"]
    assert (again.before, again.now, len(again.failed)) == (4, 0, 0)
    both = merge(Path("both"), [settings.folder])
    assert [r.method for r in both.failures] == ["bare", "bare"]
