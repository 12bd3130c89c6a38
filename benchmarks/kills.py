"""Kill llpkit at its file operations and inside its epochs, and see that nothing is lost.

    python benchmarks/kills.py                    # 200 kills of fit, 50 of reproduce, two processes
    python benchmarks/kills.py --fits 20 --reproduces 0

Every child is forked from this process, which has everything imported, so a kill costs a second or
two. A Python audit hook counts the file operations of the child (files opened for writing, renames,
removals, new folders) and sends SIGKILL before one of them, or after truncating the file that is
about to be renamed to half; other kills come at random moments after the first operation. Then the
same command continues with ``--resume``, and its weights must equal those of an uninterrupted run
bit for bit. Needs fork, so Linux or macOS.
"""

import argparse
import contextlib
import csv
import io
import json
import os
import random
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FIT = (
    *("fit", "--dataset", "synthetic", "--data-option", "rows=60", "--network", "linear"),
    *("--epochs", "12", "--held-out", "0.2", "--threads", "1", "--device", "cpu", "--quiet"),
    *("--out", "run"),
)
REPRODUCE = (
    *("reproduce", "digits", "convergence", "--quick", "--methods", "mle,direct"),
    *("--folds", "0-1", "--device", "cpu", "--out", "results"),
)
_OPERATIONS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


@dataclass
class Blow:
    """What happens to a child, and when."""

    operation: int = 0
    """Kill it before this file operation, counted from 1."""
    torn: bool = False
    """First truncate the file that is about to be renamed to half."""
    after: float = 0.0
    """Or kill it this many seconds after the first operation."""
    pause: bool = False
    """Do not kill it, but let it wait until it is released."""


class Child:
    """``llpkit`` with some arguments in a forked process that works in ``folder``."""

    def __init__(self, arguments: Sequence[str], folder: Path, blow: Blow | None = None) -> None:
        self.log = Path(tempfile.mkstemp(prefix="llpkit-kills-")[1])
        self._told, tell = os.pipe()
        wait, self._go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            with contextlib.suppress(BaseException):
                os.chdir(folder)
                out = os.open(self.log, os.O_WRONLY)
                os.dup2(out, 1)
                os.dup2(out, 2)
                sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), write_through=True)
                sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), write_through=True)
                hook = _Hook(blow or Blow(), tell, wait)
                sys.addaudithook(hook)
                code = _main(arguments)
                os.write(tell, f"{hook.count}\n".encode())
            os._exit(code)
        os.close(tell)
        os.close(wait)

    def until_paused(self) -> None:
        """Until it waits."""
        assert os.read(self._told, 7) == b"paused\n", self.log.read_text()

    def go_on(self) -> None:
        """Let it continue."""
        os.write(self._go, b"!")

    def end(self) -> "Ended":
        """How it ended."""
        status = os.waitpid(self.pid, 0)[1]
        told = os.read(self._told, 99)
        for handle in (self._told, self._go):
            os.close(handle)
        text = self.log.read_text(errors="replace")
        self.log.unlink()
        return Ended(os.waitstatus_to_exitcode(status), int(told.split()[-1]) if told else 0, text)


def _main(arguments: Sequence[str]) -> int:
    import traceback

    from llpkit.cli import main

    try:
        return main(list(arguments))
    except BaseException:
        traceback.print_exc()
        return 71


@dataclass(frozen=True)
class Ended:
    code: int
    operations: int
    text: str


