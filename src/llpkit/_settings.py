"""Settings as fields of frozen dataclasses: one definition for Python, YAML and the command line.

A field made by :func:`setting` has a help text and a check. The check receives the *place* of the
value, which is how errors name it: ``epochs`` in Python, ``--epochs`` on the command line.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Self

from llpkit._registry import did_you_mean
from llpkit.errors import LLPError

Check = Callable[[str, Any], Any]
"""``check(place, value)`` returns the value to keep, or raises an error that names the place."""


@dataclass(frozen=True)
class Setting:
    """A field's properties besides its name and default.

    Args:
        help: One line for ``--help``.
        check: See :data:`Check`. ``None`` is not checked if it is the default.
        metavar: The placeholder for the value in ``--help``; a flag has none.
        panel: The heading in ``--help``, if not that of the class.
        many: Whether the option may be repeated.
        option: The option's name, if not the field's.
        text: Whether the value is text even if it looks like a number.
    """

    help: str
    check: Check
    metavar: str = "VALUE"
    panel: str = ""
    many: bool = False
    option: str = ""
    text: bool = False


def setting(default: Any, help: str, check: Check, metavar: str, **more: Any) -> Any:
    """A dataclass field that carries a :class:`Setting`."""
    known = {"setting": Setting(help, check, metavar, **more)}
    if isinstance(default, dict | list):
        # A fresh copy for every instance.
        return field(default_factory=lambda: type(default)(default), metadata=known)
    return field(default=default, metadata=known)


class Settings:
    """Base of frozen dataclasses whose fields are settings."""

    def __post_init__(self) -> None:
        self._keep({k: self.checked(k, value, k) for k, value in self.to_dict().items()})

    def _keep(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            # The dataclass is frozen, so assign around it; freeze mappings too.
            kept = MappingProxyType(value) if isinstance(value, dict) else value
            object.__setattr__(self, name, kept)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), self.to_dict())  # a mapping proxy cannot be pickled

    @classmethod
    def settings(cls) -> dict[str, Setting]:
        """All fields that are settings, by name."""
        return {
            f.name: f.metadata["setting"]
            for f in fields(cls)  # type: ignore[arg-type]
            if "setting" in f.metadata
        }

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The defaults of all fields."""
        return cls().to_dict()

    @classmethod
    def checked(cls, name: str, value: Any, place: str) -> Any:
        """The value of one field, checked."""
        known = next(f for f in fields(cls) if f.name == name)  # type: ignore[arg-type]
        if value is None and known.default is None:
            return None
        return known.metadata["setting"].check(place, value)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], place: Callable[[str], str] = str) -> Self:
        """Settings from a file or a command line, where numbers may be written as text.

        All problems are raised as one error.

        Args:
            values: By field name.
            place: How errors name a field.
        """
        errors: list[LLPError] = []
        made = cls.gathered(values, place, errors)
        raise_all(errors)
        return made

    @classmethod
    def gathered(
        cls, values: Mapping[str, Any], place: Callable[[str], str], errors: list[LLPError]
    ) -> Self:
        """Like :meth:`from_dict`, but errors go to a list, and wrong settings get their default."""
        known, kept = cls.settings(), {}
        for name, value in values.items():
            if name not in known:
                errors.append(LLPError(f"{place(name)} is unknown; {did_you_mean(name, known)}"))
                continue
            try:
                kept[name] = cls.checked(name, _parsed(value, known[name]), place(name))
            except LLPError as error:
                errors.append(error)
        return cls(**kept)

    def to_dict(self) -> dict[str, Any]:
        """All fields by name."""
        every = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {k: dict(v) if isinstance(v, MappingProxyType) else v for k, v in every.items()}

    def replace(self, **changes: Any) -> Self:
        """A copy with some settings changed; unknown names are errors."""
        for name in changes:
            if name not in self.settings():
                raise LLPError(f"{name} is unknown; {did_you_mean(name, self.settings())}")
        return replace(self, **changes)  # type: ignore[type-var]


def _made(kind: type[Settings], values: dict[str, Any]) -> Settings:
    """Settings that were checked before; another process may not know a plugin's names yet."""
    made = object.__new__(kind)
    made._keep(values)
    return made


def raise_all(errors: Iterable[LLPError]) -> None:
    """Raise all errors as one, without repetitions; nothing if there are none."""
    lines = list(dict.fromkeys(str(error) for error in errors))
    if len(lines) == 1:
        raise LLPError(lines[0])
    if lines:
        raise LLPError("\n  ".join([f"{len(lines)} settings are wrong:", *lines]))


def _parsed(value: Any, known: Setting) -> Any:
    """Parse a number or a truth value written as text."""
    if not isinstance(value, str) or known.text:
        return value
    if value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
