"""Mean map: logistic regression with class sums that are estimated from the means of bags."""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import cg
from scipy.special import expit, logsumexp

from llpkit._arrays import Array
from llpkit._validation import number, whole
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.estimators.base import BaseLLP, bag_sums, exact_counts, linear_logits
from llpkit.estimators.logistic import lbfgs
from llpkit.likelihood.checks import Approximation


class MeanMapClassifier(BaseLLP):
    r"""The mean map: logistic regression on class means that are estimated from the bags.

    The likelihood of labelled rows depends on the labels only through the sums of the rows of each
    class:

    .. math:: \min_{w, a}\; \tfrac12 \|w\|^2
              + C \Bigl( \sum_i \operatorname{lse}_k(w_k^\top x_i + a_k)
              - \sum_k w_k^\top S_k - \sum_k a_k Y_k \Bigr)

    with :math:`Y_k` the number of rows of class k, which is known, and :math:`S_k = Y_k \mu_k`. The
    mean of a bag is the mean of the class means, weighted by its proportions,
    :math:`m_b = \sum_k \pi_{bk} \mu_k`; least squares over the bags, weighted by their sizes, give
    :math:`\mu_k`.

    Quadrianto, Smola, Caetano, Le, *Estimating labels from label proportions*, JMLR (2009). It
    assumes that the rows of a class are distributed alike in all bags, and needs bags whose
    proportions differ. With bags of one it is logistic regression.

    With ``laplacian`` the class means may differ between bags, but less if the means of the bags
    are close (Patrini, Nock, Rivera, Caetano, *(Almost) no label no cry*, NeurIPS 2014: LMM):

    .. math:: \min_\beta\; \sum_b \frac{n_b}{\bar n}
              \Bigl\|m_b - \sum_k \pi_{bk} \beta_{bk}\Bigr\|^2
              + \gamma \sum_k \tfrac12 \sum_{b, b'} v_{bb'} \|\beta_{bk} - \beta_{b'k}\|^2,
              \qquad S_k = \sum_b n_b \pi_{bk} \beta_{bk}

    with :math:`v_{bb'} = \exp(-\|m_b - m_{b'}\| / \sigma)` between neighbours and
    :math:`\sigma` their median distance. As :math:`\gamma` grows this becomes the mean map.

    Two or more classes, exact counts; ``X`` may be sparse.

    Args:
        C: Weight of the likelihood against the ridge, as in
            :class:`sklearn.linear_model.LogisticRegression`.
        laplacian: :math:`\gamma` above 0, or ``None`` for one mean per class.
        n_neighbors: Number of nearest bags to which a bag is tied, with ``laplacian``.
        max_iter: Maximum number of L-BFGS iterations.
        tol: L-BFGS stops when no component of the gradient, over C times the rows, exceeds this.
        approximation: For ``score`` and ``posterior`` of many classes in large bags. ``"auto"`` is
            exact where that is cheap, else ``"saddlepoint"``; ``None`` is always exact.

    Attributes:
        coef_: Weights of the logit ``(1, D)``, or ``(K, D)`` of the logits.
        intercept_: ``(1,)`` or ``(K,)``.
        class_means_: Estimated mean of every class, ``(K, D)``.
        n_iter_: Iterations taken.

    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [1.0], [2.0], [2.0], [3.0]])
    >>> bag, count = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 2, 2])
    >>> model = MeanMapClassifier().fit(X, count, groups=bag)
    >>> model.predict([[0.5], [2.5]]), model.class_means_.round(2)
    (array([0, 1]), array([[0.5], [2.5]]))
    """

    _sparse = True

    def __init__(
        self,
        C: float = 1.0,
        *,
        laplacian: float | None = None,
        n_neighbors: int = 10,
        max_iter: int = 1000,
        tol: float = 1e-4,
        approximation: Approximation = "auto",
    ) -> None:
        self.C = C
        self.laplacian = laplacian
        self.n_neighbors = n_neighbors
        self.max_iter = max_iter
        self.tol = tol
        self.approximation = approximation

    def _fit_bags(self, X: Any, bags: Bags) -> None:
        C = number("C", self.C, above=0)
        tol = number("tol", self.tol, above=0)
        whole("max_iter", self.max_iter, 1)
        n, y = bags.sizes.numpy(), exact_counts(bags, self)
        y = np.stack([n - y, y], 1) if y.ndim == 1 else y  # (B, K)
        self._check_proportions(y, n)
        means = class_means(X, bags, y / n[:, None])
        sums = y.sum(0)[:, None] * means  # (K, D)
        if self.laplacian is not None:
            gamma = number("laplacian", self.laplacian, above=0)
            whole("n_neighbors", self.n_neighbors, 1)
            of_bags = bag_sums(X, bags) / n[:, None]
            sums = tied_sums(of_bags, y, n, means, gamma, self.n_neighbors)
        self.class_means_ = sums / y.sum(0)[:, None]
        totals = np.append(sums, y.sum(0)[:, None], 1)  # (K, D + 1)
        if len(totals) == 2:
            totals = totals[1:]  # one logit: the other class's is zero
        start = np.zeros(totals.shape)
        optimum = lbfgs(_Objective(X, totals, C), start, tol, self.max_iter, name="mean map")
        optimum.warn(self)
        self.coef_, self.intercept_ = optimum.weights[:, :-1], optimum.weights[:, -1]
        self.n_iter_ = optimum.n_iter

    def _check_proportions(self, y: Array, n: Array) -> None:
        absent = y.sum(0) == 0
        if absent.any():
            name = self.classes_[absent.argmax()].item()
            raise LLPError(
                f"no bag has an instance of class {name!r}, so its mean is not known; leave the "
                "class out, or add bags that have it"
            )
        if np.linalg.matrix_rank(y / n[:, None]) < y.shape[1]:
            raise LLPError(
                f"the proportions of the {len(y)} bags do not differ enough to separate the means "
                f"of {y.shape[1]} classes; add bags with different proportions, or use "
                "LLPLogisticRegression"
            )

    def _logits(self, X: Any) -> Array:
        return linear_logits(X, self.coef_, self.intercept_)


