"""Repeating a recorded run to see whether it gives the same numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llpkit._threads import torch_threads
from llpkit.experiments.records import Record
from llpkit.experiments.run import WorkerSettings, train

TOLERANCE = 0.03
TOLERANCES = {"llp-gan": 0.075}
"""Largest allowed difference of two final accuracies on a GPU, larger for some methods.

A GPU adds sums in no fixed order, and many epochs amplify a difference in the last digit. Between
two runs on an H200 the root mean square difference was below one point, and 2.5 points for
``llp-gan``; three times that is allowed. On a CPU there is no tolerance.
"""
_TIMES = ("seconds", "measure_seconds")


@dataclass(frozen=True)
class Check:
    """The comparison of a record with a second run.

    Args:
        first: The record.
        second: The record of the second run.
        largest: The largest difference in the history, times excluded; infinite if a value is
            missing, or not finite, in only one of the two.
        where: Its metric and epoch; empty if there is no difference.
    """

    first: Record
    second: Record
    largest: float
    where: str

    @property
    def changed(self) -> list[str]:
        """What else differs: data, versions, device, hardware."""
        first, second = self.first, self.second
        keys = ("versions", "device", "hardware")
        found = [key for key in keys if first.environment.get(key) != second.environment.get(key)]
        same_data = first.data and second.data and first.data.sha256 == second.data.sha256
        return found if same_data else ["data", *found]

    @property
    def exact(self) -> bool:
        """Whether equal numbers are expected, because both runs were on a CPU."""
        return self.second.environment["device"] == "cpu" and "device" not in self.changed

    @property
    def agrees(self) -> bool:
        """Whether all numbers are equal or, off the CPU, accuracies are within the tolerance."""
        if not self.where or self.exact or math.isinf(self.largest):
            return not self.where
        first, second = (record.final.get("accuracy") for record in (self.first, self.second))
        return first is None or second is None or abs(first - second) <= self.tolerance

    @property
    def tolerance(self) -> float:
        """Largest allowed difference of the two accuracies on a GPU."""
        return TOLERANCES.get(self.first.recipe["method"], TOLERANCE)

    def __str__(self) -> str:
        first, device = self.first, self.second.environment["device"]
        found = "the same to the last digit"
        if self.where:
            found = f"largest difference {self.largest:.3g}, in {self.where}"
        if self.where and "accuracy" in first.final:
            now = self.second.final["accuracy"]
            found += f"; last accuracy {first.final['accuracy']:.2%} then, {now:.2%} now"
            if not self.exact:
                verdict = "within" if self.agrees else "beyond"
                found += f", {verdict} the tolerance of {100 * self.tolerance:g} points"
        changed = f" (changed since: {', '.join(self.changed)})" if self.changed else ""
        return f"{first.experiment}, {first.title}, {device}: {found}{changed}"


def check(record: Record, settings: WorkerSettings) -> Check:
    """Repeat the run of a record, compiled if it was compiled; nothing is written.

    The number of threads is that of the record, because it determines the order of sums on a CPU.
    """
    about = record.environment
    settings = replace(settings, compile=bool(about.get("compiled")), jobs=1)
    with torch_threads(about.get("hardware", {}).get("threads", 1)):
        again = train(record, settings)
    return Check(record, again, *_difference(record.history, again.history))


def _difference(
    first: Mapping[str, Sequence[Any]], second: Mapping[str, Sequence[Any]]
) -> tuple[float, str]:
    """The largest difference between two histories, and where it is."""
    largest, where = 0.0, ""
    for name, column in first.items():
        other = second.get(name, ())
        if len(column) != len(other):
            return math.inf, f"{name}: {len(column)} values then, {len(other)} now"
        for epoch, (then, now) in enumerate(zip(column, other, strict=True), 1):
            if name in _TIMES or then == now:
                continue
            # None stands for a value that was not finite.
            gap = math.inf if None in (then, now) else abs(then - now)
            if gap > largest:
                largest, where = gap, f"{name} of epoch {epoch}"
    return largest, where
