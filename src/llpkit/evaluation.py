"""Measures of a model: on instances if there are labels, on bags always.

Probabilities, logits and labels may be lists, NumPy arrays or tensors. Labels are ``0 … K - 1``.
"""

import math
import warnings
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llpkit._arrays import checked_labels, numbers
from llpkit._text import several
from llpkit._validation import whole
from llpkit.bags import Bags
from llpkit.errors import ApproximationWarning, LLPError
from llpkit.likelihood.budget import (
    Tractability,
    best_log_prob,
    best_posterior,
    cost,
    even_sample,
    tractability,
)
from llpkit.likelihood.checks import check_logits, check_numbers
from llpkit.ragged import segment_sum

_ROUNDING = 0.02
"""Largest deviation of a row sum of probabilities from one; bfloat16 is off by up to 0.004."""


def labels_of(probability: Any, threshold: float = 0.5) -> Tensor:
    """The predicted label of every instance, from ``(N,)`` or ``(N, K)`` probabilities.

    >>> labels_of([0.2, 0.7])
    tensor([0, 1])
    """
    return _labels_of(_probabilities(probability), threshold)


def accuracy(probability: Any, truth: Any, threshold: float = 0.5) -> float:
    """Share of instances whose predicted label is the true one.

    >>> accuracy([0.2, 0.7, 0.9], [0, 1, 0])  # doctest: +ELLIPSIS
    0.666...
    """
    p, y = _of_instances(probability, truth)
    return float((_labels_of(p, threshold) == y).to(torch.float64).mean())


def log_loss(probability: Any, truth: Any) -> float:
    """Mean negative log-probability of the true labels.

    >>> round(log_loss([0.5, 0.5], [0, 1]), 4)
    0.6931
    """
    p, y = _of_instances(probability, truth)
    return float(-_of_truth(p.double(), y).log().mean())


def brier(probability: Any, truth: Any) -> float:
    """Mean squared error of the probabilities (binary: of the positive class).

    >>> brier([0.5, 0.5], [0, 1])
    0.25
    """
    given, y = _of_instances(probability, truth)
    p = given.double()
    if p.dim() == 1:
        return float((p - y).square().mean())
    return float((p - torch.nn.functional.one_hot(y, p.shape[1])).square().sum(1).mean())


def auc(probability: Any, truth: Any) -> float:
    """Area under the ROC curve: how often a positive outranks a negative; ties count half.

    Any scores will do, since only their order matters. NaN if all labels are the same.

    >>> auc([0.1, 0.4, 0.4, 0.8], [0, 0, 1, 1])
    0.875
    """
    score = _reals(probability, "probability")
    if score.dim() != 1:
        raise LLPError("auc is for binary probabilities (N,); pick one class of (N, K)")
    _refuse(score.isnan(), score, "probability", "give a number")
    y = _truth(truth, score)
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
    """Predicted against observed, in bins of equal width; empty bins are left out."""

    mean_predicted: Tensor
    fraction_positive: Tensor
    number: Tensor

    @property
    def error(self) -> float:
        """Expected calibration error: mean absolute gap of the bins, weighted by their counts."""
        gap = (self.mean_predicted - self.fraction_positive).abs()
        return float((gap * self.number).sum() / self.number.sum())


def calibration(probability: Any, truth: Any, bins: int = 10) -> Calibration:
    """Reliability of the probability of the positive class, or of the predicted one of K classes.

    >>> calibration([0.25, 0.75], [0, 1], bins=2).error
    0.25
    """
    bins = whole("bins", bins, 1, 100_000)
    given, hit = (x.cpu() for x in _of_instances(probability, truth))
    p = given.double()
    if p.dim() == 2:
        p, best = p.max(1)
        hit = (best == hit).long()
    index = (p * bins).long().clamp(max=bins - 1)  # (N,)
    count = torch.bincount(index, minlength=bins)
    used = count > 0  # (bins,)
    mean = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, p)[used] / count[used]
    hits = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, hit.double())[used]
    return Calibration(mean, hits / count[used], count[used])


