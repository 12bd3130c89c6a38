"""Metrics on instances with known labels: accuracy, log-loss, Brier score, AUC, calibration."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from llpkit._validation import number, whole
from llpkit.evaluation._inputs import check_labels, check_probabilities, check_scores


def labels_of(probability: Any, threshold: float = 0.5) -> Tensor:
    """The predicted label of every instance, from ``(N,)`` or ``(N, K)`` probabilities.

    >>> labels_of([0.2, 0.7])
    tensor([0, 1])
    """
    return _labels_of(check_probabilities(probability), threshold)


def accuracy(probability: Any, truth: Any, threshold: float = 0.5) -> float:
    """Share of instances whose predicted label is correct.

    >>> accuracy([0.2, 0.7, 0.9], [0, 1, 0])  # doctest: +ELLIPSIS
    0.666...
    """
    p, y = _checked(probability, truth)
    return float((_labels_of(p, threshold) == y).to(torch.float64).mean())


def log_loss(probability: Any, truth: Any) -> float:
    """Mean negative log-probability of the true labels.

    >>> round(log_loss([0.5, 0.5], [0, 1]), 4)
    0.6931
    """
    p, y = _checked(probability, truth)
    return float(-_of_truth(p.double(), y).log().mean())


def brier(probability: Any, truth: Any) -> float:
    """Mean squared error of the probabilities (binary: of the positive class).

    >>> brier([0.5, 0.5], [0, 1])
    0.25
    """
    p, y = _checked(probability, truth)
    p = p.double()
    if p.dim() == 1:
        return float((p - y).square().mean())
    return float((p - torch.nn.functional.one_hot(y, p.shape[1])).square().sum(1).mean())


def auc(probability: Any, truth: Any) -> float:
    """Area under the ROC curve: how often a positive outranks a negative; ties count half.

    Any scores can be used, since only their order matters. NaN if all labels are the same.

    >>> auc([0.1, 0.4, 0.4, 0.8], [0, 0, 1, 1])
    0.875
    """
    score = check_scores(probability)
    y = check_labels(truth, score)
    _, inverse, number = score.double().unique(return_inverse=True, return_counts=True)
    rank = (number.cumsum(0) - (number - 1) / 2)[inverse]  # mean rank of ties
    positive = int(y.sum())
    negative = len(y) - positive
    if positive == 0 or negative == 0:
        return float("nan")
    # The Mann-Whitney statistic: pairs in which the positive ranks higher.
    above = rank[y == 1].double().sum() - positive * (positive + 1) / 2
    return float(above / (positive * negative))


class Calibration(NamedTuple):
    """Predicted and observed frequencies in bins of equal width, without empty bins."""

    mean_predicted: Tensor
    fraction_positive: Tensor
    number: Tensor

    @property
    def error(self) -> float:
        """Expected calibration error: mean absolute gap of the bins, weighted by their counts."""
        gap = (self.mean_predicted - self.fraction_positive).abs()
        return float((gap * self.number).sum() / self.number.sum())


def calibration(probability: Any, truth: Any, bins: int = 10) -> Calibration:
    """Calibration of the probability of the positive class or, for K classes, the predicted one.

    >>> calibration([0.25, 0.75], [0, 1], bins=2).error
    0.25
    """
    bins = whole("bins", bins, 1, 100_000)
    p, hit = (x.cpu() for x in _checked(probability, truth))
    p = p.double()
    if p.dim() == 2:
        p, best = p.max(1)
        hit = (best == hit).long()
    index = (p * bins).long().clamp(max=bins - 1)  # (N,)
    count = torch.bincount(index, minlength=bins)
    used = count > 0  # (bins,)
    predicted, observed = (torch.bincount(index, x, bins)[used] for x in (p, hit.double()))
    return Calibration(predicted / count[used], observed / count[used], count[used])


def _checked(probability: Any, truth: Any) -> tuple[Tensor, Tensor]:
    p = check_probabilities(probability)
    return p, check_labels(truth, p)


def _labels_of(p: Tensor, threshold: Any) -> Tensor:
    threshold = number("threshold", threshold, 0, 1)
    return p.argmax(1) if p.dim() == 2 else (p >= threshold).to(torch.int64)


def _of_truth(probability: Tensor, truth: Tensor) -> Tensor:
    if probability.dim() == 2:
        return probability.gather(1, truth[:, None])[:, 0]
    return torch.where(truth == 1, probability, 1 - probability)
