"""How long runs will take, from the time per epoch of recorded ones."""

from collections.abc import Iterable, Mapping
from statistics import fmean, median

from llpkit.experiments.protocol import WARM_UP
from llpkit.experiments.records import Record, Run
from llpkit.experiments.results import Results

START = 5.0
"""Seconds of a run besides its epochs: reading data, building the network, writing the record."""


def epoch_seconds(results: Results) -> dict[str, float]:
    """Seconds per epoch by method: of timed runs or, without any, of all others.

    The time of runs that shared a machine is divided by their number.
    """
    found: dict[str, list[float]] = {}
    timed = results.records["epoch-time"]
    for record in timed or results.finished:
        found.setdefault(str(record.recipe["method"]), []).append(_each(record))
    return {method: fmean(values) for method, values in found.items()}


def _each(record: Record) -> float:
    seconds = record.history["seconds"]
    jobs = max(1, int(record.environment.get("jobs", 1)))
    return float(median(seconds[WARM_UP:] or seconds)) / jobs


def estimate(runs: Iterable[Run], seconds: Mapping[str, float]) -> float | None:
    """Seconds that runs take one after the other; ``None`` without any record.

    A method without records is taken to be as fast as the median of the others. Batch sizes are
    ignored.
    """
    if not seconds:
        return None
    usual = median(seconds.values())
    each = (START + r.recipe["epochs"] * seconds.get(r.recipe["method"], usual) for r in runs)
    return float(sum(each))