def bag_log_likelihood(logits: Any, bags: Bags) -> Tensor:
    """Exact log-likelihood of every bag's counts ``(B,)``, logits in engine order.

    The one measure of fit that needs no instance labels: use it for model selection and early
    stopping. With many classes the exact likelihood of a large bag may be intractable. You then get
    a warning, and the bag has the value of ``approximation="saddlepoint"``, or NaN if its counts
    are not exact.
    """
    z = _logits(logits, bags)
    warn_of_approximation(bags)
    return best_log_prob(z, bags.evidence, bags.offsets)


def mean_log_likelihood(logits: Any, bags: Bags) -> float:
    """Mean of :func:`bag_log_likelihood` over :func:`measurable` bags, without a warning."""
    log_p = best_log_prob(_logits(logits, bags).detach(), bags.evidence, bags.offsets)
    return float(log_p[measurable(bags)].mean())


def measurable(bags: Bags) -> Tensor:
    """Which bags can judge a model, ``(B,)`` bool.

    They have a log-likelihood, exact or approximate, and a count that rules something out: where
    nothing is known, every model has a likelihood of one.
    """
    exact, approximate = _tractability(bags)
    return (exact | approximate) & bags.informative


def number_approximated(bags: Bags) -> int:
    """Number of bags too large for an exact log-likelihood with their number of classes."""
    return int((~_tractability(bags).exact).sum())


def approximation_note(*parts: Bags) -> str | None:
    """A note if the measures of these bags are not exact, else ``None``."""
    far = sum(number_approximated(bags) for bags in parts)
    if not far:
        return None
    near = sum(int(_tractability(bags).approximate.sum()) for bags in parts)
    text = f"the exact likelihood of {far:,} of {sum(map(len, parts)):,} bags is intractable: "
    if near:
        text += "their log-likelihood and posteriors are approximate (saddlepoint)"
    if near and near < far:
        text += f", except for {far - near:,} whose counts are not exact and which have neither"
    if not near:
        text += "they have no log-likelihood and no posterior, because their counts are not exact"
    return text


def warn_of_approximation(*parts: Bags, stacklevel: int = 3) -> None:
    """Give :func:`approximation_note` as a warning, by default at the caller's caller."""
    text = approximation_note(*parts)
    if text is not None:
        warnings.warn(text, ApproximationWarning, stacklevel=stacklevel)


def constant_rate(bags: Bags) -> Tensor:
    """The probability, the same for every instance, that maximises the likelihood of the counts.

    A scalar for the positive class, or ``(K,)``; float64. For exact counts it is the pooled
    proportion; otherwise it is found by EM, on an even sample if there are many bags.

    >>> constant_rate(Bags(offsets=[0, 2, 5], counts=[1, 1]))
    tensor(0.4000, dtype=torch.float64)
    """
    bags = bags.to("cpu")
    if not bags.evidence.is_exact:
        bags = bags[even_sample(cost(bags.evidence, bags.sizes), _RATE_BUDGET)]
    classes, n = bags.num_classes, bags.sizes
    low, high = bags.evidence.low, bags.evidence.high
    high = torch.minimum(high, n if classes is None else n[:, None])
    # Exact for exact counts; otherwise the middle of the ranges is where EM starts.
    rate = (low + high).double().sum(0) / 2
    rate = rate / (max(1, bags.num_instances) if classes is None else rate.sum().clamp(min=1e-300))
    if bags.evidence.is_exact or bags.num_instances == 0:
        return rate
    for _ in range(_RATE_STEPS):
        before = rate
        phi = best_posterior(_constant_logits(rate, bags), bags.evidence, bags.offsets)
        rate = phi.mean(0)
        if float((rate - before).abs().max()) < 1e-7:
            break
    return rate


