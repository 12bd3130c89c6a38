"""The command line: parsing and printing only. What the commands do is in ``llpkit.runs``.

Heavy imports stand inside the commands, so that help comes at once.
"""

import functools
import inspect
import json
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from llpkit import cli_experiments
from llpkit.errors import LLPError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Learn a classifier of single instances when only the counts of labels in bags are known.",
    epilog="Begin with: llpkit demo",
)

USER_ERROR = 2

DATA, TABLE, TRAINING, MACHINE = "Data", "Table", "Training", "Machine"


class Setting(NamedTuple):
    """A setting of the configuration as an option: its path there, its help, its value's name."""

    path: str
    help: str
    value: str
    panel: str
    many: bool = False
    flag: str = ""

    @property
    def name(self) -> str:
        """The option."""
        return self.flag or "--" + self.path.removeprefix("data.").replace("_", "-")

    def parameter(self) -> inspect.Parameter:
        """The parameter of a command that typer makes the option of; ``None`` if not given."""
        kind: Any = list[str] | None if self.many else str | None if self.value else bool | None
        option = typer.Option(
            self.name,
            help=self.help,
            metavar=self.value or None,
            rich_help_panel=self.panel,
            show_default=False,
        )
        name = self.path.replace(".", "_")
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
        )


# Values stay text here, so that the configuration is checked in one place and all at once.
SETTINGS = [
    Setting("data.dataset", "Data set by name; see llpkit datasets.", "NAME", DATA),
    Setting(
        "data.options",
        "An option of the data set, such as classes=bird,cat; repeat.",
        "KEY=VALUE",
        DATA,
        True,
        "--data-option",
    ),
    Setting("data.data_dir", "Its folder (LLPKIT_DATA, else a cache folder).", "DIR", DATA),
    Setting("data.bag_size", "Instances in a random bag: 8, or a range, 1-12.", "N", DATA),
    Setting("data.table", "Table, over that of the configuration.", "FILE", TABLE),
    Setting("data.bag", "Column of the bag.", "COLUMN", TABLE),
    Setting(
        "data.count",
        "Column of the bag's positives; repeat, one a class, for more than two classes.",
        "COLUMN",
        TABLE,
        True,
    ),
    Setting("data.count_low", "Column of the least the count may be.", "COLUMN", TABLE, True),
    Setting("data.count_high", "Column of the most it may be.", "COLUMN", TABLE, True),
    Setting("data.proportion", "Column of the share of positives.", "COLUMN", TABLE, True),
    Setting("data.decimals", "Decimals that the proportions were rounded to.", "N", TABLE),
    Setting("data.counts_table", "A second table with the counts, one row a bag.", "FILE", TABLE),
    Setting("data.features", "Column to learn from; repeat (all others).", "COLUMN", TABLE, True),
    Setting("data.numeric", "Feature that must be a number; repeat.", "COLUMN", TABLE, True),
    Setting(
        "data.categorical",
        "Feature that is a category though it looks like a number; repeat.",
        "COLUMN",
        TABLE,
        True,
    ),
    Setting("data.image", "Column of the image's path.", "COLUMN", TABLE),
    Setting("data.image_root", "Folder that paths start from (the table's).", "DIR", TABLE),
    Setting("data.image_size", "Resize images to width x height, 64x64.", "WxH", TABLE),
    Setting("data.grey", "Read images as grey.", "", TABLE),
    Setting("data.skip_bad", "Leave out bags with an image that cannot be read.", "", TABLE),
    Setting("data.label", "Column of true labels, for evaluation alone.", "COLUMN", TABLE),
    Setting(
        "data.class_names",
        "Name of a class, in order; repeat.",
        "NAME",
        TABLE,
        True,
        "--class-name",
    ),
    Setting("method", "mle, direct, amle, dllp, llp-gan or supervised (mle).", "NAME", TRAINING),
    Setting(
        "method_options",
        "An option of the method, such as refresh=pass; repeat.",
        "KEY=VALUE",
        TRAINING,
        True,
        "--method-option",
    ),
    Setting(
        "network", "small-cnn, conv-large, mlp or linear (small-cnn or mlp).", "NAME", TRAINING
    ),
    Setting(
        "estimator",
        "In place of a network, for tables: hist-gradient-boosting, logistic, …; see llpkit "
        "estimators.",
        "NAME",
        TRAINING,
    ),
    Setting(
        "estimator_options",
        "An option of the estimator, such as max_leaf_nodes=15; repeat.",
        "KEY=VALUE",
        TRAINING,
        True,
        "--estimator-option",
    ),
    Setting("epochs", "Passes over the data (30).", "N", TRAINING),
    Setting("batch_size", "Instances a step (128).", "N", TRAINING),
    Setting("optimizer", "adam or sgd (adam).", "NAME", TRAINING),
    Setting("lr", "Learning rate (the method's own).", "RATE", TRAINING),
    Setting("weight_decay", "Decoupled weight decay (0).", "RATE", TRAINING),
    Setting("schedule", "tail, cosine or constant (tail).", "NAME", TRAINING),
    Setting("augment", "paper, geometric or none (none).", "NAME", TRAINING),
    Setting(
        "held_out",
        "Share of bags held out: the epoch with their best likelihood is kept.",
        "SHARE",
        TRAINING,
    ),
    Setting("patience", "Stop after so many epochs without a better one.", "N", TRAINING),
    Setting("test_fraction", "Share of bags kept for testing.", "SHARE", TRAINING),
    Setting("seed", "All randomness follows from it (0).", "N", TRAINING),
    Setting("device", "auto, cpu, cuda, cuda:1, … (auto).", "NAME", MACHINE),
    Setting("precision", "32-true, bf16-mixed, 16-mixed or auto (auto).", "NAME", MACHINE),
    Setting("resident", "Keep all data on the device: true, false or auto.", "WHICH", MACHINE),
    Setting("cuda_graph", "Replay steps as a CUDA graph (true).", "true|false", MACHINE),
    Setting("compile", "Compile the network; pays in long runs on a GPU.", "true|false", MACHINE),
    Setting("workers", "Processes that read image files (2).", "N", MACHINE),
    Setting("threads", "CPU threads (as torch chooses).", "N", MACHINE),
]
OF_NEW_DATA = [
    "data.options",
    "data.data_dir",
    "data.bag_size",
    "data.counts_table",
    "data.image_root",
    "data.image_size",
    "data.skip_bad",
    "data.label",
]

