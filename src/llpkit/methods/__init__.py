"""Training methods, one file each, behind one protocol."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from llpkit._registry import Registry, check_options
from llpkit._validation import flag, number, text, whole
from llpkit.errors import LLPError
from llpkit.methods.ahil import AHIL
from llpkit.methods.amle import AMLE, AMLEPaper
from llpkit.methods.base import (
    BagMethod,
    Batch,
    LargeBag,
    Learner,
    Method,
    Task,
    as_logits,
    at_least_single,
    logit_dtype,
)
from llpkit.methods.direct import Direct
from llpkit.methods.dllp import DLLP
from llpkit.methods.dsq import DSQ
from llpkit.methods.llp_gan import LLPGAN
from llpkit.methods.llp_vat import LLPVAT
from llpkit.methods.mixbag import MixBag
from llpkit.methods.mle import MLE, MLEPass
from llpkit.methods.one_vs_rest import OneVsRest
from llpkit.methods.rot import ROT
from llpkit.methods.supervised import Supervised
from llpkit.methods.teacher import Teacher

METHODS: Registry[type[Method]] = Registry("method")


def register(method: type[Method]) -> type[Method]:
    """Add a method to :data:`METHODS` under its key; usable as a decorator."""
    return METHODS.add(_key(method), method)


def _key(method: type[Method]) -> str:
    key = getattr(method, "key", None)
    if not isinstance(key, str) or not key:
        name = method.__name__
        raise LLPError(f'method {name} has no key; give the class one, key = "{name.lower()}"')
    if method.views not in (1, 2):
        raise LLPError(f"method {method.__name__} has views = {method.views!r}; give 1 or 2")
    return key


_EXACT = (Supervised, MLE, MLEPass, Teacher, Direct, OneVsRest, AMLE, AMLEPaper)
_BASELINES = (DLLP, DSQ, LLPVAT, ROT, AHIL, MixBag, LLPGAN)
for _method in (*_EXACT, *_BASELINES):
    register(_method)


def make(method: "str | Method | type[Method]", options: dict[str, Any] | None = None) -> Method:
    """A method by its key or class, with options; an instance is returned as it is.

    >>> make("mle", {"step": 1.5}).stride
    1.5
    """
    if isinstance(method, Method):
        if options:
            raise LLPError("method_options are for a method named by its key; this is an instance")
        _key(type(method))
        return method
    if isinstance(method, type) and issubclass(method, Method):
        _key(method)
    elif isinstance(method, str):
        method = METHODS[method]
    else:
        raise LLPError(
            f"method = {method!r}; give a key of llpkit.methods.METHODS, or a subclass of "
            "llpkit.methods.Method"
        )
    options = options or {}
    known = dict(list(inspect.signature(method.__init__).parameters.items())[1:])
    if not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        check_options(f'method "{method.key}"', options, known)
    try:
        instance = method(**options)
    except TypeError as error:
        raise LLPError(f'method "{method.key}" does not take these options: {error}') from error
    for option, value in options.items():  # a method may leave the checks to its annotations
        annotation = known[option].annotation if option in known else None
        if check := _CHECKS.get(getattr(annotation, "__name__", annotation)):
            check(f'option {option} of method "{method.key}"', value)
    return instance


_CHECKS: dict[Any, Callable[[str, Any], Any]] = {
    "float": partial(number, infinite=True),
    "int": partial(whole, least=None),
    "bool": flag,
    "str": text,
}


__all__ = [
    "METHODS",
    "BagMethod",
    "Batch",
    "LargeBag",
    "Learner",
    "Method",
    "Task",
    "as_logits",
    "at_least_single",
    "logit_dtype",
    "make",
    "register",
]
