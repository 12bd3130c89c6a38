"""The command line, one file per command: parsing and printing only.

What the commands do is in :mod:`llpkit.runs` and :mod:`llpkit.experiments`. Heavy imports are
inside the commands, so that help appears at once.
"""

import functools
import inspect
import io
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from llpkit._validation import options_named
from llpkit.cli import lists
from llpkit.cli.check import check
from llpkit.cli.demo import demo
from llpkit.cli.evaluate import evaluate
from llpkit.cli.export import export
from llpkit.cli.fit import fit
from llpkit.cli.help import PlainCommand, PlainGroup
from llpkit.cli.label import label
from llpkit.cli.options import as_typed
from llpkit.cli.plan import plan
from llpkit.cli.predict import predict
from llpkit.cli.printing import echo, plain_warnings, terminal
from llpkit.cli.report import report
from llpkit.cli.reproduce import reproduce
from llpkit.cli.statistics import shares, summary
from llpkit.errors import LLPError

app = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Train per-item classifiers when only the counts of labels in groups are known.",
    epilog="Start with: llpkit demo",
)

USER_ERROR = 2
INTERRUPTED, TERMINATED = 130, 143

Plugin = Annotated[
    list[str] | None,
    typer.Option(
        help="A Python file or module that registers your own methods, networks, data sets, …; "
        "repeatable.",
        metavar="FILE.py",
    ),
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _replace_unprintable()
    try:
        with _sigterm_as_interrupt() as signals, plain_warnings(), options_named(as_typed):
            app(arguments, prog_name="llpkit", obj=arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        # Both signals end as KeyboardInterrupt, which typer turns into one exit code.
        return TERMINATED if code == INTERRUPTED and signal.SIGTERM in signals else code
    except LLPError as error:
        return _fail(str(error))
    except UnicodeEncodeError as error:  # an argument or a file name in another encoding
        return _fail(f"{error.object!r} is not UTF-8; use other characters, or rename the file")
    except OSError as error:  # a full disk, a folder without permission
        file = f" ({error.filename})" if error.filename else ""
        return _fail(f"{error.strerror or error}{file}")
    except _no_memory():
        return _fail("not enough memory; use a smaller batch size, less data, or --resident false")
    return 0


def _no_memory() -> tuple[type[Exception], ...]:
    """The errors for lack of memory; includes torch's own only if torch has been imported."""
    torch = sys.modules.get("torch")
    return (MemoryError,) if torch is None else (MemoryError, torch.OutOfMemoryError)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[list[int]]:
    """Treat SIGTERM like Ctrl-C; yields the list of SIGTERM signals received."""
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread can handle signals
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _replace_unprintable() -> None:
    """Print question marks or escapes for characters that the output cannot encode."""
    for stream, errors in ((sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors=errors)


def _fail(message: str) -> int:
    from rich.text import Text

    terminal(stderr=True).print(Text(message, style="red"), soft_wrap=True)
    return USER_ERROR


def _load_plugins(sources: Sequence[str] | None) -> None:
    """Load plugins, if there are any."""
    if sources:
        from llpkit import plugins

        plugins.load(sources)


def _with_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--plugin`` to a command."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    added = inspect.Parameter(
        "plugin", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Plugin
    )

    @functools.wraps(command)
    def wrapped(*, plugin: Sequence[str] | None, **arguments: Any) -> None:
        _load_plugins(plugin)
        command(**arguments)

    kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    wrapped.__signature__ = inspect.Signature([*kept, added])  # type: ignore[attr-defined]
    return wrapped


def _version(asked: bool) -> None:
    if asked:
        from llpkit import __version__

        echo(f"llpkit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    plugin: Plugin = None,
) -> None:
    _load_plugins(plugin)


for _command in (
    demo,
    plan,
    check,
    fit,
    predict,
    evaluate,
    export,
    summary,
    shares,
    label,
    report,
    reproduce,
    lists.methods,
    lists.networks,
    lists.augmentations,
    lists.datasets,
    lists.estimators,
):
    app.command(cls=PlainCommand)(_with_plugins(_command))