class _Objective:
    """The negative log-likelihood and the ridge, over C times the rows."""

    def __init__(self, X: Any, totals: Array, C: float) -> None:
        self.X, self.totals, self.C = X, totals, C

    def __call__(self, flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(self.totals.shape)  # (K, D + 1), or (1, D + 1)
        w, rows = weights[:, :-1], self.X.shape[0]
        z = self.X @ w.T + weights[:, -1]  # (N, K) or (N, 1)
        log_norm = np.logaddexp(0, z[:, 0]) if len(w) == 1 else logsumexp(z, 1)
        p = expit(z) if len(w) == 1 else np.exp(z - log_norm[:, None])
        gradient = np.append((self.X.T @ p).T, p.sum(0)[:, None], 1) - self.totals
        gradient[:, :-1] += w / self.C
        value = log_norm.sum() - (weights * self.totals).sum() + (w * w).sum() / (2 * self.C)
        return float(value) / rows, gradient.ravel() / rows


def class_means(X: Any, bags: Bags, pi: Array) -> Array:
    """Least-squares means of the classes, ``(K, D)``, from proportions ``(B, K)``."""
    of_row = np.empty((bags.num_rows, pi.shape[1]))  # (N, K)
    of_row[bags.rows.numpy()] = pi[bags.bag_index.numpy()]
    # The normal equations of least squares weighted by bag size, summed over rows.
    gram = pi.T @ (bags.sizes.numpy()[:, None] * pi)
    means: Array = np.linalg.solve(gram, (X.T @ of_row).T)  # (K, D)
    return means


def tied_sums(
    means: Array, y: Array, n: Array, start: Array, gamma: float, neighbors: int
) -> Array:
    """Class sums ``(K, D)`` of LMM: class means of each bag, tied between neighbouring bags."""
    graph = similarity(means, neighbors)
    tie = gamma * (sparse.diags_array(np.asarray(graph.sum(1)).ravel()) - graph)  # (B, B)
    pi = (y / n[:, None]).T  # (K, B)
    weighted = pi * (n / n.mean())
    # The normal equations in all class means of all bags, (K B, K B). The residual of a bag mixes
    # its classes, so every pair of classes has a diagonal block; the ties are within a class.
    blocks = [[sparse.diags_array(a * b) for b in pi] for a in weighted]
    ties = sparse.block_diag([tie] * len(pi))
    matrix = sparse.csr_array(sparse.block_array(blocks) + ties)
    # Conjugate gradients, because a factorisation of the graph has much fill-in: on random data
    # with 3,000 bags and 30 features, splu took 9 s and this 0.3 s.
    inverse = sparse.diags_array(1 / matrix.diagonal())
    beta = np.empty((len(pi), *means.shape))  # (K, B, D)
    for d, column in enumerate(means.T):
        beta[:, :, d] = cg(
            matrix,
            (weighted * column).ravel(),
            x0=np.repeat(start[:, d], len(n)),
            rtol=1e-10,
            maxiter=2000,
            M=inverse,
        )[0].reshape(pi.shape)
    sums: Array = (y.T[:, :, None] * beta).sum(1)
    return sums


def similarity(means: Array, neighbors: int) -> sparse.csr_array:
    """Ties ``(B, B)`` of each bag to its nearest ones."""
    from sklearn.neighbors import kneighbors_graph

    near = kneighbors_graph(means, min(neighbors, len(means) - 1), mode="distance")
    near.data = np.exp(-near.data / (np.median(near.data) or 1.0))
    return sparse.csr_array(near.maximum(near.T))