Command = Callable[..., None]


def takes(paths: Collection[str]) -> Callable[[Command], Command]:
    """Give a command these settings as options; it gets those that were given as a mapping."""

    def wrap(command: Command) -> Command:
        settings = [setting for setting in SETTINGS if setting.path in paths]
        parameters = [s.parameter() for s in settings]

        @functools.wraps(command)
        def wrapped(**arguments: Any) -> None:
            values = {
                s.path: arguments.pop(p.name) for s, p in zip(settings, parameters, strict=True)
            }
            given = {path: v for path, v in values.items() if v not in (None, [], ())}
            for path in ("data.options", "method_options", "estimator_options"):
                if path in given:
                    given[path] = _pairs(given[path])
            command(**arguments, given=given)

        own = inspect.signature(command, eval_str=True).parameters.values()
        kept = [parameter for parameter in own if parameter.name != "given"]
        wrapped.__signature__ = inspect.Signature([*kept, *parameters])  # type: ignore[attr-defined]
        return wrapped

    return wrap


Threshold = Annotated[float, typer.Option(help="Label positive from this probability on.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
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
    try:
        app(given, prog_name="llpkit", obj=given)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except LLPError as error:
        return _fail(str(error))
    except OSError as error:  # a full disk, a folder without permission
        return _fail(" ".join(filter(None, [error.strerror or str(error), _named(error)])))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not re.search("out of|allocate memory", str(error)):
            raise
        return _fail("not enough memory; use a smaller batch size, less data or --resident false")
    return 0


def _named(error: OSError) -> str:
    return f"({error.filename})" if error.filename else ""


def _fail(message: str) -> int:
    from rich.text import Text

    _console(stderr=True).print(Text(message, style="red"), soft_wrap=True)
    return USER_ERROR


def _console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def _note(text: str) -> None:
    from rich.text import Text

    _console(stderr=True).print(Text(text, style="yellow"), soft_wrap=True)


def _version(asked: bool) -> None:
    if asked:
        from llpkit import __version__

        typer.echo(f"llpkit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("llpkit-demo"),
    seeds: Annotated[int, typer.Option(help="Runs of each method, for the bands.", min=1)] = 5,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of each run.", min=1, show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed and few epochs.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train all methods on handwritten digits and show what they learnt.

    Odd against even, in bags of 1 to 12 digits; only the number of odd ones in a bag is known. It
    takes about two minutes on two cores, needs no download, and ends with a table and a page.

    [bold]Examples[/bold]

      llpkit demo
      llpkit demo --seeds 5 --out demo-5
      llpkit demo --quick
    """
    from llpkit import demo as show

    with _demo_progress(quiet) as progress:
        result = show.demo(out, seeds=seeds, epochs=epochs, quick=quick, callback=progress)
    if not quiet:
        _console().print(_summary(result.rows))
    typer.echo(result.page)


@app.command()
@takes([setting.path for setting in SETTINGS])
def fit(
    *,
    ctx: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            help="A configuration (.yaml), or a table (CSV or Parquet, one row an instance).",
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
    metrics.csv, environment.json, figures and report.html. A network's run that was stopped goes on
    with --resume, to the same weights.

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

    names = {setting.path: setting.name for setting in SETTINGS if setting.path in given}
    file: dict[str, Any] = {}
    if source is not None:
        if Path(source).suffix.lower() in (".yaml", ".yml"):
            file = settings.read(Path(source))
        elif "data.table" in given:
            raise LLPError(f"two tables, {source} and {given['data.table']}; give one")
        else:
            given["data.table"], names["data.table"] = source, "table"
    if resume and out is not None and not file and "data.table" not in given:
        file = runs.unfinished(out) or {}
    if resume and out is not None and (out / runs.CONFIG).exists() and not force:
        typer.echo(f"{out} is finished; there is nothing to resume")
        return
    config = settings.check(settings.merge(file, given), options=names)
    what = config.data.dataset or Path(config.data.table or "").stem
    folder = out or Path("runs") / f"{what}-{config.estimator or config.method}-{config.seed}"
    try:
        with _fit_progress(config.method, quiet) as callbacks:
            done = runs.fit(
                config,
                folder,
                resume=resume,
                force=force,
                command=shlex.join(["llpkit", *(ctx.obj or [])]),
                callbacks=callbacks,
            )
    except KeyboardInterrupt:
        if (runs.partial_of(folder) / runs.CHECKPOINT).exists():
            _note(f"stopped; go on with: llpkit fit --resume --out {shlex.quote(str(folder))}")
        raise
    if quiet:
        return
    for line in done.notes:
        _note(line)
    _console().print(_measures(done.measures))
    if config.held_out is not None and config.estimator is None:
        typer.echo(f"kept epoch {done.model.chosen_epoch}, the best for held-out bags")
    typer.echo(f"run: {folder}\npage: {folder / runs.REPORT}")


@app.command()
@takes([path for path in OF_NEW_DATA if path != "data.label"])
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
    quiet: Quiet = False,
    given: dict[str, Any],
) -> None:
    """Write a table back with probability, label and posterior of every row.

    [bold]probability[/bold] is the model's; [bold]label[/bold] is 1 from the threshold on;
    [bold]posterior[/bold] is the probability given also the counts of the row's bag, where the
    table has them. With more than two classes there is one column of each a class, and the label
    is the name of the most probable one.

    [bold]Examples[/bold]

      llpkit predict runs/people new.csv --out predicted.csv
      llpkit predict runs/people new.parquet --out predicted.parquet --threshold 0.3
      llpkit predict runs/digits digits --out digits.csv
    """
    from llpkit import runs

    if out.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise LLPError(f"{out} is neither .csv nor .parquet; choose one of the two")
    run = runs.open_run(run_dir, device)
    found = runs.predict(run, runs.data_of(run, source, given), threshold)
    runs.write_predictions(found, out, prefix)
    if not quiet:
        for line in found.notes:
            _note(line)
        names = ", ".join(f"{prefix}{name}" for name in found.columns)
        typer.echo(f"{len(found.table):,} rows with {names}: {out}")


@app.command()
@takes(OF_NEW_DATA)
def evaluate(
    *,
    run_dir: RunDir,
    source: Source = None,
    threshold: Threshold = 0.5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    device: Device = "auto",
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

    run = runs.open_run(run_dir, device)
    own = source is None and not {"data.options", "data.bag_size"} & given.keys()
    measures = runs.evaluate(run, runs.data_of(run, source, given), threshold, by_part=own)
    if as_json:
        typer.echo(json.dumps({"run": str(run_dir), "source": source, "parts": measures}, indent=1))
    else:
        _console().print(_measures(measures))


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
    _console().print(table)
    typer.echo(f"data folder: {data_folder(data_dir)} (--data-dir or LLPKIT_DATA chooses another)")


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
    _console().print(table)


@app.command("estimators")
def list_estimators() -> None:
    """List the estimators that tables can be fitted with."""
    from rich.table import Table
    from rich.text import Text

    from llpkit.estimators._named import ESTIMATORS

    table = Table("name", "what", box=None, padding=(0, 2, 0, 0))
    for name, entry in ESTIMATORS.items():
        table.add_row(Text(name, style="bold"), Text(entry.summary))
    _console().print(table)


app.command()(cli_experiments.reproduce)
app.command()(cli_experiments.report)


# Parsing


def _pairs(texts: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` texts, each value read as YAML."""
    import yaml  # type: ignore[import-untyped]

    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise LLPError(f"{text!r} is not KEY=VALUE")
        try:
            found[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise LLPError(f"{text!r}: the value cannot be read") from error
    return found


# Printing


def _measures(parts: Mapping[str, Mapping[str, Any]]) -> Any:
    """A table of measures, a column a part."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for name in parts:
        table.add_column(name, justify="right")
    keys = dict.fromkeys(
        (group, key) for part in parts.values() for group, values in part.items() for key in values
    )
    for group, key in keys:
        label = group if key == "number" else f"  {key.replace('_', ' ').replace('auc', 'AUC')}"
        values = [part.get(group, {}).get(key) for part in parts.values()]
        table.add_row(label, *(_figure(key, value) for value in values))
    return table


def _figure(key: str, value: Any) -> str:
    if value is None:
        return "–"
    if key == "number":
        return f"{value:,}"
    return f"{100 * value:.2f} %" if key == "accuracy" else f"{value:.4f}"


def _summary(rows: Sequence[Any]) -> Any:
    """The table of methods that the demo ends with."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    heads = ("method", "accuracy %", "gap", "epoch s", "ratio", "bag log-lik", "calib. error")
    for head in heads:
        table.add_column(head, justify="left" if head == "method" else "right", no_wrap=True)

    def shown(value: float | None, pattern: str) -> str:
        return "–" if value is None else pattern.format(value)

    for row in rows:
        spread = "" if row.accuracy_sd is None else f" ± {100 * row.accuracy_sd:.1f}"
        table.add_row(
            row.method,
            "–" if row.accuracy is None else f"{100 * row.accuracy:.1f}{spread}",
            "" if row.gap is None else f"{100 * row.gap:+.1f}",
            shown(row.epoch_seconds, "{:.3f}"),
            shown(row.epoch_ratio, "{:.2f}×"),
            shown(row.log_likelihood, "{:.3f}"),
            shown(row.calibration_error, "{:.3f}"),
        )
    return table


@contextmanager
def _fit_progress(title: str, quiet: bool) -> Iterator[list[Any]]:
    from llpkit.training import Progress

    yield [] if quiet else [Progress(title)]


@contextmanager
def _demo_progress(quiet: bool) -> Iterator[Any]:
    """A bar over all runs of the demo; a line a method without a terminal."""
    console = _console(stderr=True)
    if quiet:
        yield lambda *_: None
        return
    if not console.is_terminal:

        def line(run: str, done: int, total: int, text: str) -> None:  # noqa: ARG001
            if text:
                console.print(f"{run}: {text}")

        yield line
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<22}"), BarColumn(30), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("loading", total=None)

        def step(run: str, done: int, total: int, text: str) -> None:
            bar.update(task, description=run, completed=done, total=total)
            if text:
                bar.console.print(f"{run}: {text}")

        yield step


if __name__ == "__main__":
    sys.exit(main())