class _Hook:
    """Counts file operations of this process in its folder, and ends or holds it at one."""

    def __init__(self, blow: Blow, tell: int, wait: int) -> None:
        self.blow, self.tell, self.wait = blow, tell, wait
        self.count, self.done, self.folder = 0, False, os.getcwd()

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.done or not self._counts(event, arguments):
            return
        self.count += 1
        if self.blow.after and self.count == 1:
            timer = threading.Timer(self.blow.after, os.kill, (os.getpid(), signal.SIGKILL))
            timer.daemon = True
            timer.start()
        if self.count == self.blow.operation:
            self.done = True
            if self.blow.pause:
                os.write(self.tell, b"paused\n")
                os.read(self.wait, 1)
                self.done = False
                return
            if self.blow.torn and event == "os.rename" and os.path.isfile(str(arguments[0])):
                os.truncate(str(arguments[0]), os.path.getsize(str(arguments[0])) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    def _counts(self, event: str, arguments: tuple[object, ...]) -> bool:
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            return bool(writes) and self._inside(path)
        return event in _OPERATIONS and self._inside(arguments[0])

    def _inside(self, path: object) -> bool:
        if isinstance(path, int):
            return False
        name = os.fsdecode(path)  # type: ignore[arg-type]
        return not os.path.isabs(name) or name.startswith(self.folder + os.sep)


def run(arguments: Sequence[str], folder: Path, blow: Blow | None = None) -> Ended:
    """A child from its start to its end."""
    return Child(arguments, folder, blow).end()


def result(folder: Path) -> tuple[bytes, str]:
    """The result of a run: its weights, and its table of epochs without the times."""
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    untimed = [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in rows]
    return (folder / "weights.safetensors").read_bytes(), json.dumps(untimed)


@dataclass
class Report:
    """How many trials went well, and what was wrong with the others."""

    passed: int = 0
    failures: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def trial(self, what: str) -> Iterator[None]:
        """Count what happens in the block."""
        try:
            yield
        except AssertionError as error:
            self.failures.append(f"{what}: {error}")
            print(f"FAILED {what}: {error}", flush=True)
        else:
            self.passed += 1


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """A folder for one trial."""
    with tempfile.TemporaryDirectory(prefix="llpkit-kills-") as name:
        yield Path(os.path.realpath(name))


def blows(number: int, operations: int, seconds: float, draw: random.Random) -> list[Blow]:
    """Kills spread over all file operations, every third one torn, and a third of them in time."""
    timed = number // 3
    steps = [1 + i * operations // (number - timed) for i in range(number - timed)]
    found = [Blow(step, torn=i % 3 == 0) for i, step in enumerate(steps)]
    return found + [Blow(after=draw.uniform(0.001, seconds)) for _ in range(timed)]


def kill_fits(number: int, report: Report, seed: int = 0) -> dict[str, int]:
    """Kill fits; in half of them the run replaces an existing one."""
    draw = random.Random(seed)
    hit = {"killed": 0, "finished when killed": 0}
    with place() as home:
        assert run([*FIT, "--seed", "9"], home).code == 0
        (home / "run").rename(home / "old")
        run(FIT, home)  # the first one may have filled caches
        shutil.rmtree(home / "run")
        start = time.perf_counter()
        first = run(FIT, home)
        seconds = time.perf_counter() - start
        assert first.code == 0, first.text
        wanted, before = result(home / "run"), result(home / "old")
        shutil.copytree(home / "old", home / "over" / "run")
        forced = run([*FIT, "--force"], home / "over")
        assert forced.code == 0, forced.text
        plans = [
            (False, blows(number - number // 2, first.operations, seconds, draw)),
            (True, blows(number // 2, forced.operations, seconds, draw)),
        ]
        for force, its in plans:
            for blow in its:
                arguments = [*FIT, *["--force"] * force]
                struck = killed(arguments, blow, home / "old" if force else None)
                with report.trial(f"{shlex.join(arguments)}, {blow}"), struck as folder:
                    _goes_on(arguments, folder, home, wanted, before, hit, draw)
    return hit


@contextlib.contextmanager
def killed(arguments: Sequence[str], blow: Blow, old: Path | None = None) -> Iterator[Path]:
    """The folder in which a child was killed; one that ended before the kill is tried again.

    ``old`` is an existing run.
    """
    while True:
        with place() as folder:
            if old is not None:
                shutil.copytree(old, folder / "run")
            ended = run(arguments, folder, blow)
            if ended.code == -signal.SIGKILL:
                yield folder
                return
            assert ended.code == 0, ended.text
            assert blow.after, f"it has no operation {blow.operation}"
            blow = Blow(after=blow.after * 0.7)


def _goes_on(
    arguments: list[str],
    folder: Path,
    home: Path,
    wanted: tuple[bytes, str],
    before: tuple[bytes, str],
    hit: dict[str, int],
    draw: random.Random,
) -> None:
    """After a kill no existing file is lost, and the run continues to the same result."""
    hit["killed"] += 1
    force = "--force" in arguments
    if force and (folder / "run").exists():
        assert result(folder / "run") in (before, wanted), "the run that was there is lost"
    if force and draw.random() < 0.3:  # a plain call in between refuses or finishes
        plain = run(FIT, folder)
        there = result(folder / "run")
        assert there in (before, wanted), "a plain call lost the run that was there"
        assert plain.code == 2 or there == wanted, plain.text
    named = _finished(folder)
    resumed = run([*arguments, "--resume"], folder, Blow())
    assert resumed.code == 0, resumed.text
    if named:
        hit["finished when killed"] += 1
        assert resumed.operations < 40, f"{resumed.operations} operations to name a finished run"
    assert result(folder / "run") == wanted, "other weights or measures"
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["run"], f"left behind: {left}"
    files = sorted(p.relative_to(folder / "run") for p in (folder / "run").rglob("*"))
    whole = sorted(p.relative_to(home / "run") for p in (home / "run").rglob("*"))
    assert files == whole, f"other files: {set(files) ^ set(whole)}"


def _finished(folder: Path) -> bool:
    """Whether a killed run is finished and only has to be moved into place."""
    from llpkit.runs import RunFolder

    return RunFolder(folder / "run").finished


def kill_reproduces(number: int, report: Report, seed: int = 0) -> dict[str, int]:
    """Kill experiments; each then continues with the same command."""
    draw = random.Random(seed)
    hit = {"killed": 0}
    with place() as home:
        run(REPRODUCE, home)
        shutil.rmtree(home / "results")
        start = time.perf_counter()
        first = run(REPRODUCE, home)
        seconds = time.perf_counter() - start
        assert first.code == 0, first.text
        wanted = _records(home)
        for blow in blows(number, first.operations, seconds, draw):
            with report.trial(f"reproduce {blow}"), killed(REPRODUCE, blow) as folder:
                hit["killed"] += 1
                again = run(REPRODUCE, folder)
                assert again.code == 0, again.text
                assert _records(folder) == wanted, "other records"
    return hit


def _records(folder: Path) -> dict[str, object]:
    """The files of a results folder, and its records without what depends on time."""
    from llpkit.experiments import Results

    files = [path for path in (folder / "results").rglob("*") if path.is_file()]
    found: dict[str, object] = {path.relative_to(folder).as_posix(): None for path in files}
    for record in Results.read(folder / "results").records["convergence"]:
        found[record.id] = record.history["test_accuracy"]
    return found


MODES: dict[str, list[str]] = {"plain": [], "--resume": ["--resume"], "--force": ["--force"]}


def two_processes(report: Report) -> None:
    """Every mode at the same time as every other: one wins, nothing is lost, one is refused."""
    with place() as home:
        assert run([*FIT, "--seed", "9"], home).code == 0
        (home / "run").rename(home / "old")
        first = run(FIT, home)
        assert first.code == 0, first.text
        wanted = result(home / "run")
        seeds = {"--force --seed 9": ["--force", "--seed", "9"]}
        for name, mode in MODES.items():
            for other_name, other in {**MODES, **seeds}.items():
                what = f"{name}, and beside it {other_name}"
                with report.trial(what), place() as folder:
                    if mode == ["--force"]:
                        shutil.copytree(home / "old", folder / "run")
                    elif mode == ["--resume"]:
                        run(FIT, folder, Blow(first.operations // 2))
                    _beside([*FIT, *mode], [*FIT, *other], folder)
                    assert result(folder / "run") == wanted, "other weights or measures"
                    left = sorted(path.name for path in folder.iterdir())
                    assert left == ["run"], f"left behind: {left}"


def _beside(arguments: list[str], others: list[str], folder: Path) -> None:
    """Run a second call while the first waits in the middle."""
    one = Child(arguments, folder, Blow(20, pause=True))
    one.until_paused()
    other = run(others, folder)
    one.go_on()
    ended = one.end()
    assert ended.code == 0, ended.text
    assert other.code == 2, f"the second ended with {other.code}: {other.text}"
    named = (f"process {one.pid}", socket.gethostname())
    told = " ".join(other.text.split())
    assert all(word in told for word in named), f"the second does not say why: {other.text}"


def warm_up() -> None:
    """Import and prepare what the children share, without threads, which do not survive a fork."""
    import importlib

    import torch

    import llpkit
    from llpkit.report import Figure, Page, write_page

    names = "cli progress runs runs.page experiments training.fitting"
    for name in (*names.split(), "likelihood.kernels.numba_binary"):
        importlib.import_module(f"llpkit.{name}")
    for name in ("sklearn.datasets", "skops.io", "pyarrow.parquet", "rich.progress"):
        importlib.import_module(name)
    torch.set_num_threads(1)
    evidence = llpkit.Evidence.exact(torch.tensor([1]))
    llpkit.likelihood.posterior(torch.zeros(2), evidence, torch.tensor([0, 2]))
    # Fonts in figures take nine tenths of a short run's time, and nothing here depends on them.
    Figure.contents = lambda *_: b"a figure" * 500
    with tempfile.TemporaryDirectory() as folder:
        write_page(Page("nothing"), Path(folder, "page.html"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=200, help="kills of llpkit fit")
    parser.add_argument("--reproduces", type=int, default=50, help="kills of llpkit reproduce")
    parser.add_argument("--pairs", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    warm_up()
    failed = 0
    for what, number in (
        ("fit", options.fits),
        ("reproduce", options.reproduces),
        ("two", options.pairs),
    ):
        if not number:
            continue
        report, start, hit = Report(), time.perf_counter(), {}
        if what == "fit":
            hit = kill_fits(number, report, options.seed)
        elif what == "reproduce":
            hit = kill_reproduces(number, report, options.seed)
        else:
            two_processes(report)
        failed += len(report.failures)
        name = "two processes" if what == "two" else f"kills of {what}"
        told = ", ".join(f"{value} {key}" for key, value in hit.items())
        seconds = time.perf_counter() - start
        print(
            f"{name}: {report.passed} passed, {len(report.failures)} failed "
            f"({told}{', ' * bool(told)}{seconds:.0f} s)",
            flush=True,
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
