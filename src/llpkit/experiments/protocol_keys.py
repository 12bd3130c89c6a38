"""Checks of a protocol's keys: ``check(place, value)`` returns the value to keep."""

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from llpkit._settings import Check
from llpkit._validation import mapping, number, registered, whole
from llpkit.errors import LLPError
from llpkit.methods import METHODS
from llpkit.recipe import Recipe

RATES = ("lr", "weight_decay")
"""Axes of a grid that are settings of a recipe; all others are options of a method."""

OWN = ("method", "folds")
"""Keys of an entry of ``methods`` that are not settings of a recipe."""


def options(place: str, value: Any) -> Mapping[str, Any]:
    """Options that survive JSON, and so a record: no dates, no infinite numbers."""
    checked = mapping(place, value)
    for key, own in checked.items():
        try:
            same = json.loads(json.dumps(own, allow_nan=False)) == own
        except (TypeError, ValueError):
            same = False
        if not same:
            raise LLPError(f"{place}: {key} = {own!r}; give text, finite numbers or lists of them")
    return checked


def recipe(place: str, value: Any) -> dict[str, Any]:
    """Settings of a recipe, except those that a protocol has elsewhere."""
    settings = mapping(place, value)
    if taken := [key for key in ("method", "seed") if key in settings]:
        raise LLPError(f"{place}: {taken[0]} does not belong here; remove it")
    if settings.get("patience") is not None:
        raise LLPError(f"{place}: runs of a protocol have the same epochs; remove patience")
    options(f"{place}: method_options", settings.get("method_options", {}))
    checked = Recipe.from_dict(settings, lambda name: f"{place}: {name}").to_dict()
    return {key: checked[key] for key in settings}


def methods(place: str, value: Any) -> dict[str, Any]:
    """Settings by method, or by variant of the method that the key ``method`` names."""
    checks: dict[str, Check] = {"method": partial(registered, known=METHODS), "folds": whole}
    checked = {}
    for name, own in mapping(place, value).items():
        at = f"{place}: {name}"
        entry = mapping(at, own)
        if "method" not in entry:
            registered(place, name, METHODS)
        elif not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
            raise LLPError(f"{at} is not a name; use small letters, digits, dots and dashes")
        more = {key: checks[key](f"{at}: {key}", entry[key]) for key in OWN if key in entry}
        checked[name] = more | recipe(at, {k: v for k, v in entry.items() if k not in OWN})
    return checked


def by_method(check: Check) -> Check:
    """Values by the name of a method."""

    def checked(place: str, value: Any) -> dict[str, Any]:
        return {
            registered(place, name, METHODS): check(f"{place}: {name}", own)
            for name, own in mapping(place, value).items()
        }

    return checked


def ladder(check: Check) -> Check:
    """A list of different values."""

    def checked(place: str, value: Any) -> tuple[Any, ...]:
        is_list = isinstance(value, list | tuple)
        values = tuple(check(place, each) for each in value) if is_list else ()
        if not is_list or len(set(values)) < len(values):
            raise LLPError(f"{place} = {value!r}; give a list of different values")
        return values

    return checked


def scalar(place: str, value: Any) -> Any:
    """A number, text, true, false or none."""
    if isinstance(value, float):
        return number(place, value)
    if value is not None and not isinstance(value, str | int):
        raise LLPError(f"{place} = {value!r}; give a number, text, true, false or null")
    return value


rates = ladder(partial(number, least=0))


def ladders(place: str, value: Any) -> dict[str, Any]:
    """Ladders by axis: a rate, or an option of a method."""
    return {
        axis: (rates if axis in RATES else ladder(scalar))(f"{place}: {axis}", own)
        for axis, own in mapping(place, value).items()
    }
