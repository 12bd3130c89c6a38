"""The commands ``predict`` and ``evaluate``."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from llpkit.cli.arguments import Device, Quiet, RunDir, Source, Threshold, TrustModel
from llpkit.cli.options import OF_NEW_DATA, takes
from llpkit.cli.printing import echo, measure_table, note, terminal
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
    prefix: Annotated[str, typer.Option(help="Prefix for the names of the new columns.")] = "",
    device: Device = "auto",
    trust_model: TrustModel = False,
    quiet: Quiet = False,
    given: dict[str, Any],
) -> None:
    """Write the table with probability, label and posterior of every row.

    [bold]probability[/bold] is the model's; [bold]label[/bold] is 1 at or above the threshold;
    [bold]posterior[/bold] also takes the count of the row's bag into account, if the table has it.
    With more than two classes there is one column of each per class, and the label is the name of
    the most probable class.

    Large Parquet tables are read and written in batches: memory does not grow with their rows. For
    posteriors, the rows of each bag must then be next to each other.

    [bold]Examples[/bold]

      llpkit predict runs/people new.csv --out predicted.csv
      llpkit predict runs/people new.parquet --out predicted.parquet --threshold 0.3
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


@takes(OF_NEW_DATA)
def evaluate(
    *,
    run_dir: RunDir,
    source: Source = None,
    threshold: Threshold = 0.5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    device: Device = "auto",
    trust_model: TrustModel = False,
    given: dict[str, Any],
) -> None:
    """Measure a run: always on bags, and on instances if their labels are known.

    Without a table or data set it is measured on its own data, separately for each part (training,
    held-out, test).

    [bold]Examples[/bold]

      llpkit evaluate runs/digits
      llpkit evaluate runs/people labelled.csv --label answer
      llpkit evaluate runs/birds cifar10 --data-option split=test --json > birds.json
    """
    from llpkit import runs

    run = runs.open_run(run_dir, device, trust_model=trust_model)
    own = source is None and not {"data.options", "data.bag_size"} & given.keys()
    found = runs.evaluate(run, runs.data_of(run, source, given), threshold, by_part=own)
    for line in found.notes:
        note(line)
    if as_json:
        about = {"run": str(run_dir), "source": source, "parts": found.parts}
        echo(json.dumps(about, indent=1))
    else:
        terminal().print(measure_table(found.parts))
