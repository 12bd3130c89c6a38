"""A second run of a record: whether the same numbers come out."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from llpkit.experiments._run import Record, Run, parsed
from llpkit.experiments._work import Place, again


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
    def told(self) -> str:
        """All this in words."""
        said = "the same to the last digit"
        if self.where:
            said = f"largest difference {self.largest:.3g}, in {self.where}"
            if self.accuracy is not None:
                then, now = self.accuracy
                said += f"; last accuracy {100 * then:.2f} % then, {100 * now:.2f} % now"
        changed = f" (not as it was: {', '.join(self.others)})" if self.others else ""
        return f"{self.run.id} {self.run.title}, {self.device}: {said}{changed}"


def check(path: Path, place: Place) -> Check:
    """Carry out the run of a record once more, compiled as it was; nothing is written.

    Args:
        path: The record.
        place: Where to run it; its folders are not used.
    """
    then = parsed(path)
    run = Run.of(then)
    now = json.loads(json.dumps(again(run, replace(place, compile=then["compiled"]))))
    largest, where = 0.0, ""
    for name, column in then["history"].items():
        if name == "seconds":
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
