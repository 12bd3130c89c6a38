"""The command ``demo``."""

from pathlib import Path
from typing import Annotated

import typer

from llpkit._files import place_of
from llpkit.cli.arguments import Quiet
from llpkit.cli.printing import demo_progress, echo, method_table, terminal


def demo(
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("llpkit-demo"),
    seeds: Annotated[int, typer.Option(help="Runs of each method, for the bands.", min=1)] = 5,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of each run.", min=1, show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed and few epochs.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train all methods on handwritten digits and show what they learnt.

    Odd against even, in bags of 1 to 12 digits; only the number of odd ones in a bag is known. It
    takes about two minutes on two cores, needs no download, and ends with a table and a page.

    [bold]Examples[/bold]

      llpkit demo
      llpkit demo --seeds 5 --out demo-5
      llpkit demo --quick
    """
    from llpkit import demo as show

    out = place_of("--out", out)
    with demo_progress(quiet) as progress:
        result = show.demo(out, seeds=seeds, epochs=epochs, quick=quick, callback=progress)
    if not quiet:
        terminal().print(method_table(result.rows))
    echo(result.page)
