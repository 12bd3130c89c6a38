"""InvCal: support vector regression of the logits of the bags' proportions on their means."""

from typing import Any

import numpy as np

from llpkit._validation import number
from llpkit.bags import Bags
from llpkit.estimators._large_margin import MarginClassifier, fit_plane, mean_kernel, root
from llpkit.estimators.base import bag_sums, exact_counts


class InvCalClassifier(MarginClassifier):
    r"""InvCal: support vector regression of the bags' proportions, as logits, on their means.

    .. math:: \min_{w, \beta}\; \tfrac12 \|w\|^2
              + C \sum_b \max\bigl(0, |w^\top m_b + \beta - t_b| - \varepsilon_b\bigr),
              \qquad t_b = \log \frac{y_b + 1/2}{n_b - y_b + 1/2}

    where :math:`m_b` is the mean of the bag's rows, or of their images under the radial kernel.
    The tube :math:`\varepsilon_b = \varepsilon / (\hat p_b (1 - \hat p_b))` is one of
    :math:`\varepsilon` around the proportion. The halves keep the logits of 0 and 1 finite.

    Rüping, *SVM classifier estimation from group probabilities*, ICML (2010). It needs bags whose
    proportions differ, and uses the function of a mean instead of the mean of the function. The
    scale of the resulting logits is too small for single instances; here a factor, ``scale_``,
    chosen by the likelihood of the training bags, corrects it without changing predicted labels.

    Binary, exact counts; ``X`` may be sparse. With the radial kernel, time grows with the square of
    the number of rows, and memory with the square of the number of bags.

    Args:
        C: Weight of the bags against the ridge.
        epsilon: Half the width of the tube, in units of the proportion.
        kernel: ``"linear"`` or ``"rbf"``.
        gamma: :math:`\gamma` in :math:`\exp(-\gamma \|x - x'\|^2)`: a number, ``"scale"`` or
            ``"auto"``, as in :class:`sklearn.svm.SVC`.

    Attributes:
        coef_: Weights ``(1, D)`` of the logit, with the linear kernel.
        dual_coef_: Coefficients ``(1, S)`` of ``support_vectors_`` ``(S, D)``; radial kernel.
        intercept_: ``(1,)``.
        scale_: The factor from the margin to the logit.

    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [1.0], [2.0], [2.0], [3.0]])
    >>> bag, count = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 2, 2])
    >>> InvCalClassifier().fit(X, count, groups=bag).predict([[0.5], [2.5]])
    array([0, 1])
    """

    _sparse = True

    def __init__(
        self,
        C: float = 1.0,
        *,
        epsilon: float = 0.0,
        kernel: str = "linear",
        gamma: float | str = "scale",
    ) -> None:
        self.C = C
        self.epsilon = epsilon
        self.kernel = kernel
        self.gamma = gamma

    def _fit_bags(self, X: Any, bags: Bags) -> None:
        C = number("C", self.C, above=0)
        epsilon = number("epsilon", self.epsilon, 0)
        self._prepare(X)
        y, n = exact_counts(bags, self), bags.sizes.numpy()
        p = (y + 0.5) / (n + 1)
        target, tube = np.log(p / (1 - p)), epsilon / (p * (1 - p))  # (B,)
        # Each bag's loss is two hinges, one below the tube and one above it. scikit-learn's SVR has
        # one tube for all rows, so it serves only for epsilon = 0; see fit_plane for its speed.
        sign = np.repeat([1.0, -1.0], len(n))
        level = np.concatenate([target - tube, -target - tube])
        if self.kernel == "linear":
            means = bag_sums(X, bags) / n[:, None]
            plane = fit_plane(np.concatenate([means, means]), sign, level, C)
            self._keep_linear(*plane, X, bags)
            return
        ordered, offsets = X[bags.rows.numpy()], bags.offsets.numpy()
        basis = root(mean_kernel(ordered, offsets, self.gamma_))
        plane = fit_plane(np.concatenate([basis.Z, basis.Z]), sign, level, C)
        # The function of a bag is the mean over its rows, so its coefficient is divided among them.
        of_bag = np.zeros(len(n))
        of_bag[basis.pivots] = basis.dual(plane.weight)
        of_row = (of_bag / n)[bags.bag_index.numpy()]
        used = of_row != 0
        self._keep_kernel(ordered[used], of_row[used], plane.intercept, X, bags)
