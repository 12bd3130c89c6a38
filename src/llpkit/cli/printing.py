"""Printing for all commands.

Names and values come from files of unknown origin, so all output goes through :func:`plain`.
"""

import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from llpkit.progress import progress

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult

# Control characters except line ends and tabs, and characters that change the text direction.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    r"""Show control characters as escapes, so that text cannot control the terminal.

    >>> print(plain("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def echo(text: object) -> None:
    """Print a line of output."""
    typer.echo(plain(str(text)))


def echo_json(content: Any) -> None:
    """Print JSON; it has no infinities, so numbers that are not finite become null."""
    echo(json.dumps(_finite(content), indent=1, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Plain:
    """Renders its content as plain text; as a console hook it wraps everything printed."""

    def __init__(self, content: Any = None) -> None:
        self.content = content

    def process_renderables(self, renderables: list["ConsoleRenderable"]) -> list[Any]:
        return [_Plain(each) for each in renderables]

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment

        for part in console.render(self.content, options):
            # Control segments are rich's own cursor movements, not text from files.
            yield part if part.control else Segment(plain(part.text), part.style)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings in plain text within this block."""
    original = warnings.formatwarning

    def formatwarning(*arguments: Any, **more: Any) -> str:
        return plain(original(*arguments, **more))

    warnings.formatwarning = formatwarning
    try:
        yield
    finally:
        warnings.formatwarning = original


def terminal(*, stderr: bool = False) -> "Console":
    """A console that prints plain text only."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    console.push_render_hook(_Plain())  # type: ignore[arg-type]
    return console


def note(text: str) -> None:
    """Print a note to stderr."""
    from rich.text import Text

    terminal(stderr=True).print(Text(text, style="yellow"), soft_wrap=True)


@contextmanager
def shown(title: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the progress of this block; yields a function that prints a line. Nothing if quiet."""
    if quiet:
        yield lambda _: None
        return
    with progress(title=title):
        # To sys.stderr, which a live bar replaces so that lines come above it.
        yield lambda line: print(plain(line), file=sys.stderr, flush=True)