def baseline_log_likelihood(bags: Bags, rate: Any = None) -> Tensor:
    """Log-likelihood of every bag's counts ``(B,)`` under one constant rate for every instance.

    This is what a model reaches that has learned nothing from the instances; a useful model has a
    higher :func:`bag_log_likelihood`. Exact counts have a closed form for bags of any size, the
    binomial or multinomial probability. NaN where the likelihood is intractable.

    Args:
        bags: The bags to measure.
        rate: The :func:`constant_rate` of the training bags; by default that of ``bags``. A given
            rate is clamped to at least 1e-6 for every class.

    >>> bags = Bags(offsets=[0, 2, 5], counts=[1, 2])
    >>> baseline_log_likelihood(bags, 0.5).exp()
    tensor([0.5000, 0.3750], dtype=torch.float64)
    """
    bags = bags.to("cpu")
    if rate is None:
        rate = constant_rate(bags)
    else:
        rate = torch.as_tensor(rate, dtype=torch.float64).cpu().clamp(1e-6, 1 - 1e-6)
    if rate.dim() != (bags.num_classes is not None) or rate.numel() != (bags.num_classes or 1):
        wanted = "one number" if bags.num_classes is None else f"{bags.num_classes} numbers"
        raise LLPError(f"rate has shape {tuple(rate.shape)}; these bags need {wanted}")
    evidence, n = bags.evidence, bags.sizes.double()
    known = counts_known(bags)
    counts, p = evidence.low.double(), rate
    if bags.num_classes is None:
        counts, p = torch.stack([n - counts, counts], 1), torch.stack([1 - p, p])  # two classes
    # The logarithm of the binomial or multinomial probability.
    result = torch.lgamma(n + 1) - torch.lgamma(counts + 1).sum(1) + torch.xlogy(counts, p).sum(1)
    if not bool(known.all()):
        rest = bags[~known]
        z = _constant_logits(rate, rest)
        result[~known] = best_log_prob(z, rest.evidence, rest.offsets)
    return result


def counts_known(bags: Bags) -> Tensor:
    """Which bags have an exact count, ``(B,)`` bool."""
    evidence = bags.evidence
    sure = evidence.low == evidence.high
    sure &= evidence.table_offsets.diff().reshape(sure.shape) == 0
    return sure if sure.dim() == 1 else sure.all(1)


def _constant_logits(rate: Tensor, bags: Bags) -> Tensor:
    """The same logits for every instance: ``(N,)`` or ``(N, K)``."""
    z = rate.logit() if rate.dim() == 0 else rate.log()
    return z.expand(bags.num_instances, *rate.shape).contiguous()


_RATE_BUDGET, _RATE_STEPS = 2**18, 100


class Gain(NamedTuple):
    """How much better a model explains some bags than a constant rate; means per bag."""

    log_likelihood: float
    baseline: float
    error: float
    """The standard error of their difference; infinite for a single bag."""
    number: int
    """The number of bags."""

    @property
    def mean(self) -> float:
        """How much higher the model's log-likelihood is."""
        return self.log_likelihood - self.baseline

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % confidence interval, by Student's t: wide for few bags."""
        if not math.isfinite(self.error):
            return -math.inf, math.inf
        from scipy.special import stdtrit

        half = float(stdtrit(max(1, self.number - 1), 0.975)) * self.error
        return self.mean - half, self.mean + half


def gain(log_p: Tensor, bags: Bags, rate: Any = None) -> Gain:
    """Compare a model's log-likelihoods ``(B,)`` of some bags with a constant rate's.

    Only unseen bags can show whether the model learned something: a flexible model explains its
    training bags better than a constant rate even if their counts were scrambled. Bags without a
    count are left out; so are those whose log-likelihood is approximate, if there are others.

    Args:
        log_p: The model's log-likelihood of every bag.
        bags: These bags.
        rate: The :func:`constant_rate` of the training bags.

    >>> bags = Bags(offsets=[0, 2, 4], counts=[0, 2])
    >>> round(gain(torch.tensor([-0.1, -0.2]), bags).mean, 3)
    1.236
    """
    able = measurable(bags).cpu()
    exact = able & tractability(bags.evidence, bags.sizes).exact.cpu()
    base = baseline_log_likelihood(bags, rate)
    log_p = log_p.detach().double().cpu()
    # An approximate value might favour the model.
    used = exact if bool(exact.any()) else able & ~(log_p.isnan() | base.isnan())
    log_p, base = log_p[used], base[used]
    number = len(base)
    error = float((log_p - base).std()) / math.sqrt(number) if number > 1 else math.inf
    error = math.inf if error != error else error
    return Gain(float(log_p.mean()), float(base.mean()), error, number)


