"""The command ``plan``."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from llpkit._validation import number, whole
from llpkit.cli.arguments import AsJson, TrustModel
from llpkit.cli.printing import echo, echo_json, note, terminal
from llpkit.errors import LLPError

SIZES = "1,2,4,8,16,32,64"
HEADS = {
    "by": ("by", "{}"),
    "bags": ("bags", "{:,}"),
    "mean_size": ("mean size", "{:.1f}"),
    "size": ("bag size", "{}"),
    "labels_per_count": ("labels a count is worth", "{:.2f}"),
    "efficiency": ("information per instance", "{:.1%}"),
    "standard_error": ("standard error", "{:.3f}"),
    "expected_accuracy": ("expected accuracy", "{:.1%}"),
    "bags_for_standard_error": ("bags for the standard error", "{:,}"),
    "bags_for_accuracy": ("bags for the accuracy", "{:,}"),
}


def plan(
    table: Annotated[
        str, typer.Argument(help="A table of instances like those to count.", metavar="TABLE")
    ],
    features: Annotated[
        list[str] | None,
        typer.Option(help="Column to learn from; repeatable (all others).", metavar="COLUMN"),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Column to leave out of the features; repeatable.", metavar="COLUMN"),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="Column whose values define bags to compare; repeatable.",
            metavar="COLUMN",
        ),
    ] = None,
    sizes: Annotated[str, typer.Option(help="Bag sizes to compare.", metavar="LIST")] = SIZES,
    rate: Annotated[
        float, typer.Option(help="Your guess at the share of positives.", metavar="SHARE")
    ] = 0.5,
    accuracy: Annotated[
        float,
        typer.Option(help="Your guess at the best classifier's accuracy.", metavar="SHARE"),
    ] = 0.8,
    run: Annotated[
        Path | None,
        typer.Option(help="A finished run; its model replaces both guesses.", metavar="RUN_DIR"),
    ] = None,
    bags: Annotated[
        int | None,
        typer.Option(
            help="Number of bags; shows the expected accuracy and standard error.", metavar="N"
        ),
    ] = None,
    standard_error: Annotated[
        float | None,
        typer.Option(help="Show how many bags lower all standard errors to this.", metavar="X"),
    ] = None,
    target_accuracy: Annotated[
        float | None, typer.Option(help="Show how many bags this accuracy needs.", metavar="SHARE")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write plan.csv and figures here.", metavar="DIR"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random bags.", metavar="N")] = 0,
    as_json: AsJson = False,
    trust_model: TrustModel = False,
) -> None:
    """Plan before you count: what a count is worth, how many bags you need, and how large.

    Bags of each size are drawn at random from the rows of the table, and the information in their
    counts is computed exactly under a model: a guess in which all columns matter equally, or the
    model of a finished run. Weights are those of a logistic regression on standardised columns.

    [bold]Examples[/bold]

      llpkit plan people.csv --features age --features income --bags 200
      llpkit plan people.csv --rate 0.1 --accuracy 0.93 --target-accuracy 0.92
      llpkit plan people.csv --by street --by district
      llpkit plan new.csv --run runs/people --standard-error 0.1 --out plan
    """
    from llpkit import runs
    from llpkit.runs.plan import plan_table

    parts = [part.strip() for part in sizes.split(",")]
    if not all(re.fullmatch(r"\d{1,6}", part) for part in parts):
        raise LLPError(f"--sizes = {sizes!r}; give whole numbers such as {SIZES}")
    compared = sorted({whole("--sizes", int(part), 1, 100_000) for part in parts})
    if bags is not None:
        whole("--bags", bags, 1)
    if standard_error is not None:
        number("--standard-error", standard_error, above=0)
    if target_accuracy is not None:
        number("--target-accuracy", target_accuracy, above=0, below=1)
    planned = plan_table(
        table,
        compared,
        features=features or (),
        drop=drop or (),
        by=by or (),
        rate=rate,
        accuracy=accuracy,
        run=None if run is None else runs.open_run(run, "cpu", trust_model=trust_model),
        seed=seed,
    )
    rows = planned.rows(bags, standard_error, target_accuracy)
    groupings, best = planned.grouping_rows(), planned.plan.best_accuracy
    if as_json:
        echo_json({"sizes": rows, "ways": groupings, "best_accuracy": best})
    else:
        for line in planned.notes:
            note(line)
        _print_rows(rows)
        echo(f"best possible accuracy, with the model known: {best:.1%}")
        if bags is not None or standard_error is not None:
            size, column = planned.worst
            echo(f"standard error: the largest of all weights (in bags of {size}, of {column!r})")
        if groupings:
            echo("the bags that the table has, by column:")
            _print_rows(groupings)
    if out is not None:
        planned.write(out, rows, bags)
        if not as_json:
            echo(f"plan: {out}")


def _print_rows(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for key in rows[0]:
        table.add_column(HEADS[key][0], justify="left" if key == "by" else "right")
    for row in rows:
        table.add_row(*("never" if v is None else HEADS[k][1].format(v) for k, v in row.items()))
    terminal().print(table)
