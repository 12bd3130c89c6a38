"""Choose the settings of an estimator by the likelihood of held-out bags."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ParameterGrid, ParameterSampler

from llpkit._validation import whole
from llpkit.errors import LLPError
from llpkit.estimators._bags_from_y import bags_of, num_rows
from llpkit.estimators.base import BaseLLP
from llpkit.estimators.registry import ESTIMATORS, full_name, make
from llpkit.estimators.scorers import BagScorer, bag_log_likelihood
from llpkit.progress import TaskProgress, task


class Tried(NamedTuple):
    """A candidate of a search and its log-likelihood per held-out bag, over the folds."""

    settings: dict[str, Any]
    mean: float
    standard_error: float
    behind: float
    """How far below the best its mean is."""
    behind_error: float
    """The standard error of that difference, fold by fold."""


def search(
    estimator: Any,
    X: Any,
    y: Any,
    groups: Any = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    candidates: int = 20,
    n_folds: int = 5,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> GridSearchCV:
    """Choose settings by the likelihood of held-out bags; labels are never needed.

    Whole bags are held out, fold by fold, and the candidate with the highest mean log-likelihood is
    fitted to all bags. The first candidate is the estimator as given; the others come from the
    grid, at random if it is larger than ``candidates``.

    Args:
        estimator: An estimator of :mod:`llpkit.estimators`, a pipeline that ends in one, or a name
            among :data:`~llpkit.estimators.ESTIMATORS`.
        X: Features ``(N, D)``.
        y: What is known about each row's bag.
        groups: The bag of every row, ``(N,)``.
        grid: Values to try, by parameter; needed unless the estimator is a name.
        candidates: Maximum number of candidates.
        n_folds: Number of folds; bags stay whole.
        random_state: Seed of the folds and of the candidates.
        n_jobs: Number of processes, as in scikit-learn; :func:`progress` does not cover them.

    Returns:
        scikit-learn's search, fitted: ``best_params_``, ``best_estimator_``, ``cv_results_``;
        :func:`tried` lists its candidates.

    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(200, 2)), np.arange(200) // 4
    >>> y = np.bincount(groups, X[:, 0] > 0).astype(int)[groups]
    >>> found = search("logistic", X, y, groups, candidates=4)
    >>> found.best_params_
    {'C': 10.0}
    """
    whole("candidates", candidates, 1)
    whole("n_folds", n_folds, 2)
    if isinstance(estimator, str):
        grid = grid_of(estimator, {}) if grid is None else grid
        estimator = make(estimator, {}, random_state)
    if not grid:
        raise LLPError("there is nothing to search; pass a grid, such as {'C': [0.1, 1, 10]}")
    owner = type(estimator).__name__
    grid = {full_name(key, estimator, owner): values for key, values in grid.items()}
    routed: dict[str, Any] = {}
    num_bags, split = num_rows(X), KFold  # without groups every row is a bag
    if groups is not None:
        y, bag_of_row = _by_row(X, y, groups)
        routed, num_bags, split = {"groups": bag_of_row}, int(bag_of_row.max()) + 1, GroupKFold
    if num_bags < 2:
        raise LLPError("a search needs at least two bags; there is only one")
    settings = _candidates(estimator, grid, candidates, random_state)
    folds = min(n_folds, num_bags)
    found: GridSearchCV
    with task("candidate", len(settings)) as steps, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about candidates that fail or stop early
        found = GridSearchCV(
            estimator,
            [{key: [value] for key, value in one.items()} for one in settings],
            scoring=_Counting(steps if n_jobs is None else None, folds),
            cv=split(folds, shuffle=True, random_state=random_state),
            n_jobs=n_jobs,
            refit=False,
        )
        with sklearn.config_context(enable_metadata_routing=True):
            try:
                found.fit(X, y, **routed)
            except ValueError:  # scikit-learn's, if no candidate can be fitted
                clone(estimator).fit(X, y, **routed)  # raises the reason
                raise
    # Not refitted by the search itself, so that this fit can warn.
    found.best_estimator_ = clone(estimator).set_params(**found.best_params_)
    with sklearn.config_context(enable_metadata_routing=True):
        found.best_estimator_.fit(X, y, **routed)
    found.refit = True
    return found


def grid_of(name: str, fixed: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """The values to try for an estimator by name, without the settings that are fixed."""
    grid = ESTIMATORS[name].grid
    if not grid:
        able = [each for each, entry in ESTIMATORS.items() if entry.grid]
        raise LLPError(
            f"there are no values to try for the estimator {name}; search one of "
            f"{', '.join(able)}, or pass a grid in Python"
        )
    names = {*fixed, *(key.removeprefix("estimator__") for key in fixed)}
    left = {key: values for key, values in grid.items() if key not in names}
    if not left:
        raise LLPError(
            f"every setting of {name} that a search would try is already fixed: "
            f"{', '.join(grid)}; leave one free, or do not search"
        )
    return left


def tried(found: GridSearchCV) -> list[Tried]:
    """The candidates of a search, the best first."""
    results = found.cv_results_
    scores = np.stack([results[f"split{k}_test_score"] for k in range(found.n_splits_)])
    gap = scores[:, [found.best_index_]] - scores
    with np.errstate(invalid="ignore"):
        errors = [np.std(x, 0, ddof=1) / np.sqrt(len(scores)) for x in (scores, gap)]
        means = scores.mean(0), gap.mean(0)
    columns = means[0], errors[0], means[1], errors[1]
    order = np.argsort(results["rank_test_score"], kind="stable")
    return [
        Tried(
            {_short(k, found.estimator): v for k, v in results["params"][i].items()},
            *(float(column[i]) for column in columns),
        )
        for i in order
    ]


class _Counting(BagScorer):
    """The estimator's own score, the log-likelihood; counts candidates for the progress."""

    def __init__(self, steps: TaskProgress | None, folds: int) -> None:
        super().__init__("log_likelihood", bag_log_likelihood._measure)
        self.steps, self.folds, self.scores = steps, folds, list[float]()

    def __call__(self, estimator: Any, X: Any, y: Any, groups: Any = None) -> float:
        value = float(estimator.score(X, y, groups=groups))
        self.scores.append(value)
        if self.steps is not None and len(self.scores) % self.folds == 0:
            mean = float(np.mean(self.scores[-self.folds :]))
            self.steps.step(f"log-likelihood {mean:.4f}")
        return value


