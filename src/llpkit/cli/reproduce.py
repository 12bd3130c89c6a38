"""The command ``reproduce``: parsing and printing only."""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llpkit._text import several
from llpkit._validation import whole
from llpkit.cli.plugins import loaded
from llpkit.cli.printing import echo, note
from llpkit.cli.progress import display_of
from llpkit.errors import LLPError

if TYPE_CHECKING:
    from llpkit.experiments import Outcome, Results, Worker

FAILED = 1
WHICH, WHERE = "What to run", "Where and how long"


def _option(help: str, panel: str, metavar: str = "", name: str = "") -> Any:
    names = [name] if name else []
    return typer.Option(
        *names, help=help, rich_help_panel=panel, metavar=metavar or None, show_default=False
    )


def reproduce(
    ctx: typer.Context,
    protocol: Annotated[
        str,
        typer.Argument(
            help="digits, bird-cat, group-photos, another that list shows, or a .yaml file; or "
            "list, check or merge.",
            metavar="PROTOCOL",
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="convergence, grid, bag-size, epoch-time or all (all).",
            metavar="[EXPERIMENT]",
            show_default=False,
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        _option("Methods to run, such as mle,direct,dllp (the protocol's).", WHICH, "NAMES"),
    ] = None,
    folds: Annotated[
        str | None,
        _option(
            "A count, 3 for 0-2; a range, 5-9; a list, 0,3,7 (the protocol's).",
            WHICH,
            "FOLDS",
            "--folds",  # typer up to 0.27 makes no option if its name equals its metavar
        ),
    ] = None,
    quick: Annotated[
        bool, _option("Few folds and epochs, to try it out.", WHICH, name="--quick")
    ] = False,
    show: Annotated[
        bool, _option("Print the protocol, as a start for your own.", WHICH, name="--show")
    ] = False,
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1, … (auto).", WHERE, "NAME")] = "auto",
    compiled: Annotated[
        bool,
        _option("Compile the network; pays off in long GPU runs.", WHERE, name="--compile"),
    ] = False,
    jobs: Annotated[int, _option("Parallel runs; epoch-time runs alone (1).", WHERE, "N")] = 1,
    backend: Annotated[
        str, _option("What runs them in parallel: loky, ray or dask (loky).", WHERE, "NAME")
    ] = "loky",
    time_limit: Annotated[
        float | None, _option("Stop after this long; the same command continues.", WHERE, "SECONDS")
    ] = None,
    data_dir: Annotated[
        str | None, _option("Folder of the data (LLPKIT_DATA, else a cache).", WHERE, "DIR")
    ] = None,
    out: Annotated[
        Path | None, _option("Results folder (llpkit-results/PROTOCOL).", WHERE, "DIR")
    ] = None,
    dry_run: Annotated[
        bool,
        _option("List the runs, and how long the remaining ones take.", WHERE, name="--dry-run"),
    ] = False,
    like: Annotated[
        Path | None,
        _option("With --dry-run: results to estimate the time from (--out).", WHERE, "DIR"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Run experiments: all methods on the same folds, one record per run.

    [bold]convergence[/bold]: accuracy by epoch, cross-validated over bags.
    [bold]epoch-time[/bold]: methods take turns, each alone on the machine.
    [bold]bag-size[/bold]: accuracy in bags of 2 to 128.
    [bold]grid[/bold]: chooses each method's hyper-parameters by the likelihood
    of held-out bags; the other experiments then use them.
    [bold]all[/bold]: every experiment of the protocol, then the page.

    A results folder has one protocol. Finished runs are never repeated: to
    continue after a stop, use the same command.
    [bold]list[/bold] shows the protocols that come with llpkit.
    [bold]check[/bold] FOLDER runs records again and prints the largest difference.
    [bold]merge[/bold] FOLDER... adds the records of other machines to --out.

    [bold]Examples[/bold]

      llpkit reproduce digits --quick
      llpkit reproduce bird-cat grid --device cuda --jobs 6
      llpkit reproduce bird-cat convergence --folds 0-4 --dry-run
      llpkit reproduce bird-cat-sizes bag-size --dry-run --like results/bird-cat
      llpkit reproduce bird-cat --show > mine.yaml
      llpkit reproduce mine.yaml convergence --methods mine,mle --plugin mine.py
      llpkit reproduce check llpkit-results/bird-cat convergence --folds 0-0
      llpkit reproduce merge from-one from-another --out both
      llpkit report llpkit-results/bird-cat
    """
    from llpkit.experiments import Results, Worker, load, reproduce
    from llpkit.experiments.execute import deadline
    from llpkit.experiments.protocol_file import presets
    from llpkit.experiments.results import merge, view

    given = words or []
    if protocol == "list":
        for name in presets():
            echo(f"{name}: {load(name).title}")
        return
    if protocol == "merge":
        if out is None or not given:
            raise LLPError("merge takes folders and --out; add what is missing")
        done = merge(out, [Path(word) for word in given])
        echo(f"{out}: {several(sum(map(len, done.records.values())), 'record')}")
        return
    command, ends = _command(ctx.obj or []), deadline(time_limit)
    if protocol == "check":
        if not given:
            raise LLPError("check takes a results folder; name one")
        results = Results.read(Path(given[0]))
        worker = Worker(results.folder, results.protocol, device, data_dir=data_dir)
        _check(results, worker, given[1:], _listed(methods), folds)
        return
    plan = load(protocol).quick() if quick else load(protocol)
    if show:
        from llpkit.experiments.protocol_file import dumps

        echo(dumps(plan).rstrip())
        return
    out = out or Path("llpkit-results", Path(protocol).stem + ("-quick" if quick else ""))
    experiments = _experiments(given, plan.experiments)
    most = min([plan.fold_limit(name) for name in experiments if name != "grid"] or [plan.folds])
    chosen = None if folds is None else parse_folds(folds, most)
    worker = Worker(
        out, plan, device, compiled, jobs, data_dir, ends, command=command, plugins=loaded(ctx)
    )
    if dry_run:
        times = Results.read(like) if like else view(out, plan)
        _list(view(out, plan), times, experiments, _listed(methods), chosen)
        return
    try:
        outcomes = reproduce(
            worker,
            experiments,
            methods=_listed(methods),
            folds=chosen,
            backend=backend,
            display=display_of(quiet),
        )
    except KeyboardInterrupt:
        again = shlex.join(["llpkit", *(ctx.obj or [])])
        note(f"stopped; finished runs are kept. Continue with: {again}")
        raise
    _summarise(outcomes, quiet)
    if "all" in given or not given:
        from llpkit.experiments.page import write_report

        echo(write_report([out], data_dir=data_dir))
    if any(outcome.failed for outcome in outcomes.values()):
        raise typer.Exit(FAILED)


def _experiments(given: Sequence[str], known: Sequence[str]) -> list[str]:
    for word in given:
        if word not in (*known, "all"):
            raise LLPError(
                f"{word!r} is not an experiment of this protocol; choose {', '.join(known)} or all"
            )
    return list(known) if not given or "all" in given else list(given)


def _summarise(outcomes: Mapping[str, "Outcome"], quiet: bool) -> None:
    """Print how each experiment went, and what failed."""
    for name, done in outcomes.items():
        for record in done.failed:
            note(f"failed: {record.method}, fold {record.fold}: {record.error}")
        parts = [f"{several(done.now, 'run')} done"]
        parts += [f"{done.before} before"] if done.before else []
        parts += [f"{len(done.failed)} failed"] if done.failed else []
        parts += [f"{done.left} left for the next call"] if done.left else []
        if not quiet:
            echo(f"{name}: {', '.join(parts)}")
    if "grid" in outcomes and outcomes["grid"].left:
        note("the other experiments use what the grid chooses; call again to finish it")


def _check(
    results: "Results",
    worker: "Worker",
    words: Sequence[str],
    methods: Sequence[str],
    folds: str | None,
) -> None:
    """Repeat recorded runs and print the differences: none on a CPU, small ones on a GPU."""
    from llpkit.experiments.check import check

    experiments = _experiments(words, results.protocol.experiments)
    most = max(map(results.protocol.fold_limit, experiments))
    chosen = None if folds is None else parse_folds(folds, most)
    wanted = [
        record
        for experiment in experiments
        for record in results.records[experiment]
        if (not methods or record.method in methods) and (chosen is None or record.fold in chosen)
    ]
    if not wanted:
        raise LLPError(f"{results.folder} has no such records; name other methods or folds")
    agrees = True
    for record in wanted:
        found = check(record, worker)
        agrees &= found.agrees
        echo(found)
    if not agrees:
        raise typer.Exit(FAILED)


def _list(
    results: "Results",
    times: "Results",
    experiments: Sequence[str],
    methods: Sequence[str],
    folds: Sequence[int] | None,
) -> None:
    from llpkit.experiments.estimate import epoch_seconds, estimate
    from llpkit.experiments.plan import plan

    done, seconds = results.ids, epoch_seconds(times)
    for experiment in experiments:
        runs = plan(results, experiment, methods, folds)
        number = sum(run.id in done for run in runs)
        left = estimate((run for run in runs if run.id not in done), seconds)
        rest = f", about {math.ceil(left / 60)} min for the rest" if left else ""
        echo(f"{experiment}: {several(len(runs), 'run')}, {number} done{rest}")
        for run in runs:
            echo(
                f"  {'done' if run.id in done else '    '} {run.title}, {run.recipe.epochs} epochs"
            )


def parse_folds(text: str, number: int) -> list[int]:
    """Folds from a count, a range or a list.

    >>> parse_folds("3", 10), parse_folds("5-7", 10), parse_folds("0,4,8-9", 10)
    ([0, 1, 2], [5, 6, 7], [0, 4, 8, 9])
    """
    folds: list[int] = []
    try:
        # A lone number is a count of folds; in a list it is a fold.
        if text.strip().isdecimal():
            return list(range(whole("--folds", int(text), 1, number)))
        for part in filter(None, text.split(",")):
            first, dash, last = part.partition("-")
            ends = whole("--folds", int(first), 0, number - 1), int(last if dash else first)
            folds += range(ends[0], whole("--folds", ends[1], ends[0], number - 1) + 1)
    # int() failed on a part; the message below has the remedy.
    except ValueError as error:
        if isinstance(error, LLPError):
            raise
    if not folds:
        raise LLPError(
            f"--folds {text}; give a count such as 5, a range such as 0-4 or a list such as 0,3,7"
        )
    return list(dict.fromkeys(folds))


def _command(arguments: Sequence[str]) -> str:
    """The command as typed, without folder options and the parents of absolute paths."""
    kept, skip = ["llpkit"], False
    folders = ("--out", "-o", "--data-dir")
    for word in arguments:
        name = word.partition("=")[0]
        if not skip and name not in folders:
            kept.append(Path(word).name if Path(word).is_absolute() else word)
        skip = not skip and word in folders
    return shlex.join(kept)


def _listed(texts: Sequence[str] | None) -> list[str]:
    """Names given with commas, by repetition, or both."""
    return [name.strip() for text in texts or [] for name in text.split(",") if name.strip()]