class Verdict(NamedTuple):
    """Whether a model has learned anything from the instances."""

    ok: bool | None
    """``None`` if the bags cannot show it."""
    text: str


def verdict(training: Gain | None, unseen: Gain | None = None, part: str = "held-out") -> Verdict:
    """Whether a model explains its bags better than a constant rate.

    Unseen bags decide: the 95 % interval of the gain has to be above zero. Without them, only a
    model that is no better even on its training bags is known to have learned nothing.

    Args:
        training: The gain on training bags.
        unseen: The gain on bags that the model was not fitted to.
        part: What the unseen bags are called.
    """
    remedy = "check that each count belongs to its bag, or train longer"
    if unseen is not None:
        low, high = unseen.interval
        bags = several(unseen.number, f"{part} bag".strip())
        mean, *ends = (
            f"{x:.2f}" if abs(x) >= 0.1 else f"{x:.2g}" for x in (unseen.mean, low, high)
        )
        how = f"{mean} in log-likelihood per bag"
        how += f" (95 % interval {ends[0]} to {ends[1]})" if math.isfinite(low) else ""
        if low > 0:
            return Verdict(True, f"the model beats a constant rate on {bags}, by {how}")
        if unseen.mean <= 0:
            text = f"the model is no better than a constant rate on {bags}: its gain is {how}"
            return Verdict(False, f"{text}; {remedy}")
        text = f"{bags} cannot show that the model beats a constant rate: its gain is {how}"
        return Verdict(False, f"{text}; count more bags, or hold out more of them")
    if training is not None and training.mean <= 0:
        return Verdict(
            False,
            "the model is no better than a constant rate even on its training bags: the mean "
            f"log-likelihood per bag is {training.log_likelihood:.3f}, that of a constant rate "
            f"{training.baseline:.3f}; {remedy}",
        )
    return Verdict(
        None,
        "no bags were held out, so it is not known whether the model learned anything: a flexible "
        "model beats a constant rate on its training bags even if their counts are wrong",
    )


def compared(
    rate: Tensor, training: Gain | None, unseen: Gain | None, part: str = "held-out"
) -> dict[str, Any]:
    """What a model keeps of its comparison with a constant rate, for its details."""
    found: dict[str, Any] = {"rate": rate.tolist()}
    for name, one in (("training", training), (part, unseen)):
        if one is not None:
            found[name] = {"log_likelihood": one.log_likelihood, "baseline": one.baseline}
    return {"baseline": found, "verdict": verdict(training, unseen, part)._asdict()}


def proportion_error(probability: Any, bags: Bags) -> float:
    """Mean absolute difference between predicted and known proportions, in engine order.

    If a count is a range, the distance to the range counts. Bags without a count are left out, and
    so are empty ones.
    """
    p = _fitting(_probabilities(probability), "probabilities", bags)
    n = bags.sizes.clamp(min=1).to(p.dtype)
    low, high = bags.evidence.low, bags.evidence.high
    if p.dim() == 2:
        n = n[:, None]
    total = segment_sum(p, bags.offsets)  # (B,) or (B, K)
    gap = (low - total).clamp(min=0) + (total - high).clamp(min=0)
    kept = bags.informative
    return float((gap / n)[kept].mean()) if bool(kept.any()) else 0.0


# Input from users as checked tensors


