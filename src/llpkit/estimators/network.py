"""A small network for tables, fitted to a loss of bags."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from llpkit._arrays import Array
from llpkit._validation import number, one_of, whole
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.estimators.base import BaseLLP, choose, exact_counts
from llpkit.estimators.logistic import lbfgs
from llpkit.likelihood.checks import Approximation
from llpkit.losses import count_loss, debiased_square_loss, one_vs_rest_loss, proportion_loss

_OF_COUNTS = {
    "one-vs-rest": one_vs_rest_loss,
    "square": debiased_square_loss,
    "proportion": proportion_loss,
}
LOSSES = ("likelihood", *_OF_COUNTS)

Shape = tuple[int, int]
Loss = Callable[[Tensor], Tensor]
"""Losses of bags ``(B,)`` from logits in the order of the bags."""


class LLPNetworkClassifier(BaseLLP):
    r"""A small network, by default fitted to the exact likelihood of the bags' counts.

    .. math:: \min_\theta\; \tfrac12 \|W\|^2 + C \sum_b \ell_b(z_\theta(X_b))

    by L-BFGS in float64 on all bags; :math:`W` are all weights but no intercepts. In large bags it
    finds interactions of columns that EM around boosting may miss, because it needs no initial
    guess. Standardise the columns first. For more than a few thousand rows, train a network with
    :func:`llpkit.fit`.

    Args:
        C: Weight of the bags against the ridge.
        hidden_layer_sizes: Units of each hidden layer (tanh); none for a linear model.
        loss: ``"likelihood"``, the exact one, for any evidence; or for exact counts
            ``"one-vs-rest"``, :func:`~llpkit.losses.one_vs_rest_loss`, ``"square"``,
            :func:`~llpkit.losses.debiased_square_loss`, and ``"proportion"``, as in
            :class:`DLLPClassifier`.
        max_iter: Maximum number of L-BFGS iterations.
        tol: L-BFGS stops when no component of the gradient, over C times the bags, exceeds this.
        approximation: For many classes in large bags; see :func:`llpkit.likelihood.log_prob`.
        random_state: Seed, generator or ``None``, for the initial weights.

    Attributes:
        coefs_: The weights of each layer, ``(inputs, outputs)``.
        intercepts_: The intercepts of each layer, ``(outputs,)``.
        n_iter_: Iterations taken.

    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [1.0], [2.0], [2.0], [3.0]])
    >>> bag, count = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 2, 2])
    >>> LLPNetworkClassifier(random_state=0).fit(X, count, groups=bag).predict([[0.5], [2.5]])
    array([0, 1])
    """

    _sparse = True

    def __init__(
        self,
        C: float = 1.0,
        *,
        hidden_layer_sizes: Sequence[int] = (32,),
        loss: Literal["likelihood", "one-vs-rest", "square", "proportion"] = "likelihood",
        max_iter: int = 500,
        tol: float = 1e-3,
        approximation: Approximation = "auto",
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.hidden_layer_sizes = hidden_layer_sizes
        self.loss = loss
        self.max_iter = max_iter
        self.tol = tol
        self.approximation = approximation
        self.random_state = random_state

    def _fit_bags(self, X: Any, bags: Bags) -> None:
        one_of("loss", self.loss, LOSSES)
        C, tol = number("C", self.C, above=0), number("tol", self.tol, above=0)
        whole("max_iter", self.max_iter, 1)
        shapes = list(pairwise([X.shape[1], *self._hidden(), bags.num_classes or 1]))
        objective = NetworkObjective(X[bags.rows.numpy()], self._loss(bags), len(bags), shapes, C)
        start = _initial(shapes, check_random_state(self.random_state))
        optimum = lbfgs(objective, start, tol, self.max_iter, name="network")
        optimum.warn(self)
        self.n_iter_ = optimum.n_iter
        layers = unpack(optimum.weights, shapes)
        self.coefs_, self.intercepts_ = [w for w, _ in layers], [b for _, b in layers]

    def _hidden(self) -> Sequence[int]:
        sizes = self.hidden_layer_sizes
        if not isinstance(sizes, list | tuple):
            raise LLPError(
                f"hidden_layer_sizes = {sizes!r}; give a tuple such as (64,), or () for a linear "
                "model"
            )
        for i, units in enumerate(sizes):
            whole(f"hidden_layer_sizes[{i}]", units, 1)
        return sizes

    def _loss(self, bags: Bags) -> Loss:
        if self.loss == "likelihood":
            self.approximation_ = choose(self.approximation, bags)
            return lambda z: count_loss(z, bags.evidence, bags.offsets, self.approximation_)
        counts, of_counts = torch.from_numpy(exact_counts(bags, self)), _OF_COUNTS[self.loss]
        return lambda z: of_counts(z, counts, bags.offsets)

    def _logits(self, X: Any) -> Array:
        first = torch.from_numpy(np.asarray(X @ self.coefs_[0]))
        layers = zip(self.coefs_, self.intercepts_, strict=True)
        return _forward(
            first, [(torch.from_numpy(w), torch.from_numpy(b)) for w, b in layers]
        ).numpy()


class NetworkObjective:
    """The loss of all bags and the ridge, over C times the bags; ``X`` is in their order."""

    def __init__(
        self, X: Any, loss: Loss, num_bags: int, shapes: Sequence[Shape], C: float
    ) -> None:
        self.X, self.loss, self.num_bags, self.shapes, self.C = X, loss, num_bags, shapes, C

    def __call__(self, flat: Array) -> tuple[float, Array]:
        """The value and the gradient at these weights and intercepts."""
        weights = torch.from_numpy(flat).requires_grad_()
        layers = unpack(weights, self.shapes)
        # NumPy computes the first product, because X may be sparse: autograd starts after it, and
        # its chain rule is written out below.
        w = layers[0][0]
        first = torch.from_numpy(np.asarray(self.X @ w.detach().numpy())).requires_grad_()
        ridge = sum(w.square().sum() for w, _ in layers) / (2 * self.C)
        total = self.loss(_forward(first, layers)).sum() + ridge
        gradient, slope = (g.numpy() for g in torch.autograd.grad(total, [weights, first]))
        gradient[: w.numel()] += (self.X.T @ slope).ravel()
        return total.item() / self.num_bags, gradient / self.num_bags


def _forward(first: Tensor, layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Logits ``(N,)`` or ``(N, K)`` from the product of the rows and the first weights."""
    z = first + layers[0][1]
    for w, b in layers[1:]:
        z = z.tanh() @ w + b
    return z[:, 0] if z.shape[1] == 1 else z


def _initial(shapes: Sequence[Shape], random: np.random.RandomState) -> Array:
    """Glorot's uniform weights and zero intercepts, flat."""
    if len(shapes) == 1:  # a linear model may start at zero; hidden units would stay the same
        return np.zeros((shapes[0][0] + 1) * shapes[0][1])
    parts = []
    for shape in shapes:
        bound = np.sqrt(6 / sum(shape))
        parts += [random.uniform(-bound, bound, shape).ravel(), np.zeros(shape[1])]
    return np.concatenate(parts)


def unpack(flat: Any, shapes: Sequence[Shape]) -> list[tuple[Any, Any]]:
    """The weights and intercepts of each layer from an array or a tensor of all of them."""
    layers, end = [], 0
    for inputs, outputs in shapes:
        begin, end = end, end + (inputs + 1) * outputs
        table = flat[begin:end].reshape(inputs + 1, outputs)
        layers.append((table[:-1], table[-1]))
    return layers
