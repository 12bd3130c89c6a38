"""Checks of single values; errors name a value by its place, such as ``epochs`` or ``--epochs``."""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Real
from typing import Any

from llpkit._registry import did_you_mean
from llpkit.errors import LLPError


def whole(place: str, value: Any, least: int | None = 1, most: int | None = None) -> int:
    """A whole number of any type within bounds, as an int.

    >>> whole("epochs", 0)
    Traceback (most recent call last):
        ...
    llpkit.errors.LLPError: epochs = 0; give a whole number of at least 1
    """
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    low, high = -math.inf if least is None else least, math.inf if most is None else most
    if found is None or not low <= found <= high:
        bounds = "" if least is None else f" of at least {least}"
        if most is not None:
            bounds = f" up to {most}" if least is None else f" from {least} to {most}"
        raise LLPError(f"{place} = {value!r}; give a whole number{bounds}")
    return found


def number(
    place: str,
    value: Any,
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    infinite: bool = False,
) -> float:
    """A number within bounds, as a float; ``above`` and ``below`` exclude the bound.

    It must be finite, unless ``infinite``.

    >>> number("lr", -1, above=0)
    Traceback (most recent call last):
        ...
    llpkit.errors.LLPError: lr = -1; give a number above 0
    """
    try:
        real = isinstance(value, Real) and not isinstance(value, bool)
        found = float(value) if real else math.nan
    # An int that is too large for a float.
    except OverflowError:
        found = math.inf
    inside = (
        (least is None or found >= least)
        and (most is None or found <= most)
        and (above is None or found > above)
        and (below is None or found < below)
    )
    if not (math.isfinite(found) or (infinite and math.isinf(found))) or not inside:
        raise LLPError(f"{place} = {value!r}; give a number{_bounds(least, most, above, below)}")
    return found


def _bounds(
    least: float | None, most: float | None, above: float | None, below: float | None
) -> str:
    if above is not None and below is not None:
        return f" between {above:g} and {below:g}"
    if above is not None and most is not None:
        return f" above {above:g} and up to {most:g}"
    ends = {"from": least, "above": above, "to": most, "below": below}
    if least is None:
        ends["up to"] = ends.pop("to")
    return "".join(f" {word} {end:g}" for word, end in ends.items() if end is not None)


def flag(place: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise LLPError(f"{place} = {value!r}; give true or false")
    return value


def flag_or_auto(place: str, value: Any) -> bool | str:
    """True, false or ``"auto"``."""
    if isinstance(value, bool | str) and value in (True, False, "auto"):
        return value
    raise LLPError(f"{place} = {value!r}; give true, false or auto")


def text(place: str, value: Any) -> str:
    """Text that is not empty, and not a number or a date from a file."""
    if not isinstance(value, str) or not value:
        quoted = "" if isinstance(value, str) else ", in quotes in a YAML file"
        raise LLPError(f"{place} = {value!r}; give text{quoted}")
    return value


def mapping(place: str, value: Any) -> dict[str, Any]:
    """Names and values, copied."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise LLPError(f"{place} = {value!r}; give names and values")
    return dict(value)


def share(place: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    return number(place, value, above=0, below=1)


def one_of(place: str, value: Any, known: Iterable[str]) -> str:
    """One of the known words.

    >>> one_of("split", "val", ["train", "test", "all"])
    Traceback (most recent call last):
        ...
    llpkit.errors.LLPError: split = 'val'; give train, test or all
    """
    names = list(known)
    if isinstance(value, str) and value in names:
        return value
    # With only a few choices, listing them helps more than guessing the nearest.
    few = f"give {', '.join(names[:-1])} or {names[-1]}" if 1 < len(names) < 5 else ""
    raise LLPError(f"{place} = {value!r}; {few or did_you_mean(value, names)}")


def registered(place: str, value: Any, known: Iterable[str]) -> str:
    """One of the known names, which a plugin may add to."""
    try:
        return one_of(place, value, known)
    except LLPError as error:
        own = "if it is your own, load the file that registers it with --plugin FILE.py"
        raise LLPError(f"{error} ({own})") from None


def _in_python(name: str, *value: Any) -> str:
    if not value:
        return name
    return f"{name}={'math.inf' if value[0] == math.inf else repr(value[0])}"


_style: ContextVar[Callable[..., str]] = ContextVar("_style", default=_in_python)


def option(name: str, *value: Any) -> str:
    """How a message names an option, with or without a value: as in Python, unless set otherwise.

    >>> option("decimals"), option("decimals", 2)
    ('decimals', 'decimals=2')
    """
    return _style.get()(name, *value)


def naming() -> Callable[..., str]:
    """The current style of :func:`option`, for another process."""
    return _style.get()


@contextmanager
def options_named(style: Callable[..., str]) -> Iterator[None]:
    """Let messages name options by ``style(name)`` or ``style(name, value)``."""
    token = _style.set(style)
    try:
        yield
    finally:
        _style.reset(token)
