"""The command ``demo``: the protocol ``digits`` from beginning to end."""

import os
from pathlib import Path
from typing import Annotated

import typer

from llpkit.cli.arguments import Quiet
from llpkit.cli.printing import echo, shown, terminal


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            help="Results folder (llpkit-demo; with --quick llpkit-demo-quick).", metavar="DIR"
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use few folds and epochs.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train eight methods on handwritten digits and show what they learned.

    Odd against even, in bags of 1 to 12 digits; only the number of odd digits
    per bag is known. It takes about two minutes on two cores, needs no
    download, and ends with a table and a report. It is the same as
    llpkit reproduce digits convergence, followed by llpkit report.

    [bold]Examples[/bold]

      llpkit demo
      llpkit demo --quick
    """
    from llpkit.experiments import Results, WorkerSettings, load, reproduce
    from llpkit.experiments.page import write_report
    from llpkit.experiments.summary import accuracies, bounds, difference, final_mean

    protocol = load("digits").quick() if quick else load("digits")
    out = out or Path("llpkit-demo-quick" if quick else "llpkit-demo")
    jobs = 1 if quick else min(os.cpu_count() or 1, 4)  # quick runs end before workers start
    settings = WorkerSettings(out, protocol, device="cpu", jobs=jobs)
    with shown("demo", quiet) as log:
        reproduce(settings, ["convergence"], log=log)
    page = write_report([out])
    if not quiet:
        from rich.table import Table

        table = Table("method", box=None, padding=(0, 2, 0, 0))
        for head in ("accuracy %", "gap", "bag log-lik", "constant rate"):
            table.add_column(head, justify="right", no_wrap=True)
        runs = Results.read(out).by_method("convergence")
        bound = next(iter(bounds(runs)), "")
        for name, accuracy in accuracies(runs).items():
            gap = None if name == bound else difference(runs[name], runs.get(bound, []))
            keys = ("log_likelihood", "baseline_log_likelihood")
            table.add_row(
                name,
                f"{accuracy:.1f}",
                "" if gap is None else f"{gap.mean:+.1f}",
                *(
                    "–" if each is None else f"{each:.3f}"
                    for each in (final_mean(runs[name], key) for key in keys)
                ),
            )
        terminal().print(table)
    echo(page)
