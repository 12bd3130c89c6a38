"""The classes of commands: their help shows no types, and their errors are plain text."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperCommand, TyperGroup

from llpkit.cli.printing import plain


class _Untyped:
    """Help that shows no types next to flags and arguments."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, ``--help`` included."""
        parameters = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = " "  # typer would show <bool>
            elif parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None  # noqa: ARG005  (or <list[Path]>)
        return parameters


class PlainCommand(_Untyped, TyperCommand):
    """A command."""


class PlainGroup(_Untyped, TyperGroup):
    """The group of all commands; its usage errors are plain text too."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Parse the arguments."""
        with _plain_usage_errors():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _plain_usage_errors():
            return super().invoke(ctx)


@contextmanager
def _plain_usage_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Recognised by its attributes: some versions of typer bundle their own copy of click.
        if hasattr(error, "format_message") and isinstance(getattr(error, "message", None), str):
            vars(error)["message"] = plain(vars(error)["message"])
        raise
