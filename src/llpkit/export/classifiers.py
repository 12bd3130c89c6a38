"""The classifiers inside :class:`~llpkit.estimators.LLPClassifier` as ONNX nodes."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from llpkit._arrays import Array
from llpkit.errors import LLPError
from llpkit.export.graph import Graph, Name
from llpkit.export.trees import (
    add_trees,
    forest_trees,
    histogram_trees,
    lightgbm_trees,
    xgboost_trees,
)

Builder = Callable[[Graph, Any, Name], Name]


def add_scores(graph: Graph, model: Any, x: Name, classes: int, floor: float) -> Name:
    """Scores ``(n, 1)`` of the second of two classes, or ``(n, K)``, as ``class_scores`` does."""
    kind = f"{type(model).__module__.partition('.')[0]}.{type(model).__name__}"
    if kind not in CLASSIFIERS:
        names = ", ".join(name.partition(".")[2] for name in CLASSIFIERS)
        raise LLPError(
            f"LLPClassifier around {type(model).__name__} cannot be exported to ONNX; these "
            f"classifiers can: {names}"
        )
    seen = np.asarray(model.classes_)
    scores = CLASSIFIERS[kind](graph, model, x)
    if not hasattr(model, "predict_proba"):
        if len(seen) < classes:  # class_scores then depends on the other rows
            raise LLPError(
                f"{type(model).__name__} saw {len(seen)} of {classes} classes; fit it again"
            )
        return scores
    if len(seen) < classes:  # a class without rows in the last M-step has probability zero
        chosen = np.zeros((len(seen), classes))
        chosen[np.arange(len(seen)), seen] = 1
        scores = graph.add("MatMul", scores, graph.constant(chosen))
    p = graph.add("Clip", scores, graph.constant(floor), graph.constant(1 - floor))
    log_p = graph.add("Log", p)
    if classes > 2:
        return log_p
    return graph.add("MatMul", log_p, graph.constant([[-1.0], [1.0]]))  # the logit


def rbf(graph: Graph, x: Name, support: Any, dual: Any, gamma: float) -> Name:
    """Sums ``(n, T)`` of radial kernel functions, with coefficients ``(T, S)``."""
    dense = support.toarray() if hasattr(support, "toarray") else np.asarray(support)
    axis = graph.constant([1], np.int64)
    own = graph.add("ReduceSum", graph.add("Mul", x, x), axis, keepdims=1)  # (n, 1)
    cross = graph.linear(x, -2 * dense.T, (dense**2).sum(1))  # (n, S)
    distance = graph.add("Max", graph.add("Add", cross, own), graph.constant(0.0))
    kernel = graph.add("Exp", graph.add("Mul", distance, graph.constant(-gamma)))
    return graph.add("MatMul", kernel, graph.constant(np.asarray(dual).T))


def _histogram(graph: Graph, model: Any, x: Name) -> Name:
    start = np.ravel(model._baseline_prediction)
    total = add_trees(graph, x, histogram_trees(model), len(start))
    margin = graph.add("Add", total, graph.constant(start))
    return graph.probabilities(margin, len(model.classes_))


def _forest(graph: Graph, model: Any, x: Name) -> Name:
    if len(model.classes_) > 2:
        classes = range(len(model.classes_))
        return add_trees(graph, _single(graph, x), forest_trees(model, classes), len(classes))
    second = add_trees(graph, _single(graph, x), forest_trees(model, [1]), 1)
    first = graph.add("Sub", graph.constant(1.0), second)
    return graph.add("Concat", first, second, axis=1)


def _xgboost(graph: Graph, model: Any, x: Name) -> Name:
    trees, start = xgboost_trees(model)
    width = 1 if len(model.classes_) == 2 else len(model.classes_)
    total = add_trees(graph, _single(graph, x), trees, width, below=True)
    margin = graph.add("Add", total, graph.constant(start))
    return graph.probabilities(margin, len(model.classes_))


def _lightgbm(graph: Graph, model: Any, x: Name) -> Name:
    width = 1 if len(model.classes_) == 2 else len(model.classes_)
    total = add_trees(graph, x, lightgbm_trees(model), width)
    return graph.probabilities(total, len(model.classes_))


def _single(graph: Graph, x: Name) -> Name:
    """The features rounded to single precision, as forests and XGBoost compare them."""
    return graph.cast(graph.cast(x, np.float32), np.float64)


def _logistic(graph: Graph, model: Any, x: Name) -> Name:
    margin = graph.linear(x, np.asarray(model.coef_).T, model.intercept_)
    return graph.probabilities(margin, len(model.classes_))


def _naive_bayes(graph: Graph, model: Any, x: Name) -> Name:
    mean, variance = model.theta_, model.var_  # (K, D)
    constant = np.log(model.class_prior_) - 0.5 * np.log(2 * np.pi * variance).sum(1)
    row = graph.add("Unsqueeze", x, graph.constant([1], np.int64))  # (n, 1, D)
    gap = graph.add("Sub", row, graph.constant(mean))  # (n, K, D)
    square = graph.add("Div", graph.add("Mul", gap, gap), graph.constant(-2 * variance))
    total = graph.add("ReduceSum", square, graph.constant([2], np.int64), keepdims=0)
    log_p = graph.add("Add", total, graph.constant(constant))
    return graph.add("Softmax", log_p, axis=1)


def _svc(graph: Graph, model: Any, x: Name) -> Name:
    ovr = model.decision_function_shape == "ovr"
    if model.kernel not in ("linear", "rbf") or not ovr or hasattr(model, "predict_proba"):
        raise LLPError(
            f"SVC(kernel={model.kernel!r}, decision_function_shape="
            f"{model.decision_function_shape!r}, probability={model.probability}) cannot be "
            "exported to ONNX; use the linear or the radial kernel and the other defaults"
        )
    classes = len(model.classes_)
    pairs = list(itertools.combinations(range(classes), 2))
    if model.kernel == "linear":
        decision = graph.linear(x, np.asarray(model.coef_).T, model.intercept_)
    else:
        dual = model.dual_coef_ if classes == 2 else _pairwise(model, pairs)
        total = rbf(graph, x, model.support_vectors_, dual, model._gamma)
        decision = graph.add("Add", total, graph.constant(model.intercept_))
    return decision if classes == 2 else _votes(graph, decision, pairs, classes)


def _pairwise(model: Any, pairs: list[tuple[int, int]]) -> Array:
    """Coefficients ``(P, S)`` of the support vectors in the classifier of every pair of classes."""
    ends = np.cumsum(model.n_support_)
    of = [slice(end - n, end) for end, n in zip(ends, model.n_support_, strict=True)]
    dual = np.zeros((len(pairs), len(model.support_vectors_)))
    for p, (i, j) in enumerate(pairs):  # libsvm's rows leave out the class of the vector
        dual[p, of[i]], dual[p, of[j]] = model.dual_coef_[j - 1, of[i]], model.dual_coef_[i, of[j]]
    return dual


def _votes(graph: Graph, decision: Name, pairs: list[tuple[int, int]], classes: int) -> Name:
    """Votes of all pairs ``(n, K)``; ties are broken by the sum of their decisions."""
    first, second = (np.eye(classes)[list(side)] for side in zip(*pairs, strict=True))  # (P, K)
    lost = graph.cast(graph.add("Less", decision, graph.constant(0.0)), np.float64)
    votes = graph.linear(lost, second - first, first.sum(0))
    total = graph.add("MatMul", decision, graph.constant(first - second))
    # total / (3 |total| + 3), as in scikit-learn, is less than a third: it never outweighs a vote.
    bound = graph.affine(graph.add("Abs", total), 3.0, 3.0)
    return graph.add("Add", votes, graph.add("Div", total, bound))


CLASSIFIERS: dict[str, Builder] = {
    "sklearn.HistGradientBoostingClassifier": _histogram,
    "sklearn.RandomForestClassifier": _forest,
    "sklearn.ExtraTreesClassifier": _forest,
    "xgboost.XGBClassifier": _xgboost,
    "lightgbm.LGBMClassifier": _lightgbm,
    "sklearn.LogisticRegression": _logistic,
    "sklearn.GaussianNB": _naive_bayes,
    "sklearn.SVC": _svc,
}
"""Probabilities ``(n, K)``; without ``predict_proba``, decisions ``(n, 1)`` or ``(n, K)``."""
