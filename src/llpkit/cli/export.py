"""The command ``export``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from llpkit.cli.arguments import Quiet, RunDir, TrustModel
from llpkit.cli.printing import echo


class Format(StrEnum):
    """The format of the exported file."""

    ONNX = "onnx"
    TORCH = "torch"


def export(
    *,
    run_dir: RunDir,
    format: Annotated[
        Format,
        typer.Option(help="onnx, or torch for a torch.export program.", metavar="onnx|torch"),
    ] = Format.ONNX,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Output file, .onnx or .pt2 (RUN_DIR's name, in the current folder).",
            metavar="FILE",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    trust_model: TrustModel = False,
    quiet: Quiet = False,
) -> None:
    """Export a model for other programs (ONNX or torch) and check the file.

    The file includes the encoder of the table, so its inputs are the raw columns.
    Its outputs are the probability of every class, and the label. A [bold]torch[/bold]
    file (.pt2) is for networks only. A torch program cannot take text, so it takes
    categories as integer codes, which are listed in the file.

    Before the file is written, it is run on rows of the run's own data and on random
    rows: no probability may differ from the model's by more than 1e-5.

    [bold]Examples[/bold]

      llpkit export runs/people                     # writes people.onnx
      llpkit export runs/digits --format torch --out digits.pt2
    """
    import llpkit
    from llpkit import export as exporting
    from llpkit import runs

    model: Any
    if runs.is_saved_model(run_dir):
        model = llpkit.load(run_dir, trust_model=trust_model)
    else:
        model = runs.open_run(run_dir, "cpu", trust_model=trust_model)
    write, ending = exporting.onnx, ".onnx"
    if format is Format.TORCH:
        write, ending = exporting.torch, ".pt2"
    out = Path(f"{run_dir.resolve().name}{ending}") if out is None else out
    exported = write(model, out, force=force)
    if quiet:
        return
    compared = exported.compared
    rows = f"{compared.rows:,} rows"
    if compared.own_rows:
        rows += f", {compared.own_rows:,} of them the run's own"
    echo(f"inputs: {', '.join(exported.inputs)}")
    if exported.coded:
        echo(f"encoded as integer codes, listed in llpkit.json: {', '.join(exported.coded)}")
    echo(f"largest difference from the model: {compared.difference:.1e} ({rows})")
    echo(exported.path)
