"""alter-∝SVM: a support vector machine and the labels it learns from, in turn."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils import check_random_state

from llpkit._arrays import Array
from llpkit._validation import number, whole
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.estimators._large_margin import MarginClassifier, Plane, fit_plane, hinge, root
from llpkit.progress import task

FIRST, GROWTH = 1e-5, 1.5
"""Annealing: C starts at this fraction of its value, and grows by this factor."""
ENOUGH = 1e-4
"""The alternation at one C stops when a round lowers the objective by less than this share."""


class AlterSVMClassifier(MarginClassifier):
    r"""alter-∝SVM: a support vector machine and the labels that agree with it and the counts.

    .. math:: \min_{s, w, \beta}\; \tfrac12 \|w\|^2 + C \sum_i \psi\bigl(1 - s_i f(x_i)\bigr)
              + C_p \sum_b \Bigl|\frac{k_b(s)}{n_b} - \frac{y_b}{n_b}\Bigr|,
              \qquad s_i = \pm 1,\quad f(x) = w^\top x + \beta

    with :math:`\psi` the hinge and :math:`k_b(s)` the positives among the bag's labels. In turn,
    :math:`f` is fitted to the labels (a support vector machine) and the labels to :math:`f`: in
    every bag the largest :math:`f` become positive, as many as are best. Neither step raises the
    objective. C grows from :math:`10^{-5} C` by half at a time, and the best of ``n_init`` starts
    from random labels is kept.

    Yu, Liu, Kumar, Jebara, Chang, *∝SVM for learning with label proportions*, ICML (2013). The
    hinge is rounded over a width of 0.01. Random labels have the counts of the bags, and every
    second start takes the opposite of those before it.
    Probabilities come from a factor on the margin, ``scale_``, chosen by the likelihood of the
    training bags; it does not change predicted labels.

    Binary; exact counts or intervals, for which the last term is the distance from the interval.
    With the radial kernel, memory grows with the square of the number of rows.

    Args:
        C: Weight of the hinges against the ridge.
        C_p: Weight of the proportions. If infinite, the labels have exactly the known counts; make
            it finite, for example 1 to 100, if the counts may be wrong.
        kernel: ``"linear"`` or ``"rbf"``.
        gamma: :math:`\gamma` in :math:`\exp(-\gamma \|x - x'\|^2)`: a number, ``"scale"`` or
            ``"auto"``, as in :class:`sklearn.svm.SVC`.
        n_init: Number of starts.
        random_state: Seed, generator or ``None``, for the starts.

    Attributes:
        coef_: Weights ``(1, D)`` of the logit, with the linear kernel.
        dual_coef_: Coefficients ``(1, S)`` of ``support_vectors_`` ``(S, D)``; radial kernel.
        intercept_: ``(1,)``.
        scale_: The factor from the margin to the logit.
        objective_path_: The objective after every step of the best start, ``(T,)``.
        path_C_: The C of each of these steps, ``(T,)``; for the same C the objective never rises.

    >>> import numpy as np
    >>> X = np.array([[0.0], [3.0], [0.5], [2.5], [2.0], [0.5]])
    >>> bag, count = np.array([0, 0, 1, 1, 1, 2]), np.array([1, 1, 2, 2, 2, 0])
    >>> AlterSVMClassifier(random_state=0).fit(X, count, groups=bag).predict(X)
    array([0, 1, 0, 1, 1, 0])
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        C_p: float = np.inf,
        kernel: str = "linear",
        gamma: float | str = "scale",
        n_init: int = 10,
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.C_p = C_p
        self.kernel = kernel
        self.gamma = gamma
        self.n_init = n_init
        self.random_state = random_state

    def _fit_bags(self, X: Any, bags: Bags) -> None:
        C = number("C", self.C, above=0)
        number("C_p", self.C_p, above=0, infinite=True)
        whole("n_init", self.n_init, 1)
        source = check_random_state(self.random_state)
        self._prepare(X)
        counts, Z = _Counts.of(bags), X[bags.rows.numpy()]
        basis = None
        if self.kernel == "rbf":  # a linear problem in the columns of a root of the kernel matrix
            rows, basis = Z, root(rbf_kernel(Z, gamma=self.gamma_))
            Z = basis.Z
        runs = []
        with task("start", self.n_init) as steps:
            for s in random_labels(counts, self.n_init, source):
                runs.append(alternate(Z, counts, C, self.C_p, s))
                steps.step(f"objective {runs[-1].path[-1]:.4g}")
        best = min(runs, key=lambda run: run.path[-1])
        self.objective_path_, self.path_C_ = best.path, best.Cs
        if basis is None:
            self._keep_linear(*best.plane, X, bags)
        else:
            dual = basis.dual(best.plane.weight)
            self._keep_kernel(rows[basis.pivots], dual, best.plane.intercept, X, bags)


