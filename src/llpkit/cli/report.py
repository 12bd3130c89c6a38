"""The command ``report``."""

from pathlib import Path
from typing import Annotated

import typer

from llpkit.cli.arguments import DataDir
from llpkit.cli.printing import echo


def report(
    results: Annotated[
        list[Path],
        typer.Argument(help="Folders that llpkit reproduce wrote.", metavar="RESULTS..."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Where to write (default: report in the first folder).",
            metavar="DIR",
        ),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Make an HTML report with figures and tables from the results of llpkit reproduce.

    The report shows learning curves, accuracies, epoch times, accuracy against
    bag size, and pictures of examples if the data are found. It works offline;
    the figures are also written as PNG and PDF.

    [bold]Examples[/bold]

      llpkit report llpkit-results/digits
      llpkit report results/bird-cat results/group-photos --out report
    """
    from llpkit.experiments.page import write_report

    echo(write_report(results, out, data_dir=data_dir))
