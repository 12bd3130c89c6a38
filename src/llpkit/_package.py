"""Optional packages, imported where they are used."""

import importlib
from typing import Any

from llpkit.errors import LLPError


def package(module: str, extra: str | None = None) -> Any:
    """Import the module of an optional package, or raise an error with the install command.

    ``extra`` is the extra of llpkit that installs it, if there is one.

    >>> package("no_such_package", "wandb")
    Traceback (most recent call last):
        ...
    llpkit.errors.LLPError: no_such_package is not installed; pip install 'llpkit[wandb]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # An installed package that lacks one of its dependencies is another problem.
        if error.name is None or module.partition(".")[0] != error.name.partition(".")[0]:
            raise
        name = module.partition(".")[0]
        wanted = name if extra is None else f"'llpkit[{extra}]'"
        raise LLPError(f"{name} is not installed; pip install {wanted}") from error
