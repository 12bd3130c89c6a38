"""What the commands print: notes, tables, progress.

Names and values come from files that others wrote, so all output goes through :func:`plain`.
"""

import functools
import re
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from llpkit.errors import LostProcess

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


class PlainCommand(TyperCommand):
    """A command whose help shows no types beside flags and arguments."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, ``--help`` included."""
        return _untyped(super().get_params(ctx))


def _untyped(parameters: Any) -> Any:
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = " "  # typer would show <bool>
        elif each.param_type_name == "argument":
            each.display_type_rich = lambda ctx: None  # noqa: ARG005  (or <list[Path]>)
    return parameters


class PlainGroup(TyperGroup):
    """Commands whose usage errors are plain text too."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, ``--help`` included."""
        return _untyped(super().get_params(ctx))

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Parse the arguments."""
        with _plain_complaints():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _plain_complaints():
            return super().invoke(ctx)


@contextmanager
def _plain_complaints() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Recognised by its shape: some versions of typer bundle their own copy of click.
        if hasattr(error, "format_message") and isinstance(getattr(error, "message", None), str):
            vars(error)["message"] = plain(vars(error)["message"])
        raise


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings in plain text within this block."""
    usual = warnings.formatwarning

    def plainly(*arguments: Any, **more: Any) -> str:
        return plain(usual(*arguments, **more))

    warnings.formatwarning = plainly
    try:
        yield
    finally:
        warnings.formatwarning = usual


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


def print_verdict(verdict: Mapping[str, Any] | None) -> None:
    """What was found about a model; a warning unless all is well."""
    if verdict is not None:
        (echo if verdict["ok"] else note)(verdict["text"])


def resumable(command: Callable[..., None]) -> Callable[..., None]:
    """On an interrupt, print what was kept of the run and the command that continues it."""

    @functools.wraps(command)
    def wrapped(*, ctx: typer.Context, resume: bool, **arguments: Any) -> None:
        # The command as typed, with --resume added if it was missing.
        again = shlex.join(["llpkit", *(ctx.obj or []), *([] if resume else ["--resume"])])
        try:
            command(ctx=ctx, resume=resume, **arguments)
        except LostProcess:
            note(f"continue with: {again}")
            raise
        except KeyboardInterrupt as stop:
            kept = {
                None: f"; nothing was done yet. Start again with: {again}",
                "": f" before the first checkpoint; nothing was kept. Start again with: {again}",
                "checkpoint": f"; continue with: {again}",
                "finished": "; the run is finished",
            }
            note(f"stopped{kept[getattr(stop, 'kept', None)]}")
            raise

    return wrapped


def measure_table(parts: Mapping[str, Mapping[str, Any]]) -> Any:
    """A table of measures, one column per part."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for name in parts:
        table.add_column(name, justify="right")
    keys = dict.fromkeys(
        (group, key) for part in parts.values() for group, values in part.items() for key in values
    )
    for group, key in keys:
        label = group if key == "number" else f"  {key.replace('_', ' ').replace('auc', 'AUC')}"
        values = [part.get(group, {}).get(key) for part in parts.values()]
        table.add_row(label, *(_figure(key, value) for value in values))
    return table


def search_table(tried: Sequence[Mapping[str, Any]], most: int = 10) -> Any:
    """The best candidates of a search."""
    from rich.table import Table

    more = f" (the best {most} of {len(tried)})" if len(tried) > most else ""
    title = f"log-likelihood per held-out training bag, ± standard error over folds{more}"
    table = Table(box=None, padding=(0, 2, 0, 0), title=title, title_justify="left")
    names = list(tried[0]["settings"])
    for name in [*names, "log likelihood", "behind the best"]:
        table.add_column(name, justify="right")
    for place, one in enumerate(tried[:most]):
        spreads = [
            "–" if one[key] is None else f"{one[key]:.4f} ± {one[error] or 0:.4f}"
            for key, error in (("mean", "standard_error"), ("behind", "behind_error"))
        ]
        last = spreads[1] if place else "kept"
        table.add_row(*(str(one["settings"][name]) for name in names), spreads[0], last)
    return table


def _figure(key: str, value: Any) -> str:
    if value is None:
        return "–"
    if key in ("number", "without_counts", "approximated"):
        return f"{value:,}"
    return f"{100 * value:.2f} %" if key == "accuracy" else f"{value:.4f}"


@contextmanager
def fit_progress(title: str, quiet: bool) -> Iterator[list[Any]]:
    """Show the progress of estimators; yields the callbacks that show that of networks."""
    from llpkit.progress import progress
    from llpkit.training import Progress

    if quiet:
        yield []
        return
    with progress(title=title):
        yield [Progress(title)]


def print_step(event: Mapping[str, Any]) -> None:
    """A line on stderr about a step on a table larger than memory."""
    step, seconds = event["step"], f"{event.get('seconds', 0):.1f} s"
    if step == "check":
        text = f"checked {event['rows']:,} rows in {event['bags']:,} bags"
    elif step == "start":
        text = f"began with a fit to {event['rows']:,} rows ({seconds})"
    elif step == "E":
        found = f"log-likelihood {event['log_likelihood']:.4f} per bag"
        text = f"E-step {event['iteration']}: {found} ({seconds})"
    elif step == "M":
        text = f"M-step {event['iteration']} ({seconds})"
    elif step == "again":
        text = f"the M-step begins again, because a worker was lost: {event['reason']}"
    else:
        text = f"logistic regression: {event['passes']} passes over the table"
    terminal(stderr=True).print(text, soft_wrap=True, markup=False)
