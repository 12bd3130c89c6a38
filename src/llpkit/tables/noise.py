"""How counts in a table were published, written as ``KIND:VALUE``."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from llpkit._arrays import Array
from llpkit._registry import did_you_mean
from llpkit._validation import number, option, whole
from llpkit.errors import LLPError
from llpkit.evidence import Evidence

# For each kind its parameters; a lone value is that of the first.
_PARAMETERS = {
    "laplace": ("scale", "epsilon", "sensitivity"),
    "gaussian": ("scale", "epsilon", "delta", "sensitivity"),
    "geometric": ("scale", "epsilon", "sensitivity"),
    "binomial": ("probability",),
    "rounded": ("multiple",),
    "suppressed": ("below", "zeros_shown"),
}
_SIZED = ("laplace", "gaussian", "geometric", "binomial")
_EXAMPLES = "laplace:2, laplace:epsilon=0.5, binomial:0.9, rounded:5 or suppressed:10"


@dataclass(frozen=True)
class CountNoise:
    """How published counts differ from the true ones; see the methods of ``Evidence``.

    >>> CountNoise.parse("laplace:epsilon=0.5")
    CountNoise(kind='laplace', options=(('epsilon', 0.5),))
    >>> CountNoise.parse("rounded:5").options
    (('multiple', 5),)
    """

    kind: str
    options: tuple[tuple[str, Any], ...]

    @classmethod
    def parse(cls, text: Any, place: str = "count_noise") -> "CountNoise":
        """From ``KIND:VALUE`` or ``KIND:NAME=VALUE,NAME=VALUE``."""
        if not isinstance(text, str):
            raise LLPError(f"{place} = {text!r}; give text such as {_EXAMPLES}")
        kind, _, rest = text.strip().partition(":")
        if kind not in _PARAMETERS:
            raise LLPError(
                f"{place} = {text!r}; give text such as {_EXAMPLES}; "
                f"{did_you_mean(kind, _PARAMETERS)}"
            )
        known = _PARAMETERS[kind]
        options = []
        for part in filter(None, (part.strip() for part in rest.split(","))):
            if part.partition(":")[0].strip() in _PARAMETERS:
                raise LLPError(
                    f"{place} = {text!r}; give one kind, which applies to all bags; if bags differ "
                    f"in it, give the bounds of their counts in columns, {option('count_low')} and "
                    f"{option('count_high')}"
                )
            name, equals, value = part.partition("=")
            name, value = (name.strip(), value.strip()) if equals else (known[0], part)
            if name not in known:
                raise LLPError(f"{place} = {text!r}; {kind} has {', '.join(known)}, not {name!r}")
            options.append((name, _value(f"{name} in {place}", name, value)))
        found = cls(kind, tuple(options))
        try:
            # A report that is valid for every kind.
            report = np.full(1, np.nan if kind == "suppressed" else 0.0)
            found.evidence(report, np.ones(1, np.int64))
        # A missing parameter is a TypeError of the call.
        except (LLPError, TypeError) as error:
            raise LLPError(f"{place} = {text!r}: {error}; for example {_EXAMPLES}") from error
        return found

    @property
    def hidden(self) -> str | None:
        """A pattern for cells, besides empty ones, that stand for a suppressed count."""
        if self.kind != "suppressed":
            return None
        return rf"^(\*|<\s*{dict(self.options)['below']})$"

    def evidence(self, observed: Array, sizes: Array) -> Evidence:
        """The counts ``(B,)`` or ``(B, K)`` as evidence; NaN only where suppressed."""
        options: dict[str, Any] = dict(self.options)
        make = getattr(Evidence, self.kind)
        found: Evidence = (
            make(observed, sizes, **options) if self.kind in _SIZED else make(observed, **options)
        )
        return found


def _value(place: str, name: str, text: str) -> Any:
    if name == "zeros_shown":
        if text.lower() not in ("true", "false"):
            raise LLPError(f"{place} = {text!r}; give true or false")
        return text.lower() == "true"
    try:
        plain = float(text)
    except ValueError:
        raise LLPError(f"{place} = {text!r}; give a number") from None
    if name in ("multiple", "below"):
        return whole(place, int(plain) if plain.is_integer() else plain)
    return number(place, plain, above=0)
