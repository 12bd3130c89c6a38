"""The command line: parsing and printing only. What the commands do is in ``llpkit.runs``.

Heavy imports stand inside the commands, so that help comes at once.
"""

import io
import json
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from llpkit._files import place_of
from llpkit.cli._options import OF_NEW_DATA, SETTINGS, as_flags, takes
from llpkit.cli._printing import (
    PlainGroup,
    echo,
    fit_progress,
    measure_table,
    note,
    plain_warnings,
    resumable,
    terminal,
)
from llpkit.cli.demo import demo
from llpkit.cli.reproduce import PLUGINS, report, reproduce
from llpkit.errors import LLPError

app = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Learn a classifier of single instances when only the counts of labels in bags are known.",
    epilog="Begin with: llpkit demo",
)
app.command()(demo)  # first in the list of commands

USER_ERROR = 2
INTERRUPTED, TERMINATED = 130, 143

Threshold = Annotated[float, typer.Option(help="Label positive from this probability on.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
TrustModel = Annotated[
    bool,
    typer.Option(
        "--trust-model",
        help="Read LightGBM models too, which could crash the process if they were tampered with.",
    ),
]
RunDir = Annotated[
    Path, typer.Argument(help="A directory that llpkit fit wrote.", metavar="RUN_DIR")
]
Source = Annotated[
    str | None,
    typer.Argument(
        help="A table, or the name of a data set; the run's own data unless given.",
        metavar="[TABLE|DATASET]",
        show_default=False,
    ),
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    _never_mind_characters()
    try:
        with _stopping() as signals, plain_warnings():
            app(given, prog_name="llpkit", obj=given)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return TERMINATED if code == INTERRUPTED and signal.SIGTERM in signals else code
    except LLPError as error:
        return _fail(str(error))
    except UnicodeEncodeError as error:  # what was typed or a file's name, not of this encoding
        return _fail(f"{error.object!r} is not UTF-8; use other characters, or rename the file")
    except OSError as error:  # a full disk, a folder without permission
        return _fail(" ".join(filter(None, [error.strerror or str(error), _named(error)])))
    except _no_memory():
        return _fail("not enough memory; use a smaller batch size, less data or --resident false")
    return 0


def _no_memory() -> tuple[type[Exception], ...]:
    """What is raised where memory ends; torch's own error is known if torch was loaded at all."""
    torch = sys.modules.get("torch")
    return (MemoryError,) if torch is None else (MemoryError, torch.OutOfMemoryError)


@contextmanager
def _stopping() -> Iterator[list[int]]:
    """Take SIGTERM as Ctrl-C is taken; the signals that came."""
    came: list[int] = []

    def stop(number: int, _: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield came  # only the main thread hears signals
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _never_mind_characters() -> None:
    """Print what a terminal or a file has no character for as a question mark or an escape."""
    for stream, errors in ((sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors=errors)


def _named(error: OSError) -> str:
    return f"({error.filename})" if error.filename else ""


def _fail(message: str) -> int:
    from rich.text import Text

    terminal(stderr=True).print(Text(as_flags(message), style="red"), soft_wrap=True)
    return USER_ERROR


def _version(asked: bool) -> None:
    if asked:
        from llpkit import __version__

        echo(f"llpkit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            help="A file or module with methods of your own, before the command; repeat.",
            metavar="FILE.py",
            show_default=False,
        ),
    ] = None,
) -> None:
    if plugin:
        from llpkit import plugins

        ctx.meta[PLUGINS] = plugins.load(plugin)


@app.command()
@takes([setting.path for setting in SETTINGS])
@resumable
def fit(
    *,
    ctx: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            help="A configuration (.yaml), or a table (CSV or Parquet, one row per instance).",
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
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a stopped run.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is there.")] = False,
    quiet: Quiet = False,
    given: dict[str, Any],
) -> None:
    """Train a network, or an estimator for tables, from the counts of bags.

    Settings come from a YAML file, from options, or from both; options win. The run directory holds
    config.yaml (with every setting), the model (weights.safetensors, or estimator.skops),
    metrics.csv, environment.json, figures and report.html, and checksums.json, which tells damage.
    A network's run that was stopped goes on with --resume, to the same weights.

    [bold]Examples[/bold]

      llpkit fit people.csv --bag district --count n_yes
      llpkit fit cells.csv --bag slide --count n_sick --image file --image-size 64x64
      llpkit fit people.csv --bag district --count-low least --count-high most
      llpkit fit people.parquet --bag district --count n_yes --estimator hist-gradient-boosting
      llpkit fit --dataset digits --method mle --test-fraction 0.2 --out runs/digits
      llpkit fit config.yaml --epochs 100 --seed 1
      llpkit fit --resume --out runs/digits

    [bold]config.yaml[/bold]: the options by their names, those about data under [bold]data[/bold]

      data: {table: people.csv, bag: district, count: n_yes}
      method: mle
      epochs: 50
      held_out: 0.1
    """
    from llpkit import config as settings
    from llpkit import runs
    from llpkit._files import check_apart

    out = None if out is None else place_of("--out", out)
    names = {setting.path: setting.name for setting in SETTINGS if setting.path in given}
    file: dict[str, Any] = {}
    if source is not None:
        if Path(source).suffix.lower() in (".yaml", ".yml"):
            file = settings.read(Path(source))
        elif "data.table" in given:
            raise LLPError(f"two tables, {source} and {given['data.table']}; give one")
        else:
            given["data.table"], names["data.table"] = source, "table"
    if resume and out is not None and not force and runs.nothing_to_resume(out):
        echo(f"{out} is finished; there is nothing to resume")
        return
    if resume and out is not None and not file and "data.table" not in given:
        file = runs.unfinished(out) or {}
    config = settings.check(settings.merge(file, given), options=names)
    what = config.data.dataset or Path(config.data.table or "").stem
    folder = out or Path("runs") / f"{what}-{config.estimator or config.method}-{config.seed}"
    if source is not None:
        check_apart(folder, [Path(source)])
    with fit_progress(config.method, quiet) as callbacks:
        done = runs.fit(
            config,
            folder,
            resume=resume,
            force=force,
            command=shlex.join(["llpkit", *(ctx.obj or [])]),
            callbacks=callbacks,
        )
    if quiet:
        return
    for line in done.notes:
        note(line)
    terminal().print(measure_table(done.measures))
    if config.held_out is not None and config.estimator is None:
        echo(f"kept epoch {done.model.chosen_epoch}, the best for held-out bags")
    echo(f"run: {folder}\npage: {folder / runs.REPORT}")


@app.command()
@takes([path for path in OF_NEW_DATA if path not in ("data.label", "data.class_names")])
def predict(
    *,
    run_dir: RunDir,
    source: Source = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where to: .csv or .parquet.", metavar="FILE")
    ],
    threshold: Threshold = 0.5,
    prefix: Annotated[str, typer.Option(help="Put before the names of the new columns.")] = "",
    device: Device = "auto",
    trust_model: TrustModel = False,
    quiet: Quiet = False,
    given: dict[str, Any],
) -> None:
    """Write a table back with probability, label and posterior of every row.

    [bold]probability[/bold] is the model's; [bold]label[/bold] is 1 from the threshold on;
    [bold]posterior[/bold] is the probability given also the counts of the row's bag, where the
    table has them. With more than two classes there is one column of each per class, and the label
    is the name of the most probable one.

    [bold]Examples[/bold]

      llpkit predict runs/people new.csv --out predicted.csv
      llpkit predict runs/people new.parquet --out predicted.parquet --threshold 0.3
      llpkit predict runs/digits digits --out digits.csv
    """
    from llpkit import runs

    if out.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise LLPError(f"{out} is neither .csv nor .parquet; choose one of the two")
    run = runs.open_run(run_dir, device, trust_model=trust_model)
    found = runs.predict(run, runs.data_of(run, source, given), threshold)
    runs.write_predictions(found, out, prefix)
    if not quiet:
        for line in found.notes:
            note(line)
        names = ", ".join(f"{prefix}{name}" for name in found.columns)
        echo(f"{len(found.table):,} rows with {names}: {out}")


@app.command()
@takes(OF_NEW_DATA)
def evaluate(
    *,
    run_dir: RunDir,
    source: Source = None,
    threshold: Threshold = 0.5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    device: Device = "auto",
    trust_model: TrustModel = False,
    given: dict[str, Any],
) -> None:
    """Measure a run: its bags always, its instances where their labels are known.

    Without a table or data set it is measured on its own data, each part (training, held-out,
    test) for itself.

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


@app.command("datasets")
def list_datasets(
    data_dir: Annotated[
        str | None,
        typer.Option(help="Where to look (LLPKIT_DATA, else a cache folder).", show_default=False),
    ] = None,
) -> None:
    """List the data sets: what they are, whether they are there, where to get them."""
    from rich.table import Table
    from rich.text import Text

    from llpkit import runs
    from llpkit.datasets._files import data_folder

    table = Table("name", "what", "found", "get it, put it", box=None, padding=(0, 2, 1, 0))
    for row in runs.known_datasets(data_dir):
        style = "green" if row.found else "yellow"
        table.add_row(
            Text(row.name, style="bold"),
            Text(row.summary),
            Text("yes" if row.found else "no", style=style),
            Text(row.remedy),
        )
    terminal().print(table)
    echo(f"data folder: {data_folder(data_dir)} (--data-dir or LLPKIT_DATA chooses another)")


@app.command("methods")
def list_methods() -> None:
    """List the methods: what they do, what they need."""
    from rich.table import Table
    from rich.text import Text

    from llpkit.methods import METHODS

    table = Table("name", "what", "batches of", "learns from", "lr", box=None, padding=(0, 2, 0, 0))
    for key, method in METHODS.items():
        counts = "exact counts" if method.needs_exact_counts else "counts or ranges"
        table.add_row(
            Text(key, style="bold"),
            Text(method.summary),
            "instances" if method.batches == "instances" else "whole bags",
            "labels" if method.needs_labels else counts,
            f"{method.lr:g}",
        )
    terminal().print(table)


@app.command("estimators")
def list_estimators() -> None:
    """List the estimators that tables can be fitted with."""
    from rich.table import Table
    from rich.text import Text

    from llpkit.estimators._named import ESTIMATORS

    table = Table("name", "what", box=None, padding=(0, 2, 0, 0))
    for name, entry in ESTIMATORS.items():
        table.add_row(Text(name, style="bold"), Text(entry.summary))
    terminal().print(table)


app.command()(reproduce)
app.command()(report)
