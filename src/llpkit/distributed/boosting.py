"""EM around XGBoost on partitions: E-steps where the partitions are, M-steps on all workers."""

import time
import uuid
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from llpkit._arrays import Array
from llpkit._package import package
from llpkit._threads import threads
from llpkit.distributed.binned import Bins
from llpkit.distributed.parts import Part
from llpkit.distributed.ranks import Log, Ranks
from llpkit.distributed.steps import (
    Boosted,
    BoostingStep,
    e_step,
    forget,
    groups_for,
    m_step,
    scores_of,
    shares,
)
from llpkit.errors import LLPError
from llpkit.estimators import LLPClassifier
from llpkit.estimators.em import NOISY_TOL, last_gain, warn_not_converged
from llpkit.estimators.logistic import Scale, calibrate

Data = list[list[tuple[int, Any]]]
"""For each rank its partitions, with their numbers."""
_PER_LEAF = 20
"""Rows per leaf below which a fit may memorise its targets."""


def template_of(estimator: LLPClassifier) -> Any:
    """The XGBoost classifier within EM, checked."""
    xgboost = package("xgboost", "dask")
    template = xgboost.XGBClassifier() if estimator.estimator is None else estimator.estimator
    if type(template) is not xgboost.XGBClassifier:
        raise LLPError(
            f"the classifier is {type(template).__name__}, but on partitions the M-step is "
            "XGBoost's; give LLPClassifier(xgboost.XGBClassifier(...))"
        )
    params = template.get_params()
    for name, allowed in (
        ("booster", (None, "gbtree")),
        ("objective", (None, "binary:logistic")),
        ("tree_method", (None, "auto", "hist")),
        ("early_stopping_rounds", (None,)),
        ("max_bin", (None, 256)),
    ):
        if params.get(name) not in allowed:
            raise LLPError(f"XGBClassifier({name}={params[name]!r}) is not possible on partitions")
    if estimator.out_of_fold is True:
        raise LLPError(
            "out_of_fold=True is not supported on partitions; with many more rows than leaves it "
            "makes no difference"
        )
    return template


def fit_parts(
    estimator: LLPClassifier,
    ranks: Ranks,
    parts: Sequence[Any],
    rows: Sequence[int],
    num_bags: int,
    sample: Part,
    bins: Bins,
    log: Log,
) -> LLPClassifier:
    """A fitted copy of the estimator.

    EM starts with an ordinary fit to a sample of the bags, with all settings of the estimator;
    then E- and M-steps over all partitions alternate until ``tol`` or ``max_iter`` is reached.

    Args:
        estimator: The settings.
        ranks: Where XGBoost runs.
        parts: The partitions: held by Dask, or functions that read them.
        rows: Their numbers of rows.
        num_bags: Bags in all partitions.
        sample: Some bags, in memory.
        bins: The intervals of the features.
        log: Called with the time and the result of every step.
    """
    template, total = template_of(estimator), sum(rows)
    rounds = template.get_num_boosting_rounds()
    leaves = rounds * 2 ** (template.max_depth or 6)
    if total < _PER_LEAF * leaves:
        warnings.warn(
            f"{total:,} rows are few for up to {leaves:,} leaves: EM may repeat its first guess; "
            "fit the table in memory, where out-of-fold predictions prevent that, or use fewer or "
            "smaller trees",
            UserWarning,
            stacklevel=4,
        )
    first = clone(estimator).set_params(estimator=clone(template))
    X = _start(first, sample, bins, log)
    bound = float(np.log(total + 1))  # Laplace's rule, as for tables in memory
    model = Boosted(
        0,
        bytes(first.estimator_.get_booster().save_raw("ubj")),
        Scale(first.slope_, np.asarray(first.shift_)),
        bound,
    )
    of_rank = shares(rows, min(ranks.number, len(rows)))
    data = [[(i, parts[i]) for i in share] for share in of_rank]
    groups_of_trees = groups_for([sum(rows[i] for i in share) for share in of_rank], ranks.memory)
    params = template.get_xgb_params() | {"objective": "binary:logistic", "tree_method": "hist"}
    params |= {"max_bin": 256, "nthread": template.n_jobs or 1}
    task = BoostingStep(uuid.uuid4().hex, params, rounds, bins, groups_of_trees, model)
    tol = NOISY_TOL if estimator.tol is None else estimator.tol
    history: list[float] = []
    best, converged = model, False
    try:
        for iteration in range(estimator.max_iter + 1):
            history.append(_e_step(ranks, task, data, num_bags, iteration, log))
            if history[-1] == max(history):
                best = task.model
            if len(history) >= 3 and last_gain(history) < tol:
                converged = True
                break
            if iteration == estimator.max_iter:
                break
            booster = _m_step(ranks, task, data, iteration + 1, log)
            score = scores_of(booster, X).astype(np.float64).clip(-bound, bound)
            with threads(1):  # the workers run too: more threads would wait for each other
                scale = calibrate(score, sample.bags)
            task = task._replace(model=Boosted(iteration + 1, booster, scale, bound))
    finally:
        ranks.each(forget, task.label)
    if not converged:
        warn_not_converged(estimator.max_iter, history, tol, stacklevel=5)
    return _fitted(first, template, best, history, converged, total)


def _start(first: LLPClassifier, sample: Part, bins: Bins, log: Log) -> Array:
    """Fit the estimator to the sample; returns the features as the trees see them."""
    begin = time.perf_counter()
    X = bins.numbers(bins.code(sample.X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is only the start
        bag = sample.bags.bag_index
        first.fit(X, sample.bags.evidence[bag], bag.numpy())
    log({"step": "start", "rows": len(X), "seconds": time.perf_counter() - begin})
    return X


def _e_step(
    ranks: Ranks, task: BoostingStep, data: Data, num_bags: int, iteration: int, log: Log
) -> float:
    """An E-step of all partitions; the mean log-likelihood per bag."""
    begin = time.perf_counter()
    done = ranks.run(e_step, task, data)
    values = {i: value for each in done for i, value in each.log_likelihoods.items()}
    # In the order of the partitions, so that the sum is always the same.
    mean = float(sum(values[i] for i in range(len(values))) / num_bags)
    log(
        {
            "step": "E",
            "iteration": iteration,
            "log_likelihood": mean,
            "seconds": time.perf_counter() - begin,
            "cpu": sum(each.seconds for each in done),
            "reading_cpu": sum(each.reading for each in done),
        }
    )
    return mean


def _m_step(ranks: Ranks, task: BoostingStep, data: Data, iteration: int, log: Log) -> bytes:
    """The trees of an M-step."""
    begin = time.perf_counter()
    trained = ranks.run_joint(e_step, m_step, task, data)
    log(
        {
            "step": "M",
            "iteration": iteration,
            "seconds": time.perf_counter() - begin,
            "cpu": sum(each.seconds for each in trained),
            "groups": task.groups,
        }
    )
    return bytes(trained[0].booster)


def _fitted(
    first: LLPClassifier,
    template: Any,
    model: Boosted,
    history: Sequence[float],
    converged: bool,
    rows: int,
) -> LLPClassifier:
    """The ordinary estimator with this model."""
    inner = clone(template)
    inner.load_model(bytearray(model.booster))
    first.estimator_ = inner
    first.slope_, first.shift_ = model.scale.slope, model.scale.shift
    first.floor_ = 1 / (rows + 2)
    first.log_likelihoods_ = np.array(history)
    first.n_iter_ = max(1, len(history) - 1)
    first.converged_, first.out_of_fold_ = converged, False
    return first
