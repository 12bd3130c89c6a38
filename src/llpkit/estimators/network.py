"""A small network for tables, fitted to a loss of bags."""

from collections.abc import Sequence
from typing import Any, Literal

import torch

from llpkit._validation import one_of
from llpkit.bags import Bags
from llpkit.estimators._layers import Loss, fit_layers, layers_logits
from llpkit.estimators.base import Array, BaseLLP, choose, exact_counts
from llpkit.likelihood.checks import Approximation
from llpkit.losses import (
    count_loss,
    debiased_square_loss,
    one_vs_rest_loss,
    proportion_loss,
)

_OF_COUNTS = {
    "one-vs-rest": one_vs_rest_loss,
    "square": debiased_square_loss,
    "proportion": proportion_loss,
}
LOSSES = ("likelihood", *_OF_COUNTS)


class LLPNetworkClassifier(BaseLLP):
    r"""A small network, by default fitted to the exact likelihood of the bags' counts.

    .. math:: \min_\theta\; \tfrac12 \|W\|^2 + C \sum_b \ell_b(z_\theta(X_b))

    by L-BFGS in float64 on all bags; :math:`W` are all weights but no intercepts. It finds
    interactions of columns that EM around boosting may miss where bags are large, because it needs
    no start. Standardise the columns first. Rows by the thousand: a network of
    :func:`llpkit.fit` takes more.

    Args:
        C: Weight of the bags against the ridge.
        hidden_layer_sizes: Units of each hidden layer (tanh); none for a linear model.
        loss: ``"likelihood"``, the exact one, for any evidence; or for exact counts
            ``"one-vs-rest"``, :func:`~llpkit.losses.one_vs_rest_loss`, ``"square"``,
            :func:`~llpkit.losses.debiased_square_loss`, and ``"proportion"``, as in
            :class:`DLLPClassifier`.
        max_iter: Most iterations of L-BFGS.
        tol: L-BFGS stops when no component of the gradient, over C times the bags, is larger.
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
        found, layers = fit_layers(X, bags, self, self._loss(bags))
        found.warn(self)
        self.n_iter_ = found.n_iter
        self.coefs_, self.intercepts_ = [w for w, _ in layers], [b for _, b in layers]

    def _loss(self, bags: Bags) -> Loss:
        if self.loss == "likelihood":
            self.approximation_ = choose(self.approximation, bags)
            return lambda z: count_loss(z, bags.evidence, bags.offsets, self.approximation_)
        counts, of_counts = torch.from_numpy(exact_counts(bags, self)), _OF_COUNTS[self.loss]
        return lambda z: of_counts(z, counts, bags.offsets)

    def _logits(self, X: Any) -> Array:
        return layers_logits(X, self.coefs_, self.intercepts_)
