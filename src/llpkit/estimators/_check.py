"""Parameters of estimators, checked in ``fit``."""

from collections.abc import Sequence
from math import inf
from numbers import Integral, Real

from llpkit._registry import did_you_mean
from llpkit.errors import LLPError


def check_number(name: str, value: object, *, above: float, high: float = inf) -> None:
    """Refuse what is not a number above the one bound and up to the other."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not above < value <= high:  # type: ignore[operator]
        end = "" if high == inf else f", up to {high:g}"
        raise LLPError(f"{name} = {value!r}; give a number above {above:g}{end}")


def check_whole(name: str, value: object, *, low: int) -> None:
    """Refuse what is not a whole number from ``low`` on."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
        raise LLPError(f"{name} = {value!r}; give a whole number from {low} on")


def check_word(name: str, value: object, known: Sequence[str]) -> None:
    """Refuse a word that is not known."""
    if value not in known:
        raise LLPError(f"{name} = {value!r}; {did_you_mean(value, known)}")
