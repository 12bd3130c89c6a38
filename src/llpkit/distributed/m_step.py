"""The M-step: XGBoost on all workers at once, with posteriors as soft targets.

Rank ``r`` of XGBoost's communicator trains on the ``r``-th share of the partitions, which it reads
one by one into XGBoost's external memory, so neither the table nor its bins are ever in memory as
a whole. What a rank does depends on its number alone, not on the worker it runs on. XGBoost cannot
replace a rank that died, so the whole step is repeated, from the same posteriors to the same model.
"""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from llpkit.distributed.binned import Bins
from llpkit.distributed.parts import Array
from llpkit.distributed.ranks import Ranks
from llpkit.errors import LLPError

BYTES_PER_ROW = 32
"""What XGBoost keeps in memory per row of a fit: gradients, positions, buffers. Measured."""
_SHARE = 0.2
"""Share of a worker's memory for that."""

_margins: dict[int, tuple[str, Array]] = {}
"""Scores of this process's last fit, by partition: predicting them again would cost more."""


class Task(NamedTuple):
    """An M-step, the same for all ranks."""

    label: str  # differs between fits
    params: dict[str, Any]
    rounds: int
    bins: Bins
    groups: int


class Trained(NamedTuple):
    """What a rank returns: the model (rank 0 alone) and the seconds of its processor."""

    model: bytes
    seconds: float


def groups_for(rows: Sequence[int], limit: float) -> int:
    """Into how many groups the partitions of a rank are divided, given its memory in bytes.

    Each tree is then fitted to one group, in turn: stochastic gradient boosting.
    """
    if not math.isfinite(limit) or limit <= 0:
        return 1
    needed = -(-max(rows) * BYTES_PER_ROW // int(_SHARE * limit))
    return max(1, int(needed))


def shares(rows: Sequence[int], number: int) -> list[list[int]]:
    """The partitions of each rank, with about equally many rows: largest first, to the emptiest.

    >>> shares([5, 1, 1, 4], 2)
    [[0, 2], [1, 3]]
    """
    held = [0] * number
    found: list[list[int]] = [[] for _ in range(number)]
    for i in sorted(range(len(rows)), key=lambda i: (-rows[i], i)):
        rank = held.index(min(held))
        held[rank] += rows[i]
        found[rank].append(i)
    return [sorted(share) for share in found]


def m_step(
    ranks: Ranks, task: Task, of_rank: Sequence[Sequence[int]], parts: Any, posteriors: Any
) -> tuple[bytes, float]:
    """The fitted model, and the processor seconds of all ranks.

    Args:
        ranks: Where the ranks run.
        task: The fit.
        of_rank: The partitions of each rank.
        parts: The binned partitions, as Dask holds them.
        posteriors: Their posteriors, likewise.
    """
    shares_of_data = [[(i, parts[i], posteriors[i]) for i in share] for share in of_rank]
    found = ranks.run(_train, task, shares_of_data)
    return found[0].model, sum(each.seconds for each in found)


def remembered(label: str, i: int) -> Array | None:
    """Scores of partition ``i`` under a model that this process has just trained, or nothing."""
    known = _margins.get(i)
    return known[1] if known is not None and known[0] == label else None


def _train(
    rank: int,
    task: Task,
    share: Sequence[tuple[int, Any, Any]],
    load: Callable[[Any], Any],
    scratch: str | None,
) -> Trained:
    """One rank's part of the fit; ``load`` brings what Dask holds, ``scratch`` is a folder."""
    import xgboost as xgb

    begin = time.process_time()
    _margins.clear()
    sizes: dict[int, int] = {}

    class Rows(xgb.DataIter):
        """The partitions of one group, one at a time."""

        def __init__(self, chosen: Sequence[tuple[int, Any, Any]], folder: str) -> None:
            self.chosen, self.at = chosen, 0
            super().__init__(cache_prefix=folder, release_data=True)

        def reset(self) -> None:
            self.at = 0

        def next(self, input_data: Callable[..., None]) -> bool:
            if self.at >= len(self.chosen):
                return False
            i, part, posterior = self.chosen[self.at]
            self.at += 1
            codes = load(part).codes
            sizes[i] = len(codes)
            input_data(data=task.bins.numbers(codes), label=load(posterior).phi)
            return True

    groups = [share[g :: task.groups] for g in range(task.groups)]
    if not all(groups):
        raise LLPError(
            f"rank {rank} has {len(share)} partitions, too few for {task.groups} groups that fit "
            "into its memory; use smaller partitions, more workers or more memory"
        )
    threads = task.params.get("nthread") or 1
    quiet = xgb.config_context(verbosity=0)
    with quiet, tempfile.TemporaryDirectory(prefix="llpkit-", dir=scratch) as folder:
        matrices = [
            xgb.ExtMemQuantileDMatrix(
                Rows(group, f"{folder}/{g}"), nthread=threads, max_bin=256, missing=np.nan
            )
            for g, group in enumerate(groups)
        ]
        booster = xgb.Booster(task.params, matrices)
        for i in range(task.rounds):
            booster.update(matrices[i % task.groups], i)
        model = bytes(booster.save_raw("ubj"))
        for matrix, group in zip(matrices, groups, strict=True):
            scores = booster.predict(matrix, output_margin=True)
            ends = np.cumsum([sizes[i] for i, *_ in group])
            for (i, *_), end in zip(group, ends, strict=True):
                _margins[i] = (task.label, scores[end - sizes[i] : end])
        # XGBoost removes its files when it is done with a matrix, so that comes before the folder.
        del booster, matrices, matrix
    return Trained(model if rank == 0 else b"", time.process_time() - begin)


def scores_of(model: bytes, X: Array) -> Array:
    """Log-odds of rows under a model, float32 ``(n,)``."""
    import xgboost as xgb

    booster = xgb.Booster({"nthread": 1})
    booster.load_model(bytearray(model))
    return np.asarray(booster.inplace_predict(X, predict_type="margin"))
