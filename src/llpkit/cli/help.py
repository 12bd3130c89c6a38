"""The classes of commands: help without types, as wide as the terminal; errors in plain text."""

import inspect
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
    """A command; the paragraphs of its help are wrapped to the width of the terminal."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        # typer keeps line breaks; only those in examples and lists, which are indented, are wanted.
        self.help = "\n\n".join(
            p if "\n " in f"\n{p}" else p.replace("\n", " ") for p in paragraphs
        )


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
