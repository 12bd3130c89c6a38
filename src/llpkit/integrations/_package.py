"""Optional packages, imported where they are used."""

import importlib
from typing import Any

from llpkit.errors import LLPError


def package(module: str, extra: str) -> Any:
    """The module of an optional package, or an error that names the remedy.

    >>> package("no_such_package", "wandb")
    Traceback (most recent call last):
        ...
    llpkit.errors.LLPError: no_such_package is not installed; pip install 'llpkit[wandb]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A package that is installed but lacks one of its own is another problem.
        if error.name is None or module.partition(".")[0] != error.name.partition(".")[0]:
            raise
        name = module.partition(".")[0]
        raise LLPError(f"{name} is not installed; pip install 'llpkit[{extra}]'") from error
