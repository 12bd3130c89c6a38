"""The steps of EM on one worker: E-steps on its own rows, M-steps with XGBoost on all workers.

Rank ``r`` of XGBoost's communicator owns the ``r``-th share of the partitions. It reads them one
by one into XGBoost's external memory, so neither the table nor its bins are ever in memory as
a whole, and keeps these matrices for the whole fit: an E-step only replaces their targets.

All ranks take their bins from the same intervals, so a rank whose process died builds its matrices
again alone and repeats the last E-step. What it does depends on its number, not on the worker it
runs on, and XGBoost's scores are the same to the last bit whether they come from training or from
the model. So the result does not depend on which workers died.
"""

import math
import pickle
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from llpkit._arrays import Array
from llpkit.distributed.binned import Bins
from llpkit.errors import LLPError
from llpkit.estimators.logistic import Scale
from llpkit.likelihood import log_prob_and_posterior

BYTES_PER_ROW = 32
"""What XGBoost keeps in memory per row of a fit: gradients, positions, buffers. Measured."""
_SHARE = 0.12
"""Share of a worker's memory for that. Most of the rest is taken by libraries."""


class Boosted(NamedTuple):
    """A model of EM: the booster, and the scale of its scores."""

    number: int  # of M-steps before it
    booster: bytes
    scale: Scale
    bound: float  # scores are clipped to ± this


class BoostingStep(NamedTuple):
    """A step, the same for all ranks."""

    label: str  # of the fit
    params: dict[str, Any]
    rounds: int
    bins: Bins
    groups: int
    model: Boosted  # whose posteriors are the targets


class Posteriors(NamedTuple):
    """What a rank returns from an E-step; the posteriors stay where they are."""

    log_likelihoods: dict[int, float]  # by partition
    seconds: float  # CPU time
    reading: float  # the same, to read and bin the partitions; not in seconds


class NewBooster(NamedTuple):
    """What a rank returns from an M-step: the model (rank 0 alone) and CPU seconds."""

    booster: bytes
    seconds: float


class _Group(NamedTuple):
    """Some partitions as one XGBoost matrix."""

    matrix: Any
    bags: dict[int, Path]  # by partition: files, which every E-step reads


class _Held:
    """What this process keeps of a fit from step to step."""

    def __init__(self, label: str, rank: int, groups: list[_Group], folder: Any) -> None:
        self.label, self.rank, self.groups, self.folder = label, rank, groups, folder
        self.targets: int | None = None  # number of the model whose posteriors are the targets
        self.scores: int | None = None  # number of the model whose scores are in their place
        self.log_likelihoods: dict[int, float] = {}

    def close(self) -> None:
        # XGBoost removes its files when it is done with a matrix, so that must precede the folder.
        self.groups.clear()
        self.folder.cleanup()


_held: _Held | None = None
"""One fit at a time: another one takes its place, and the first would read its rows again."""


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


Share = Sequence[tuple[int, Any]]
Load = Callable[[Any], Any]


def e_step(
    rank: int, task: BoostingStep, share: Share, load: Load, scratch: str | None
) -> Posteriors:
    """Make the posteriors of this rank's rows under ``task.model`` the targets of the next M-step.

    Args:
        rank: The number of this rank.
        task: The fit and the model.
        share: The partitions of this rank: their numbers, and what ``load`` takes.
        load: Brings a partition.
        scratch: A folder for XGBoost's files.
    """
    begin = time.process_time()
    held, reading = _ready(rank, task, share, load, scratch)
    return Posteriors(held.log_likelihoods, time.process_time() - begin - reading, reading)


def m_step(
    rank: int, task: BoostingStep, share: Share, load: Load, scratch: str | None
) -> NewBooster:
    """One rank's part of a fit to the posteriors; the arguments are those of :func:`e_step`."""
    import xgboost as xgb

    held, _ = _ready(rank, task, share, load, scratch)
    begin = time.process_time()
    booster = xgb.Booster(task.params, [group.matrix for group in held.groups])
    try:
        for i in range(task.rounds):
            booster.update(held.groups[i % task.groups].matrix, i)
    except xgb.core.XGBoostError:
        del booster  # it keeps the matrices alive, and the traceback would keep it
        raise
    seconds = time.process_time() - begin
    # The scores replace the targets, and the booster, which takes as much memory again, is freed.
    held.targets = held.scores = None
    for group in held.groups:
        group.matrix.set_info(label=booster.predict(group.matrix, output_margin=True))
    held.scores = task.model.number + 1
    return NewBooster(bytes(booster.save_raw("ubj")) if rank == 0 else b"", seconds)


