"""The M-step of EM: a classifier fitted to rows with a weight for each class."""

import copy
import warnings
from typing import Any

import numpy as np
import sklearn
from scipy.special import logit
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from llpkit._arrays import Array
from llpkit.errors import LLPError
from llpkit.estimators._bags_from_y import num_rows
from llpkit.estimators.base import ENOUGH
from llpkit.progress import task
from llpkit.statistics.models import last_step
from llpkit.statistics.rows import take_rows

_NEGLIGIBLE = 1e-6
"""Rows whose posterior for a class is below this are left out of that class."""


def may_interpolate(estimator: Any) -> bool:
    """Whether a classifier may memorise its training rows: all but linear ones and naive Bayes."""
    last = last_step(estimator)
    return not (_is_linear(last) or _inherits_from("sklearn.naive_bayes", last))


def em_is_monotone(estimator: Any) -> bool:
    """Whether a fit maximises the penalised likelihood of its labels: EM then never lowers it."""
    return _is_linear(last_step(estimator)) and hasattr(estimator, "predict_proba")


def _is_linear(estimator: Any) -> bool:
    # LinearSVC and discriminant analysis also have a base class from that package.
    return _inherits_from("sklearn.linear_model", estimator)


def _inherits_from(package: str, estimator: Any) -> bool:
    """Whether any base class is from the package; there is no common public base class."""
    return any(base.__module__.startswith(package) for base in type(estimator).__mro__)


class WeightedFits:
    """Fits of one classifier to the same rows with new weights each time.

    Args:
        estimator: The classifier, not fitted.
        X: The rows.
        num_classes: ``K``; the classifier sees the classes as ``0 … K - 1``.
        folds: The fold of every row, ``(N,)``: scores are then those of fits to the other folds.
        random: Seeds the random states that the classifier leaves open.
    """

    def __init__(
        self,
        estimator: Any,
        X: Any,
        num_classes: int,
        folds: Array | None,
        random: np.random.RandomState,
    ) -> None:
        if not has_fit_parameter(last_step(estimator), "sample_weight"):
            raise LLPError(
                f"{type(last_step(estimator)).__name__}.fit takes no sample_weight, which the "
                "M-step needs; choose a classifier that does, such as "
                "HistGradientBoostingClassifier"
            )
        self.X = X
        if isinstance(estimator, HistGradientBoostingClassifier):
            self.X = rounded(X, estimator.max_bins)
        self.num_classes = num_classes
        self.folds = folds
        self.template = _without_early_stopping(seeded(estimator, random))
        self.warm = _continues(last_step(self.template))
        if self.warm:
            last_step(self.template).set_params(warm_start=True)
        self.models: dict[int, Any] = {}

    def fit(self, phi: Array, rows: Array | None = None, model: Any = None) -> Any:
        """Fit the classifier to posteriors ``(N,)`` or ``(N, K)``, on these rows only."""
        rows = np.arange(len(phi)) if rows is None else rows
        weights = [1 - phi[rows], phi[rows]] if phi.ndim == 1 else list(phi[rows].T)
        kept = [np.flatnonzero(w > _NEGLIGIBLE) for w in weights]  # the rows of each class
        present = [k for k, members in enumerate(kept) if len(members)]
        if len(present) < 2:
            raise LLPError(
                f"the counts leave only class {present[0]} for all {len(rows)} rows; give bags "
                "with rows of two classes or more"
            )
        # Each row once for every class that it may have, with the posterior as its weight.
        labels = np.repeat(np.arange(len(kept)), list(map(len, kept)))
        weight = np.concatenate([w[members] for w, members in zip(weights, kept, strict=True)])
        chosen = np.concatenate(kept)
        model = clone(self.template) if model is None else model
        weighting = {_weight_name(model): weight}
        if len(chosen) == len(rows):  # all labels are known: an ordinary fit
            order = np.argsort(chosen)
            chosen, labels, weighting = chosen[order], labels[order], {}
        part = take_rows(self.X, rows[chosen])
        # Without metadata routing, a pipeline passes weights on by the name of the step.
        with sklearn.config_context(enable_metadata_routing=False):
            model.fit(part, labels, **weighting)
        return model

    def scores(self, phi: Array, floor: float) -> tuple[Array, Any]:
        """Fit and score all rows; also returns the model, or None if there are folds."""
        with warnings.catch_warnings():
            if self.warm:  # the next M-step continues from there
                warnings.simplefilter("ignore", ConvergenceWarning)
            if self.folds is None:
                model = self._refit(0, phi, None)
                kept = copy.deepcopy(model) if self.warm else model  # the next fit changes it
                return class_scores(model, self.X, self.num_classes, floor), kept
            score = np.empty(phi.shape)
            num_folds = int(self.folds.max()) + 1
            with task("fold", num_folds) as steps:
                for fold in range(num_folds):
                    model = self._refit(fold, phi, np.flatnonzero(self.folds != fold))
                    rows = np.flatnonzero(self.folds == fold)
                    part = take_rows(self.X, rows)
                    score[rows] = class_scores(model, part, self.num_classes, floor)
                    steps.step()
            return score, None

    def _refit(self, fold: int, phi: Array, rows: Array | None) -> Any:
        """A fit that continues from the last one on the same rows, if the classifier can."""
        model = self.fit(phi, rows, self.models.get(fold))
        if self.warm:
            self.models[fold] = model
        return model


