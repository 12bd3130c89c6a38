"""One definition of every setting: Python, YAML and the command line know the same."""

import inspect
from dataclasses import fields

import pytest
import torch
import typer

import llpkit
from llpkit import LLPError
from llpkit.cli import app
from llpkit.config import check, read, to_yaml
from llpkit.recipe import Execution, Recipe

DEFAULTS = Recipe.defaults() | Execution.defaults()


@pytest.fixture
def data():
    x = torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return llpkit.random_bags((x.mean((1, 2, 3)) > 0.5).long(), 4, generator=0), x


def test_every_setting_is_an_option_of_fit():
    command = typer.main.get_command(app).commands["fit"]
    parameters = {parameter.name: parameter for parameter in command.params}
    assert DEFAULTS.keys() <= parameters.keys()
    for kind in (Recipe, Execution):
        for name, setting in kind.settings().items():
            named = setting.option or "--" + name.replace("_", "-")
            assert parameters[name].opts == [named]
            assert parameters[name].help == setting.help


def test_every_setting_is_a_key_of_the_file(tmp_path):
    written = tmp_path / "config.yaml"
    written.write_text(to_yaml(check({"data": {"dataset": "digits"}})))
    assert read(written).items() >= DEFAULTS.items()
    config = check({"data": {"dataset": "digits"}, **DEFAULTS})
    assert (config.recipe, config.execution) == (Recipe(), Execution())


def test_every_setting_is_a_keyword_of_fit(data):
    bags, x = data
    assert DEFAULTS.keys() <= inspect.signature(llpkit.fit).parameters.keys()
    named = DEFAULTS | {"epochs": 1}
    one = llpkit.fit(bags=bags, inputs=x, progress=False, **named)
    other = llpkit.fit(None, bags, x, epochs=1, progress=False)
    assert torch.equal(one.logits(x), other.logits(x))


def test_a_recipe_is_its_settings_as_keywords(data):
    bags, x = data
    settings = {
        "method": "mle", "method_options": {"step": 1.5}, "network": "small-cnn", "epochs": 3,
        "batch_size": 16, "max_bags": 3, "optimizer": "sgd", "lr": 0.01, "weight_decay": 0.1,
        "schedule": "cosine", "augment": "geometric", "held_out": 0.2, "patience": 2,
        "measure": "all", "precision": "bf16-mixed", "seed": 3,
    }  # fmt: skip
    left_out = {f.name for f in fields(Recipe)} - settings.keys()
    assert left_out == {"strong_augment"}  # for methods with two views
    one = llpkit.fit(None, bags, x, recipe=Recipe(**settings), progress=False)
    other = llpkit.fit(bags=bags, inputs=x, progress=False, **settings)
    assert torch.equal(one.logits(x), other.logits(x))
    assert one.details == other.details
    plain = llpkit.fit(None, bags, x, recipe=Recipe(**settings), seed=0, progress=False)
    assert not torch.equal(one.logits(x), plain.logits(x))


def test_values_are_checked_wherever_they_come_from():
    with pytest.raises(LLPError, match="epochs = 0; give a whole number from 1"):
        Recipe(epochs=0)
    with pytest.raises(LLPError, match="epochs = 0; give a whole number from 1"):
        Recipe().replace(epochs=0)
    with pytest.raises(LLPError, match="epoch is unknown; did you mean 'epochs'"):
        Recipe().replace(epoch=3)
    with pytest.raises(LLPError, match="--epochs = 'ten'; give a whole number from 1"):
        Recipe.from_dict({"epochs": "ten"}, lambda name: f"--{name}")
    assert Recipe.from_dict({"epochs": "3", "lr": "1e-2"}) == Recipe(epochs=3, lr=0.01)
