"""The command ``evaluate``."""

import json
from typing import Annotated, Any

import typer

from llpkit.cli.arguments import Device, RunDir, Source, Threshold, TrustModel
from llpkit.cli.options import OF_NEW_DATA, takes
from llpkit.cli.printing import echo, measure_table, note, print_verdict, terminal


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
    """Evaluate a run on bags, and on instances if their labels are known.

    Without a table or data set, the run's own data are used, separately for
    each part (training, held-out, test). The last line is a verdict: does the
    model explain the counts better than a constant rate, and how sure is that?

    [bold]Examples[/bold]

      llpkit evaluate runs/digits
      llpkit evaluate runs/people labelled.csv --label answer
      llpkit evaluate runs/birds cifar10 --data-option split=test --json
    """
    from llpkit import runs

    run = runs.open_run(run_dir, device, trust_model=trust_model)
    own = source is None and not {"data.options", "data.bag_size"} & given.keys()
    found = runs.evaluate(run, runs.data_of(run, source, given), threshold, by_part=own)
    for line in found.notes:
        note(line)
    if as_json:
        about = {
            "run": str(run_dir),
            "source": source,
            "parts": found.parts,
            "verdict": found.verdict,
        }
        echo(json.dumps(about, indent=1))
    else:
        terminal().print(measure_table(found.parts))
        print_verdict(found.verdict)