def _by_row(X: Any, y: Any, groups: Any) -> tuple[Any, Any]:
    """The count or evidence of each row's bag, in a form that can be split; the bag of each row."""
    bags, _ = bags_of(X, y, groups)
    of_row = torch.empty(bags.num_rows, dtype=torch.int64)
    of_row[bags.rows] = bags.bag_index
    known = bags.counts[of_row].numpy() if bags.evidence.is_exact else bags.evidence[of_row]
    return known, of_row.numpy()


def _short(name: str, estimator: Any) -> str:
    """A parameter without the prefix ``estimator__``, unless EM has one with the short name."""
    short = name.removeprefix("estimator__")
    return name if short in estimator.get_params(deep=False) else short


def _candidates(
    estimator: BaseLLP, grid: Mapping[str, Sequence[Any]], number: int, seed: int
) -> list[dict[str, Any]]:
    """The estimator's own settings first, then up to ``number`` in all from the grid."""
    own = {key: estimator.get_params(deep=True)[key] for key in grid}
    others: Any = ParameterGrid(dict(grid))
    if len(others) > number:
        others = ParameterSampler(dict(grid), number, random_state=seed)
    return [own, *(one for one in others if _plain(one) != _plain(own))][:number]


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that can be compared: a grid from YAML has lists where defaults are tuples."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}
