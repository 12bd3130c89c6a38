"""Fuzz the library for as long as you like: ``python benchmarks/fuzz.py --minutes 60 --jobs 2``.

Every case must end in an answer that an independent check confirms or, where the input is wrong, in
an ``LLPError``; anything else is a failure, a crash and a hang as well. The generators and checks
of each area are in ``tests/fuzzing/``. A failure is told with what runs it again:
``--replay AREA SEED/ROUND``.
"""

import argparse
import importlib
import importlib.util
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
"""Failures of one cause that are printed."""


@dataclass
class Tally:
    """What came out in one area."""

    area: str
    confirmed: int = 0
    refused: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)  # replay, message
    causes: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
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


def available(area: str) -> bool:
    """Whether all that the area needs is there."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    needs = ("fuzzing.command_line",) if area == "cli" else ()
    return all(importlib.util.find_spec(name) for name in (f"fuzzing.{area}", *needs))


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


def work(area: str, seed: int, first: int, step: int, stop: float, results: Connection) -> None:
    """Round after round until the time is up (in a process of its own)."""
    import torch

    torch.set_num_threads(1)
    number = first
    try:
        while time.time() < stop:
            results.send(("begins", number))
            results.send(("ends", number, *one_round(area, seed, number)))
            number += step
    except (BrokenPipeError, KeyboardInterrupt):
        return


class Worker:
    """A process that fuzzes, replaced when it crashes or hangs."""

    def __init__(self, area: str, seed: int, first: int, step: int, stop: float) -> None:
        self.arguments = area, seed
        self.step, self.stop, self.number = step, stop, first
        self.began = time.time()
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.results, theirs = context.Pipe(duplex=False)
        place = (*self.arguments, self.number, self.step, self.stop, theirs)
        self.process = context.Process(target=work, args=place, daemon=True)
        self.process.start()
        self.began = time.time()
        theirs.close()

    def replace(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.number += self.step
        self.start()


def fuzz(area: str, seed: int, seconds: float, jobs: int, patience: float) -> Tally:
    """All rounds of one area that fit the time."""
    tally, started = Tally(area), time.time()
    stop = started + seconds
    workers = [Worker(area, seed, job, jobs, stop) for job in range(jobs)]
    while workers:
        ready = wait([worker.results for worker in workers], timeout=1)
        for worker in list(workers):
            replay = f"--replay {area} {seed}/{worker.number}"
            if worker.results in ready:
                try:
                    kind, worker.number, *rest = worker.results.recv()
                except EOFError:
                    worker.process.join()
                    code = worker.process.exitcode
                    if code != 0:
                        tally.fail(replay, f"the process ended with status {code}")
                        if time.time() < stop:
                            worker.replace()
                            continue
                    workers.remove(worker)
                    continue
                worker.began = time.time()
                if kind == "ends":
                    confirmed, refused, message = rest
                    tally.confirmed += confirmed
                    tally.refused += refused
                    tally.rounds += 1
                    if message is not None:
                        tally.fail(f"--replay {area} {seed}/{worker.number}", message)
            elif time.time() - worker.began > patience:
                tally.fail(replay, f"no end after {patience:g} seconds")
                if time.time() < stop:
                    worker.replace()
                else:
                    worker.process.kill()
                    workers.remove(worker)
    tally.seconds = time.time() - started
    return tally


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
    parser.add_argument("--patience", type=float, default=120, help="seconds until a hang is told")
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
        parser.error(f"unknown area {unknown[0]!r}; known are {', '.join(AREAS)}")
    tallies = []
    for area in areas:
        if not available(area):
            print(f"{area} is left out: its generator is not there")
            continue
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
