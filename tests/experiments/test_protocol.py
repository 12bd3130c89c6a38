"""Protocols: what they mean, and what a user's file may get wrong."""

from pathlib import Path

import pytest

from experiments.conftest import small
from llpkit.errors import LLPError
from llpkit.experiments import load
from llpkit.experiments.protocol import Grid
from llpkit.experiments.protocol_file import parse, presets, read, write


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
        ({"fold": 3}, r"p\.yaml: there is no key 'fold'; did you mean 'folds'"),
        ({"bag_size": [3, 2]}, r"p\.yaml: bag_size = 2"),
        ({"flat": "yes"}, r"p\.yaml: flat = 'yes'"),
        ({"recipe": {"epoch": 3}}, r"p\.yaml: recipe: epoch is unknown; did you mean 'epochs'"),
        ({"recipe": {"seed": 3}}, r"p\.yaml: recipe: seed does not belong here"),
        ({"methods": {"mle": {"lr": -1}}}, r"p\.yaml: methods: mle: lr = -1"),
        ({"methods": ["mle"]}, r"p\.yaml: methods = \['mle'\]; give keys and values"),
        ({"grid": {"held_out": 2}}, r"p\.yaml: grid: held_out = 2"),
        ({"grid": {"lr": [1, 1]}}, r"p\.yaml: grid: lr = \[1, 1\]; give a list of different"),
        ({"grid": {"folds": 3}}, r"p\.yaml: grid: folds = 3; give a whole number from 1 to 2"),
        ({"sizes": {"sizes": [0], "folds": 1}}, r"p\.yaml: sizes: sizes = 0"),
        ({"sizes": {"folds": 1}, "bag_size": None}, r"p\.yaml: bag_size = None"),
        ({"times": {"epochs": 2}}, r"p\.yaml: times: epochs = 2; give a whole number from 3"),
        ({"title": 3}, r"p\.yaml: title = 3"),
    ],
)
def test_errors_name_file_and_key(changes, match):
    values = small().to_dict() | changes
    with pytest.raises(LLPError, match=match):
        parse(values, "p.yaml")


def test_what_cannot_be_read_is_named():
    with pytest.raises(LLPError, match="there is no protocol 'digit'; did you mean 'digits'"):
        load("digit")
    with pytest.raises(LLPError, match=r"none\.yaml cannot be read"):
        load("none.yaml")
    Path("bad.yaml").write_text("a: [")
    with pytest.raises(LLPError, match=r"bad\.yaml is not YAML"):
        load("bad.yaml")
    with pytest.raises(LLPError, match="the key 'dataset' is missing"):
        parse({"title": "A"})
