"""The bag bootstrap: refit any estimator to bags drawn with replacement."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from llpkit._arrays import Array
from llpkit._validation import share, whole
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.progress import progress as progress_bar
from llpkit.progress import task
from llpkit.ragged import bag_index, instances_of
from llpkit.statistics.models import LinearAdapter, as_rows, last_step, steps_of
from llpkit.statistics.rows import take_rows

Statistic = Callable[[Any], Any]


@dataclass(frozen=True)
class Bootstrap:
    """A statistic and its values in refits to resampled bags."""

    estimate: Array
    """The statistic of the model itself, flat ``(P,)``."""
    replicates: Array
    """``(n, P)``."""
    failed: int
    """Refits that raised an error, such as when a class was missing from the drawn bags."""

    @property
    def standard_error(self) -> Array:
        """``(P,)``."""
        return np.asarray(self.replicates.std(0, ddof=1))

    @property
    def covariance(self) -> Array:
        """``(P, P)``."""
        return np.atleast_2d(np.cov(self.replicates, rowvar=False))

    def conf_int(self, level: float = 0.95) -> Array:
        """Confidence intervals ``(P, 2)``: percentiles of the replicates."""
        share("level", level)
        tails = [(1 - level) / 2, (1 + level) / 2]
        return np.asarray(np.quantile(self.replicates, tails, axis=0).T)


def bootstrap(
    model: Any,
    X: Any,
    y: Any,
    groups: Any = None,
    *,
    statistic: Statistic | None = None,
    replicates: int = 200,
    multiplicity: Any = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: bool = False,
) -> Bootstrap:
    """Refit an estimator to bags drawn with replacement, and compute a statistic of each refit.

    It works with every estimator, whatever its loss, and with pipelines. Whole bags are drawn,
    because labels within a bag are not observed one by one.

    Args:
        model: A fitted estimator of :mod:`llpkit.estimators`, or a pipeline that ends in one.
        X: The features that it was fitted to.
        y: What is known about each row's bag, as for ``fit``.
        groups: The bag of every row.
        statistic: A function of a fitted model that returns a number or an array, such as
            ``lambda m: m.predict_proba(new)[:, 1]``. By default, the parameters of a linear model
            as in :func:`summary`.
        replicates: Number of refits.
        multiplicity: How many instances every row represents.
        random_state: Seed; refit i depends on the seed and i only.
        n_jobs: Number of processes, as in joblib.
        progress: Show a progress bar.

    >>> from llpkit.estimators import LLPLogisticRegression
    >>> random = np.random.default_rng(0)
    >>> X, groups = random.normal(size=(800, 1)), np.repeat(np.arange(100), 8)
    >>> labels = random.random(800) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> y = np.bincount(groups, labels).astype(int)[groups]
    >>> model = LLPLogisticRegression().fit(X, y, groups)
    >>> found = bootstrap(model, X, y, groups, replicates=50)
    >>> found.replicates.shape, bool(0.2 < found.standard_error[1] < 0.6)
    ((50, 2), True)
    """
    from joblib import Parallel, delayed

    whole("replicates", replicates, 2)
    statistic = statistic or _parameters
    estimate = np.asarray(statistic(model), np.float64)
    bags = bags_of(model, X, y, groups, multiplicity)
    jobs = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_refit)(model, X, bags, multiplicity, statistic, [random_state, i])
        for i in range(replicates)
    )
    values = []
    with (
        progress_bar(title="bootstrap") if progress else nullcontext(),
        task("refit", replicates) as steps,
    ):
        for value in jobs:
            steps.step()
            if value is not None:
                values.append(value)
    failed = replicates - len(values)
    if len(values) < 2:
        raise LLPError(f"{failed} of {replicates} refits failed; too few bags to resample")
    return Bootstrap(estimate.ravel(), np.stack(values), failed)


def bags_of(model: Any, X: Any, y: Any, groups: Any, multiplicity: Any) -> Bags:
    """The bags that the arguments describe to the last step of a model."""
    last = last_step(model)
    if not hasattr(last, "bags"):
        raise LLPError(
            f"{type(last).__name__} is not an estimator of llpkit.estimators; wrap a classifier in "
            "LLPClassifier"
        )
    bags: Bags = last.bags(X, y, groups, multiplicity)
    return bags


def _parameters(model: Any) -> Array:
    """The parameters of a linear model, as :func:`summary` lists them."""
    last = last_step(model)
    if not hasattr(last, "coef_") or not hasattr(last, "C") or not hasattr(last, "fit_intercept"):
        raise LLPError(
            f"{type(last).__name__} has no coefficients; pass statistic=, a function of a fitted "
            "model, such as lambda m: m.predict_proba(X)[:, 1]"
        )
    return np.asarray(LinearAdapter(last).estimate)


def _refit(
    model: Any, X: Any, bags: Bags, multiplicity: Any, statistic: Statistic, seed: list[int]
) -> Array | None:
    """The statistic of a refit to drawn bags; ``None`` if that fails."""
    from sklearn.base import clone

    chosen = np.random.default_rng(seed).integers(len(bags), size=len(bags))
    instances, offsets = instances_of(bags.offsets, torch.from_numpy(chosen))
    rows, groups = bags.rows[instances].numpy(), bag_index(offsets).numpy()
    extra = {} if multiplicity is None else {"multiplicity": np.asarray(multiplicity)[rows]}
    # One entry per row, which cannot be mistaken for one per bag.
    y = bags.evidence[chosen][groups]
    again, x = clone(model), take_rows(as_rows(X), rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the original fit has warned
        try:
            *before, last = steps_of(again)
            for step in before:
                x = step.fit_transform(x)
            last.fit(x, y, groups, **extra)
            return np.asarray(statistic(again), np.float64).ravel()
        except (LLPError, ValueError, ArithmeticError, np.linalg.LinAlgError):
            return None
