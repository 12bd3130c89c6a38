"""Losses of bags: one value per bag, unreduced, from flat logits and offsets."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from llpkit.evidence import Evidence
from llpkit.likelihood import log_prob
from llpkit.likelihood.checks import Approximation
from llpkit.ragged import segment_logsumexp, segment_sum

DEQUANTISATION = 1 / 12
"""Variance of the uniform noise that turns a whole number into a continuous one."""


def count_loss(
    logits: Tensor, evidence: Evidence, offsets: Tensor, approximation: Approximation = None
) -> Tensor:
    r"""Exact negative log-likelihood of every bag's count, :math:`-\log P(y_b)`, ``(B,)``.

    With many classes in large bags, ``approximation="auto"`` may approximate it; see
    :func:`llpkit.likelihood.log_prob`.

    >>> count_loss(torch.zeros(2), Evidence.exact([1]), torch.tensor([0, 2])).exp()
    tensor([2.])
    """
    return -log_prob(logits, evidence, offsets, approximation=approximation, validate=False)


def normal_loss(
    logits: Tensor, counts: Tensor, offsets: Tensor, floor: float = DEQUANTISATION
) -> Tensor:
    r"""Negative log-density of every count under the normal approximation, ``(B,)``.

    .. math:: \tfrac12 \log 2\pi v + \frac{(y - \mu)^2}{2 v}, \qquad
              \mu = \sum_i p_i, \quad v = \sum_i p_i (1 - p_i) + f

    The floor :math:`f` is 1/12 by default, the variance of rounding to a whole number. The AMLE of
    Baručić & Kybic (2022) has none, so the density of a certain and correct prediction is
    unbounded. With K classes the counts of the first K - 1 are jointly normal.

    >>> normal_loss(torch.zeros(4), torch.tensor([2]), torch.tensor([0, 4]))
    tensor([0.9590])
    """
    if logits.dim() == 1:
        p = logits.sigmoid()
        mean = segment_sum(p, offsets)  # (B,)
        variance = segment_sum(p * (1 - p), offsets) + floor
        gap = counts - mean
        return 0.5 * (variance.log() + math.log(2 * math.pi) + gap * gap / variance)
    p = logits.softmax(1)[:, :-1]  # (N, K - 1)
    gap = counts[:, :-1] - segment_sum(p, offsets)  # (B, K - 1)
    spread = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]  # (N, K - 1, K - 1)
    covariance = segment_sum(spread, offsets) + floor * torch.eye(
        p.shape[1], dtype=p.dtype, device=p.device
    )
    root, _ = torch.linalg.cholesky_ex(covariance)  # no check, which would wait for the device
    scaled = torch.linalg.solve_triangular(root, gap[:, :, None], upper=False)[:, :, 0]
    log_det: Tensor = root.diagonal(dim1=1, dim2=2).log().sum(1)
    squares: Tensor = scaled.square().sum(1)
    constant = p.shape[1] * math.log(2 * math.pi)
    return (squares + constant) / 2 + log_det


def proportion_loss(logits: Tensor, counts: Tensor, offsets: Tensor) -> Tensor:
    r"""Cross-entropy between every bag's proportion and its mean prediction, ``(B,)``.

    .. math:: -\frac{y}{n} \log \bar p - \frac{n - y}{n} \log (1 - \bar p),
              \qquad \bar p = \frac1n \sum_i p_i

    Ardehaly & Culotta, *Co-training for demographic classification using deep learning from label
    proportions* (2017): DLLP.

    >>> proportion_loss(torch.zeros(4), torch.tensor([2]), torch.tensor([0, 4]))
    tensor([0.6931])
    """
    y, n = class_counts(counts, offsets.diff()), offsets.diff().clamp(min=1)[:, None]
    log_p = F.log_softmax(two_columns(logits), 1)  # (N, K)
    log_mean = segment_logsumexp(log_p, offsets) - n.log()  # (B, K)
    return -(y / n * log_mean).nan_to_num(0.0, neginf=0.0).sum(1)


def one_vs_rest_loss(logits: Tensor, counts: Tensor, offsets: Tensor) -> Tensor:
    r"""Negative log-likelihood of every class's count by itself, summed over the classes, ``(B,)``.

    .. math:: -\sum_k \log P(y_k), \qquad y_k \sim \text{Poisson-binomial}(p_{1k}, \ldots, p_{nk})

    With two classes both counts carry the same information, so only one is used.

    >>> one_vs_rest_loss(torch.zeros(2, 3), torch.tensor([[1, 1, 0]]), torch.tensor([0, 2])).exp()
    tensor([11.3906])
    """
    if logits.dim() == 1:
        return -log_prob(logits, Evidence.unchecked(counts), offsets, validate=False)
    size, classes = logits.shape
    # The log-odds of class k: its logit minus the log-sum-exp of all others.
    others = logits[:, None, :].expand(size, classes, classes)
    own = torch.eye(classes, dtype=torch.bool, device=logits.device)
    odds = logits - others.masked_fill(own, -torch.inf).logsumexp(2)  # (N, K)
    # Every class gets its own bags: K copies of the offsets, one after the other.
    shift = size * torch.arange(classes, device=offsets.device)[:, None]  # (K, 1)
    ends = torch.cat([offsets[:1], (offsets[1:] + shift).reshape(-1)])  # (K B + 1,)
    each = Evidence.unchecked(counts.T.reshape(-1))
    log_p = log_prob(odds.T.reshape(-1), each, ends, validate=False)  # (K B,)
    return -log_p.view(classes, -1).sum(0)


def debiased_square_loss(
    logits: Tensor, counts: Tensor, offsets: Tensor, real: Tensor | None = None
) -> Tensor:
    r"""An unbiased estimate of the square loss of instances, one value per bag, ``(B,)``.

    With :math:`s = \sum_i p_i - y` the error of a bag's count, and :math:`\mu` the mean error of an
    instance, a bag of random instances has :math:`E\, s^2 = n V + n^2 \mu^2`, with :math:`V` the
    variance of an instance's error. So

    .. math:: s^2 / n - (n - 1)\, \mu^2

    has the expectation :math:`V + \mu^2`, the square loss of an instance. :math:`\mu^2` is the
    product of the mean errors of the bag and of all other bags. With K classes it is the sum over
    them, the Brier score. A single bag gives :math:`(s / n)^2`.

    Li, Chen, Javanmard & Mirrokni, *Optimistic rates for learning from label proportions* (2024).

    Args:
        logits: ``(N,)`` or ``(N, K)``.
        counts: ``(B,)`` or ``(B, K)``.
        offsets: ``(B + 1,)``.
        real: bool ``(B,)``; bags that are padding do not count among the others.

    >>> z = torch.tensor([9.0, 9.0, -9.0, -9.0])
    >>> debiased_square_loss(z, torch.tensor([2, 0]), torch.tensor([0, 2, 4])).round(decimals=3)
    tensor([0., 0.])
    """
    p = logits.sigmoid()[:, None] if logits.dim() == 1 else logits.softmax(1)  # (N, K)
    n = offsets.diff().to(p.dtype)[:, None]  # (B, 1)
    error = segment_sum(p, offsets) - counts.view(len(n), -1)  # (B, K)
    held = n if real is None else n * real[:, None]
    rest = held.sum() - held  # (B, 1): instances in the other bags
    other = ((error * (held > 0)).sum(0) - error * (held > 0)) / rest.clamp(min=1)
    mean = error / n.clamp(min=1)
    square = mean * torch.where(rest > 0, other, mean)
    return (error * mean - (n - 1) * square).sum(1)


def two_columns(logits: Tensor) -> Tensor:
    """Logits of two classes ``(N, 2)`` from binary ones ``(N,)``; ``(N, K)`` unchanged."""
    return torch.stack([torch.zeros_like(logits), logits], 1) if logits.dim() == 1 else logits


def class_counts(counts: Tensor, sizes: Tensor) -> Tensor:
    """Counts of two classes ``(B, 2)`` from counts of positives ``(B,)``; ``(B, K)`` unchanged."""
    return torch.stack([sizes - counts, counts], 1) if counts.dim() == 1 else counts
