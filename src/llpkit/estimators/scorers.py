"""Scorers that need only counts, for scikit-learn's searches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.utils.metadata_routing import MetadataRequest

from llpkit import evaluation
from llpkit._arrays import Array
from llpkit.bags import Bags
from llpkit.estimators._bags_from_y import bags_of


class BagScorer:
    """A scorer ``(estimator, X, y, groups) -> float`` for any classifier with probabilities.

    It requests ``groups`` if metadata routing is enabled, so a search passes them on.
    """

    def __init__(self, name: str, measure: Callable[[Array, Bags], float]) -> None:
        self.name = name
        self._measure = measure

    def __call__(self, estimator: Any, X: Any, y: Any, groups: Any = None) -> float:
        """The score; higher is better."""
        bags, _ = bags_of(X, y, groups, estimator.classes_)
        return self._measure(estimator.predict_proba(X)[bags.rows.numpy()], bags)

    def __repr__(self) -> str:
        return self.name

    def get_metadata_routing(self) -> Any:
        """Request ``groups`` from scikit-learn's metadata routing."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="groups", alias=True)
        return request


def _log_likelihood(p: Array, bags: Bags) -> float:
    # The logarithm of zero is -inf, which the engine takes as an impossible label.
    with np.errstate(divide="ignore"):
        logits = np.log(p)
    z = logits if bags.num_classes else logits[:, 1] - logits[:, 0]
    evaluation.warn_of_approximation(bags, stacklevel=4)
    return evaluation.mean_log_likelihood(torch.from_numpy(z), bags)


def _neg_proportion_error(p: Array, bags: Bags) -> float:
    given = p if bags.num_classes else p[:, 1]
    return -evaluation.proportion_error(torch.from_numpy(given), bags)


bag_log_likelihood = BagScorer("bag_log_likelihood", _log_likelihood)
"""Mean exact log-likelihood of the bags' counts, like ``score`` of the estimators here."""

neg_proportion_error = BagScorer("neg_proportion_error", _neg_proportion_error)
"""Minus the mean absolute difference between predicted and known proportions of bags."""
