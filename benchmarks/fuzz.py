"""Fuzz the library for as long as you like: ``python benchmarks/fuzz.py --minutes 60 --jobs 2``.

Every case must end in an answer that an independent check confirms or, if the input is wrong, in an
``LLPError``; anything else is a failure, including crashes and hangs. The generators and checks of
each area are in ``tests/fuzzing/``. A failure is reported with the options that repeat it:
``--replay AREA SEED/ROUND``.
"""

import argparse
import contextlib
import importlib
import multiprocessing
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"
AREAS = ("engine", "bags", "estimators", "tables", "runs", "cli")
SHOWN = 3
"""Most failures with the same cause that are printed."""


@dataclass
class Tally:
    """The outcome of one area."""

    area: str
    confirmed: int = 0
    refused: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)  # replay, message
    causes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def cases(self) -> int:
        return self.confirmed + self.refused + len(self.failures)

    def fail(self, replay: str, message: str) -> None:
        self.failures.append((replay, message))
        first = message.splitlines()[0]
        cause = re.sub(r"[-+]?\d[\d.e+-]*", "#", first)[:100]
        self.causes[cause] += 1
        if self.causes[cause] <= SHOWN:
            print(f"FAILED {replay}: {first[:300]}", flush=True)


def load(area: str) -> Any:
    """The module of an area."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    return importlib.import_module(f"fuzzing.{area}")


def one_round(area: str, seed: int, number: int) -> tuple[int, int, str | None]:
    """Cases confirmed and refused in one round, and what failed."""
    import numpy as np

    module = load(area)
    from fuzzing.scoring import Score

    score, message = Score(), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)  # NaN does not come in silence
        try:
            module.case(np.random.default_rng([seed, number]), score)
        except AssertionError as error:
            message = str(error) or traceback.format_exc()
        except Exception as error:
            message = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    return score.confirmed, score.refused, message


def work(area: str, seed: int, first: int, step: int, seconds: float, results: Connection) -> None:
    """Round after round until the time is up (in a separate process)."""
    import torch

    torch.set_num_threads(1)
    load(area)
    number, stop = first, time.monotonic() + seconds  # without the time that imports take
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        while time.monotonic() < stop:
            results.send(("begins", number))
            results.send(("ends", number, *one_round(area, seed, number)))
            number += step


class Worker:
    """A fuzzing process, restarted when it crashes or hangs."""

    def __init__(self, area: str, seed: int, first: int, step: int, seconds: float) -> None:
        self.area, self.seed, self.number, self.step = area, seed, first, step
        self.seconds = seconds
        self.first: float | None = None  # when the first round began
        self.begin()

    @property
    def replay(self) -> str:
        return f"--replay {self.area} {self.seed}/{self.number}"

    @property
    def left(self) -> float:
        return self.seconds - (0 if self.first is None else time.monotonic() - self.first)

    def begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.results, theirs = context.Pipe(duplex=False)
        place = (self.area, self.seed, self.number, self.step, self.left, theirs)
        self.process = context.Process(target=work, args=place, daemon=True)
        self.process.start()
        theirs.close()
        self.began: float | None = None

    def hangs(self, patience: float) -> bool:
        return self.began is not None and time.monotonic() - self.began > patience

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.results.close()


def fuzz(area: str, seed: int, seconds: float, jobs: int, patience: float) -> Tally:
    """All rounds of one area that fit the time."""
    tally, started = Tally(area), time.monotonic()
    workers = [Worker(area, seed, job, jobs, seconds) for job in range(jobs)]
    while workers:
        ready = wait([worker.results for worker in workers], timeout=0.5)
        for worker in list(workers):
            lost = None
            if worker.results in ready:
                try:
                    _hear(worker, tally)
                except EOFError:
                    worker.process.join()
                    if worker.process.exitcode == 0:
                        worker.end()
                        workers.remove(worker)
                    else:
                        lost = f"the process ended with status {worker.process.exitcode}"
            elif worker.hangs(patience):
                lost = f"no end after {patience:g} seconds"
            if lost is not None:
                tally.fail(worker.replay, lost)
                worker.end()
                if worker.left > 0 and worker.first is not None:
                    worker.number += worker.step
                    worker.begin()
                else:
                    workers.remove(worker)
    tally.seconds = time.monotonic() - started
    return tally


def _hear(worker: Worker, tally: Tally) -> None:
    """Receive the results of a worker; EOFError when there are no more."""
    kind, worker.number, *rest = worker.results.recv()
    if kind == "begins":
        worker.began = time.monotonic()
        worker.first = worker.began if worker.first is None else worker.first
        return
    worker.began = None
    confirmed, refused, message = rest
    tally.confirmed += confirmed
    tally.refused += refused
    if message is not None:
        tally.fail(worker.replay, message)


def table(tallies: Sequence[Tally]) -> str:
    """A line per area."""
    lines = ["| area | cases | answers confirmed | LLPErrors | failures | cases/s |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for t in tallies:
        pace = t.cases / max(t.seconds, 1e-9)
        lines.append(
            f"| {t.area} | {t.cases:,} | {t.confirmed:,} | {t.refused:,} | {len(t.failures):,} "
            f"| {pace:,.0f} |"
        )
    return "\n".join(lines)


def write_log(path: Path, tallies: Sequence[Tally]) -> None:
    """Every failure in full."""
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for tally in tallies:
            for cause, times in tally.causes.most_common():
                file.write(f"{tally.area}: {times} x {cause}\n")
            for replay, message in tally.failures:
                file.write(f"\n{replay}\n{message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="time for all areas together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--areas", default=",".join(AREAS), help="separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument(
        "--patience", type=float, default=120, help="seconds until a hang is reported"
    )
    parser.add_argument("--log", type=Path, help="a file for all failures in full")
    parser.add_argument("--replay", nargs=2, metavar=("AREA", "SEED/ROUND"))
    options = parser.parse_args(arguments)
    if options.replay:
        area, place = options.replay
        seed, _, number = place.partition("/")
        confirmed, refused, message = one_round(area, int(seed), int(number or 0))
        print(message or f"{confirmed} answers confirmed, {refused} LLPErrors, no failure")
        return int(message is not None)
    areas = options.areas.split(",")
    unknown = [area for area in areas if area not in AREAS]
    if unknown:
        parser.error(f"unknown area {unknown[0]!r}; available: {', '.join(AREAS)}")
    tallies = []
    for area in areas:
        seconds = options.minutes * 60 / len(areas)
        tallies.append(fuzz(area, options.seed, seconds, options.jobs, options.patience))
    print(table(tallies))
    for tally in tallies:
        for cause, times in tally.causes.most_common():
            print(f"{tally.area}: {times} x {cause}")
    if options.log:
        write_log(options.log, tallies)
    failed = sum(len(tally.failures) for tally in tallies)
    print(f"{sum(t.confirmed + t.refused for t in tallies)} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
