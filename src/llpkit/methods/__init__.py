"""The methods, one file each, behind one protocol."""

import difflib
import inspect
from collections.abc import Iterable
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
    _check_key(method)
    if METHODS.get(method.key, method) is not method:
        raise LLPError(f'there is a method "{method.key}" already; choose another key')
    METHODS[method.key] = method
    return method


def _check_key(method: type[Method]) -> None:
    key = getattr(method, "key", None)
    if not isinstance(key, str) or not key:
        name = method.__name__
        raise LLPError(f'method {name} has no key; give the class one, key = "{name.lower()}"')


for _method in (Supervised, MLE, Direct, AMLE, DLLP, LLPGAN):
    register(_method)


def make(method: "str | Method | type[Method]", options: dict[str, Any] | None = None) -> Method:
    """A method by its key or class, and options; a method itself is passed through.

    >>> make("mle", {"refresh": "pass"}).wants_pass
    True
    """
    if isinstance(method, Method):
        if options:
            raise LLPError("method_options go with a method's key; this method is made already")
        _check_key(type(method))
        return method
    if isinstance(method, type) and issubclass(method, Method):
        _check_key(method)
        return _build(method, options or {})
    if not isinstance(method, str):
        raise LLPError(
            f"method = {method!r}; give a key of llpkit.methods.METHODS, or a subclass of "
            "llpkit.methods.Method"
        )
    if method not in METHODS:
        hint = _nearest(method, METHODS)
        hint += f"; {OWN}" if hint.startswith("known") else ""
        raise LLPError(f"method = {method!r}; {hint}")
    return _build(METHODS[method], options or {})


def _build(method: type[Method], options: dict[str, Any]) -> Method:
    parameters = inspect.signature(method).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for option in options:
            if option not in parameters:
                hint = _nearest(option, parameters) if parameters else "it takes none"
                raise LLPError(f'method "{method.key}" has no option {option!r}; {hint}')
    try:
        return method(**options)
    except TypeError as error:
        raise LLPError(f'method "{method.key}" does not take these options: {error}') from error


def _nearest(name: object, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(str(name), names, 1)
    return f'did you mean "{near[0]}"?' if near else f"known are {', '.join(names)}"


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
