"""Entries by name, as plugins add them."""

import pytest

from llpkit import LLPError
from llpkit._registry import Registry, did_you_mean


@pytest.fixture
def colours() -> Registry[int]:
    registry = Registry[int]("colour")
    registry.add("red", 1)
    registry.add("green", 2)
    return registry


def test_it_is_a_mapping_in_the_order_of_registration(colours):
    assert dict(colours) == {"red": 1, "green": 2}
    assert list(colours) == ["red", "green"]
    assert "red" in colours
    assert "blue" not in colours
    assert ["red"] not in colours  # what cannot be hashed is no name either
    assert colours.get("blue", 7) == 7


def test_register_decorates():
    functions = Registry("function")

    @functions.add("double")
    def double(x):
        return 2 * x

    assert functions["double"] is double
    assert double(3) == 6


def test_an_unknown_name_gets_a_suggestion(colours):
    with pytest.raises(LLPError, match=r"^there is no colour 'Gren'; did you mean 'green'\?$"):
        colours["Gren"]
    with pytest.raises(LLPError, match="there is no colour 'xyz'; available: red, green"):
        colours["xyz"]
    with pytest.raises(LLPError, match="there is no colour 3"):
        colours[3]


def test_a_name_is_taken_once(colours):
    assert colours.add("red", colours["red"]) == 1  # a module imported again
    with pytest.raises(LLPError, match="already a colour 'red'"):
        colours.add("red", 3)
    with pytest.raises(LLPError, match="colour name = ''"):
        colours.add("", 3)


def test_did_you_mean_without_names():
    assert did_you_mean("a", []) == "none is available"
