"""The commands ``reproduce`` and ``report``: parsing and printing only."""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llpkit._files import place_of
from llpkit.cli._options import key_values
from llpkit.cli._printing import echo, note, terminal
from llpkit.errors import LLPError

if TYPE_CHECKING:
    from llpkit.experiments import Outcome, Place, Settings, Store

FAILED = 1
PLUGINS = "plugins"
WHICH, HOW, WHERE = "What to run", "How to train", "Where and how long"


def _option(help: str, panel: str, metavar: str = "", name: str = "") -> Any:
    names = [name] if name else []
    return typer.Option(
        *names, help=help, rich_help_panel=panel, metavar=metavar or None, show_default=False
    )


def reproduce(
    ctx: typer.Context,
    experiment: Annotated[
        str,
        typer.Argument(
            help="convergence, epoch-time, bag-size, grid, all; or check.", metavar="EXPERIMENT"
        ),
    ],
    records: Annotated[
        list[Path] | None,
        typer.Argument(help="For check: the files of records to run again.", metavar="RECORD..."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        _option(
            "cifar10, group-photos or digits; repeat (the paper's two; digits with --quick).",
            WHICH,
            "NAME",
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        _option("Such as mle,mle-pass,direct,dllp; or repeat (all).", WHICH, "NAMES"),
    ] = None,
    folds: Annotated[
        str | None,
        _option(
            "Of 0 to 9: a count, 3 for 0-2; a range, 5-9; a list, 0,3,7 (convergence 10, bag-size "
            "and epoch-time 3, grid 2).",
            WHICH,
            "FOLDS",
            "--folds",
        ),
    ] = None,
    bag_sizes: Annotated[
        str | None, _option("Of bag-size (2,4,8,16,32,64,128).", WHICH, "SIZES")
    ] = None,
    seed: Annotated[int, _option("Of bags, folds and training (0).", WHICH, "N")] = 0,
    quick: Annotated[
        bool, _option("Few folds and epochs, to see it work.", WHICH, name="--quick")
    ] = False,
    epochs: Annotated[
        int | None,
        _option("Of each run (cifar10 120, group-photos 100, digits 40; timed 10).", HOW, "N"),
    ] = None,
    batch_size: Annotated[
        int | None, _option("Instances a step (128; digits: 32).", HOW, "N")
    ] = None,
    lr: Annotated[
        float | None,
        _option("Of every method, without weight decay, in place of any choice.", HOW, "RATE"),
    ] = None,
    no_grid: Annotated[
        bool, _option("Stated defaults, whatever a grid has chosen.", HOW, name="--no-grid")
    ] = False,
    method_option: Annotated[
        list[str] | None,
        _option("An option of a method, mle.refresh=pass; repeat.", HOW, "METHOD.KEY=VALUE"),
    ] = None,
    network: Annotated[
        str | None, _option("For all methods but llp-gan (conv-large; digits: mlp).", HOW, "NAME")
    ] = None,
    augment: Annotated[
        str | None, _option("paper, geometric or none (paper; digits: none).", HOW, "NAME")
    ] = None,
    size: Annotated[
        str | None, _option("Of group photos: full, 72x90, or half (full).", HOW, "SIZE", "--size")
    ] = None,
    precision: Annotated[
        str | None,
        _option("32-true, bf16-mixed, 16-mixed (bf16-mixed; digits: 32-true).", HOW, "NAME"),
    ] = None,
    held_out: Annotated[
        float | None,
        _option("Share of training bags to select an epoch by, beside the last.", HOW, "SHARE"),
    ] = None,
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1, … (auto).", WHERE, "NAME")] = "auto",
    compiled: Annotated[
        bool, _option("Compile the network; pays in long runs on a GPU.", WHERE, name="--compile")
    ] = False,
    jobs: Annotated[int, _option("Runs side by side; epoch-time runs alone (1).", WHERE, "N")] = 1,
    backend: Annotated[
        str, _option("What they run on: loky, ray or dask (loky).", WHERE, "NAME")
    ] = "loky",
    time_limit: Annotated[
        float | None, _option("Start no run after so long.", WHERE, "SECONDS")
    ] = None,
    data_dir: Annotated[
        str | None, _option("Folder of the data (LLPKIT_DATA, else a cache).", WHERE, "DIR")
    ] = None,
    out: Annotated[
        list[Path] | None,
        _option("Results folder; more are only read; repeat (llpkit-results).", WHERE, "DIR"),
    ] = None,
    dry_run: Annotated[
        bool, _option("List the runs and which are done.", WHERE, name="--dry-run")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Run the paper's experiments: every method, the same folds, one record per run.

    [bold]convergence[/bold]: accuracy by epoch, cross-validated over bags.
    [bold]epoch-time[/bold]: each method alone on the machine, in turns.
    [bold]bag-size[/bold]: accuracy against bags of 2 to 128.
    [bold]grid[/bold]: hyper-parameters of each method by the likelihood of
    held-out bags, which the others then take.
    [bold]all[/bold]: these, then the page.
    [bold]check[/bold]: run records again and tell the largest difference.

    What is done is never run again: a stopped grid goes on with the same
    command, two calls on one folder share the work, and folders of several
    machines are merged by copying them together. Accuracy is the last epoch's.
    mle-pass is mle as in the paper: its targets come from an extra pass.

    [bold]Examples[/bold]

      llpkit reproduce all --quick
      llpkit reproduce grid --dataset cifar10 --device cuda --jobs 6
      llpkit reproduce convergence --dataset cifar10 --device cuda --jobs 6
      llpkit reproduce convergence --dataset cifar10 --folds 0-4 --dry-run
      llpkit reproduce bag-size --dataset cifar10 --methods mle,direct --folds 3
      llpkit --plugin mine.py reproduce convergence --methods mine,mle,dllp
      llpkit reproduce check llpkit-results/records/convergence/*.json
      llpkit report llpkit-results
    """
    from llpkit.experiments import (
        EXPERIMENTS,
        Place,
        Settings,
        Store,
        deadline,
        everything,
        parse_folds,
        plan,
        write_report,
    )

    if experiment not in (*EXPERIMENTS, "all", "check"):
        raise LLPError(f"{experiment!r} is none of {', '.join(EXPERIMENTS)}, all and check")
    if (experiment == "check") != bool(records):
        raise LLPError("check takes the files of records, and nothing else does")
    store = Store([place_of("--out", path) for path in out or [Path("llpkit-results")]])
    ends, command = deadline(time_limit), _command(ctx.obj or [])
    place = Place(
        tuple(store.folders),
        device,
        compiled,
        jobs,
        data_dir,
        ends,
        command=command,
        plugins=tuple(ctx.meta.get(PLUGINS, ())),
    )
    if experiment == "check":
        _check(records or [], place)
        return
    names = _listed(dataset) or (["digits"] if quick else ["cifar10", "group-photos"])
    every = [
        Settings(
            dataset=name,
            methods=_listed(methods),
            folds=None if folds is None else parse_folds(folds),
            epochs=epochs,
            batch_size=batch_size,
            network=network,
            augment=augment,
            precision=precision,
            size=size if name == "group-photos" or len(names) == 1 else None,
            lr=lr,
            held_out=held_out,
            seed=seed,
            bag_sizes=_whole_numbers(bag_sizes),
            method_options=_method_options(method_option or []),
            quick=quick,
            grid=not no_grid,
        )
        for name in names
    ]
    parts = [everything(s) if experiment == "all" else [(experiment, s)] for s in every]
    failed = 0
    for part, settings in (pair for pairs in parts for pair in pairs):
        plan(part, settings)  # what cannot be is told before anything runs
    _check_used(experiment, bag_sizes=bag_sizes, held_out=held_out, backend=backend)
    for path, reason in () if dry_run else store.set_aside():
        note(f"a damaged record is now {path} ({reason})")
    if not dry_run:
        _look_for([pairs[0] for pairs in parts], store, data_dir)
    for pairs in parts:
        for part, settings in pairs:
            if dry_run:
                _list(part, settings, store, compiled)
                continue
            try:
                done = _experiment(part, settings, store, place, backend, quiet)
            except KeyboardInterrupt:
                note(f"stopped; what is done is kept. Go on with: {shlex.join(_typed(ctx))}")
                raise
            failed += len(done.failed)
            if part == "grid" and done.left and len(pairs) > 1:
                note(f"the other experiments on {settings.dataset} wait for its grid")
                break
    if dry_run:
        return
    if experiment == "all" and any(store.read()):
        echo(write_report(store, data_dir=data_dir, command=command))
    if failed:
        raise typer.Exit(FAILED)


def report(
    ctx: typer.Context,
    results: Annotated[
        list[Path],
        typer.Argument(help="Folders that llpkit reproduce wrote.", metavar="RESULTS..."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Where to write (report in the first folder).",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(
            help="Folder of the data, for the pictures of an example (LLPKIT_DATA, else a cache).",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Draw the records of one or more folders: a page, figures and tables.

    Learning curves, accuracies, paired differences, time to accuracy,
    calibration, epoch times and accuracy against bag size, for whatever there
    are records of. The page needs no network; the figures are there as PNG
    and PDF, the tables as CSV and Markdown.

    [bold]Examples[/bold]

      llpkit report llpkit-results
      llpkit report from-one-machine from-another --out report
    """
    from llpkit.experiments import Store, write_report

    for folder in results:
        if not (folder / "records").is_dir():
            raise LLPError(f"{folder} holds no records; give a folder of llpkit reproduce")
    out = None if out is None else place_of("--out", out)
    echo(write_report(Store(results), out, data_dir, _command(ctx.obj or [])))


def _check_used(experiment: str, *, bag_sizes: object, held_out: object, backend: str) -> None:
    """An error where an option would change nothing."""
    if bag_sizes is not None and experiment not in ("bag-size", "all"):
        raise LLPError(f"--bag-sizes is of bag-size, and {experiment} has bags of its own")
    if held_out is not None and experiment in ("grid", "epoch-time"):
        has = "always holds out a tenth" if experiment == "grid" else "selects no epoch"
        raise LLPError(f"{experiment} {has}: leave out --held-out")
    if backend != "loky" and experiment == "epoch-time":
        raise LLPError("epoch-time runs alone, in this process: leave out --backend")


def _look_for(
    parts: Sequence[tuple[str, "Settings"]], store: "Store", data_dir: str | None
) -> None:
    """An error where one of several data sets is missing, before the work on the others."""
    from llpkit.experiments import plan
    from llpkit.experiments._work import load

    if len(parts) > 1:
        begun = {record["run"]["dataset"] for record in store.read()}
        for part, settings in parts:
            if settings.dataset not in begun:
                load(plan(part, settings)[0], data_dir)


def _experiment(
    part: str, settings: "Settings", store: "Store", place: "Place", backend: str, quiet: bool
) -> "Outcome":
    """Run one experiment and say how it went."""
    from llpkit.experiments import Run, reproduce, where_from
    from llpkit.experiments._progress import Lines, Live
    from llpkit.experiments._tables import counted

    console = terminal(stderr=True)
    display = None if quiet else (Live if console.is_terminal else Lines)(console)
    if part != "grid" and not quiet:
        note(where_from(settings, store, part))
    done = reproduce(part, settings, store, place, backend=backend, display=display)
    for record in done.failed:
        note(f"failed: {Run.of(record).title}: {record['error']}")
    if not quiet:
        told = [f"{counted(done.now, 'run')} done"]
        told += [f"{done.elsewhere} by another call"] if done.elsewhere else []
        told += [f"{done.before} before"] if done.before else []
        told += [f"{len(done.failed)} failed"] if done.failed else []
        told += [f"{done.left} left for the next call"] if done.left else []
        echo(f"{part} on {settings.dataset}: {', '.join(told)}")
    return done


def _check(records: Sequence[Path], place: "Place") -> None:
    """Run records again and say what differs: on a CPU nothing should, on a GPU little."""
    from llpkit.experiments import check
    from llpkit.experiments._machine import turn

    failures = [path for path in records if path.name.endswith(".error.json")]
    for path in failures:
        note(f"{path} is left out: it tells of a run that failed")
    if len(failures) == len(records):
        raise LLPError("there is no record to check, only runs that failed; run them again first")
    found = []
    with turn(False, math.inf, note):
        for path in records:
            if path not in failures:
                found.append(check(path, place))
                echo(found[-1].told)
    if not all(each.agrees for each in found):
        raise typer.Exit(FAILED)


def _list(part: str, settings: "Settings", store: "Store", compiled: bool) -> None:
    from llpkit.experiments import planned
    from llpkit.experiments._tables import counted

    runs = planned(part, settings, store, compiled)
    done = [store.done(run) for run in runs]
    echo(f"{part} on {settings.dataset}: {counted(len(runs), 'run')}, {sum(done)} done")
    for run, finished in zip(runs, done, strict=True):
        echo(f"  {'done' if finished else '    '} {run.id} {run.title}, {run.epochs} epochs")


def _typed(ctx: typer.Context) -> list[str]:
    """What was typed, word for word."""
    return ["llpkit", *(ctx.obj or [])]


def _command(arguments: Sequence[str]) -> str:
    """What was typed, less where things are: options that name folders, and all above a folder."""
    kept, skip = ["llpkit"], False
    folders = ("--out", "-o", "--data-dir")
    for word in arguments:
        name = word.partition("=")[0]
        if not skip and name not in folders:
            kept.append(Path(word).name if Path(word).is_absolute() else word)
        skip = not skip and word in folders
    return shlex.join(kept)


def _listed(texts: str | Sequence[str] | None) -> list[str]:
    """Names given with commas, by repetition, or both."""
    given = [texts] if isinstance(texts, str) else texts or []
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def _whole_numbers(text: str | None) -> list[int] | None:
    try:
        return [int(word) for word in _listed(text)] or None
    except ValueError as error:
        raise LLPError(f"--bag-sizes {text} is no list of numbers such as 2,4,8") from error


def _method_options(texts: Sequence[str]) -> dict[str, dict[str, Any]]:

    found: dict[str, dict[str, Any]] = {}
    for name, value in key_values(texts).items():
        method, dot, key = name.partition(".")
        if not dot:
            raise LLPError(
                f"{name!r} names no method; write METHOD.KEY=VALUE, mle.refresh=pass say"
            )
        found.setdefault(method, {})[key] = value
    return found
