"""Protocols as YAML files: presets that come with llpkit, users' own, and in results folders."""

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from llpkit._registry import did_you_mean
from llpkit._validation import mapping, whole
from llpkit.errors import LLPError
from llpkit.experiments.protocol import Protocol
from llpkit.files import read_yaml, write_text
from llpkit.methods import METHODS

FILE = "protocol.yaml"
_PRESETS = Path(__file__).parent / "presets"


def parse(values: Any, place: str = "protocol") -> Protocol:
    """A protocol from plain values; errors name ``place`` and the key.

    >>> parse({"title": "A", "dataset": "digits", "fold": 3})
    Traceback (most recent call last):
        ...
    llpkit.errors.LLPError: protocol: fold is unknown; did you mean 'folds'?
    """
    keys = mapping(place, values)
    if missing := [key for key in ("title", "dataset") if key not in keys]:
        raise LLPError(f"{place}: the key {missing[0]!r} is missing; add it")
    protocol = Protocol.from_dict(keys, lambda name: f"{place}: {name}")
    if protocol.grid is not None:
        whole(f"{place}: grid: folds", protocol.grid.folds, 1, protocol.folds)
        _check_shared(place, protocol)
    if protocol.concentration is not None and not protocol.official:
        raise LLPError(f"{place}: concentration needs official: true; add it, or remove this")
    if protocol.official and protocol.bag_size is None:
        raise LLPError(f"{place}: official draws random bags; set bag_size")
    if protocol.sizes is not None:
        whole(f"{place}: sizes: folds", protocol.sizes.folds, 1, protocol.folds)
        if protocol.bag_size is None:
            raise LLPError(f"{place}: sizes needs random bags; set bag_size, or remove sizes")
    return protocol


def _check_shared(place: str, protocol: Protocol) -> None:
    """Refuse a shared setting that would override what the grid chooses."""
    for method in protocol.methods or METHODS:
        if taken := [key for key in protocol.chosen(method) if key in protocol.recipe]:
            raise LLPError(
                f"{place}: recipe sets {taken[0]}, which the grid chooses for {method}; remove "
                f"{taken[0]} from the recipe, or its values from the grid"
            )


def load(name: str | Path) -> Protocol:
    """A preset by name, or a protocol from a file.

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
    values = protocol.plain()
    return str(yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=100))


def write(protocol: Protocol, path: Path) -> Path:
    """Write a protocol that :func:`read` returns unchanged."""
    return write_text(path, dumps(protocol))
