"""The command ``fit``."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from llpkit import config as settings
from llpkit.cli.arguments import Quiet
from llpkit.cli.options import OPTIONS, from_source, takes
from llpkit.cli.printing import (
    echo,
    fit_progress,
    measure_table,
    note,
    print_step,
    print_verdict,
    resumable,
    search_table,
    terminal,
)
from llpkit.files import check_apart, place_of


@takes([option.path for option in OPTIONS])
@resumable
def fit(
    *,
    ctx: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            help="A configuration (.yaml), or a table (CSV, Parquet, Feather, JSON lines, Excel).",
            metavar="[CONFIG.yaml|TABLE]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Run directory (runs/DATA-METHOD-SEED).",
            metavar="RUN_DIR",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing run.")] = False,
    quiet: Quiet = False,
    given: dict[str, Any],
) -> None:
    """Train a model from the counts of bags: a network, or an estimator for tables.

    Settings come from a YAML file, from options, or from both; options win.
    The run directory holds config.yaml (with every setting), the model
    (weights.safetensors or estimator.skops), metrics.csv, environment.json,
    figures, report.html, and checksums.json to detect damage.
    With --held-out, fit also checks whether the model learned anything.
    --resume continues a stopped run of a network, to the same weights.

    [bold]Examples[/bold]

      llpkit fit people.csv --bag district --count n_yes
      llpkit fit cells.csv --bag slide --count n_sick --image file
      llpkit fit people.csv --bag district --count n_yes --count-low least --count-high most
      llpkit fit people.csv --bag district --count n_yes --estimator logistic
      llpkit fit people.csv --bag district --count n_yes --estimator svc --search 20
      llpkit fit 'votes/*.parquet' --bag district --count n_yes --estimator xgboost --engine dask
      llpkit fit --dataset digits --test-fraction 0.2 --out runs/digits
      llpkit fit config.yaml --epochs 100 --seed 1
      llpkit fit --resume --out runs/digits
      llpkit fit cells.csv --bag slide --count n_sick --image file --devices auto

    [bold]config.yaml[/bold]: the options by name, those on data under [bold]data[/bold]

      data: {table: people.csv, bag: district, count: n_yes}
      method: mle
      epochs: 50
      held_out: 0.1
    """
    from llpkit import runs, training

    out = None if out is None else place_of("--out", out)
    file, given, names = from_source(source, given)
    # Repeating the command after the run has finished is not an error.
    if resume and out is not None and not force and runs.nothing_to_resume(out):
        if training.writes():  # one of several processes; the others do not wait for it
            echo(f"{out} is finished; there is nothing to resume")
        return
    # The settings of the stopped run, so that --resume needs no others.
    if resume and out is not None and not file and "data.table" not in given:
        file = runs.unfinished(out) or {}
    config = settings.check(settings.merge(file, given), options=names)
    table = Path(config.data.table or "")
    # A pattern such as votes/*.parquet is named after its folder.
    what = config.data.dataset or (table.parent.name if "*" in table.name else table.stem)
    folder = out or Path("runs") / f"{what}-{config.name}-{config.recipe.seed}"
    if source is not None:
        check_apart(folder, [Path(source)])
    if not runs.leads(config):
        runs.follow(config, folder)
        return
    with fit_progress("training" if config.is_open else config.name, quiet) as callbacks:
        done = runs.fit(
            config,
            folder,
            resume=resume,
            force=force,
            command=shlex.join(["llpkit", *(ctx.obj or [])]),
            callbacks=callbacks,
            announce=None if quiet else lambda picked: echo(f"picked {picked}"),
            log=(lambda _: None) if quiet else print_step,
        )
    if quiet:
        return
    for line in done.notes:
        note(line)
    if "search" in done.model.details:
        terminal().print(search_table(done.model.details["search"]["tried"]))
    terminal().print(measure_table(done.measures))
    print_verdict(done.model.details.get("verdict"))
    if config.recipe.held_out is not None and not hasattr(done.model, "estimator"):
        echo(f"kept epoch {done.model.chosen_epoch}, the best for held-out bags")
    echo(f"run: {folder}\npage: {folder / runs.REPORT}")
