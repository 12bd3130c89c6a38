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
    settings: dict[str, Any],
) -> None:
    """Predict a probability, a label and a posterior for every row of a table.

    The column [bold]probability[/bold] uses the features alone, and
    [bold]label[/bold] is 1 if the probability is at least the threshold. If the
    table has counts, [bold]posterior[/bold] also uses the count of the row's bag.
    With more than two classes, there is one probability and one posterior per
    class, and the label is the name of the most probable class.

    Large Parquet tables are read and written in batches, so memory use stays constant.
    Posteriors then require the rows of each bag to be next to each other.

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
    data = runs.data_of(run, source, settings)
    if runs.is_long(run, data):
        streamed = runs.stream(run, data, out, threshold, prefix)
        rows, columns, notes = streamed.rows, streamed.columns, streamed.notes
    else:
        predictions = runs.predict(run, data, threshold)
        runs.write_predictions(predictions, out, prefix)
        rows, notes = len(predictions.table), predictions.notes
        columns = tuple(f"{prefix}{name}" for name in predictions.columns)
    if not quiet:
        for line in notes:
            note(line)
        echo(f"{rows:,} rows with {', '.join(columns)}: {out}")
