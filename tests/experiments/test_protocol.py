"""Protocols: what they mean, and what a user's file may get wrong."""

from datetime import date
from pathlib import Path

import pytest

from experiments.conftest import record, small
from llpkit.errors import LLPError
from llpkit.experiments import load
from llpkit.experiments.protocol import Grid
from llpkit.experiments.protocol_file import parse, presets, read, write
from llpkit.experiments.records import read_run, write_run
from llpkit.experiments.results import Results


@pytest.mark.parametrize("name", presets())
def test_presets_survive_a_file(name):
    protocol = load(name)
    for each in (protocol, protocol.quick()):
        assert read(write(each, Path("p.yaml"))) == each
    for method in protocol.methods:
        assert protocol.recipe_of(method).epochs == protocol.recipe["epochs"]


def test_recipes_follow_experiment_method_and_choice():
    protocol = small(
        methods={"mle": {}, "dllp": {"lr": 0.5}, "llp-gan": {}},
        grid={"epochs": 7, "own_epochs": {"llp-gan": 9}},
        sizes={"sizes": [2, 4], "folds": 2, "epochs": 5, "held_out": 0.2},
        times={"epochs": 4},
    )
    assert protocol.experiments == ["grid", "convergence", "bag-size", "epoch-time"]
    found = {e: protocol.recipe_of("mle", e, lr=0.01) for e in protocol.experiments}
    assert [recipe.epochs for recipe in found.values()] == [7, 2, 5, 4]
    assert [recipe.held_out for recipe in found.values()] == [0.1, None, 0.2, None]
    assert {recipe.lr for recipe in found.values()} == {0.01}
    assert protocol.recipe_of("dllp", lr=0.01).lr == 0.5  # the protocol's own comes first
    assert protocol.recipe_of("llp-gan", "grid").epochs == 9
    assert protocol.recipe_of("llp-gan").network == "llp-gan"
    assert [protocol.searched(m) for m in ("mle", "dllp")] == [True, False]


def test_a_method_may_have_ladders_of_its_own():
    grid = Grid(lr=(1, 2), weight_decay=(0,), methods={"llp-gan": {"weight": (3,), "lr": ()}})
    assert grid.axes("mle") == {"lr": (1, 2), "weight_decay": (0,)}
    assert grid.axes("llp-gan") == {"weight": (3,), "weight_decay": (0,)}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"folds": 1}, r"p\.yaml: folds = 1; give a whole number from 2"),
        ({"fold": 3}, r"p\.yaml: fold is unknown; did you mean 'folds'"),
        ({"bag_size": [3, 2]}, r"p\.yaml: bag_size = \[3, 2\]; give a number, or a range"),
        ({"flat": "yes"}, r"p\.yaml: flat = 'yes'"),
        ({"recipe": {"epoch": 3}}, r"p\.yaml: recipe: epoch is unknown; did you mean 'epochs'"),
        ({"recipe": {"seed": 3}}, r"p\.yaml: recipe: seed does not belong here"),
        ({"methods": {"mle": {"lr": -1}}}, r"p\.yaml: methods: mle: lr = -1"),
        ({"methods": ["mle"]}, r"p\.yaml: methods = \['mle'\]; give names and values"),
        ({"grid": {"held_out": 2}}, r"p\.yaml: grid: held_out = 2"),
        ({"grid": {"lr": [1, 1]}}, r"p\.yaml: grid: lr = \[1, 1\]; give a list of different"),
        ({"grid": {"folds": 3}}, r"p\.yaml: grid: folds = 3; give a whole number from 1 to 2"),
        ({"sizes": {"sizes": [0], "folds": 1}}, r"p\.yaml: sizes: sizes = 0"),
        ({"sizes": {"folds": 1}, "bag_size": None}, "p.yaml: sizes needs random bags"),
        (
            {"times": {"epochs": 2}},
            r"p\.yaml: times: epochs = 2; give a whole number of at least 3",
        ),
        ({"title": 3}, r"p\.yaml: title = 3"),
        ({"folds": 1001}, r"p\.yaml: folds = 1001; give a whole number from 2 to 1000"),
        ({"dataset": "digit"}, r"p\.yaml: dataset = 'digit'; did you mean 'digits'.*--plugin"),
        (
            {"methods": {"t": {"method": "teacher", "method_options": {"dekay": 0.9}}}},
            r"p\.yaml: t: .*'dekay'; did you mean 'decay'",
        ),
        ({"methods": {"mel": {}}}, r"p\.yaml: methods = 'mel'; did you mean 'mle'.*--plugin"),
        ({"grid": {"methods": {"mel": {}}, "folds": 1}}, r"grid: methods = 'mel'"),
        ({"grid": {"own_epochs": {"mel": 3}, "folds": 1}}, r"grid: own_epochs = 'mel'"),
        ({"recipe": {"network": "mine"}}, r"recipe: network = 'mine'.*--plugin"),
        ({"recipe": {"patience": 3, "held_out": 0.1}}, r"recipe: .* remove patience"),
        ({"methods": {"mle": {"patience": 3}}}, r"methods: mle: .* remove patience"),
        ({"recipe": {"lr": 0.1}, "grid": {}}, "recipe sets lr, which the grid chooses for mle"),
        ({"data_options": {"day": date(2020, 1, 1)}}, r"data_options: day = .*give text"),
        ({"recipe": {"method_options": {"a": {1: 2}}}}, r"method_options: a = \{1: 2\}"),
        ({"grid": {"methods": {"mle": {"step": [[1]]}}}}, r"mle: step = \[1\]; give a number"),
    ],
)
def test_errors_name_file_and_key(changes, match):
    values = small().plain() | changes
    with pytest.raises(LLPError, match=match):
        parse(values, "p.yaml")


def test_what_cannot_be_read_is_named():
    with pytest.raises(LLPError, match="there is no protocol 'digit'; did you mean 'digits'"):
        load("digit")
    with pytest.raises(LLPError, match=r"none\.yaml does not exist"):
        load("none.yaml")
    Path("bad.yaml").write_text("a: [")
    with pytest.raises(LLPError, match=r"bad\.yaml is not YAML"):
        load("bad.yaml")
    with pytest.raises(LLPError, match="the key 'dataset' is missing"):
        parse({"title": "A"})


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": "1e-3", "weight_decay": "0", "held_out": "1e-1"},
        {"measure": False, "epochs": "2", "augment": None},
        {"lr": 1, "method_options": {"step": 1, "first": "network"}, "network": None},
    ],
)
def test_the_records_of_an_accepted_protocol_belong_to_it(settings):
    shared = {"recipe": settings, "methods": {"mle": {}}}
    for changes in (shared, {"methods": {"mle": settings}}):
        protocol = small(**changes)
        assert parse(protocol.plain()) == protocol
        made = read_run(write_run(Path("r"), record("mle", 0, [0.5], protocol)))
        Results.of(Path("r"), protocol, [made])


def test_a_shared_rate_is_allowed_if_the_grid_does_not_choose_it():
    given = {"recipe": {"lr": 0.1}, "grid": {"lr": []}}
    assert small(**given).chosen("mle") == ["weight_decay"]
    write(small(**given).quick(), Path("p.yaml"))
    assert read(Path("p.yaml")).recipe["lr"] == 0.1
