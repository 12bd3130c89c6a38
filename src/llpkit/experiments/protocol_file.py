"""Protocols as YAML files: presets that come with llpkit, users' own, and in results folders."""

from pathlib import Path
from typing import Any

from llpkit._registry import did_you_mean
from llpkit._validation import mapping
from llpkit.errors import LLPError
from llpkit.experiments.protocol import Protocol
from llpkit.files import read_yaml, write_text, yaml_text

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
    protocol.check(place)
    return protocol


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
    return yaml_text(protocol.plain(), default_flow_style=None, width=100)


def write(protocol: Protocol, path: Path) -> Path:
    """Write a protocol that :func:`read` returns unchanged."""
    return write_text(path, dumps(protocol))
