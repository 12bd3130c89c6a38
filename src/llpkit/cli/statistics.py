"""The commands ``summary`` and ``shares``."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from llpkit.cli.arguments import Quiet, RunDir, Source, TrustModel
from llpkit.cli.options import takes
from llpkit.cli.printing import echo, fit_progress, note
from llpkit.errors import LLPError

Sandwich = Annotated[
    bool,
    typer.Option(
        "--sandwich",
        help="Standard errors that stay valid if the model is wrong within bags; need many bags.",
    ),
]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
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
    given: dict[str, Any],
) -> None:
    """Print the coefficients of a logistic regression with standard errors and intervals.

    For runs of --estimator logistic and mixed-logistic. Coefficients are per unit of the table's
    columns. Without a table the training bags of the run are used.

    [bold]Examples[/bold]

      llpkit fit people.csv --bag district --count n_yes --estimator logistic --out runs/logistic
      llpkit summary runs/logistic
      llpkit summary runs/logistic --sandwich --level 0.9
    """
    from llpkit import runs

    run = runs.open_run(run_dir, "cpu", trust_model=trust_model)
    data = runs.data_of(run, source, given)
    kind = "sandwich" if sandwich else "observed"
    found = runs.run_summary(run, data, kind, level, own=source is None)
    if as_json:
        rows = found.records()
        about = {"bags": found.num_bags, "log_likelihood": found.log_likelihood}
        echo(json.dumps({**about, "covariance": kind, "parameters": rows}, indent=1))
    else:
        echo(found)


@takes([*_COLUMNS, "data.counts_table"])
def shares(
    *,
    place: Annotated[
        Path,
        typer.Argument(
            help="A run directory, or a table with --bag and --count.", metavar="TABLE|RUN_DIR"
        ),
    ],
    source: Source = None,
    by: Annotated[str, typer.Option(help="The column whose values are the groups.")],
    multiplicity: Annotated[
        str | None,
        typer.Option(
            help="Column that says how many instances a row stands for.",
            metavar="COLUMN",
            show_default=False,
        ),
    ] = None,
    effect: Annotated[
        bool,
        typer.Option(
            "--effect/--no-effect", help="Whether bags may differ by a random effect (for a table)."
        ),
    ] = True,
    level: Level = 0.95,
    sandwich: Sandwich = False,
    bootstrap: Annotated[
        int | None,
        typer.Option(
            help="Refits for the uncertainty of a run of any estimator.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write a table: .csv.", metavar="FILE", show_default=False
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="Draw a picture: .png or .pdf.", metavar="FILE", show_default=False),
    ] = None,
    as_json: AsJson = False,
    trust_model: TrustModel = False,
    quiet: Quiet = False,
    given: dict[str, Any],
) -> None:
    """For every value of a column, the share of each class among its instances, with intervals.

    How did group A vote? The counts of all bags are used, and intervals contain both the
    uncertainty of the model and that of the labels given the counts. Next to them are the
    bounds that need no model (least, most), and Goodman's regression.

    Given a table, a logistic regression with a random effect per bag is fitted to all columns. A
    precinct's cross-table need not be written out with one row per voter: --multiplicity names the
    column of numbers of voters.

    [bold]Examples[/bold]

      llpkit shares voters.csv --bag precinct --count votes --by age --figure shares.png
      llpkit shares precincts.csv --bag precinct --count left --count right --by age
        --multiplicity voters
      llpkit shares runs/people --by region --out shares.csv
    """
    from llpkit import runs

    kind = "sandwich" if sandwich else "observed"
    if figure is not None and figure.suffix.lower() not in (".png", ".pdf"):
        raise LLPError(f"{figure} is neither .png nor .pdf; choose one of the two")
    if out is not None and out.suffix.lower() != ".csv":
        raise LLPError(f"{out} is not a .csv file; give it that name")
    if place.is_dir():
        if multiplicity is not None:
            raise LLPError("--multiplicity is for a table, not for a run")
        run = runs.open_run(place, "cpu", trust_model=trust_model)
        names = [path for path in _COLUMNS if path in given]
        if names:
            raise LLPError(f"--{names[0].removeprefix('data.')} is for a table, not for a run")
        data = runs.data_of(run, source, given)
        with fit_progress("bootstrap", quiet or bootstrap is None):
            found = runs.run_shares(run, data, by, kind, level, source is None, bootstrap)
    else:
        if "data.bag" not in given or "data.count" not in given:
            raise LLPError(f"{place} is not a run directory; for a table give --bag and --count")
        if source is not None or bootstrap is not None:
            raise LLPError("a second table, and --bootstrap, are for a run, not for a table")
        parts = runs.table_shares(
            place,
            bag=given["data.bag"],
            count=given["data.count"],
            by=by,
            multiplicity=multiplicity,
            features=given.get("data.features", ()),
            drop=given.get("data.drop", ()),
            categorical=given.get("data.categorical", ()),
            effect=effect,
            covariance=kind,
            level=level,
        )
        found = parts.shares
        if not quiet and not as_json:
            about = [line for line in parts.summary.notes if line.startswith("Bags differ")]
            for line in (*parts.notes, *about):
                note(line)
    if as_json:
        echo(json.dumps(found.records(), indent=1))
    elif not quiet:
        echo(found)
    if out is not None:
        runs.write_shares(found, out)
    if figure is not None:
        runs.draw_shares(found, figure)
