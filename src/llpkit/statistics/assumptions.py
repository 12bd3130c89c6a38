"""The model that a plan starts from: a guess, or a fitted one."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from llpkit._arrays import Array
from llpkit._validation import number, share
from llpkit.errors import LLPError
from llpkit.statistics.directions import standardised
from llpkit.statistics.models import features


class Model(NamedTuple):
    """A linear model of how the labels depend on the features."""

    design: Array
    """``(N, P)``: the features and a last column of ones."""
    weights: Array
    """``(P,)``, the intercept last."""
    names: tuple[str, ...]
    """The names of the ``P - 1`` features."""


def assume(
    X: Any, *, rate: float = 0.5, accuracy: float = 0.8, feature_names: Sequence[str] | None = None
) -> Model:
    """A model to plan with before one is fitted: all columns matter equally.

    The weight of a column is inverse to its standard deviation. Columns of two values, such as one
    per category, are scaled as if both values were common: otherwise, the labels of a rare category
    would be almost certain. Each has the sign that adds to the spread of the logits, so that the
    columns of a category do not cancel.

    Args:
        X: Features ``(N, D)`` of instances like those to be counted.
        rate: The share of positives.
        accuracy: The accuracy of the best possible classifier on these features.
        feature_names: Names of the columns; ``x0``, ``x1``, … by default.

    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> assume(X, rate=0.5, accuracy=0.8).weights.round(1)
    array([1.7, 1.7, 0.1])
    """
    x = _features(X)
    share("rate", rate)
    number("accuracy", accuracy, above=max(rate, 1 - rate), below=1)
    scale = _scale(x)
    if np.isinf(scale).all():
        raise LLPError("all columns of X are constant; give columns that differ between instances")
    score = ((x - x.mean(0)) / scale).sum(1)

    def intercept(slope: float) -> float:
        bound = 40 + slope * np.abs(score).max()
        root: float = brentq(lambda b: expit(slope * score + b).mean() - rate, -bound, bound)
        return root

    def excess(slope: float) -> float:
        p = expit(slope * score + intercept(slope))
        return float(np.maximum(p, 1 - p).mean() - accuracy)

    top = 1.0
    while excess(top) < 0:
        if top > 2**20:
            raise LLPError(
                f"accuracy = {accuracy:g} cannot be reached with these columns; lower it"
            )
        top *= 2
    slope = brentq(excess, 0, top)
    weights = np.append(slope / scale, 0.0)
    weights[-1] = intercept(slope) - float(x.mean(0) @ weights[:-1])
    return Model(_with_ones(x), weights, _names(X, x.shape[1], feature_names))


def _scale(x: Array) -> Array:
    """What to divide every column by ``(D,)``, infinite for a constant one: see :func:`assume`."""
    standard, spread = standardised(x)
    low, high = x.min(0), x.max(0)
    two = ((x == low) | (x == high)).all(0)
    scale = np.where(spread > 0, np.where(two, (high - low) / 2, spread), np.inf)
    score = standard[:, ~two].sum(1)
    for j in np.flatnonzero(two & (spread > 0)):
        scale[j] *= -1.0 if score @ standard[:, j] < 0 else 1.0
        score = score + (x[:, j] - x[:, j].mean()) / scale[j]
    return scale


def model_of(fitted: Any, X: Any, *, feature_names: Sequence[str] | None = None) -> Model:
    """A fitted model to plan with.

    The weights of a linear estimator, with ``coef_`` and ``intercept_``, are used as they are. For
    any other estimator, its logit is the only feature, and its slope and shift are planned for.
    """
    x = _features(X)
    if hasattr(fitted, "coef_") and hasattr(fitted, "intercept_"):
        coef = np.asarray(fitted.coef_)
        if coef.shape[0] != 1:
            raise LLPError(f"the model has {coef.shape[0]} classes; planning is for two")
        if coef.shape[1] != x.shape[1]:
            raise LLPError(
                f"X has {x.shape[1]} columns, but the model was fitted to {coef.shape[1]}"
            )
        weights = np.append(coef[0], np.ravel(fitted.intercept_)[0])
        return Model(_with_ones(x), weights, _names(X, x.shape[1], feature_names))
    z = np.asarray(fitted.decision_function(X), np.float64)
    if z.ndim != 1:
        raise LLPError(f"the model has {z.shape[1]} classes; planning is for two")
    return Model(_with_ones(z[:, None]), np.array([1.0, 0.0]), ("logit",))


def as_model(model: Any, X: Any, guess: Mapping[str, Any]) -> Model:
    """A model, the model of a fitted estimator, or a guess."""
    if isinstance(model, Model):
        return model
    if model is None:
        return assume(X, **guess)
    extra = [name for name in ("rate", "accuracy") if name in guess]
    if extra:
        raise LLPError(f"{extra[0]} is a guess that the model replaces; give one of the two")
    if not hasattr(model, "decision_function"):
        raise LLPError(
            f"model is of type {type(model).__name__}; give a fitted estimator, or a Model"
        )
    return model_of(model, X, **guess)


def _features(X: Any) -> Array:
    x = features(X)
    if not x.size:
        raise LLPError(f"X has shape {x.shape}; give at least one row and one column")
    return x


def _with_ones(x: Array) -> Array:
    return np.column_stack([x, np.ones(len(x))])


def _names(X: Any, width: int, names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        names = getattr(X, "columns", [f"x{j}" for j in range(width)])
    return tuple(map(str, names))
