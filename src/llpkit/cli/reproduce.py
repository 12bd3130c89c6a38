"""The command ``reproduce``: parsing and printing only."""

import math
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llpkit._text import several
from llpkit._validation import number
from llpkit.cli.arguments import Quiet
from llpkit.cli.printing import echo, note, shown
from llpkit.errors import LLPError

if TYPE_CHECKING:
    from llpkit.experiments import Outcome, Protocol

FAILED = 1
_NUMBER = r"\d{1,4}"  # a protocol has at most a thousand folds
WHICH, WHERE = "What to run", "Where and how long"
_READS = {
    "list": ("quiet",),
    "merge": ("quiet", "words", "out"),
    "check": ("quiet", "words", "methods", "folds", "device", "data_dir"),
}
"""The parameters that these words read; they take no others."""


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
            help="A protocol (digits, bird-cat, group-photos, …, as shown by list) or a .yaml "
            "file; or list, check or merge.",
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
            "Folds: a count, 3 means 0-2; a range, 5-9; or a list, 0,3,7 (the protocol's).",
            WHICH,
            "FOLDS",
            "--folds",  # typer up to 0.27 makes no option if its name equals its metavar
        ),
    ] = None,
    quick: Annotated[
        bool, _option("Use few folds and epochs, to try it out.", WHICH, name="--quick")
    ] = False,
    show: Annotated[
        bool, _option("Print the protocol, as a starting point for your own.", WHICH, name="--show")
    ] = False,
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1, … (auto).", WHERE, "NAME")] = "auto",
    compiled: Annotated[
        bool, _option("Compile the network; pays off in long GPU runs.", WHERE, name="--compile")
    ] = False,
    jobs: Annotated[
        int, _option("Number of parallel runs; epoch-time always uses 1 (1).", WHERE, "N")
    ] = 1,
    backend: Annotated[
        str, _option("Backend for parallel runs: loky, ray or dask (loky).", WHERE, "NAME")
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
        _option("List the runs, and how long the rest will take.", WHERE, name="--dry-run"),
    ] = False,
    like: Annotated[
        Path | None,
        _option("With --dry-run: results folder to estimate the time from (--out).", WHERE, "DIR"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run experiments: all methods on the same folds, one record per run.

    [bold]convergence[/bold]: accuracy by epoch, cross-validated over bags.
    [bold]epoch-time[/bold]: methods take turns, each alone on the machine.
    [bold]bag-size[/bold]: accuracy in bags of 2 to 128.
    [bold]grid[/bold]: chooses each method's hyper-parameters by the likelihood
    of held-out bags; the other experiments then use them.
    [bold]all[/bold]: every experiment of the protocol, then the report.

    A results folder has one protocol. Finished runs are never repeated: to
    continue after a stop, use the same command.
    [bold]list[/bold] shows the protocols that come with llpkit.
    [bold]check[/bold] FOLDER repeats recorded runs and prints the largest difference.
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
    from llpkit.experiments import WorkerSettings, load, reproduce
    from llpkit.experiments.page import write_report
    from llpkit.experiments.protocol_file import dumps

    _refuse_unread(ctx, protocol)
    given, some = words or [], _listed(methods)
    if protocol == "list":
        _list()
        return
    if protocol == "merge":
        _merge(given, out)
        return
    if protocol == "check":
        _check(given, some, folds, device, data_dir)
        return
    chosen = load(protocol).quick() if quick else load(protocol)
    if show:
        echo(dumps(chosen).rstrip())
        return
    out = out or Path("llpkit-results", Path(protocol).stem + ("-quick" if quick else ""))
    experiments = _experiments(given, chosen)
    numbers = None if folds is None else parse_folds(folds)
    if dry_run:
        _dry_run(out, chosen, experiments, some, numbers, like)
        return
    ends = math.inf
    if time_limit is not None:
        ends = time.time() + number("--time-limit", time_limit, 0)
    typed = ctx.obj or []
    settings = WorkerSettings(
        out, chosen, device, compiled, jobs, data_dir, deadline=ends, command=_command(typed)
    )
    try:
        with shown("reproduce", quiet) as log:
            outcomes = reproduce(
                settings, experiments, methods=some, folds=numbers, backend=backend, log=log
            )
    except KeyboardInterrupt:
        again = shlex.join(["llpkit", *typed])
        note(f"stopped; finished runs are kept. Continue with: {again}")
        raise
    _summarise(outcomes, quiet)
    if "all" in given or not given:
        echo(write_report([out], data_dir=data_dir))
    if any(outcome.failed for outcome in outcomes.values()):
        raise typer.Exit(FAILED)


def _refuse_unread(ctx: typer.Context, word: str) -> None:
    """Refuse arguments and options that ``list``, ``merge`` or ``check`` would ignore."""
    for parameter in ctx.command.params if word in _READS else ():
        source = ctx.get_parameter_source(parameter.name or "")
        typed = source is not None and source.name == "COMMANDLINE"
        if typed and parameter.name not in ("protocol", "plugin", *_READS[word]):
            name = "further words" if parameter.name == "words" else parameter.opts[0]
            raise LLPError(f"reproduce {word} takes no {name}; leave it out")


def _list() -> None:
    """Print the protocols that come with llpkit."""
    from llpkit.experiments import load
    from llpkit.experiments.protocol_file import presets

    for name in presets():
        echo(f"{name}: {load(name).title}")


def _merge(folders: Sequence[str], out: Path | None) -> None:
    """Add the records of other folders to ``out``."""
    from llpkit.experiments.results import merge

    if out is None or not folders:
        raise LLPError("merge takes folders and --out; add what is missing")
    merged = merge(out, [Path(folder) for folder in folders])
    echo(f"{out}: {several(len(merged.finished), 'record')}")


def _check(
    words: Sequence[str],
    methods: Sequence[str],
    folds: str | None,
    device: str,
    data_dir: str | None,
) -> None:
    """Repeat recorded runs and print the differences: none on a CPU, small ones on a GPU."""
    from llpkit.experiments import Results, WorkerSettings
    from llpkit.experiments.check import check
    from llpkit.experiments.plan import check_plan

    if not words:
        raise LLPError("check takes a results folder; name one")
    results = Results.read(Path(words[0]))
    protocol = results.protocol
    experiments = _experiments(words[1:], protocol)
    check_plan(protocol, experiments)
    numbers = None if folds is None else parse_folds(folds)
    records = [
        record
        for experiment in experiments
        for record in results.records[experiment]
        if (numbers is None or record.fold in numbers) and (not methods or record.method in methods)
    ]
    if not records:
        raise LLPError(f"{results.folder} has no such records; name other methods or folds")
    settings = WorkerSettings(results.folder, protocol, device, data_dir=data_dir)
    agree = True
    for record in records:
        result = check(record, settings)
        agree &= result.agrees
        echo(result)
    if not agree:
        raise typer.Exit(FAILED)


def _dry_run(
    out: Path,
    protocol: "Protocol",
    experiments: Sequence[str],
    methods: Sequence[str],
    folds: Sequence[int] | None,
    like: Path | None,
) -> None:
    """Print the runs, which of them are done, and how long the others will take."""
    from llpkit.experiments import Results
    from llpkit.experiments.plan import check_plan, epoch_seconds, estimate, plan
    from llpkit.experiments.results import view

    check_plan(protocol, experiments, methods, folds)
    results = view(out, protocol)
    done, seconds = results.ids, epoch_seconds(Results.read(like) if like else results)
    for experiment in experiments:
        runs = plan(results, experiment, methods, folds)
        left = [run for run in runs if run.id not in done]
        time_left = estimate(left, seconds)
        rest = f", about {math.ceil(time_left / 60)} min for the rest" if time_left else ""
        echo(f"{experiment}: {several(len(runs), 'run')}, {len(runs) - len(left)} done{rest}")
        for run in runs:
            mark = "    " if run in left else "done"
            echo(f"  {mark} {run.title}, {run.recipe['epochs']} epochs")


def _experiments(words: Sequence[str], protocol: "Protocol") -> list[str]:
    """The experiments with these names; all of them if there are none."""
    return protocol.experiments if not words or "all" in words else list(words)


def _summarise(outcomes: Mapping[str, "Outcome"], quiet: bool) -> None:
    """Print how each experiment went, and what failed."""
    for name, outcome in outcomes.items():
        for record in outcome.failed:
            note(f"failed: {record.title}: {record.error}")
        parts = [f"{several(outcome.now, 'run')} done"]
        parts += [f"{outcome.before} before"] if outcome.before else []
        parts += [f"{len(outcome.failed)} failed"] if outcome.failed else []
        parts += [f"{outcome.left} left for the next call"] if outcome.left else []
        if not quiet:
            echo(f"{name}: {', '.join(parts)}")
    if "grid" in outcomes and outcomes["grid"].left:
        note("the other experiments use the grid's choices; run this again to finish it")


def parse_folds(text: str) -> list[int]:
    """Folds from a count, a range or a list; whether they exist is checked later.

    >>> parse_folds(" 3"), parse_folds("5-7"), parse_folds("0,4,8-9")
    ([0, 1, 2], [5, 6, 7], [0, 4, 8, 9])
    """
    text = text.strip()
    # A lone number is a count of folds; in a list it is a fold.
    listed = f"0-{int(text) - 1}" if re.fullmatch(_NUMBER, text) else text
    folds: list[int] = []
    for part in listed.split(","):
        ends = re.fullmatch(f"({_NUMBER})(?:-({_NUMBER}))?", part.strip())
        found = range(int(ends[1]), int(ends[2] or ends[1]) + 1) if ends else ()
        if not found:
            raise LLPError(
                f"--folds {text}; give a count such as 5, a range such as 0-4 or a list such as "
                "0,3,7"
            )
        folds += found
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