def class_scores(model: Any, X: Any, num_classes: int, floor: float) -> Array:
    """Scores of rows: ``(N,)``, positive for the second class, or ``(N, K)``.

    If the classifier has probabilities, the scores are their logits, with probabilities kept
    ``floor`` away from zero and one; otherwise they are its decision values. A class without rows
    in the fit gets the lowest score.
    """
    scores = _class_scores(model, X, num_classes, floor)
    if not np.isfinite(scores).all():
        raise LLPError(
            f"{type(last_step(model)).__name__} gave scores that are not finite; constant columns "
            "or very large values may be the reason: leave such columns out, or scale them"
        )
    return scores


def _class_scores(model: Any, X: Any, num_classes: int, floor: float) -> Array:
    fitted = np.asarray(model.classes_)  # a fold may have no rows of some class
    if hasattr(model, "predict_proba"):
        p = np.zeros((num_rows(X), num_classes))
        p[:, fitted] = model.predict_proba(X)
        p = p.clip(floor, 1 - floor)
        return np.asarray(logit(p[:, 1]) if num_classes == 2 else np.log(p))
    value = np.asarray(model.decision_function(X), np.float64)
    if num_classes == 2:
        return value
    if value.ndim == 1:
        value = np.stack([-value, value], 1)
    full = np.full((len(value), num_classes), value.min())
    full[:, fitted] = value
    return full


def rounded(X: Any, bins: int) -> Any:
    """``X`` with each column of numbers rounded to the nearest of its quantiles.

    Histogram boosting bins the columns anyway, but computes weighted quantiles in every fit, which
    costs several times as much as the trees. If there are no more values than bins, it uses the
    midpoints, so a fit to rounded rows has the same thresholds and works for any rows.
    """
    frame = hasattr(X, "iloc")
    if X.shape[0] > ENOUGH or not (frame or isinstance(X, np.ndarray)):
        return X  # with more rows it bins a sample, without weights
    copied = X.copy()
    for j in range(X.shape[1]):
        column = X.iloc[:, j].to_numpy() if frame else X[:, j]
        if column.dtype.kind != "f":
            continue
        finite = np.isfinite(column)
        if len(np.unique(column[finite])) <= bins:
            continue
        marks = np.unique(np.quantile(column[finite], np.linspace(0, 1, bins), method="nearest"))
        nearest = marks[np.searchsorted((marks[1:] + marks[:-1]) / 2, column)]
        rounded_column = np.where(finite, nearest, column)
        if frame:
            copied.isetitem(j, rounded_column)
        else:
            copied[:, j] = rounded_column
    return copied


def seeded(estimator: Any, random: np.random.RandomState) -> Any:
    """A clone in which every random state that was None is set."""
    copied = clone(estimator)
    unset = [
        name
        for name, value in copied.get_params(deep=True).items()
        if (name == "random_state" or name.endswith("__random_state")) and value is None
    ]
    seeds = random.randint(np.iinfo(np.int32).max, size=len(unset))
    return copied.set_params(**dict(zip(sorted(unset), seeds.tolist(), strict=True)))


def _without_early_stopping(estimator: Any) -> Any:
    """Turn off early stopping: its held-out rows would have copies among the training rows."""
    last = last_step(estimator)
    value = last.get_params(deep=False).get("early_stopping")
    if value == "auto":
        last.set_params(early_stopping=False)
    elif value:
        warnings.warn(
            f"{type(last).__name__} has early_stopping = {value!r}, but copies of every row are on "
            "both sides of its split, so it stops at the wrong time; set early_stopping=False",
            UserWarning,
            stacklevel=5,
        )
    return estimator


def _continues(estimator: Any) -> bool:
    """Whether ``warm_start`` continues from the last weights; with trees it adds more trees."""
    weights = _is_linear(estimator) or isinstance(estimator, MLPClassifier)
    return weights and "warm_start" in estimator.get_params(deep=False)


def _weight_name(estimator: Any) -> str:
    """The name of the argument of ``fit`` for the weights of a pipeline's last step."""
    if not isinstance(estimator, Pipeline):
        return "sample_weight"
    name, step = estimator.steps[-1]
    return f"{name}__{_weight_name(step)}"
