"""DLLP: fit the mean prediction of a bag to its proportion."""

from collections.abc import Sequence
from typing import Any

from llpkit.estimators.network import LLPNetworkClassifier
from llpkit.likelihood.checks import Approximation


class DLLPClassifier(LLPNetworkClassifier):
    r"""DLLP: a model whose mean prediction over a bag matches the bag's proportion.

    It is linear, or a network with hidden layers.

    .. math:: \min_\theta\; \tfrac12 \|W\|^2 - C \sum_b \sum_k
              \frac{y_{bk}}{n_b} \log \frac1{n_b} \sum_{i \in b} p_{ik},
              \qquad p_i = \operatorname{softmax}(z_\theta(x_i))

    where :math:`W` are all weights but no intercepts. Two classes have one logit.

    Ardehaly, Culotta, *Co-training for demographic classification using deep learning from label
    proportions* (2017), here fitted in float64 by L-BFGS on all bags. With bags of one and no
    hidden layer it is logistic regression. It fits only the mean of a bag and cannot distinguish
    confident from uncertain predictions with the same mean, so its probabilities are often too
    close to the mean. In small bags, the exact likelihood of ``LLPLogisticRegression`` learns more
    from the counts.

    Two or more classes, exact counts; ``X`` may be sparse.

    Args:
        C: Weight of the bags against the ridge.
        hidden_layer_sizes: Units of each hidden layer (tanh), as in
            :class:`sklearn.neural_network.MLPClassifier`; none for a linear model.
        max_iter: Maximum number of L-BFGS iterations.
        tol: L-BFGS stops when no component of the gradient, over C times the bags, exceeds this.
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
        super().__init__(
            C,
            hidden_layer_sizes=hidden_layer_sizes,
            loss="proportion",
            max_iter=max_iter,
            tol=tol,
            approximation=approximation,
            random_state=random_state,
        )
