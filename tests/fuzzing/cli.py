"""Command lines with junk options: each ends with an answer or with one message."""

import contextlib
import functools
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from fuzzing.scoring import Score, fail

LINES = 5
"""Command lines in one round."""

TABLE = "b,y,x,k\n" + "".join(f"{i // 3},1,{i % 7},{'uvw'[i % 3]}\n" for i in range(24))
COLUMNS, SMALL = ("--bag", "b", "--count", "y"), ("--network", "linear", "--epochs", "1")
PLAN = ("digits", "convergence", "--quick", "--methods", "mle", "--folds", "1")

NUMBERS = ("-1", "0", "0.0", "1", "2.5", "1e999", "-1e999", "nan", "1e-320", "9" * 30, "100000")
TEXTS = (
    "",
    " ",
    "abc",
    "x" * 10_000,
    "é😀",
    "\udcff",
    "\x1b[31m",
    "-",
    "--",
    "=",
    "a=",
    "=a",
    "%s",
)
YAMLS = ("2020-13-45", "[", "{", "&a *a", "!!python/object:os.system {}", "[[1], {a: 2}]", "null")
PATHS = (".", "..", "/", "~", "folder", "missing", "missing/file.csv", "table.csv", "run", "a.yaml")
WORDS = ("mps", "cpu:7", "cuda:99", "cpu", "auto", "true", "1-12", "12-1", "64x64", "b", "y", "k")
WORDS += ("logistic", "dllp", "supervised", "sgd", "cosine", "mlp", "bf16-mixed", "digits")
SLOW = {("--epochs", "100000"), ("--compile", "true"), ("--compile", "1")}
"""Options that are no junk, but take long."""
JUNK = (*NUMBERS, *TEXTS, *YAMLS, *PATHS, *WORDS)

# Each with all it needs, and nothing that takes long: demo and report end at a foreign folder and
# at a folder without records, and no run of an experiment begins after 0 seconds.
COMMANDS: dict[str, tuple[str, ...]] = {
    "fit": ("table.csv", *COLUMNS, *SMALL, "--quiet", "--force", "--out", "out"),
    "predict": ("run", "table.csv", "--out", "p.csv", "--quiet"),
    "evaluate": ("run", "table.csv"),
    "reproduce": (*PLAN, "--time-limit", "0", "--out", "runs", "--quiet"),
    "report": ("results", "--out", "page"),
    "demo": ("--quick",),
    "datasets": (),
    "methods": (),
    "estimators": (),
}


@functools.cache
def _prepared() -> Path:
    """A folder with a table and a run, made once; rounds work in copies of it."""
    folder = Path(tempfile.mkdtemp(prefix="llpkit-fuzz-"))
    (folder / "table.csv").write_text(TABLE)
    (folder / "folder").mkdir()
    (folder / "folder" / "kept.txt").write_text("mine")
    (folder / "results").mkdir()
    data = {"table": "table.csv", "bag": "b", "count": "y"}
    (folder / "a.yaml").write_text(json.dumps({"data": data, "network": "linear", "epochs": 1}))
    with contextlib.chdir(folder), _without_pages():
        assert _check(["fit", *COMMANDS["fit"][:-1], "run"]) == 0
    return folder


@contextlib.contextmanager
def _without_pages() -> Iterator[None]:
    """Pages take most of the time of a small run and see nothing of the options."""
    page = "llpkit.runs.page.write_report"
    with patch(page, lambda work, *_: (work / "report.html").touch()):
        yield


def _junk_command_line(rng: Random) -> list[str]:
    """A command with some of its options or arguments replaced by junk."""
    import typer

    from llpkit.cli import app

    group: Any = typer.main.get_command(app)
    name = rng.choice([*COMMANDS, "fit", "fit", "fit", "predict", "evaluate", "reproduce"])
    words, command = list(COMMANDS[name]), group.commands[name]
    options = [p for p in command.params if p.param_type_name == "option"]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.random()
        if options and kind < 0.85:
            words += _option(rng, rng.choice(options))
        elif words and kind < 0.95:
            words[rng.randrange(len(words))] = rng.choice(JUNK)
        else:
            words.append(rng.choice(JUNK))
    before = ["--plugin", rng.choice(JUNK)] if rng.random() < 0.02 else []
    if name == "demo":
        words += ["--out", "folder"]  # it is refused at once: it holds something else
    slow = [i for i, pair in enumerate(pairwise(words), 1) if pair in SLOW]
    words = ["9" * 30 if i in slow else word for i, word in enumerate(words)]
    return [*before, name, *words]


def _option(rng: Random, option: Any) -> list[str]:
    flag = rng.choice([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return [flag]
    value = rng.choice(JUNK)
    if (option.metavar or "").endswith("KEY=VALUE") and rng.random() < 0.8:
        keys = ("a", "mle.step", "step", "approximation", "floor", "classes", "split")
        value = f"{rng.choice(keys)}={value}"
    return [flag, value]


def _check(arguments: list[str]) -> int:
    """Run the command line in this process; the exit status. Anything but an answer raises."""
    from llpkit.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    assert code in (0, 1, 2), code
    assert "Traceback" not in out.getvalue() + err.getvalue()
    assert code == 0 or err.getvalue().strip(), "it failed without a word"
    return code


def case(rng: np.random.Generator, score: Score) -> None:
    """One round."""
    draw = Random(int(rng.integers(2**62)))
    with tempfile.TemporaryDirectory(prefix="llpkit-fuzz-") as place:
        folder = Path(place) / "work"
        shutil.copytree(_prepared(), folder)
        with contextlib.chdir(folder), _without_pages():
            for _ in range(LINES):
                arguments = _junk_command_line(draw)
                try:
                    code = _check(arguments)
                except Exception as error:
                    fail(f"{type(error).__name__}: {error}", arguments=arguments)
                if Path("folder", "kept.txt").read_text() != "mine":
                    fail("a file of the user has changed", arguments=arguments)
                if code == 0:
                    score.confirm()
                else:
                    score.refuse()
