"""Protocols as YAML files: those of users and results folders, and those shipped with llpkit."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from llpkit._files import write_text
from llpkit._registry import did_you_mean
from llpkit._validation import number, one_of, share, whole
from llpkit.augment import AUGMENTATIONS
from llpkit.config import read_yaml
from llpkit.datasets import DATASETS
from llpkit.errors import LLPError
from llpkit.experiments.protocol import RATES, WARM_UP, Grid, Protocol, Sizes, Times
from llpkit.methods import METHODS
from llpkit.networks import NETWORKS
from llpkit.recipe import Recipe

FILE = "protocol.yaml"
_PRESETS = Path(__file__).parent / "presets"


def parse(values: Any, place: str = "protocol") -> Protocol:
    """A protocol from plain values; errors name ``place`` and the key.

    >>> parse({"title": "A", "dataset": "digits", "fold": 3})
    Traceback (most recent call last):
        ...
    llpkit.errors.LLPError: protocol: there is no key 'fold'; did you mean 'folds'?
    """
    found: Protocol = _build(Protocol, place, values)
    if found.grid is not None:
        whole(f"{place}: grid: folds", found.grid.folds, 1, found.folds)
        _check_shared(place, found)
    if found.concentration is not None and not found.official:
        raise LLPError(f"{place}: concentration needs official: true; add it, or remove this")
    if found.official and found.bag_size is None:
        raise LLPError(f"{place}: official draws random bags; set bag_size")
    if found.sizes is not None:
        whole(f"{place}: sizes: folds", found.sizes.folds, 1, found.folds)
        if found.bag_size is None:
            raise LLPError(f"{place}: sizes needs random bags; set bag_size, or remove sizes")
    return found


def load(name: str | Path) -> Protocol:
    """A protocol that comes with llpkit, by name, or one from a file.

    >>> load("digits").dataset
    'digits'
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = _PRESETS / f"{name}.yaml"
        if str(name) not in presets():
            hint = did_you_mean(str(name), presets())
            raise LLPError(f"there is no protocol {str(name)!r}; {hint} (or give a .yaml file)")
    return read(path)


def presets() -> list[str]:
    """The protocols that come with llpkit."""
    return sorted(path.stem for path in _PRESETS.glob("*.yaml"))


def read(path: Path) -> Protocol:
    """The protocol in a file."""
    return parse(read_yaml(path, "protocol"), str(path))


def dumps(protocol: Protocol) -> str:
    """A protocol as YAML."""
    values = protocol.to_dict()
    return str(yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=100))


def write(protocol: Protocol, path: Path) -> Path:
    """Write a protocol that :func:`read` returns unchanged."""
    return write_text(path, dumps(protocol))


# Reading plain values: one check per key


def _build(kind: Any, place: str, values: Any) -> Any:
    given = _mapping(place, values)
    for key in given:
        if key not in _CHECKS[kind]:
            hint = did_you_mean(key, _CHECKS[kind])
            raise LLPError(f"{place}: there is no key {key!r}; {hint}")
    for item in fields(kind):
        if item.default is item.default_factory and item.name not in given:  # both are missing
            raise LLPError(f"{place}: the key {item.name!r} is missing; add it")
    return kind(**{k: _CHECKS[kind][k](f"{place}: {k}", value) for k, value in given.items()})


