"""Fitting estimators to tables that do not fit into memory."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.base import clone

from llpkit._validation import flag_or_auto, whole
from llpkit.distributed import boosting, logistic
from llpkit.distributed.binned import Bins
from llpkit.distributed.check import Checked, check
from llpkit.distributed.cluster import answering, current
from llpkit.distributed.partitions import (
    INDEX,
    Partitions,
    RowGroups,
    array_partitions,
    frame_partitions,
    parquet,
)
from llpkit.distributed.parts import Layout, Part, read_part
from llpkit.distributed.ranks import Log, Ranks, Workers
from llpkit.errors import LLPError
from llpkit.estimators import BaseLLP, LLPClassifier, LLPLogisticRegression
from llpkit.estimators.base import ENOUGH
from llpkit.tables import CountColumns, FeatureEncoder, listed

_HELD = 0.4
"""Share of the cluster's memory that partitions may fill and still be kept there."""


def fit(
    estimator: BaseLLP,
    data: Any,
    *,
    bag: Any,
    count: Any = None,
    features: Sequence[str] | FeatureEncoder | None = None,
    persist: bool | Literal["auto"] = "auto",
    sample_rows: int = ENOUGH,
    seed: int = 0,
    log: Log | None = None,
) -> Any:
    """Fit an estimator to a table in partitions, each of which holds whole bags.

    Everything runs where Dask computes by default: on the cluster of the current
    ``distributed.Client``, else in this process. One pass checks all partitions before the fit
    begins. The result does not depend on which worker did what, or on whether workers died.

    Args:
        estimator: :class:`~llpkit.estimators.LLPLogisticRegression`, or
            :class:`~llpkit.estimators.LLPClassifier` around an ``XGBClassifier`` (its default
            here).
        data: Parquet files (a path, a pattern such as ``"data/*.parquet"``, a list), a Dask
            dataframe, or a Dask array ``(N, D)``.
        bag: The column of bag ids; with arrays, a Dask array ``(N,)``.
        count: The column of counts, one per class, or :class:`~llpkit.tables.CountColumns` for
            bounds and proportions; with arrays, a Dask array ``(N,)`` or ``(N, K)``.
        features: Columns to learn from (all others), or a fitted encoder.
        persist: Whether logistic regression keeps the partitions in the workers' memory, instead of
            reading them in every pass; by default if they fit. EM reads Parquet files once, and
            keeps them on disk as one byte per number.
        sample_rows: Rows, in whole bags, of a sample in this process's memory; the fit starts with
            them.
        seed: Seed for the choice of these bags.
        log: Called with a dictionary after every step.

    Returns:
        The fitted estimator, an ordinary one: it predicts in memory and can be saved.

    >>> import dask.array as da
    >>> X, bags = da.arange(8, chunks=4)[:, None] % 4, da.arange(8, chunks=4) // 2
    >>> counts = da.where(bags % 2 == 1, 2, 0)  # 2 and 3 are positive
    >>> model = fit(LLPLogisticRegression(), X, bag=bags, count=counts)
    >>> model.predict([[0], [3]])
    array([0, 1])
    """
    flag_or_auto("persist", persist)
    whole("sample_rows", sample_rows, 1)
    partitions, layout = _described(data, bag, count, features)
    if isinstance(estimator, LLPClassifier):
        boosting.template_of(estimator)
        classes = layout.counts.classes
        if classes is not None and len(classes) > 2:
            raise LLPError(
                f"counts of {len(classes)} classes: on partitions LLPClassifier "
                "takes the counts of one class; use LLPLogisticRegression"
            )
    elif not isinstance(estimator, LLPLogisticRegression):
        raise LLPError(
            f"{type(estimator).__name__} cannot be fitted to partitions; give "
            "LLPLogisticRegression or LLPClassifier"
        )
    log = log or (lambda _: None)
    checked = check(
        partitions,
        layout,
        sample_rows=sample_rows,
        seed=seed,
        every=features is None,  # all of them are used, so a difference matters
        finite=isinstance(estimator, LLPLogisticRegression),
    )
    log({"step": "check", "rows": sum(checked.rows), "bags": checked.bags})
    return fit_checked(estimator, partitions, layout, checked, persist=persist, log=log)


