r"""Does the model explain the counts? Checks that need no labels of instances.

Under the true model, the randomised probability integral transform of a count,

.. math:: u_b = P(Y_b < y_b) + v_b\, P(Y_b = y_b), \qquad v_b \sim \mathrm{Uniform}(0, 1),

is uniform on [0, 1]. Values pile up at both ends if counts vary more than the model expects, in the
middle if they vary less, and at one end if the model expects too many or too few positives.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from llpkit._arrays import Array
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.evaluation import Calibration
from llpkit.likelihood import pmf, sample
from llpkit.likelihood.budget import best_log_prob, tractability
from llpkit.losses import class_counts, two_columns
from llpkit.ragged import bag_index, segment_sum
from llpkit.statistics.effect import effect_basis, effect_term, nodes, points


@dataclass(frozen=True)
class Goodness:
    """How well a model explains the counts of ``B`` bags; for K classes, of each class."""

    pit: Array
    """Uniform under the true model, ``(B',)`` or ``(B', K)``; without empty bags and bags whose
    likelihood is intractable."""
    pit_p: float
    """From the Kolmogorov-Smirnov test of uniformity; for K classes, K times the least p-value."""
    dispersion: float
    """Squared distance of the counts from their expectation over their variance; 1 is expected."""
    dispersion_p: float
    """The two-sided p-value for dispersion = 1; for K classes, K times the least."""
    expected: Tensor
    """Expected counts, ``(B,)`` or ``(B, K)``."""
    distance: Tensor
    """Distance between the known and the expected count in standard deviations, ``(B,)``. Zero
    within the range of an imprecise count; for K classes, the largest."""
    log_likelihood: Tensor
    """``(B,)``."""

    @property
    def worst(self) -> Tensor:
        """The bags ``(B,)``, sorted by distance, the worst explained first."""
        return self.distance.argsort(descending=True, stable=True)


def goodness_of_fit(
    logits: Tensor, bags: Bags, *, seed: int = 0, effect_sd: float = 0.0
) -> Goodness:
    """Compare the counts of bags with what a model expects.

    Use bags that the model was not fitted to: a flexible model explains its training bags too well,
    with a dispersion below one. A count that is not known exactly is drawn from its distribution
    given the evidence, so the transform stays uniform under the true model.

    Args:
        logits: ``(N,)`` or ``(N, K)``, in the order of the bags.
        bags: The bags.
        seed: Seed for the randomised transform.
        effect_sd: ``effect_sd_`` of a model with a random effect per bag; counts must be exact.

    >>> bags = Bags(offsets=range(0, 2001, 4), counts=[2] * 500)  # far too regular
    >>> found = goodness_of_fit(torch.zeros(2000), bags)
    >>> found.dispersion, found.dispersion_p < 1e-6
    (0.0, True)
    """
    bags = bags.to("cpu")
    z = logits.detach().cpu().double()
    if effect_sd and not bags.evidence.is_exact:
        raise LLPError("with a random effect counts must be exact; some are intervals or weights")
    shifts = _shifts(z, effect_sd)
    moments = [_moments(z, bags, shifts, k) for k in range(z.shape[1] if z.dim() == 2 else 1)]
    total, variance = (torch.stack([m[i] for m in moments], 1) for i in (0, 1))  # (B, K)
    if z.dim() == 1:
        total, variance = total[:, 0], variance[:, 0]
    gap = (bags.evidence.low - total).clamp(min=0) + (total - bags.evidence.high).clamp(min=0)
    distance = gap / variance.clamp(min=1e-12).sqrt()
    if distance.dim() == 2:
        distance = distance.max(1).values
    pit, ratio, excess = _transformed(z, bags, shifts, seed)
    log_p = best_log_prob(z, bags.evidence, bags.offsets)
    if effect_sd:
        weight, sd = torch.ones(len(z)).double(), torch.full((len(bags),), effect_sd).double()
        counts = class_counts(bags.counts.double(), bags.sizes)
        log_p = log_p + effect_term(two_columns(z), weight, counts, bags.offsets, sd)
    return Goodness(
        pit,
        _uniformity_p(pit),
        float(ratio.mean()) if ratio.size else 1.0,
        _dispersion_p(ratio, excess),
        total,
        distance,
        log_p,
    )


def _shifts(z: Tensor, sd: float) -> list[tuple[float, Tensor]]:
    """Weighted shifts ``(K',)`` of the logits that represent the random effect."""
    if not sd:
        return [(1.0, torch.zeros((), dtype=torch.float64))]
    basis = effect_basis(z.shape[1] if z.dim() == 2 else 2)
    depth = basis.shape[1]
    # In more than two dimensions a grid would be too large.
    x, log_w = points(depth, 6) if depth > 2 else nodes(depth, 25 if depth == 1 else 7)
    shifts = sd * (x @ basis.T)  # (Q, K)
    return list(zip(log_w.exp().tolist(), shifts[:, 1] if z.dim() == 1 else shifts, strict=True))


def _logit(z: Tensor, k: int) -> Tensor:
    """The log-odds of class k, ``(N,)``."""
    if z.dim() == 1:
        return z
    others = torch.cat([z[:, :k], z[:, k + 1 :]], 1).logsumexp(1)
    return (z[:, k] - others).clamp(-690, 690)


def _moments(
    z: Tensor, bags: Bags, shifts: list[tuple[float, Tensor]], k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and fourth central moment of the count of class k, each ``(B,)``."""
    weights = torch.tensor([w for w, _ in shifts], dtype=torch.float64)[:, None]  # (Q, 1)
    cumulants = []
    for _, shift in shifts:
        p = _logit(z + shift, k).sigmoid()
        pq = p * (1 - p)
        of_label = (p, pq, pq * (1 - 2 * p), pq * (1 - 6 * pq))
        cumulants.append(torch.stack([segment_sum(x, bags.offsets) for x in of_label]))
    means, second, third, fourth = torch.stack(cumulants, 1)  # each (Q, B)
    mean = (weights * means).sum(0)
    d = means - mean
    # The fourth moment about the overall mean, from the cumulants at each shift.
    central = fourth + 3 * second**2 + 4 * third * d + 6 * second * d**2 + d**4
    return mean, (weights * (second + d**2)).sum(0), (weights * central).sum(0)


def _transformed(
    z: Tensor, bags: Bags, shifts: list[tuple[float, Tensor]], seed: int
) -> tuple[Array, Array, Array]:
    """The transform, the squared standardised counts and their variances, ``(B', K)``."""
    exact = tractability(bags.evidence, bags.sizes).exact
    # Known counts are compared class by class, without the joint likelihood of all classes.
    known = bags.evidence.exactly_known
    kept = torch.where((bags.sizes > 0) & (exact | known))[0]
    rows = torch.where(torch.isin(bags.bag_index, kept))[0]
    bags, z = bags[kept], z[rows]
    counts = _counts(z, bags, known[kept], seed).reshape(len(bags), -1)
    random = torch.from_numpy(np.random.default_rng(seed).random(tuple(counts.shape)))
    pit, ratio, excess = [], [], []
    for k in range(counts.shape[1]):
        # The transform is linear in the distribution, so a mixture has the weighted mean.
        each = [
            w * _pit(_logit(z + shift, k), bags.offsets, counts[:, k], random[:, k])
            for w, shift in shifts
        ]
        pit.append(torch.stack(each).sum(0).clamp(0, 1))
        mean, variance, fourth = _moments(z, bags, shifts, k)
        uncertain = variance > 1e-9
        safe = variance.clamp(min=1e-9)
        ratio.append(torch.where(uncertain, (counts[:, k] - mean).square() / safe, torch.nan))
        # The variance of the square of a standardised count.
        excess.append(fourth / safe.square() - 1)
    u, r, e = (torch.stack(x, 1).numpy() for x in (pit, ratio, excess))
    inside = ~np.isnan(r).any(1)
    return (u[:, 0] if z.dim() == 1 else u), r[inside], e[inside]


def _counts(z: Tensor, bags: Bags, known: Tensor, seed: int) -> Tensor:
    """The counts ``(B,)`` or ``(B, K)``; unknown ones are drawn given the evidence."""
    counts = bags.evidence.low.double()
    if bool(known.all()):
        return counts
    labels = sample(z, bags.evidence, bags.offsets, generator=seed)
    hot = labels.double()
    if z.dim() == 2:
        hot = torch.nn.functional.one_hot(labels, z.shape[1]).double()
    drawn = segment_sum(hot, bags.offsets)
    return torch.where(known if counts.dim() == 1 else known[:, None], counts, drawn)


def _pit(z: Tensor, offsets: Tensor, counts: Tensor, random: Tensor) -> Tensor:
    probability, count, inner = pmf(z, offsets)
    observed = counts[bag_index(inner)]
    below = segment_sum(probability * (count < observed), inner)
    equal = segment_sum(probability * (count == observed), inner)
    return (below + random * equal).clamp(0, 1)


def _uniformity_p(pit: Array) -> float:
    from scipy.stats import kstest

    if not len(pit):
        return 1.0
    columns = pit.reshape(len(pit), -1).T
    return float(min(1.0, len(columns) * min(kstest(u, "uniform").pvalue for u in columns)))


def _dispersion_p(ratio: Array, excess: Array) -> float:
    """The p-value of the mean ratio being one, two-sided."""
    from scipy.special import ndtr

    if not len(ratio):
        return 1.0
    total = np.atleast_1d(excess.sum(0))
    # Without any excess all counts are certain, and the ratios are one by definition.
    z = np.atleast_1d((ratio - 1).sum(0))[total > 0] / np.sqrt(total[total > 0])  # (K,)
    if not len(z):
        return 1.0
    return float(min(1.0, len(z) * (2 * ndtr(-np.abs(z))).min()))


def bag_calibration(goodness: Goodness, bags: Bags, bins: int = 10) -> Calibration:
    """Predicted and known proportions of bags, in bins of equal width, weighted by size.

    If a count is known as a range, the nearest value to the prediction is used.
    """
    expected = goodness.expected
    known = torch.minimum(torch.maximum(expected, bags.evidence.low), bags.evidence.high)
    size = (bags.sizes if expected.dim() == 1 else bags.sizes[:, None]).clamp(min=1)
    size = size.expand_as(known).double()
    # One entry per bag and class.
    index = (expected / size * bins).long().clamp(0, bins - 1).reshape(-1)
    sums = [torch.bincount(index, x.reshape(-1).double(), bins) for x in (expected, known, size)]
    used = sums[2] > 0
    predicted, observed, number = (x[used] for x in sums)
    return Calibration(predicted / number, observed / number, number.long())
