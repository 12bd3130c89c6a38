"""The command ``predict``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from llpkit.cli.arguments import Device, Quiet, RunDir, Source, Threshold, TrustModel
from llpkit.cli.options import OF_NEW_DATA, takes
from llpkit.cli.printing import echo, note
from llpkit.errors import LLPError


@takes([path for path in OF_NEW_DATA if path not in ("data.label", "data.class_names")])
def predict(
    *,
    run_dir: RunDir,
    source: Source = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Output file: .csv or .parquet.", metavar="FILE")
    ],
    threshold: Threshold = 0.5,
    prefix: Annotated[
        str, typer.Option(help="Prefix for the names of the new columns.", metavar="TEXT")
    ] = "",
    device: Device = "auto",
    trust_model: TrustModel = False,
    quiet: Quiet = False,
    given: dict[str, Any],
) -> None:
    """Predict a probability, a label and a posterior for every row of a table.

    [bold]probability[/bold] is the model's; [bold]label[/bold] is 1 at or above the threshold;
    [bold]posterior[/bold] also uses the count of the row's bag, if the table has it.
    With more than two classes there is one column of each per class, and
    the label is the name of the most probable class.

    Large Parquet tables are read and written in batches: memory does not grow with their rows.
    For posteriors, the rows of each bag must then be next to each other.

    [bold]Examples[/bold]

      llpkit predict runs/people new.csv --out predicted.csv
      llpkit predict runs/people new.parquet --out new-labels.csv --threshold 0.3
      llpkit predict runs/people 'new/*.parquet' --out predicted.parquet
      llpkit predict runs/digits digits --out digits.csv
    """
    from llpkit import runs

    if out.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise LLPError(f"{out} is neither .csv nor .parquet; choose one of the two")
    run = runs.open_run(run_dir, device, trust_model=trust_model)
    data = runs.data_of(run, source, given)
    if runs.is_long(run, data):
        streamed = runs.stream(run, data, out, threshold, prefix)
        if not quiet:
            for line in streamed.notes:
                note(line)
            echo(f"{streamed.rows:,} rows with {', '.join(streamed.columns)}: {out}")
        return
    found = runs.predict(run, data, threshold)
    runs.write_predictions(found, out, prefix)
    if not quiet:
        for line in found.notes:
            note(line)
        names = ", ".join(f"{prefix}{name}" for name in found.columns)
        echo(f"{len(found.table):,} rows with {names}: {out}")
