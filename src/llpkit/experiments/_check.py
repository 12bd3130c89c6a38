"""A second run of a record: whether the same numbers come out."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from llpkit.errors import LLPError
from llpkit.experiments._run import TIMES, Record, Run, parsed
from llpkit.experiments._work import Place, again
from llpkit.methods import METHODS

TOLERANCE = 0.03
TOLERANCES = {"llp-gan": 0.075}
"""How far apart two last accuracies on a GPU may lie, and for methods that vary more.

Sums are added there in no fixed order, and many epochs make much of a last digit. Of runs carried
out twice on an H200 the root mean square difference was below a point, and 2.5 points for
``llp-gan``; three times that is allowed. On a CPU there is no tolerance.
"""


@dataclass(frozen=True)
class Check:
    """What a second run found.

    Args:
        run: Of the record.
        device: Of the second run.
        largest: The largest difference in the table of epochs, times aside.
        where: Of which column and epoch it is; empty if there is none.
        accuracy: Of the last epoch, then and now; ``None`` where it was not measured.
        others: What else is not as it was: source, versions, hardware, data.
    """

    run: Run
    device: str
    largest: float
    where: str
    accuracy: tuple[float, float] | None
    others: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether the same numbers are due: both runs were on a CPU."""
        return self.device == "cpu" and "device" not in self.others

    @property
    def agrees(self) -> bool:
        """The same to the last digit; off the CPU, within the tolerance where it can be said."""
        if not self.where or self.exact:
            return not self.where
        return self.accuracy is None or abs(self.accuracy[0] - self.accuracy[1]) <= self.tolerance

    @property
    def tolerance(self) -> float:
        """How far apart the two accuracies may lie on a GPU."""
        return TOLERANCES.get(self.run.method, TOLERANCE)

    @property
    def told(self) -> str:
        """All this in words."""
        said = "the same to the last digit"
        if self.where:
            said = f"largest difference {self.largest:.3g}, in {self.where}"
            if self.accuracy is not None:
                then, now = self.accuracy
                said += f"; last accuracy {100 * then:.2f} % then, {100 * now:.2f} % now"
                if not self.exact:
                    judged = "within" if self.agrees else "beyond"
                    said += f", {judged} the tolerance of {100 * self.tolerance:g} points"
            elif not self.exact:
                said += ", and no accuracy to hold against"
        changed = f" (not as it was: {', '.join(self.others)})" if self.others else ""
        return f"{self.run.id} {self.run.title}, {self.device}: {said}{changed}"


def check(path: Path, place: Place) -> Check:
    """Carry out the run of a record once more, compiled as it was; nothing is written.

    On a CPU with as many threads as it had, because the order of a sum follows from them.

    Args:
        path: The record.
        place: Where to run it; its folders are not used.
    """
    if not path.is_file():
        raise LLPError(f"{path} is no file; give records, RESULTS/records/convergence/*.json say")
    then = parsed(path)
    run = Run.of(then)
    if "history" not in then:
        raise LLPError(f"{path} tells of a run that failed, and has nothing to hold against")
    if run.method not in METHODS:
        raise LLPError(
            f"{path} is of method {run.method!r}, which is not known here; load it with "
            "llpkit --plugin FILE.py reproduce check …"
        )
    place = replace(place, compile=then["compiled"], jobs=1)
    with _threads(then):
        now = json.loads(json.dumps(again(run, place)))
    largest, where = 0.0, ""
    for name, column in then["history"].items():
        if name in TIMES:
            continue
        for epoch, before, after in zip(
            then["history"]["epoch"], column, now["history"][name], strict=True
        ):
            if before == after:
                continue
            apart = float("inf") if None in (before, after) else abs(before - after)
            if apart > largest:
                largest, where = apart, f"{name} of epoch {epoch}"
    accuracy = None
    if "accuracy" in then["final"]:
        accuracy = then["final"]["accuracy"], now["final"]["accuracy"]
    return Check(run, now["device"], largest, where, accuracy, tuple(_changed(then, now)))


@contextmanager
def _threads(then: Record) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(then["hardware"]["threads"])
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _changed(then: Record, now: Record) -> list[str]:
    parts = {
        "source": ("code",),
        "data": ("data", "sha256"),
        "versions": ("versions",),
        "device": ("device",),
        "hardware": ("hardware",),
    }
    found = []
    for name, keys in parts.items():
        before, after = then, now
        for key in keys:
            before, after = before[key], after[key]
        if before != after:
            found.append(name)
    return found
