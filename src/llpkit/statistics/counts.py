"""How informative counts are: how precise the evidence is, and how much the counts vary."""

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import Array
from llpkit.bags import Bags
from llpkit.evaluation import constant_rate
from llpkit.evidence import Evidence
from llpkit.likelihood import posterior
from llpkit.ragged import bag_index, ranges, segment_logsumexp, segment_sum, to_offsets


def explained(bags: Bags) -> Array:
    """The share of the variance of each bag's count that its evidence explains, ``(B,)``."""
    if bags.evidence.is_exact or not len(bags):
        return np.ones(len(bags))
    classes = bags.num_classes or 1
    sizes = bags.sizes.repeat_interleave(classes)
    rate = constant_rate(bags).reshape(-1).clamp(1e-3, 1 - 1e-3)
    log_odds = (rate.log() - (-rate).log1p()).repeat(len(bags))
    # Compare the variance of a binomial count at the overall rate before and after the evidence.
    log_w, count, offsets = _log_weights(bags.evidence, sizes)
    cell = bag_index(offsets)
    n = sizes[cell].double()
    prior = torch.lgamma(n + 1) - torch.lgamma(count + 1) - torch.lgamma(n - count + 1)
    prior = prior + count * log_odds[cell]

    def variance(log_p: Tensor) -> Tensor:
        p = (log_p - segment_logsumexp(log_p, offsets)[cell]).exp()
        mean = segment_sum(p * count, offsets)
        return segment_sum(p * (count - mean[cell]).square(), offsets)

    before, after = variance(prior), variance(prior + log_w)
    # Evidence with several peaks may even increase the variance.
    share = (1 - after / before.clamp(min=1e-12)).clamp(0, 1).nan_to_num(0.0)
    return np.asarray(share.reshape(len(bags), -1).mean(1))


def _log_weights(evidence: Evidence, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For the counts ``0 … n`` of every cell, flat: log-weights, the counts, and offsets."""
    low, high = evidence.low.reshape(-1), evidence.high.reshape(-1)
    offsets = to_offsets(sizes + 1)
    cell = bag_index(offsets)
    count = ranges(torch.zeros_like(sizes), sizes + 1)
    inside = (count >= low[cell]) & (count <= high[cell])
    log_w = torch.where(inside, 0.0, -torch.inf).double()
    if len(evidence.table):
        weighted = inside & (evidence.table_offsets.diff()[cell] > 0)
        index = torch.where(weighted, evidence.table_offsets[cell] + count - low[cell], 0)
        log_w = torch.where(weighted, evidence.table[index], log_w)
    return log_w, count.double(), offsets


def dispersion(bags: Bags, rho: Array) -> float:
    """Variance of the counts relative to chance; for K classes, of the most alike pair."""
    evidence = bags.evidence
    if bags.num_classes is None:
        n = bags.sizes.double()
        y = evidence.low.double() if evidence.is_exact else _expected(bags)
        pairs = [(y, n - y)]
    elif evidence.is_exact:
        columns = evidence.low.double().T
        pairs = [(columns[k], columns[m]) for k in range(len(columns)) for m in range(k)]
    else:
        return 1.0
    ratios = []
    for first, second in pairs:
        total = first + second
        several = total >= 2  # a single label varies as much as it can
        share = float(first[several].sum() / total[several].sum().clamp(min=1))
        if int(several.sum()) < 5 or not 0 < share < 1:
            continue
        chance = (torch.from_numpy(rho) * total * share * (1 - share))[several].sum()
        gap = (first - share * total)[several].square().sum()
        ratios.append(float(gap / chance.clamp(min=1e-12)))
    return min(ratios, default=1.0)


def _expected(bags: Bags) -> Tensor:
    """The expected count of every binary bag given its evidence, at a constant rate."""
    rate = constant_rate(bags).clamp(1e-3, 1 - 1e-3)
    z = rate.logit().expand(bags.num_instances).contiguous()
    return segment_sum(posterior(z, bags.evidence, bags.offsets, validate=False), bags.offsets)
