"""The command ``evaluate``."""

from typing import Any

from llpkit.cli.arguments import AsJson, Device, RunDir, Source, Threshold, TrustModel
from llpkit.cli.options import OF_NEW_DATA, takes
from llpkit.cli.printing import echo_json, note, terminal
from llpkit.cli.results import measure_table, print_verdict


@takes(OF_NEW_DATA)
def evaluate(
    *,
    run_dir: RunDir,
    source: Source = None,
    threshold: Threshold = 0.5,
    as_json: AsJson = False,
    device: Device = "auto",
    trust_model: TrustModel = False,
    settings: dict[str, Any],
) -> None:
    """Evaluate a run on bags, and on instances if their labels are known.

    Without a table or data set, the run is evaluated on its own data, each part
    (training, held-out, test) separately. The last line is a verdict: whether the
    model explains the counts better than a constant rate, and how certain that is.

    [bold]Examples[/bold]

      llpkit evaluate runs/digits
      llpkit evaluate runs/people labelled.csv --label answer
      llpkit evaluate runs/birds cifar10 --data-option split=test --json
    """
    from llpkit import runs

    run = runs.open_run(run_dir, device, trust_model=trust_model)
    own = source is None and not {"data.options", "data.bag_size"} & settings.keys()
    result = runs.evaluate(run, runs.data_of(run, source, settings), threshold, by_part=own)
    for line in result.notes:
        note(line)
    if as_json:
        about = {
            "run": str(run_dir),
            "source": source,
            "parts": result.parts,
            "verdict": result.verdict,
        }
        echo_json(about)
    else:
        terminal().print(measure_table(result.parts))
        print_verdict(result.verdict)