@answering()
def fit_checked(
    estimator: BaseLLP,
    partitions: Partitions,
    layout: Layout,
    checked: Checked,
    *,
    persist: bool | Literal["auto"] = "auto",
    log: Log,
) -> Any:
    """:func:`fit` after the check."""
    import dask

    sample = read_part(checked.sample, "the sample", layout)
    shared = dask.delayed(layout)  # sent to the workers once
    named = list(zip(partitions.pieces, partitions.names, strict=True))
    client = current()
    ranks = Ranks() if client is None else Workers(client, log)
    if isinstance(estimator, LLPClassifier):
        bins = Bins.of(sample.X)
        parts: Sequence[Any]
        if isinstance(partitions.pieces[0], RowGroups):  # read by the rank that trains on them
            parts = [partial(read_part, *entry, layout) for entry in named]
        else:
            parts = dask.persist(*[dask.delayed(read_part)(*entry, shared) for entry in named])
        fitted = boosting.fit_parts(
            estimator, ranks, parts, checked.rows, checked.bags, sample, bins, log
        )
        fitted.classes_ = np.arange(2)
        fitted.n_features_in_ = sample.X.shape[1]
        return fitted
    assert isinstance(estimator, LLPLogisticRegression)
    rows = sum(checked.rows)
    if persist == "auto":
        persist = rows * (sample.X[0].nbytes + 8) < _HELD * ranks.memory * ranks.number
    kept: Sequence[Any] = []
    if persist:
        kept = dask.persist(*[dask.delayed(_read)(*entry, shared) for entry in named])
    spent = {"cpu": 0.0, "reading_cpu": 0.0}

    def over(function: Callable[..., Any], *more: Any) -> list[Any]:
        tasks = [dask.delayed(_on)(each, function, *more) for each in kept] or [
            dask.delayed(_read_and)(*entry, shared, function, *more) for entry in named
        ]
        done = dask.compute(*tasks)
        # Parts that are kept were read once, but return the time for it in every pass.
        reading = sum(each.reading for each in done)
        spent["reading_cpu"] = reading if kept else spent["reading_cpu"] + reading
        spent["cpu"] += sum(each.seconds for each in done)
        return [each.value for each in done]

    optimum, passes, chosen = logistic.fit_parts(estimator, over, rows, sample, log)
    log({"step": "logistic", "passes": passes, "persisted": persist, **spent})
    fitted = clone(estimator)
    fitted.coef_, fitted.intercept_ = optimum.weights[:-1].T, optimum.weights[-1]
    fitted.n_iter_, fitted.approximation_ = optimum.n_iter, chosen
    fitted.classes_ = np.arange(max(2, len(optimum.weights[-1])))
    optimum.warn(estimator)
    fitted.n_features_in_ = sample.X.shape[1]
    return fitted


class _Kept(NamedTuple):
    """A partition in the memory of a worker, and the CPU seconds to read it."""

    part: Part
    reading: float


class _Done(NamedTuple):
    """The result of a function on a partition, and CPU seconds."""

    value: Any
    reading: float
    seconds: float


def _read(piece: Any, name: str, layout: Layout) -> _Kept:
    begin = time.thread_time()
    return _Kept(read_part(piece, name, layout), time.thread_time() - begin)


def _on(kept: _Kept, function: Callable[..., Any], *more: Any) -> _Done:
    begin = time.thread_time()
    return _Done(function(kept.part, *more), kept.reading, time.thread_time() - begin)


def _read_and(
    piece: Any, name: str, layout: Layout, function: Callable[..., Any], *more: Any
) -> _Done:
    return _on(_read(piece, name, layout), function, *more)


def _described(data: Any, bag: Any, count: Any, features: Any) -> tuple[Partitions, Layout]:
    """The partitions, and which columns hold what."""
    if hasattr(data, "chunks"):
        if getattr(data, "ndim", 0) != 2 or np.isnan(data.shape[1]):
            raise LLPError(f"X has shape {data.shape}; give (N, D)")
        partitions, bag, counts = array_partitions(data, bag, count)
        return partitions, Layout(bag, counts, tuple(f"x{j}" for j in range(data.shape[1])))
    if count is None:
        raise LLPError("count is missing; name the column of counts")
    counts = count if isinstance(count, CountColumns) else CountColumns(count)
    if isinstance(data, str | Path | list | tuple):
        partitions = parquet(data)
        import pyarrow.parquet as pq

        names = list(pq.read_schema(partitions.pieces[0].path).names)
    elif hasattr(data, "to_delayed") and hasattr(data, "columns"):
        partitions, names = frame_partitions(data), list(data.columns)
    else:
        raise LLPError(
            f"data is a {type(data).__name__}; give Parquet files, a Dask dataframe or a Dask array"
        )
    if features is None:
        used = {bag, *counts.names}
        features = [name for name in names if name not in used and not name.startswith(INDEX)]
    if not isinstance(features, FeatureEncoder):
        features = tuple(listed(features))
        if not features:
            raise LLPError("there is no column to learn from besides bag and count; add some")
    return partitions, Layout(bag, counts, features)
