"""The registry of methods, networks, data sets, augmentations and estimators by name."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

from llpkit.errors import LLPError

T = TypeVar("T")
V = TypeVar("V")


class UnknownName(LLPError, KeyError):
    """A name that is not in a registry."""

    __str__ = Exception.__str__  # KeyError would put the message in quotes


class Registry(Mapping[str, T]):
    """Entries by name, in the order in which they were registered.

    ``registry[name]`` raises :class:`UnknownName`, which suggests the nearest name. ``in``, ``get``
    and the rest work as with any mapping.

    >>> shapes = Registry[int]("shape")
    >>> shapes.add("square", 4)
    4
    >>> shapes["sqare"]
    Traceback (most recent call last):
        ...
    llpkit._registry.UnknownName: there is no shape 'sqare'; did you mean 'square'?
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    @overload
    def add(self, name: str, value: V) -> V: ...
    @overload
    def add(self, name: str) -> Callable[[V], V]: ...
    def add(self, name: str, value: Any = None) -> Any:
        """Add an entry and return it; without ``value``, return a decorator that does so."""
        if value is None:
            return lambda value: self.add(name, value)
        if not isinstance(name, str) or not name:
            raise LLPError(f"{self.kind} name = {name!r}; give a non-empty name")
        if self._entries.get(name, value) is not value:
            raise LLPError(f"there is already a {self.kind} {name!r}; choose another name")
        self._entries[name] = value
        return value

    def __getitem__(self, name: str) -> T:
        if name not in self:
            hint = did_you_mean(name, self)
            raise UnknownName(f"there is no {self.kind} {name!r}; {hint}")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def first_line(value: object) -> str:
    """The first line of a docstring, as a summary."""
    return (inspect.getdoc(value) or "").partition("\n")[0]


def did_you_mean(name: object, known: Iterable[str], written: Callable[[str], str] = str) -> str:
    """The remedy for an unknown name: the nearest known name, ``written`` in full, or all names."""
    names = list(known)
    # Reversed, so that of names which differ only in case the first one wins.
    folded = {each.casefold(): each for each in reversed(names)}
    near = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    if near:
        return f"did you mean {written(folded[near[0]])!r}?"
    return f"available: {', '.join(names)}" if names else "none is available"


def check_options(owner: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an option that ``owner`` does not have.

    >>> check_options("linear", ["hidden"], [])
    Traceback (most recent call last):
        ...
    llpkit.errors.LLPError: linear has no option 'hidden'; it takes none
    """
    names = list(known)
    for option in options:
        if option not in names:
            hint = did_you_mean(option, names) if names else "it takes none"
            raise LLPError(f"{owner} has no option {option!r}; {hint}")