class _Counts(NamedTuple):
    """The counts of bags, for the label step; rows are in the order of the bags."""

    bag: Array
    """The bag of every row, ``(N,)``."""
    offsets: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, bags: Bags) -> "_Counts":
        if len(bags.evidence.table):
            raise LLPError(
                "AlterSVMClassifier takes exact counts or intervals, but some of these are "
                "weights; use LLPClassifier or LLPLogisticRegression for them"
            )
        high = np.minimum(bags.evidence.high.numpy(), bags.sizes.numpy())
        low = bags.evidence.low.numpy()
        return cls(bags.bag_index.numpy(), bags.offsets.numpy(), low, high)

    @property
    def settled(self) -> bool:
        """Whether the counts leave only one way to label the rows."""
        n = np.diff(self.offsets)
        return bool(((self.high == 0) | (self.low == n)).all())

    def labels(self, f: Array, C: float, C_p: float) -> Array:
        """The best labels ``(N,)``, plus or minus one, for the function's values ``(N,)``."""
        order = np.lexsort((-f, self.bag))  # by bag, the largest first
        rank = np.arange(len(f)) - self.offsets[self.bag]
        # Making the row of this rank positive changes the distance to the known count by -1, 0 or
        # 1. The gain falls and the price rises with the rank, so every row can be decided alone.
        price = C_p / np.diff(self.offsets)[self.bag]
        short, over = rank < self.low[self.bag], rank >= self.high[self.bag]
        price = np.where(short, -price, np.where(over, price, 0.0))
        gain = C * (hinge(1 + f[order]) - hinge(1 - f[order]))  # (N,)
        s = np.empty(len(f))
        s[order] = np.where(gain > price, 1.0, -1.0)
        return s

    def error(self, s: Array) -> float:
        """Sum over the bags of the distance of the labels' proportions from the known ones."""
        k = np.add.reduceat((s > 0).astype(np.int64), self.offsets[:-1])
        gap = np.maximum(self.low - k, 0) + np.maximum(k - self.high, 0)
        return float((gap / np.diff(self.offsets)).sum())


class Solution(NamedTuple):
    """The result of one start: the objective and C of every step."""

    plane: Plane
    path: Array
    Cs: Array


def random_labels(counts: _Counts, number: int, source: Any) -> Iterator[Array]:
    """Random labels with the counts of the bags; every second time, the opposite of the last.

    Random labels favour the direction of the bags' means, which may be the wrong one.
    """
    s = counts.labels(source.uniform(size=len(counts.bag)), 0.0, np.inf)
    yield s
    for i in range(1, 1 if counts.settled else number):
        s = -s if i % 2 else counts.labels(source.uniform(size=len(s)), 0.0, np.inf)
        yield s


def alternate(Z: Array, counts: _Counts, C: float, C_p: float, s: Array) -> Solution:
    """Fit the function to the labels and the labels to it until neither changes, as C rises."""
    plane: Plane | None = None
    path: list[float] = []
    Cs: list[float] = []
    # From a tiny C, where the function is nearly flat and labels change easily, to the full one.
    # Each C starts from the plane and the labels of the one before.
    level = FIRST * C
    while level < C:
        level = min(level * GROWTH, C)
        before = np.inf
        while True:
            plane = fit_plane(Z, s, np.ones(len(s)), level, plane)
            f = plane(Z)
            new = counts.labels(f, level, C_p)
            path += [objective(plane, f, labels, level, C_p, counts) for labels in (s, new)]
            Cs += [level, level]
            settled, s = bool((new == s).all()), new
            if settled or before - path[-1] <= ENOUGH * path[-1]:
                break
            before = path[-1]
    assert plane is not None
    return Solution(plane, np.array(path), np.array(Cs))


def objective(plane: Plane, f: Array, s: Array, C: float, C_p: float, counts: _Counts) -> float:
    """The objective that both steps minimise."""
    error = counts.error(s)
    penalty = C_p * error if error > 0 else 0.0  # inf * 0 would be NaN
    return float(plane.weight @ plane.weight / 2 + C * hinge(1 - s * f).sum() + penalty)
