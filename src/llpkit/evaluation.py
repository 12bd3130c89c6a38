"""How good a model is: of instances where labels exist, of bags always."""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from llpkit.bags import Bags
from llpkit.errors import ApproximationWarning, LLPError
from llpkit.likelihood._best import best_log_prob, reach
from llpkit.likelihood._ragged import segment_sum


def labels_of(probability: Tensor, threshold: float = 0.5) -> Tensor:
    """The predicted label of every instance, from ``(N,)`` or ``(N, K)`` probabilities.

    >>> labels_of(torch.tensor([0.2, 0.7]))
    tensor([0, 1])
    """
    if probability.dim() == 2:
        return probability.argmax(1)
    return (probability >= threshold).to(torch.int64)


def accuracy(probability: Tensor, truth: Tensor, threshold: float = 0.5) -> float:
    """Share of instances whose predicted label is the true one.

    >>> accuracy(torch.tensor([0.2, 0.7, 0.9]), torch.tensor([0, 1, 0]))  # doctest: +ELLIPSIS
    0.666...
    """
    _check(probability, truth)
    return float((labels_of(probability, threshold) == truth).to(torch.float64).mean())


def log_loss(probability: Tensor, truth: Tensor) -> float:
    """Mean negative log-probability of the true labels.

    >>> round(log_loss(torch.tensor([0.5, 0.5]), torch.tensor([0, 1])), 4)
    0.6931
    """
    _check(probability, truth)
    return float(-_of_truth(probability.double(), truth).log().mean())


def brier(probability: Tensor, truth: Tensor) -> float:
    """Mean squared error of the probabilities (binary: of the positive class).

    >>> brier(torch.tensor([0.5, 0.5]), torch.tensor([0, 1]))
    0.25
    """
    _check(probability, truth)
    p = probability.double()
    if p.dim() == 1:
        return float((p - truth).square().mean())
    return float((p - torch.nn.functional.one_hot(truth, p.shape[1])).square().sum(1).mean())


def auc(probability: Tensor, truth: Tensor) -> float:
    """Area under the ROC curve: how often a positive outranks a negative, ties counting half.

    >>> auc(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1]))
    0.875
    """
    _check(probability, truth)
    if probability.dim() != 1:
        raise LLPError("auc is for binary probabilities (N,); pick one class of (N, K)")
    _, inverse, number = probability.double().unique(return_inverse=True, return_counts=True)
    rank = (number.cumsum(0) - (number - 1) / 2)[inverse]  # mean rank of ties
    positive = int(truth.sum())
    negative = len(truth) - positive
    if positive == 0 or negative == 0:
        return float("nan")
    above = rank[truth == 1].double().sum() - positive * (positive + 1) / 2
    return float(above / (positive * negative))


class Calibration(NamedTuple):
    """Predicted against observed, in bins of equal width; empty bins are left out."""

    mean_predicted: Tensor
    fraction_positive: Tensor
    number: Tensor

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of the two, weighted by the counts."""
        gap = (self.mean_predicted - self.fraction_positive).abs()
        return float((gap * self.number).sum() / self.number.sum())


def calibration(probability: Tensor, truth: Tensor, bins: int = 10) -> Calibration:
    """Reliability of probabilities: of the positive class, or with K classes of the predicted one.

    >>> calibration(torch.tensor([0.25, 0.75]), torch.tensor([0, 1]), bins=2).error
    0.25
    """
    _check(probability, truth)
    p, hit = probability.double(), truth
    if p.dim() == 2:
        p, best = p.max(1)
        hit = (best == truth).long()
    index = (p * bins).long().clamp(max=bins - 1)
    count = torch.bincount(index, minlength=bins)
    used = count > 0
    mean = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, p)[used] / count[used]
    hits = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, hit.double())[used]
    return Calibration(mean, hits / count[used], count[used])


def bag_log_likelihood(logits: Tensor, bags: Bags) -> Tensor:
    """Exact log-likelihood of every bag's counts ``(B,)``, logits in engine order.

    The one measure of fit that needs no instance label: use it to select and to stop. With many
    classes the exact likelihood of a large bag may be out of reach. A warning then says so, and the
    bag has the upper bound of ``method="sinkhorn"``, or NaN if its counts are not exact.
    """
    _check_bags("logits", logits, bags)
    warn_of_approximation(bags)
    return best_log_prob(logits, bags.evidence, bags.offsets)


def mean_log_likelihood(logits: Tensor, bags: Bags) -> float:
    """Mean of :func:`bag_log_likelihood` over the bags that have one, without a warning."""
    log_p = best_log_prob(logits, bags.evidence, bags.offsets)
    if bags.num_classes in (None, 2):
        return float(log_p.mean())
    return float(log_p[measurable(bags)].mean())


def measurable(bags: Bags) -> Tensor:
    """Which bags have a log-likelihood, exact or approximate, ``(B,)`` bool."""
    exact, bound = reach(bags.evidence, bags.sizes)
    return exact | bound


def number_approximated(bags: Bags) -> int:
    """How many bags have no exact log-likelihood, since they are too large for their classes."""
    return int((~reach(bags.evidence, bags.sizes).exact).sum())


def approximation_note(*parts: Bags) -> str | None:
    """What to know of the measures of some bags, where they are not exact."""
    far = sum(number_approximated(bags) for bags in parts)
    if not far:
        return None
    bound = sum(int(reach(bags.evidence, bags.sizes).bound.sum()) for bags in parts)
    text = f"the exact likelihood of {far:,} of {sum(map(len, parts)):,} bags is out of reach: "
    if bound:
        text += "their log-likelihood is measured by an upper bound and posteriors are approximate"
    if bound and bound < far:
        text += f", except for {far - bound:,} whose counts are not exact and which have neither"
    if not bound:
        text += "they have no log-likelihood and no posterior, as their counts are not exact"
    return text


def warn_of_approximation(*parts: Bags, stacklevel: int = 3) -> None:
    """Say it as a warning; the default is to name the caller of the caller."""
    text = approximation_note(*parts)
    if text is not None:
        warnings.warn(text, ApproximationWarning, stacklevel=stacklevel)


def proportion_error(probability: Tensor, bags: Bags) -> float:
    """Mean absolute difference between predicted and known proportions; engine order.

    A bag whose count is a range errs by its distance from the range. Empty bags are left out.
    """
    _check_bags("probabilities", probability, bags)
    n = bags.sizes.clamp(min=1).to(probability.dtype)
    low, high = bags.evidence.low, bags.evidence.high
    if probability.dim() == 2:
        n = n[:, None]
    total = segment_sum(probability, bags.offsets)
    gap = (low - total).clamp(min=0) + (total - high).clamp(min=0)
    kept = bags.sizes > 0
    return float((gap / n)[kept].mean()) if bool(kept.any()) else 0.0


def _check_bags(name: str, values: Tensor, bags: Bags) -> None:
    if len(values) != bags.num_instances:
        raise LLPError(
            f"there are {len(values)} {name} but the bags hold {bags.num_instances} instances; "
            "pass those of bags.rows, in that order"
        )


def _of_truth(probability: Tensor, truth: Tensor) -> Tensor:
    if probability.dim() == 2:
        return probability.gather(1, truth[:, None])[:, 0]
    return torch.where(truth == 1, probability, 1 - probability)


def _check(probability: Tensor, truth: Tensor) -> None:
    if len(probability) != len(truth):
        raise LLPError(
            f"there are {len(probability)} probabilities but {len(truth)} labels; "
            "give one label for every instance"
        )
    if len(truth) == 0:
        raise LLPError("there are no instances to evaluate")