def _text(place: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise LLPError(f"{place} = {value!r}; give a text")
    return value


def _flag(place: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise LLPError(f"{place} = {value!r}; give true or false")
    return value


def _mapping(place: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise LLPError(f"{place} = {value!r}; give keys and values")
    return dict(value)


def _ladders(place: str, value: Any) -> dict[str, Any]:
    """Ladders by axis: of the two rates, or of options of a method."""
    return {
        axis: (_rates if axis in RATES else partial(_ladder, _scalar))(f"{place}: {axis}", own)
        for axis, own in _mapping(place, value).items()
    }


def _known(names: Iterable[str], place: str, value: Any) -> str:
    try:
        return one_of(place, value, names)
    except LLPError as error:
        raise LLPError(f"{error} (if a plugin has it, load it with llpkit --plugin)") from None


def _by_method(check: Callable[[str, Any], Any], place: str, value: Any) -> dict[str, Any]:
    found = _mapping(place, value)
    return {_known(METHODS, place, key): check(f"{place}: {key}", found[key]) for key in found}


def _options(place: str, value: Any) -> dict[str, Any]:
    """Options that a record, which is JSON, returns unchanged: no dates, no infinite numbers."""
    found = _mapping(place, value)
    for key, own in found.items():
        try:
            same = json.loads(json.dumps(own, allow_nan=False)) == own
        except (TypeError, ValueError):
            same = False
        if not same:
            raise LLPError(f"{place}: {key} = {own!r}; give text, finite numbers or lists of them")
    return found


_NAMES: dict[str, Mapping[str, Any]] = {
    "network": NETWORKS,
    "augment": AUGMENTATIONS,
    "strong_augment": AUGMENTATIONS,
}


def _settings(place: str, value: Any) -> dict[str, Any]:
    """Settings of a recipe, except those that a protocol has elsewhere."""
    found = _mapping(place, value)
    if taken := [key for key in ("method", "seed") if key in found]:
        raise LLPError(f"{place}: {taken[0]} does not belong here; remove it")
    if found.get("patience") is not None:
        raise LLPError(f"{place}: runs of a protocol have the same epochs; remove patience")
    for key, names in _NAMES.items():
        if found.get(key) is not None:
            _known(names, f"{place}: {key}", found[key])
    _options(f"{place}: method_options", found.get("method_options", {}))
    recipe = Recipe.from_dict(found, lambda name: f"{place}: {name}").to_dict()
    return {key: recipe[key] for key in found}


def _check_shared(place: str, protocol: Protocol) -> None:
    """Refuse a shared setting that would override what the grid chooses."""
    for method in protocol.methods or METHODS:
        if taken := [key for key in protocol.chosen(method) if key in protocol.recipe]:
            raise LLPError(
                f"{place}: recipe sets {taken[0]}, which the grid chooses for {method}; remove "
                f"{taken[0]} from the recipe, or its values from the grid"
            )


def _ladder(check: Callable[[str, Any], Any], place: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise LLPError(f"{place} = {value!r}; give a list of different values")
    found = tuple(check(place, each) for each in value)
    if len(set(found)) < len(found):
        raise LLPError(f"{place} = {value!r}; give a list of different values")
    return found


def _scalar(place: str, value: Any) -> Any:
    if isinstance(value, float):
        return number(place, value)
    if value is not None and not isinstance(value, str | int):
        raise LLPError(f"{place} = {value!r}; give a number, text, true, false or null")
    return value


def _bag_size(place: str, value: Any) -> int | tuple[int, int]:
    if not isinstance(value, list | tuple):
        return whole(place, value)
    if len(value) != 2:
        raise LLPError(f"{place} = {value!r}; give a number, or the two ends of a range")
    least = whole(place, value[0])
    return least, whole(place, value[1], least)


_rates = partial(_ladder, partial(number, least=0))
_CHECKS: dict[type, dict[str, Callable[[str, Any], Any]]] = {
    Grid: {
        "folds": whole,
        "epochs": whole,
        "held_out": share,
        "lr": _rates,
        "weight_decay": _rates,
        "methods": partial(_by_method, _ladders),
        "own_epochs": partial(_by_method, whole),
    },
    Sizes: {
        "sizes": partial(_ladder, whole),
        "folds": whole,
        "epochs": whole,
        "held_out": share,
    },
    Times: {"turns": whole, "epochs": partial(whole, least=WARM_UP + 1)},
    Protocol: {
        "title": _text,
        "dataset": partial(_known, DATASETS),
        "data_options": _options,
        "bag_size": _bag_size,
        "seed": partial(whole, least=0),
        "folds": partial(whole, least=2, most=1000),
        "official": _flag,
        "concentration": partial(number, above=0),
        "flat": _flag,
        "recipe": _settings,
        "methods": partial(_by_method, _settings),
        "grid": partial(_build, Grid),
        "sizes": partial(_build, Sizes),
        "times": partial(_build, Times),
    },
}