def forget(label: str) -> None:
    """Release what this process keeps of a fit."""
    global _held
    if _held is not None and _held.label == label:
        _held.close()
        _held = None


def _ready(
    rank: int, task: BoostingStep, share: Share, load: Load, scratch: str | None
) -> tuple[_Held, float]:
    """The matrices of this rank with the right targets, and the seconds if it had to build them."""
    global _held
    import xgboost as xgb

    reading = 0.0
    if _held is None or (_held.label, _held.rank) != (task.label, rank):
        begin = time.process_time()
        if _held is not None:
            _held.close()
            _held = None
        _held = _built(rank, task, share, load, scratch)
        reading = time.process_time() - begin
    if _held.targets != task.model.number:
        _held.log_likelihoods = {}
        booster = None
        if _held.scores != task.model.number:  # the first model, or one of a process that died
            booster = xgb.Booster({"nthread": 1})
            booster.load_model(bytearray(task.model.booster))
        _held.targets = _held.scores = None
        for group in _held.groups:
            _held.log_likelihoods |= _posteriors(group, task.model, booster)
        _held.targets = task.model.number
    return _held, reading


def _built(rank: int, task: BoostingStep, share: Share, load: Load, scratch: str | None) -> _Held:
    """Read the partitions of this rank."""
    import pyarrow as pa
    import xgboost as xgb

    # Only one group's gradients are in memory at a time, which bounds what XGBoost takes.
    groups = [share[g :: task.groups] for g in range(task.groups)]
    if not all(groups):
        raise LLPError(
            f"rank {rank} has {len(share)} partitions, too few for {task.groups} groups that fit "
            "into its memory; use smaller partitions, more workers or more memory"
        )
    threads = task.params.get("nthread") or 1
    grid = task.bins.values.T  # (256, D)
    folder = tempfile.TemporaryDirectory(prefix="llpkit-", dir=scratch)
    options = {"nthread": threads, "max_bin": 256, "missing": np.nan}
    found = []
    # One row per interval: the same bins for all ranks and groups, and no pass to find them.
    reference = xgb.QuantileDMatrix(grid[~np.isnan(grid).all(1)], **options)
    for g, group in enumerate(groups):
        rows = _rows(group, load, f"{folder.name}/{g}")
        matrix = xgb.ExtMemQuantileDMatrix(rows, ref=reference, **options)
        found.append(_Group(matrix, rows.bags))
    pa.default_memory_pool().release_unused()
    return _Held(task.label, rank, found, folder)


def _rows(chosen: Share, load: Load, prefix: str) -> Any:
    """The partitions of one group, one at a time, as XGBoost asks for them: twice."""
    import xgboost as xgb

    largest = np.finfo(np.float32).max  # XGBoost refuses infinity

    class Rows(xgb.DataIter):
        def __init__(self) -> None:
            self.at = 0
            self.bags: dict[int, Path] = {}
            super().__init__(cache_prefix=prefix, release_data=True)

        def reset(self) -> None:
            self.at = 0

        def next(self, input_data: Callable[..., None]) -> bool:
            if self.at >= len(chosen):
                return False
            i, part = chosen[self.at]
            self.at += 1
            X, bags = load(part)
            if i not in self.bags:
                self.bags[i] = Path(f"{prefix}-{i}.bags")
                self.bags[i].write_bytes(pickle.dumps((bags.offsets, bags.evidence)))
            X = X.astype(np.float32, copy=False)
            input_data(data=np.clip(X, -largest, largest))
            return True

    return Rows()


def _posteriors(group: _Group, model: Boosted, booster: Any) -> dict[int, float]:
    """Set the targets of a group; return the log-likelihoods of its partitions.

    Without a booster, its scores are where the targets will be.
    """
    matrix = group.matrix
    scores = booster.predict(matrix, output_margin=True) if booster else matrix.get_label()
    found, end = {}, 0
    for i, path in group.bags.items():
        offsets, evidence = pickle.loads(path.read_bytes())
        begin, end = end, end + int(offsets[-1])
        z = model.scale(scores[begin:end].astype(np.float64).clip(-model.bound, model.bound))
        log_p, phi = log_prob_and_posterior(torch.from_numpy(z), evidence, offsets, validate=False)
        scores[begin:end] = phi.numpy()  # in place: there are as many posteriors as scores
        found[i] = float(log_p.sum())
    matrix.set_info(label=scores)
    return found


def scores_of(model: bytes, X: Array) -> Array:
    """Log-odds of rows under a model, float32 ``(n,)``."""
    import xgboost as xgb

    booster = xgb.Booster({"nthread": 1})
    booster.load_model(bytearray(model))
    return np.asarray(booster.inplace_predict(X, predict_type="margin"))