def _reals(values: Any, name: str) -> Tensor:
    """Numbers as a float tensor ``(N,)`` or ``(N, K)``, on their device; float32 stays."""
    if not isinstance(values, Tensor):
        tensor = torch.from_numpy(numbers(values, name).astype("float64"))
    else:
        tensor = values.detach()
        plain = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized
        if not plain or tensor.is_complex() or tensor.device.type == "meta":
            raise LLPError(f"{name} is {tensor.layout} {tensor.dtype}; give a dense array of reals")
        if tensor.dtype != torch.float32:
            tensor = tensor.double()
    if tensor.dim() not in (1, 2) or (tensor.dim() == 2 and tensor.shape[1] < 2):
        raise LLPError(
            f"{name} has shape {tuple(tensor.shape)}; give (N,), or (N, K) for K > 1 classes"
        )
    return tensor


def _probabilities(values: Any) -> Tensor:
    p = _reals(values, "probability")
    _refuse(~((p >= 0) & (p <= 1)), p, "probability", "give numbers from 0 to 1, not logits")
    if p.dim() == 2:
        total = p.double().sum(1)
        off = (total - 1).abs() > _ROUNDING
        _refuse(off, total, "the sum of probability", "the classes of an instance must sum to 1")
    return p


def _refuse(bad: Tensor, values: Tensor, name: str, remedy: str) -> None:
    if bool(bad.any()):
        cell = bad.nonzero()[0].tolist()
        raise LLPError(f"{name}{cell} = {float(values[tuple(cell)])}; {remedy}")


def _truth(truth: Any, of: Tensor) -> Tensor:
    """One label for every instance, on the device of its probabilities."""
    classes = of.shape[1] if of.dim() == 2 else None
    more = "number the classes from 0; for K classes give probabilities (N, K)"
    labels = torch.from_numpy(checked_labels(truth, classes, "truth", more))
    if len(labels) != len(of):
        raise LLPError(
            f"there are {len(of)} probabilities but {len(labels)} labels; "
            "give one label for every instance"
        )
    return labels.to(of.device)


def _of_instances(probability: Any, truth: Any) -> tuple[Tensor, Tensor]:
    p = _probabilities(probability)
    return p, _truth(truth, p)


def _labels_of(p: Tensor, threshold: Any) -> Tensor:
    if not isinstance(threshold, Real) or not math.isfinite(threshold):
        raise LLPError(f"threshold = {threshold!r}; give a number from 0 to 1")
    return p.argmax(1) if p.dim() == 2 else (p >= float(threshold)).to(torch.int64)


def _logits(values: Any, bags: Bags) -> Tensor:
    given = values if isinstance(values, Tensor) else _reals(values, "logits")
    logits = _fitting(check_logits(given), "logits", bags)
    check_numbers(logits.detach())
    return logits


def _fitting(values: Tensor, name: str, bags: Any) -> Tensor:
    """Values of the instances of these bags, on their device."""
    _check_bags(bags)
    if len(values) != bags.num_instances:
        raise LLPError(
            f"there are {len(values)} {name} but the bags hold {bags.num_instances} instances; "
            "pass those of bags.rows, in that order"
        )
    classes = values.shape[1] if values.dim() == 2 else None
    if classes != bags.num_classes:
        wanted = "(N,)" if bags.num_classes is None else f"(N, {bags.num_classes})"
        raise LLPError(f"{name} has shape {tuple(values.shape)}; these bags need {wanted}")
    return values.to(bags.device)


def _check_bags(bags: Any) -> None:
    if not isinstance(bags, Bags):
        raise LLPError(f"bags is a {type(bags).__name__}; pass llpkit.Bags")


def _tractability(bags: Any) -> Tractability:
    _check_bags(bags)
    return tractability(bags.evidence, bags.sizes)


def _of_truth(probability: Tensor, truth: Tensor) -> Tensor:
    if probability.dim() == 2:
        return probability.gather(1, truth[:, None])[:, 0]
    return torch.where(truth == 1, probability, 1 - probability)
