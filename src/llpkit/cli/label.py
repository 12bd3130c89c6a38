"""The command ``label``."""

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llpkit._package import package
from llpkit.cli.printing import echo, note
from llpkit.errors import LLPError
from llpkit.files import path_of

if TYPE_CHECKING:
    from llpkit.label import Project


def label(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="A folder of images, or a table; its rows are the items.", metavar="PHOTOS|TABLE"
        ),
    ] = None,
    positive: Annotated[
        str, typer.Option(help="What you count, in words.", metavar="NAME")
    ] = "positive",
    bags: Annotated[
        str | None,
        typer.Option(
            help="How to make bags: folder, time, alike (items that look alike), random, or score "
            "(by the model's scores, as it learns). Default: folder if there are several, else "
            "alike for images and random for rows.",
            metavar="WAY",
        ),
    ] = None,
    bag: Annotated[
        str | None, typer.Option(help="For a table: the column with the bag ids.", metavar="COLUMN")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            help="For a table: a column that is neither shown nor learned from, such as a known "
            "count; repeatable.",
            metavar="COLUMN",
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            help="Maximum items per bag. Default: 12, or less if there are fewer than 144 items; "
            "bags from --bag are kept whole.",
            metavar="N",
        ),
    ] = None,
    order: Annotated[
        str,
        typer.Option(
            help="Which bag comes next: information (the most informative one) or random.",
            metavar="ORDER",
        ),
    ] = "information",
    project: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the answers (llpkit-label-NAME); continues an existing project.",
            metavar="DIR",
        ),
    ] = None,
    export: Annotated[
        bool, typer.Option("--export", help="Write counts.csv, print the commands, and exit.")
    ] = False,
    port: Annotated[
        int, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535, metavar="N")
    ] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in your browser.")] = True,
    seed: Annotated[
        int, typer.Option(help="Seed of the random bags and of training.", min=0, metavar="N")
    ] = 0,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo", help="Show handwritten digits, and a simulated person counting them."
        ),
    ] = False,
) -> None:
    """Count in the browser, and watch a model learn from your counts.

    The page shows one bag of images (or rows of a table) at a time. Type how many
    are positive and press Enter; if you are not sure, press ? and give a range.
    Each answer is saved at once: stop with Ctrl-C whenever you like, and continue
    with the same command. After six counts, models train in the background, and the
    page shows what they have learned, which items they are unsure of, and which
    counts look wrong. Undo takes back your last count or label.

    When you stop, llpkit writes counts.csv and prints two commands: one trains a
    model on the counts, the other applies it to all images or rows.

    The page needs no internet connection and can only be reached from this machine.

    [bold]Examples[/bold]

      llpkit label --demo
      llpkit label photos/ --positive cats
      llpkit label photos/ --positive cats --bags random --size 9
      llpkit label people.csv --bag district --positive "likely voters"
      llpkit label photos/ --export
    """
    from llpkit.label.opening import items_of, opened, usual_way
    from llpkit.progress import progress

    if demo == (source is not None):
        raise LLPError("give a folder of images or a table, or --demo")
    if demo:
        _demo(port, browser, order, seed)
        return
    assert source is not None
    with progress(title="reading"):
        items = items_of(source, bag, drop or ())
    if len(items) > 2000 and not export:
        note(f"comparing {len(items):,} items; this takes a moment")
    for line in items.notes:
        note(line)
    folder = path_of("--project", project or f"llpkit-label-{source.resolve().stem}")
    project_open = opened(
        folder,
        items,
        way=bags or usual_way(items),
        size=size,
        order=order,
        positive=positive,
        seed=seed,
        learn=not export,
    )
    with project_open as counting:
        if bags is not None and counting.way != bags:
            note(f"{folder} keeps its existing bags, made by {counting.way}")
        for line in counting.notes:
            note(line)
        try:
            if not export:
                _serve(counting, port, browser)
        finally:
            _finish(counting)


def _finish(project: "Project") -> None:
    """Write the counts, and print the commands that turn them into predictions."""
    from llpkit.label.export import TABLE

    if project.bags() is None:
        echo("nothing was counted")
        return
    assert project.folder is not None
    project.write()
    train, predict = project.commands()
    what = "images" if project.items.has_pictures else "rows"
    echo(
        f"counts: {project.folder / TABLE}\n\n"
        f"Train a model on these counts:\n  {train}\n\n"
        f"Apply it to all {len(project.items):,} {what}:\n  {predict}"
    )


def _serve(project: "Project", port: int, browser: bool) -> None:
    for name in ("starlette", "uvicorn"):
        package(name, "label")
    from llpkit.label.server import make_app, new_token, serve

    token = new_token()
    saved = "every answer is saved" if project.folder else "the demo saves nothing"

    def ready(found: int) -> None:
        address = f"http://127.0.0.1:{found}/?token={token}"
        echo(f"page: {address}\nPress Ctrl-C to stop; {saved}.")
        # Without a display, webbrowser would start a browser in the terminal.
        if browser and (sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ):
            import webbrowser

            threading.Timer(0.5, webbrowser.open, [address]).start()

    serve(make_app(project, token), port, ready)


def _demo(port: int, browser: bool, order: str, seed: int) -> None:
    from llpkit.label.opening import trainer
    from llpkit.label.simulation import digits, fresh, run_demo

    found = digits(seed)
    with trainer() as pool:
        assert pool is not None
        project = fresh(found, pool, size=12, order=order, way="alike", seed=seed)
        project.positive = "odd"
        threading.Thread(target=run_demo, args=(project, found, pool), daemon=True).start()
        _serve(project, port, browser)
