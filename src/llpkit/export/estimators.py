"""Estimators as ONNX nodes, in float64."""

from typing import Any

import numpy as np

from llpkit.errors import LLPError
from llpkit.estimators import (
    BaseLLP,
    LLPClassifier,
    LLPEnsembleClassifier,
    LLPMixedLogisticRegression,
    LLPNetworkClassifier,
)
from llpkit.export.classifiers import add_scores, rbf
from llpkit.export.graph import Graph, Name
from llpkit.statistics.effect import effect_shifts


def add_estimator(graph: Graph, model: BaseLLP, x: Name, *, of_run: bool) -> Name:
    """Probabilities ``(n, K)`` of features ``(n, D)``, float64.

    For a run they follow from the logits, as in ``llpkit predict``; ``predict_proba`` of a mixed
    model averages over the effect of a new bag.
    """
    z, classes = add_logits(graph, model, x), len(model.classes_)
    if isinstance(model, LLPMixedLogisticRegression) and not of_run:
        return _mean_over_effect(graph, z, classes, model.effect_sd_)
    return graph.probabilities(z, classes)


def add_logits(graph: Graph, model: BaseLLP, x: Name) -> Name:
    """Logits ``(n, 1)`` of the second of two classes, or ``(n, K)``."""
    if isinstance(model, LLPEnsembleClassifier):
        return _ensemble(graph, model, x)
    if isinstance(model, LLPClassifier):
        score = add_scores(graph, model.estimator_, x, len(model.classes_), model.floor_)
        return graph.affine(score, model.slope_, model.shift_)
    if isinstance(model, LLPNetworkClassifier):
        z = graph.linear(x, model.coefs_[0], model.intercepts_[0])
        for weights, intercept in zip(model.coefs_[1:], model.intercepts_[1:], strict=True):
            z = graph.linear(graph.add("Tanh", z), weights, intercept)
        return z
    if hasattr(model, "dual_coef_"):
        total = rbf(graph, x, model.support_vectors_, model.dual_coef_, model.gamma_)
        return graph.add("Add", total, graph.constant(model.intercept_))
    if hasattr(model, "coef_"):
        return graph.linear(x, np.asarray(model.coef_).T, model.intercept_)
    raise LLPError(
        f"{type(model).__name__} cannot be exported to ONNX; the estimators of llpkit.estimators "
        "can be"
    )


def _ensemble(graph: Graph, model: LLPEnsembleClassifier, x: Name) -> Name:
    terms = []
    for weight, member in zip(model.weights_, model.estimators_, strict=True):
        if weight == 0:
            continue
        z = add_logits(graph, member, x)
        if len(model.classes_) > 2:  # a common shift changes no probability, but the average
            z = graph.add("Sub", z, graph.add("ReduceMean", z, graph.constant([1], np.int64)))
        terms.append(graph.add("Mul", z, graph.constant(weight)))
    if not terms:  # all weights are zero, so only the shift remains
        terms = [graph.linear(x, np.zeros((model.n_features_in_, 1)), [0.0])]
    return graph.add("Add", graph.add("Sum", *terms), graph.constant(model.shift_))


def _mean_over_effect(graph: Graph, z: Name, classes: int, sd: float) -> Name:
    shifts, weights = (part.numpy() for part in effect_shifts(classes))  # (Q, K), (Q,)
    if classes == 2:
        z = graph.add("MatMul", z, graph.constant([[0.0, 1.0]]))
    moved = graph.add("Add", graph.add("Unsqueeze", z, _axis(graph)), graph.constant(sd * shifts))
    p = graph.add("Softmax", moved, axis=2)  # (n, Q, K)
    weighted = graph.add("Mul", p, graph.constant(weights[:, None]))
    return graph.add("ReduceSum", weighted, _axis(graph), keepdims=0)


def _axis(graph: Graph) -> Any:
    return graph.constant([1], np.int64)
