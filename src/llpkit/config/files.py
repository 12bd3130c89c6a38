"""Reading and writing configuration files, merging them with options, and checking both."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llpkit._registry import did_you_mean
from llpkit._settings import raise_all
from llpkit.config.data import PATH_KEYS, TABLE_KEYS, Values
from llpkit.config.run import SECTIONS, Config
from llpkit.errors import LLPError
from llpkit.files import read_yaml, yaml_text


def read(path: Path) -> Values:
    """The settings in a YAML file; paths are relative to the file's folder."""
    content = read_yaml(path, "configuration")
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise LLPError(f"{path} holds no settings; write lines such as 'method: mle'")
    data = content.get("data")
    if isinstance(data, dict):
        paths = {key: data[key] for key in PATH_KEYS if isinstance(data.get(key), str)}
        content["data"] = data | {key: str(_absolute(p, path.parent)) for key, p in paths.items()}
    return content


def merge(settings: Values, options: Mapping[str, Any]) -> Values:
    """Settings of a file, overridden by options given by dotted path.

    >>> merge({"epochs": 5, "data": {"dataset": "digits"}}, {"epochs": 9, "data.bag_size": 4})
    {'epochs': 9, 'data': {'dataset': 'digits', 'bag_size': 4}}
    """
    merged = dict(settings)
    data = merged.get("data", {})
    data = dict(data) if isinstance(data, dict) else {}
    # Another data set or table replaces that of the file, together with its settings.
    if "data.dataset" in options:
        data = {key: value for key, value in data.items() if key == "data_dir"}
    elif "data.table" in options:
        data = {key: value for key, value in data.items() if key in TABLE_KEYS}
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
    errors: list[LLPError] = []
    data = settings.get("data", {})
    if not isinstance(data, dict):
        errors.append(LLPError(f"data = {data!r}; give names and values"))
        # A placeholder, so that the other settings are still checked.
        data = {"dataset": "digits"}
    values = {f"data.{key}": value for key, value in data.items()}
    for key, value in settings.items():
        if key.startswith("data."):  # as errors name it, but a file has it as a section
            errors.append(LLPError(f"{key} is unknown; write {key[5:]} under data"))
        elif key != "data":
            values[key] = value
    errors += [_unknown(path) for path in values if path not in _PATHS]
    sections = {}
    for section, kind in SECTIONS.items():
        paths = {name: path for path, (key, name) in _PATHS.items() if key == section}
        names = {name: (options or {}).get(path, path) for name, path in paths.items()}
        found = {name: values[path] for name, path in paths.items() if path in values}
        sections[section] = kind.gathered(found, names.__getitem__, errors)
    config = Config(**sections)  # type: ignore[arg-type]
    raise_all(errors or config.problems())
    return config


_PATHS = {
    f"data.{name}" if section == "data" else name: (section, name)
    for section, kind in SECTIONS.items()
    for name in kind.settings()
}
"""For each dotted path of a configuration file, its section and its name there."""


def _unknown(path: str) -> LLPError:
    paths = {name: path for path, (_, name) in _PATHS.items()}
    hint = did_you_mean(path.removeprefix("data."), paths, paths.__getitem__)
    return LLPError(f"{path} is unknown; {hint}")


def to_yaml(config: Config) -> str:
    """The configuration as YAML with every setting, defaults included; see :func:`read`."""
    values = config.flat()
    # YAML has no tuples. Settings of the data that were not given are left out.
    values["data"] = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in values["data"].items()
        if value
    }
    return yaml_text(values, allow_unicode=True, default_flow_style=None)


def absolute(config: Config) -> Config:
    """The same configuration with absolute paths."""
    paths = {key: getattr(config.data, key) for key in PATH_KEYS}
    update = {key: str(_absolute(path, Path.cwd())) for key, path in paths.items() if path}
    return replace(config, data=config.data.replace(**update))


def _absolute(path: str, home: Path) -> Path:
    return (home.resolve() / Path(path).expanduser()).resolve()
