"""Protocols as YAML files: those of users and results folders, and those shipped with llpkit."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from llpkit._files import write_text
from llpkit._registry import did_you_mean
from llpkit._validation import number, share, whole
from llpkit.errors import LLPError
from llpkit.experiments.protocol import WARM_UP, Grid, Protocol, Sizes, Times
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
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise LLPError(f"{path} cannot be read ({error}); give the file of a protocol") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise LLPError(f"{path} is not YAML: {error}") from error
    return parse(values, str(path))


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


def _mappings(check: Callable[[str, Any], Any], place: str, value: Any) -> dict[str, Any]:
    return {key: check(f"{place}: {key}", own) for key, own in _mapping(place, value).items()}


def _settings(place: str, value: Any) -> dict[str, Any]:
    """Settings of a recipe, except those that a protocol has elsewhere."""
    found = _mapping(place, value)
    if taken := [key for key in ("method", "seed") if key in found]:
        raise LLPError(f"{place}: {taken[0]} does not belong here; remove it")
    # Only to check the values, which stay as the user wrote them.
    Recipe.from_dict(found, lambda name: f"{place}: {name}")
    return found


def _ladder(check: Callable[[str, Any], Any], place: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or len(set(map(str, value))) < len(value):
        raise LLPError(f"{place} = {value!r}; give a list of different values")
    return tuple(check(place, each) for each in value)


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
        "methods": partial(_mappings, partial(_mappings, partial(_ladder, lambda _, value: value))),
        "own_epochs": partial(_mappings, whole),
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
        "dataset": _text,
        "data_options": _mapping,
        "bag_size": _bag_size,
        "seed": partial(whole, least=0),
        "folds": partial(whole, least=2),
        "flat": _flag,
        "recipe": _settings,
        "methods": partial(_mappings, _settings),
        "grid": partial(_build, Grid),
        "sizes": partial(_build, Sizes),
        "times": partial(_build, Times),
    },
}
