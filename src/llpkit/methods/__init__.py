"""The methods, one file each, behind one protocol."""

import difflib
from typing import Any

from llpkit.errors import LLPError
from llpkit.methods._base import (
    BagMethod,
    Batch,
    LargeBag,
    Method,
    Task,
    Trainer,
    as_logits,
)
from llpkit.methods.amle import AMLE
from llpkit.methods.direct import Direct
from llpkit.methods.dllp import DLLP
from llpkit.methods.llp_gan import LLPGAN
from llpkit.methods.mle import MLE
from llpkit.methods.supervised import Supervised

METHODS: dict[str, type[Method]] = {}
OWN = "one of your own has to be registered, on the command line by llpkit --plugin FILE.py"


def register(method: type[Method]) -> type[Method]:
    """Make a method known under its key; usable as a decorator."""
    if METHODS.get(method.key, method) is not method:
        raise LLPError(f'there is a method "{method.key}" already; choose another key')
    METHODS[method.key] = method
    return method


for _method in (Supervised, MLE, Direct, AMLE, DLLP, LLPGAN):
    register(_method)


def make(method: "str | Method", options: dict[str, Any] | None = None) -> Method:
    """A method by its key and options; a method itself is passed through.

    >>> make("mle", {"refresh": "pass"}).wants_pass
    True
    """
    if isinstance(method, Method):
        if options:
            raise LLPError("method_options go with a method's key; this method is made already")
        return method
    if method not in METHODS:
        near = difflib.get_close_matches(str(method), METHODS, 1)
        known = f"known are {', '.join(METHODS)}; {OWN}"
        hint = f'did you mean "{near[0]}"?' if near else known
        raise LLPError(f"method = {method!r}; {hint}")
    try:
        return METHODS[method](**(options or {}))
    except TypeError as error:
        raise LLPError(f'method "{method}" does not take these options: {error}') from error


__all__ = [
    "METHODS",
    "BagMethod",
    "Batch",
    "LargeBag",
    "Method",
    "Task",
    "Trainer",
    "as_logits",
    "make",
    "register",
]
