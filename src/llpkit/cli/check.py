"""The command ``check``."""

from typing import Annotated, Any

import typer

from llpkit.cli.arguments import AsJson
from llpkit.cli.options import OPTIONS, configuration, takes
from llpkit.cli.printing import echo, echo_json, note, terminal

PROBLEMS = 1


@takes([option.path for option in OPTIONS if option.path.startswith("data.")])
def check(
    *,
    source: Annotated[
        str | None,
        typer.Argument(
            help="A table (CSV, Parquet, Feather, JSON lines, Excel), or a configuration (.yaml).",
            metavar="TABLE|CONFIG.yaml",
        ),
    ] = None,
    as_json: AsJson = False,
    settings: dict[str, Any],
) -> None:
    r"""Check before training whether the counts can answer your question.

    Looks for bags that all have the same proportion (the opposite labels would explain the counts
    equally well, so the seed decides which you get), for features in which all bags are alike, for
    features that are constant within each bag or identify it, and for counts that carry no
    information. Prints a remedy for each problem, and warns if the counts carry much less
    information than exact ones. Takes seconds.

    Exit status: 0 if no problem was found, 1 if there is one, 2 if the data cannot be read.

    [bold]Examples[/bold]

      llpkit check people.csv --bag district --count n_yes
      llpkit check reports.csv --bag campaign --count clicks \
        --count-noise laplace:2
      llpkit check config.yaml --json
    """
    from llpkit.runs.check import check as check_data

    checked = check_data(configuration(source, settings))
    if as_json:
        echo_json(checked.to_dict())
    else:
        _print(checked)
    if not checked.found.ok:
        raise typer.Exit(PROBLEMS)


def _print(checked: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in checked.facts.items():
        table.add_row(Text(name, style="bold"), Text(value))
    terminal().print(table)
    for line in checked.data.notes:
        note(line)
    for text in checked.warnings:
        note(f"Warning: {text}")
    if checked.found.ok:
        other = "other " if checked.warnings else ""
        echo(f"No {other}problem found: these features and counts can tell the classes apart.")
    for problem in checked.found.problems:
        columns = f" (columns {', '.join(problem.columns)})" if problem.columns else ""
        console = terminal()
        console.print(Text(f"Problem: {problem.text}{columns}.", style="red"), soft_wrap=True)
        console.print(Text(f"What helps: {problem.remedy}.", style="green"), soft_wrap=True)
