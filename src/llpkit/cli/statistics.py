"""The commands ``summary`` and ``shares``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from llpkit._text import csv_text
from llpkit.cli.arguments import AsJson, Quiet, RunDir, Source, TrustModel
from llpkit.cli.options import takes
from llpkit.cli.printing import echo, echo_json, note, shown
from llpkit.errors import LLPError
from llpkit.files import write_bytes, write_text

Sandwich = Annotated[
    bool,
    typer.Option(
        "--sandwich",
        help="Standard errors that hold even if the model is wrong within bags; needs many bags.",
    ),
]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals.", metavar="LEVEL")]
_COLUMNS = ("data.bag", "data.count", "data.features", "data.drop", "data.categorical")


@takes(["data.counts_table"])
def summary(
    *,
    run_dir: RunDir,
    source: Source = None,
    level: Level = 0.95,
    sandwich: Sandwich = False,
    as_json: AsJson = False,
    trust_model: TrustModel = False,
    settings: dict[str, Any],
) -> None:
    r"""Print the coefficients of a logistic regression with standard errors and intervals.

    For runs of --estimator logistic and mixed-logistic. Coefficients are per unit of the table's
    columns. Without a table, standard errors are computed on the training bags of the run.

    [bold]Examples[/bold]

      llpkit fit people.csv --bag district --count n_yes \
        --estimator logistic --out runs/logistic
      llpkit summary runs/logistic
      llpkit summary runs/logistic --sandwich --level 0.9
    """
    from llpkit import runs

    run = runs.open_run(run_dir, "cpu", trust_model=trust_model)
    data = runs.data_of(run, source, settings)
    covariance = "sandwich" if sandwich else "observed"
    result = runs.run_summary(run, data, covariance, level, own=source is None)
    if not as_json:
        echo(result)
        return
    content = {
        "bags": result.num_bags,
        "log_likelihood": result.log_likelihood,
        "covariance": covariance,
        "parameters": result.records(),
        "notes": result.notes,
    }
    echo_json(content)


@takes([*_COLUMNS, "data.counts_table"])
def shares(
    *,
    table_or_run: Annotated[
        Path,
        typer.Argument(
            help="A run directory, or a table with --bag and --count.", metavar="TABLE|RUN_DIR"
        ),
    ],
    source: Source = None,
    by: Annotated[
        str, typer.Option(help="Column whose values define the groups.", metavar="COLUMN")
    ],
    multiplicity: Annotated[
        str | None,
        typer.Option(
            help="Column with the number of instances that each row represents.", metavar="COLUMN"
        ),
    ] = None,
    effect: Annotated[
        bool,
        typer.Option("--effect/--no-effect", help="Fit a random effect per bag (for a table)."),
    ] = True,
    level: Level = 0.95,
    sandwich: Sandwich = False,
    bootstrap: Annotated[
        int | None,
        typer.Option(
            help="Compute intervals from this many bootstrap refits; for a run of any estimator.",
            metavar="N",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the shares as a table: .csv.", metavar="FILE"),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="Draw the shares: .png or .pdf.", metavar="FILE", show_default=False),
    ] = None,
    as_json: AsJson = False,
    trust_model: TrustModel = False,
    quiet: Quiet = False,
    settings: dict[str, Any],
) -> None:
    r"""Estimate the share of each class in every group of a column, with intervals.

    For example, how did each age group vote? The shares use the counts of all bags, and the
    intervals cover the uncertainty of the model and of the labels given the counts. Next to them
    are bounds that need no model (least, most), and Goodman's regression.

    For a table, a logistic regression with a random effect per bag is fitted to all columns. If
    voters are aggregated into a cross-table, --multiplicity names the column with the number of
    voters that each row represents.

    [bold]Examples[/bold]

      llpkit shares voters.csv --bag precinct --count votes \
        --by age --figure shares.png
      llpkit shares precincts.csv --bag precinct --count left --count right \
        --by age --multiplicity voters
      llpkit shares runs/people --by region --out shares.csv
    """
    from llpkit import runs

    covariance = "sandwich" if sandwich else "observed"
    if figure is not None and figure.suffix.lower() not in (".png", ".pdf"):
        raise LLPError(f"{figure} is neither .png nor .pdf; choose one of the two")
    if out is not None and out.suffix.lower() != ".csv":
        raise LLPError(f"{out} does not end in .csv; give a name that does")
    notes: list[str] = []
    if table_or_run.is_dir():
        table_only = [f"--{path.removeprefix('data.')}" for path in _COLUMNS if path in settings]
        table_only += ["--multiplicity"] if multiplicity is not None else []
        if table_only:
            raise LLPError(f"{table_only[0]} is for a table, not for a run")
        run = runs.open_run(table_or_run, "cpu", trust_model=trust_model)
        data = runs.data_of(run, source, settings)
        with shown("bootstrap", quiet or bootstrap is None):
            result = runs.run_shares(run, data, by, covariance, level, source is None, bootstrap)
    else:
        if "data.bag" not in settings or "data.count" not in settings:
            raise LLPError(
                f"{table_or_run} is not a run directory; for a table give --bag and --count"
            )
        if source is not None or bootstrap is not None:
            raise LLPError("a second table and --bootstrap are for a run, not for a table")
        result, notes = runs.table_shares(
            table_or_run,
            bag=settings["data.bag"],
            count=settings["data.count"],
            by=by,
            multiplicity=multiplicity,
            features=settings.get("data.features", ()),
            drop=settings.get("data.drop", ()),
            categorical=settings.get("data.categorical", ()),
            effect=effect,
            covariance=covariance,
            level=level,
        )
    if as_json:
        echo_json(result.records())
    elif not quiet:
        for line in notes:
            note(line)
        echo(result)
    if out is not None:
        write_text(out, csv_text(result.records()))
    if figure is not None:
        write_bytes(figure, result.figure().contents(figure.suffix[1:].lower()))
