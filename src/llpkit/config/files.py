"""Configuration files, the options that override them, and the check of both."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llpkit._registry import did_you_mean, nearest
from llpkit._settings import raise_all
from llpkit.config.data import PATH_KEYS, TABLE_KEYS, Data, Values
from llpkit.config.run import SECTIONS, Config
from llpkit.errors import LLPError
from llpkit.files import read_yaml


def read(path: Path) -> Values:
    """The settings in a YAML file; paths are relative to the file's folder."""
    content = read_yaml(path, "configuration")
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise LLPError(f"{path} holds no settings; write lines such as 'method: mle'")
    data = content.get("data")
    if isinstance(data, dict):
        home = {key: data[key] for key in PATH_KEYS if isinstance(data.get(key), str)}
        content["data"] = data | {key: str(_absolute(v, path.parent)) for key, v in home.items()}
    return content


def merge(settings: Values, options: Mapping[str, Any]) -> Values:
    """Settings of a file, overridden by options given by dotted path.

    >>> merge({"epochs": 5, "data": {"dataset": "digits"}}, {"epochs": 9, "data.bag_size": 4})
    {'epochs': 9, 'data': {'dataset': 'digits', 'bag_size': 4}}
    """
    merged = dict(settings)
    found = merged.get("data", {})
    data = dict(found) if isinstance(found, dict) else {}
    # Data named on the command line replace those of the file, and so do their settings.
    if "data.table" in options and "data.dataset" not in options:
        data = {k: v for k, v in data.items() if k in TABLE_KEYS}
    elif "data.dataset" in options:
        data = {k: v for k, v in data.items() if k == "data_dir"}
    for path, value in options.items():
        section, _, key = path.rpartition(".")
        target = data if section else merged
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            value = target[key] | value
        target[key] = value
    if data or "data" not in merged:
        merged["data"] = data
    return merged


def check(settings: Values, *, options: Mapping[str, str] | None = None) -> Config:
    """The configuration, or one error that lists all problems.

    Args:
        settings: The result of :func:`read` and :func:`merge`.
        options: For each dotted path that was given as an option, the option's name.

    >>> check({"data": {"dataset": "digits"}, "epoch": 3})
    Traceback (most recent call last):
    llpkit.errors.LLPError: epoch is unknown; did you mean 'epochs'?
    """
    names = options or {}
    errors: list[LLPError] = []

    def place(path: str) -> str:
        return names.get(path, path)

    def made(kind: type[Any], values: Values, where: Callable[[str], str]) -> Any:
        return kind.gathered(values, where, errors)

    given = settings.get("data", {})
    if not isinstance(given, dict):
        errors.append(LLPError(f"{place('data')} = {given!r}; give names and values"))
        # A placeholder, so that the other settings are still checked.
        given = {"dataset": "digits"}
    known = {name: name for kind in SECTIONS.values() for name in kind.settings()}
    of_data = {name: f"data.{name}" for name in Data.settings()}
    for path in [name for name in settings if name != "data" and name not in known]:
        errors.append(_unknown(path, path, known | of_data))
    for name in [name for name in given if name not in of_data]:
        errors.append(_unknown(f"data.{name}", name, known | of_data))
    data = made(
        Data,
        {k: v for k, v in given.items() if k in of_data},
        lambda name: place(f"data.{name}"),
    )
    sections = {
        key: made(kind, {k: v for k, v in settings.items() if k in kind.settings()}, place)
        for key, kind in SECTIONS.items()
    }
    config = Config(data, **sections)
    raise_all(errors or config.problems())
    return config


def _unknown(path: str, name: str, known: Mapping[str, str]) -> LLPError:
    """The error for an unknown setting; ``known`` maps names of settings to their paths."""
    near = nearest(name, known)
    hint = did_you_mean(name, known) if near is None else f"did you mean {known[near]!r}?"
    return LLPError(f"{path} is unknown; {hint}")


def to_yaml(config: Config) -> str:
    """The configuration as YAML with every setting, defaults included; see :func:`read`."""
    import yaml  # type: ignore[import-untyped]

    values = config.flat()
    # YAML has no tuples, and data settings that were not given are left out.
    values["data"] = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in values["data"].items()
        if value
    }
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None)
    return text


def absolute(config: Config) -> Config:
    """The same configuration with absolute paths."""
    paths = {key: getattr(config.data, key) for key in PATH_KEYS}
    update = {key: str(_absolute(path, Path.cwd())) for key, path in paths.items() if path}
    return replace(config, data=config.data.replace(**update))


def _absolute(path: str, home: Path) -> Path:
    return (home.resolve() / Path(path).expanduser()).resolve()
