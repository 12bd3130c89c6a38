"""Dense layers with tanh, fitted to a loss of bags in float64 by L-BFGS."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from llpkit._validation import number, whole
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.estimators.base import Array
from llpkit.estimators.logistic import Optimum, lbfgs

Shape = tuple[int, int]
Layer = tuple[Array, Array]
Loss = Callable[[Tensor], Tensor]
"""Losses of bags ``(B,)`` from logits in the order of the bags."""


def fit_layers(X: Any, bags: Bags, estimator: Any, loss: Loss) -> tuple[Optimum, list[Layer]]:
    """The weights and intercepts of each layer, by the parameters of an estimator."""
    sizes = estimator.hidden_layer_sizes
    if not isinstance(sizes, list | tuple):
        raise LLPError(
            f"hidden_layer_sizes = {sizes!r}; give a tuple such as (64,), or () for a linear model"
        )
    C, tol = number("C", estimator.C, above=0), number("tol", estimator.tol, above=0)
    whole("max_iter", estimator.max_iter, 1)
    hidden = tuple(sizes)
    for i, units in enumerate(hidden):
        whole(f"hidden_layer_sizes[{i}]", units, 1)
    shapes = list(pairwise([X.shape[1], *hidden, bags.num_classes or 1]))
    source = check_random_state(estimator.random_state)
    # A linear model may start at zero; hidden units would then all stay the same.
    start = [_first(shape, source) if hidden else np.zeros(shape) for shape in shapes]
    layers = [(w, np.zeros(w.shape[1])) for w in start]
    objective = _Objective(X, bags, shapes, C, loss)
    found = lbfgs(objective, _pack(layers), tol, estimator.max_iter, name="network")
    return found, _unpack(found.weights, shapes)


def layers_logits(X: Any, weights: Sequence[Array], intercepts: Sequence[Array]) -> Array:
    """Logits ``(N,)`` or ``(N, K)`` of rows."""
    first = torch.from_numpy(np.asarray(X @ weights[0]))
    rest = [torch.from_numpy(w) for w in weights[1:]]
    return _forward(first, rest, [torch.from_numpy(b) for b in intercepts]).numpy()


class _Objective:
    """The loss and the ridge, over C times the bags."""

    def __init__(self, X: Any, bags: Bags, shapes: list[Shape], C: float, loss: Loss) -> None:
        self.X, self.shapes, self.C = X[bags.rows.numpy()], shapes, C
        self.loss, self.bags = loss, len(bags)

    def __call__(self, flat: Array) -> tuple[float, Array]:
        layers = _unpack(flat, self.shapes)
        # The first product is NumPy's, so that X may be sparse; autograd starts after it, and the
        # chain rule for the first weights is written out below.
        first = torch.from_numpy(np.asarray(self.X @ layers[0][0])).requires_grad_()
        rest = [torch.from_numpy(w).requires_grad_() for w, _ in layers[1:]]
        intercepts = [torch.from_numpy(b).requires_grad_() for _, b in layers]
        loss = self.loss(_forward(first, rest, intercepts)).sum()
        grads = torch.autograd.grad(loss, [first, *rest, *intercepts])
        of_weights = [self.X.T @ grads[0].numpy(), *(g.numpy() for g in grads[1 : len(layers)])]
        of_weights = [g + w / self.C for g, (w, _) in zip(of_weights, layers, strict=True)]
        of_intercepts = [g.numpy() for g in grads[len(layers) :]]
        ridge = sum(float((w * w).sum()) for w, _ in layers) / (2 * self.C)
        gradient = _pack(list(zip(of_weights, of_intercepts, strict=True)))
        return (loss.item() + ridge) / self.bags, gradient / self.bags


def _forward(first: Tensor, weights: list[Tensor], intercepts: list[Tensor]) -> Tensor:
    """Logits ``(N,)`` or ``(N, K)`` from the first layer's product with the rows."""
    z = first + intercepts[0]
    for w, b in zip(weights, intercepts[1:], strict=True):
        z = z.tanh() @ w + b
    return z[:, 0] if z.shape[1] == 1 else z


def _first(shape: Shape, source: Any) -> Array:
    """Glorot's uniform weights."""
    bound = np.sqrt(6 / sum(shape))
    weights: Array = source.uniform(-bound, bound, shape)
    return weights


def _pack(layers: list[Layer]) -> Array:
    return np.concatenate([np.append(w.ravel(), b) for w, b in layers])


def _unpack(flat: Array, shapes: list[Shape]) -> list[Layer]:
    parts = np.split(flat, np.cumsum([(a + 1) * b for a, b in shapes])[:-1])
    return [
        (part[: a * b].reshape(a, b), part[a * b :])
        for part, (a, b) in zip(parts, shapes, strict=True)
    ]
