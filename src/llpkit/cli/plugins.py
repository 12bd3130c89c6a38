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
        show_default=False,
    ),
]
_LOADED = "plugins"


def load_plugins(ctx: typer.Context, sources: Sequence[str] | None) -> None:
    """Load plugins, and remember them for :func:`loaded`."""
    if sources:
        from llpkit import plugins

        ctx.meta[_LOADED] = (*loaded(ctx), *plugins.load(sources))


def loaded(ctx: typer.Context) -> tuple[str, ...]:
    """The plugins of this call, which its workers must load as well."""
    return tuple(ctx.meta.get(_LOADED, ()))


def with_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--plugin`` to a command."""
    own = inspect.signature(command, eval_str=True).parameters
    added = {
        "ctx": inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        "plugin": inspect.Parameter(
            "plugin", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Plugin
        ),
    }

    @functools.wraps(command)
    def wrapped(*, plugin: Sequence[str] | None, **arguments: Any) -> None:
        load_plugins(arguments["ctx"], plugin)
        if "ctx" not in own:
            del arguments["ctx"]
        command(**arguments)

    kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own.values()]
    more = [each for name, each in added.items() if name not in own]
    wrapped.__signature__ = inspect.Signature([*kept, *more])  # type: ignore[attr-defined]
    return wrapped
