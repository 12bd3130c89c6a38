"""The option ``--plugin``, which goes before or after any command."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

Plugin = Annotated[
    list[str] | None,
    typer.Option(
        help="A Python file or module that registers your own methods, networks, data sets, …; "
        "repeatable.",
        metavar="FILE.py",
    ),
]


def load_plugins(sources: Sequence[str] | None) -> None:
    """Load plugins, if there are any."""
    if sources:
        from llpkit import plugins

        plugins.load(sources)


def with_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--plugin`` to a command."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    added = inspect.Parameter(
        "plugin", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Plugin
    )

    @functools.wraps(command)
    def wrapped(*, plugin: Sequence[str] | None, **arguments: Any) -> None:
        load_plugins(plugin)
        command(**arguments)

    kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    wrapped.__signature__ = inspect.Signature([*kept, added])  # type: ignore[attr-defined]
    return wrapped
