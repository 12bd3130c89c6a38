"""The command ``fit``."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llpkit.cli.arguments import Quiet
from llpkit.cli.options import OPTIONS, configuration, takes
from llpkit.cli.printing import echo, note, shown, terminal
from llpkit.cli.results import measure_table, print_verdict, search_table
from llpkit.errors import LLPError, LostProcess
from llpkit.files import check_apart, path_of

if TYPE_CHECKING:
    from llpkit.config import Config

_STEPS = {
    "check": "checked {rows:,} rows in {bags:,} bags",
    "start": "initial fit to {rows:,} rows",
    "E": "E-step {iteration}: log-likelihood {log_likelihood:.4f} per bag",
    "M": "M-step {iteration}",
    "again": "restarting the M-step, because a worker was lost: {reason}",
    "logistic": "logistic regression, passes over the table: {passes}",
}
"""What is printed about the steps on a table larger than memory."""


def _line(event: dict[str, Any]) -> str:
    seconds = f" ({event['seconds']:.1f} s)" if "seconds" in event else ""
    return _STEPS[event["step"]].format(**event) + seconds


@takes([option.path for option in OPTIONS])
def fit(
    *,
    ctx: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            help="A configuration (.yaml), or a table (CSV, Parquet, Feather, JSON lines, Excel).",
            metavar="CONFIG.yaml|TABLE",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Run directory (runs/DATA-METHOD-SEED).", metavar="RUN_DIR"
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing run.")] = False,
    quiet: Quiet = False,
    settings: dict[str, Any],
) -> None:
    r"""Train a model from the counts of bags: a network, or an estimator for tables.

    Settings come from a YAML file, from options, or from both; options override the file. Defaults
    are in parentheses below.

    The run directory contains config.yaml (with every setting), the model (weights.safetensors or
    estimator.skops), metrics.csv (if training has epochs), environment.json, figures, report.html,
    and checksums.json to detect damage. With --held-out, fit also checks whether the model learned
    anything. --resume continues a stopped run of a network and ends with the same weights.

    [bold]Examples[/bold]

      llpkit fit people.csv --bag district --count n_yes
      llpkit fit cells.csv --bag slide --count n_sick --image file
      llpkit fit people.csv --bag district --count n_yes \
        --count-low least --count-high most
      llpkit fit people.csv --bag district --count n_yes --estimator logistic
      llpkit fit people.csv --bag district --count n_yes \
        --estimator svc --search 20
      llpkit fit 'votes/*.parquet' --bag district --count n_yes \
        --estimator xgboost --engine dask
      llpkit fit --dataset digits --test-fraction 0.2 --out runs/digits
      llpkit fit config.yaml --epochs 100 --seed 1
      llpkit fit --resume --out runs/digits
      llpkit fit cells.csv --bag slide --count n_sick --image file --devices auto

    In [bold]config.yaml[/bold], options about the data are under [bold]data[/bold]

      data: {table: people.csv, bag: district, count: n_yes}
      method: mle
      epochs: 50
      held_out: 0.1
    """
    arguments = ["llpkit", *(ctx.obj or [])]
    with _interrupts_explained([*arguments, *([] if resume else ["--resume"])]):
        from llpkit import runs

        out = None if out is None else path_of("--out", out)
        # With the settings of the stopped run, --resume needs no others.
        saved = {}
        if resume and source is None and out is not None:
            saved = runs.saved_settings(out, force=force)
            if not saved and not {"data.table", "data.dataset"} & settings.keys():
                raise LLPError(
                    f"{out} holds no run to resume; name the table or data set to train on"
                )
        config = configuration(source, settings, saved)
        folder = out or _default_folder(config)
        if source is not None:
            check_apart(folder, [Path(source)])
        leads = runs.leads(config)
        # Repeating the command after the run has finished is not an error.
        if resume and not force and runs.nothing_to_resume(folder, leads=leads):
            if leads:
                echo(f"{folder} is finished; there is nothing to resume")
        elif leads:
            _lead(config, folder, resume, force, quiet, shlex.join(arguments))
        else:
            runs.follow(config, folder)


def _default_folder(config: "Config") -> Path:
    table = Path(config.data.table or "")
    # A pattern such as votes/*.parquet is named after its folder.
    name = config.data.dataset or (table.parent.name if "*" in table.name else table.stem)
    return Path("runs") / f"{name}-{config.name}-{config.recipe.seed}"


def _lead(
    config: "Config", folder: Path, resume: bool, force: bool, quiet: bool, command: str
) -> None:
    """Train in the process that writes the run, and print the result."""
    from llpkit import runs
    from llpkit.training import Progress

    title = "training" if config.is_open else config.name
    with shown(title, quiet) as log:
        run = runs.fit(
            config,
            folder,
            resume=resume,
            force=force,
            command=command,
            callbacks=[] if quiet else [Progress(title)],
            announce=None if quiet else lambda picked: echo(f"picked {picked}"),
            log=lambda event: log(_line(event)),
        )
    if quiet:
        return
    for line in run.notes:
        note(line)
    if "search" in run.model.details:
        terminal().print(search_table(run.model.details["search"]["tried"]))
    terminal().print(measure_table(run.measures))
    print_verdict(run.model.details.get("verdict"))
    if config.recipe.held_out is not None and run.model.selected_epoch is not None:
        echo(f"selected epoch {run.model.selected_epoch}, the best on held-out bags")
    echo(f"run: {folder}\nreport: {folder / runs.REPORT}")


@contextmanager
def _interrupts_explained(again: Sequence[str]) -> Iterator[None]:
    """On an interrupt, print what was kept of the run and the command that continues it."""
    command = shlex.join(again)
    try:
        yield
    except LostProcess:
        note(f"continue with: {command}")
        raise
    except KeyboardInterrupt as stop:
        kept = {
            "run": "; the run is finished",
            "checkpoint": f"; continue with: {command}",
            "nothing": " before the first checkpoint; nothing was kept. Start again "
            f"with: {command}",
        }
        # A plain KeyboardInterrupt comes from outside runs.fit, before there is a run.
        note(f"stopped{kept[getattr(stop, 'kept', 'nothing')]}")
        raise
