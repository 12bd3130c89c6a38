"""Checks of the keys of a protocol: ``check(place, value)`` returns the value to keep."""

import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from llpkit._settings import Check
from llpkit._validation import mapping, number, registered, whole
from llpkit.augment import AUGMENTATIONS
from llpkit.errors import LLPError
from llpkit.methods import METHODS
from llpkit.networks import NETWORKS
from llpkit.recipe import Recipe

RATES = ("lr", "weight_decay")
"""Axes of a grid that are settings of a recipe; the others are options of a method."""

OWN = ("method", "folds")
"""Keys of an entry of ``methods`` that are not settings of its recipe."""


def known(names: Iterable[str]) -> Check:
    """One of these names, which a plugin may add to."""
    return lambda place, value: registered(place, value, names)


def options(place: str, value: Any) -> Mapping[str, Any]:
    """Options that a record, which is JSON, returns unchanged: no dates, no infinite numbers."""
    found = mapping(place, value)
    for key, own in found.items():
        try:
            same = json.loads(json.dumps(own, allow_nan=False)) == own
        except (TypeError, ValueError):
            same = False
        if not same:
            raise LLPError(f"{place}: {key} = {own!r}; give text, finite numbers or lists of them")
    return found


NAMES: dict[str, Iterable[str]] = {
    "network": NETWORKS,
    "augment": AUGMENTATIONS,
    "strong_augment": AUGMENTATIONS,
}


def recipe(place: str, value: Any) -> dict[str, Any]:
    """Settings of a recipe, except those that a protocol has elsewhere."""
    found = mapping(place, value)
    if taken := [key for key in ("method", "seed") if key in found]:
        raise LLPError(f"{place}: {taken[0]} does not belong here; remove it")
    if found.get("patience") is not None:
        raise LLPError(f"{place}: runs of a protocol have the same epochs; remove patience")
    for key, names in NAMES.items():
        if found.get(key) is not None:
            known(names)(f"{place}: {key}", found[key])
    options(f"{place}: method_options", found.get("method_options", {}))
    checked = Recipe.from_dict(found, lambda name: f"{place}: {name}").to_dict()
    return {key: checked[key] for key in found}


def methods(place: str, value: Any) -> dict[str, Any]:
    """Methods by name, and variants of a method, which name it by the key ``method``."""
    found = {}
    for name, own in mapping(place, value).items():
        at = f"{place}: {name}"
        given = mapping(at, own)
        if "method" not in given:
            known(METHODS)(place, name)
        elif not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
            raise LLPError(f"{at} is not a name; use small letters, digits, dots and dashes")
        checks = {"method": known(METHODS), "folds": whole}
        more = {key: checks[key](f"{at}: {key}", given[key]) for key in OWN if key in given}
        found[name] = more | recipe(at, {k: v for k, v in given.items() if k not in OWN})
    return found


def by_method(check: Check) -> Check:
    """Values by the name of a method."""

    def checked(place: str, value: Any) -> dict[str, Any]:
        found = mapping(place, value)
        return {known(METHODS)(place, k): check(f"{place}: {k}", own) for k, own in found.items()}

    return checked


def ladder(check: Check) -> Check:
    """A list of different values."""

    def checked(place: str, value: Any) -> tuple[Any, ...]:
        several = isinstance(value, list | tuple)
        found = tuple(check(place, each) for each in value) if several else ()
        if not several or len(set(found)) < len(found):
            raise LLPError(f"{place} = {value!r}; give a list of different values")
        return found

    return checked


def scalar(place: str, value: Any) -> Any:
    """A number, text, a truth value or none."""
    if isinstance(value, float):
        return number(place, value)
    if value is not None and not isinstance(value, str | int):
        raise LLPError(f"{place} = {value!r}; give a number, text, true, false or null")
    return value


rates = ladder(partial(number, least=0))


def ladders(place: str, value: Any) -> dict[str, Any]:
    """Ladders by axis: of the two rates, or of options of a method."""
    return {
        axis: (rates if axis in RATES else ladder(scalar))(f"{place}: {axis}", own)
        for axis, own in mapping(place, value).items()
    }


def bag_size(place: str, value: Any) -> int | tuple[int, int]:
    """A size, or the two ends of a range."""
    if not isinstance(value, list | tuple):
        return whole(place, value)
    if len(value) != 2:
        raise LLPError(f"{place} = {value!r}; give a number, or the two ends of a range")
    least = whole(place, value[0])
    return least, whole(place, value[1], least)
