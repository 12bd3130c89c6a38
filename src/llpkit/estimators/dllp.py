"""DLLP: fit the mean prediction of a bag to its proportion."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from llpkit._validation import number, whole
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.estimators.base import Array, BaseLLP, exact_counts
from llpkit.estimators.logistic import lbfgs
from llpkit.likelihood.checks import Approximation
from llpkit.losses import proportion_loss

Shape = tuple[int, int]
Layer = tuple[Array, Array]


class DLLPClassifier(BaseLLP):
    r"""DLLP: a model whose mean prediction over a bag is the bag's proportion.

    It is linear, or a network with hidden layers.

    .. math:: \min_\theta\; \tfrac12 \|W\|^2 - C \sum_b \sum_k
              \frac{y_{bk}}{n_b} \log \frac1{n_b} \sum_{i \in b} p_{ik},
              \qquad p_i = \operatorname{softmax}(z_\theta(x_i))

    where :math:`W` are all weights but no intercepts. Two classes have one logit.

    Ardehaly, Culotta, *Co-training for demographic classification using deep learning from label
    proportions* (2017), here fitted in float64 by L-BFGS on all bags. With bags of one and no
    hidden layer it is logistic regression. It fits only the mean of a bag, so confident and
    uncertain predictions with the same mean look alike, and its probabilities are often too close
    to the mean. In small bags the exact likelihood of ``LLPLogisticRegression`` gets more out of
    the counts.

    Two or more classes, exact counts; ``X`` may be sparse.

    Args:
        C: Weight of the bags against the ridge.
        hidden_layer_sizes: Units of each hidden layer (tanh), as in
            :class:`sklearn.neural_network.MLPClassifier`; none for a linear model.
        max_iter: Most iterations of L-BFGS.
        tol: L-BFGS stops when no component of the gradient, over C times the bags, is larger.
        approximation: For ``score`` and ``posterior`` of many classes in large bags. ``"auto"`` is
            exact where that is cheap, else ``"saddlepoint"``; ``None`` is always exact.
        random_state: Seed, generator or ``None``, for the initial weights of hidden layers.

    Attributes:
        coefs_: The weights of each layer, ``(inputs, outputs)``.
        intercepts_: The intercepts of each layer, ``(outputs,)``.
        n_iter_: Iterations taken.

    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [1.0], [2.0], [2.0], [3.0]])
    >>> bag, count = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 2, 2])
    >>> DLLPClassifier().fit(X, count, groups=bag).predict([[0.5], [2.5]])
    array([0, 1])
    """

    _sparse = True

    def __init__(
        self,
        C: float = 1.0,
        *,
        hidden_layer_sizes: Sequence[int] = (),
        max_iter: int = 1000,
        tol: float = 1e-4,
        approximation: Approximation = "auto",
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.hidden_layer_sizes = hidden_layer_sizes
        self.max_iter = max_iter
        self.tol = tol
        self.approximation = approximation
        self.random_state = random_state

    def _fit_bags(self, X: Any, bags: Bags) -> None:
        if not isinstance(self.hidden_layer_sizes, list | tuple):
            raise LLPError(
                f"hidden_layer_sizes = {self.hidden_layer_sizes!r}; give a tuple such as (64,), or "
                "() for a linear model"
            )
        C, tol = number("C", self.C, above=0), number("tol", self.tol, above=0)
        whole("max_iter", self.max_iter, 1)
        hidden = tuple(self.hidden_layer_sizes)
        for i, units in enumerate(hidden):
            whole(f"hidden_layer_sizes[{i}]", units, 1)
        exact_counts(bags, self)
        widths = [X.shape[1], *hidden, bags.num_classes or 1]
        shapes = list(pairwise(widths))
        source = check_random_state(self.random_state)
        # A linear model may start at zero; hidden units would then all stay the same.
        start = [_first(shape, source) if hidden else np.zeros(shape) for shape in shapes]
        layers = [(w, np.zeros(w.shape[1])) for w in start]
        objective = _Objective(X, bags, shapes, C)
        found = lbfgs(objective, _pack(layers), tol, self.max_iter)
        found.warn(self)
        self.n_iter_ = found.n_iter
        layers = _unpack(found.weights, shapes)
        self.coefs_, self.intercepts_ = [w for w, _ in layers], [b for _, b in layers]

    def _logits(self, X: Any) -> Array:
        first = torch.from_numpy(np.asarray(X @ self.coefs_[0]))
        rest = [torch.from_numpy(w) for w in self.coefs_[1:]]
        return _forward(first, rest, [torch.from_numpy(b) for b in self.intercepts_]).numpy()


class _Objective:
    """The loss and the ridge, over C times the bags."""

    def __init__(self, X: Any, bags: Bags, shapes: list[Shape], C: float) -> None:
        self.X, self.shapes, self.C = X[bags.rows.numpy()], shapes, C
        self.counts, self.offsets = bags.counts, bags.offsets

    def __call__(self, flat: Array) -> tuple[float, Array]:
        layers = _unpack(flat, self.shapes)
        # The first product is NumPy's, so that X may be sparse; autograd starts after it, and the
        # chain rule for the first weights is written out below.
        first = torch.from_numpy(np.asarray(self.X @ layers[0][0])).requires_grad_()
        rest = [torch.from_numpy(w).requires_grad_() for w, _ in layers[1:]]
        intercepts = [torch.from_numpy(b).requires_grad_() for _, b in layers]
        loss = proportion_loss(_forward(first, rest, intercepts), self.counts, self.offsets).sum()
        grads = torch.autograd.grad(loss, [first, *rest, *intercepts])
        of_weights = [self.X.T @ grads[0].numpy(), *(g.numpy() for g in grads[1 : len(layers)])]
        of_weights = [g + w / self.C for g, (w, _) in zip(of_weights, layers, strict=True)]
        of_intercepts = [g.numpy() for g in grads[len(layers) :]]
        ridge = sum(float((w * w).sum()) for w, _ in layers) / (2 * self.C)
        gradient = _pack(list(zip(of_weights, of_intercepts, strict=True)))
        return (loss.item() + ridge) / len(self.counts), gradient / len(self.counts)


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
