"""Repeating a recorded run to see whether it gives the same numbers."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from llpkit.experiments.records import Record
from llpkit.experiments.run import Run, Worker, train

TOLERANCE = 0.03
TOLERANCES = {"llp-gan": 0.075}
"""Largest difference of two final accuracies on a GPU, and exceptions for methods that vary more.

A GPU adds sums in no fixed order, and many epochs amplify a difference in the last digit. Between
two runs on an H200 the root mean square difference was below one point, and 2.5 points for
``llp-gan``; three times that is allowed. On a CPU there is no tolerance.
"""
_TIMES = ("seconds", "measure_seconds")


@dataclass(frozen=True)
class Check:
    """The comparison of a record with a second run.

    Args:
        run: The run of the record.
        device: The device of the second run.
        largest: The largest difference in the history, apart from times; infinite if a value is
            missing or finite in one of the two only.
        where: Its measure and epoch; empty if there is no difference.
        accuracy: Of the last epoch, first and second run; ``None`` if not measured.
        changed: What else differs: versions, hardware, data, device.
    """

    run: Run
    device: str
    largest: float
    where: str
    accuracy: tuple[float, float] | None
    changed: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether equal numbers are expected, because both runs were on a CPU."""
        return self.device == "cpu" and "device" not in self.changed

    @property
    def agrees(self) -> bool:
        """Whether all numbers are equal or, off the CPU, accuracies are within the tolerance."""
        if not self.where or self.exact or math.isinf(self.largest):
            return not self.where
        return self.accuracy is None or abs(self.accuracy[0] - self.accuracy[1]) <= self.tolerance

    @property
    def tolerance(self) -> float:
        """Largest allowed difference of the two accuracies on a GPU."""
        return TOLERANCES.get(self.run.recipe.method, TOLERANCE)

    def __str__(self) -> str:
        found = "the same to the last digit"
        if self.where:
            found = f"largest difference {self.largest:.3g}, in {self.where}"
        if self.where and self.accuracy is not None:
            first, second = self.accuracy
            found += f"; last accuracy {100 * first:.2f} % then, {100 * second:.2f} % now"
            if not self.exact:
                verdict = "within" if self.agrees else "beyond"
                found += f", {verdict} the tolerance of {100 * self.tolerance:g} points"
        changed = f" (changed since: {', '.join(self.changed)})" if self.changed else ""
        return f"{self.run.experiment}, {self.run.title}, {self.device}: {found}{changed}"


def check(record: Record, worker: Worker) -> Check:
    """Repeat the run of a record, compiled if it was compiled; nothing is written.

    The number of threads is that of the record, because it determines the order of sums on a CPU.
    """
    run, about = Run.of(record), record.environment
    worker = replace(worker, compile=bool(about.get("compiled")), jobs=1)
    with _threads(about.get("hardware", {}).get("threads", 1)):
        again = train(run, worker)
    largest, where = 0.0, ""
    for name, column in record.history.items():
        other = again.history.get(name, ())
        if len(column) != len(other):
            largest, where = math.inf, f"{name}: {len(column)} values then, {len(other)} now"
            break
        for epoch, (first, second) in enumerate(zip(column, other, strict=True), 1):
            if name in _TIMES or first == second:
                continue
            # None stands for a value that was not finite.
            apart = math.inf if None in (first, second) else abs(first - second)
            if apart > largest:
                largest, where = apart, f"{name} of epoch {epoch}"
    accuracy = None
    if "accuracy" in record.final and "accuracy" in again.final:
        accuracy = record.final["accuracy"], again.final["accuracy"]
    device = str(again.environment["device"])
    return Check(run, device, largest, where, accuracy, _changed(record, again))


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _changed(first: Record, second: Record) -> tuple[str, ...]:
    keys = ("versions", "device", "hardware")
    found = [key for key in keys if first.environment.get(key) != second.environment.get(key)]
    same = first.data and second.data and first.data.sha256 == second.data.sha256
    return tuple(found if same else ["data", *found])
