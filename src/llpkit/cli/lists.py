"""The commands that list data sets, methods, estimators and networks."""

from typing import Annotated

import typer

from llpkit.cli.printing import echo, terminal


def datasets(
    data_dir: Annotated[
        str | None,
        typer.Option(
            help="Where to look (LLPKIT_DATA, else a cache folder).",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List the data sets: what they are, whether they are found, where to get them."""
    from rich.table import Table
    from rich.text import Text

    from llpkit import runs
    from llpkit.datasets import data_folder

    table = Table("name", "what", "found", "get it, put it", box=None, padding=(0, 2, 1, 0))
    for row in runs.known_datasets(data_dir):
        style = "green" if row.found else "yellow"
        table.add_row(
            Text(row.name, style="bold"),
            Text(row.summary),
            Text("yes" if row.found else "no", style=style),
            Text(row.remedy),
        )
    terminal().print(table)
    echo(f"data folder: {data_folder(data_dir)} (--data-dir or LLPKIT_DATA chooses another)")


def methods() -> None:
    """List the methods: what they do, what they need, what to cite."""
    from rich.table import Table
    from rich.text import Text

    from llpkit.methods import METHODS

    table = Table("name", "what", "batches of", "learns from", "lr", box=None, padding=(0, 2, 0, 0))
    for key, method in METHODS.items():
        counts = "exact counts" if method.needs_exact_counts else "counts or ranges"
        table.add_row(
            Text(key, style="bold"),
            Text(method.summary),
            "instances" if method.batches == "instances" else "whole bags",
            "labels" if method.needs_labels else counts,
            f"{method.lr:g}",
        )
    terminal().print(table)
    # Below, because a column of references would leave no room for the others.
    cited = Table("cite", "", box=None, padding=(1, 2, 0, 0))
    for key, method in METHODS.items():
        if method.reference:
            cited.add_row(Text(key, style="bold"), Text(method.reference))
    terminal().print(cited)


def estimators() -> None:
    """List the estimators for tables."""
    from rich.table import Table
    from rich.text import Text

    from llpkit.estimators.registry import ESTIMATORS, summary

    table = Table("name", "what", box=None, padding=(0, 2, 0, 0))
    for name in ESTIMATORS:
        table.add_row(Text(name, style="bold"), Text(summary(name)))
    terminal().print(table)


def networks() -> None:
    """List the networks that can be trained by name."""
    from rich.table import Table
    from rich.text import Text

    from llpkit.networks import NETWORKS

    table = Table("name", "what", box=None, padding=(0, 2, 0, 0))
    for name, entry in NETWORKS.items():
        table.add_row(Text(name, style="bold"), Text(entry.summary))
    terminal().print(table)
