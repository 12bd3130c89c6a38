"""Has a model learned anything? A comparison of its log-likelihood with a constant rate."""

import math
from typing import Any, NamedTuple

from torch import Tensor

from llpkit._text import several
from llpkit.bags import Bags
from llpkit.evaluation.bags import baseline_log_likelihood, measurable
from llpkit.likelihood.budget import tractability


class Gain(NamedTuple):
    """How much better a model explains bags than a constant rate does; means per bag."""

    log_likelihood: float
    baseline: float
    error: float
    """The standard error of the difference; infinite for a single bag."""
    number: int
    """The number of bags."""

    @classmethod
    def of(cls, log_p: Tensor, baseline: Tensor) -> "Gain":
        """From the log-likelihoods of each bag, ``(B,)``."""
        number = len(log_p)
        error = float((log_p - baseline).std()) / math.sqrt(number) if number > 1 else math.inf
        error = math.inf if math.isnan(error) else error
        return cls(float(log_p.mean()), float(baseline.mean()), error, number)

    @property
    def mean(self) -> float:
        """The difference between the model's log-likelihood and the baseline."""
        return self.log_likelihood - self.baseline

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% confidence interval of the mean, by Student's t: wide for few bags."""
        if not math.isfinite(self.error):
            return -math.inf, math.inf
        from scipy.special import stdtrit

        half = float(stdtrit(max(1, self.number - 1), 0.975)) * self.error
        return self.mean - half, self.mean + half

    @property
    def better(self) -> bool | None:
        """Whether the model beats a constant rate; ``None`` if the bags cannot show it."""
        if self.interval[0] > 0:
            return True
        return False if self.mean <= 0 else None

    @property
    def text(self) -> str:
        """The mean and its interval, in words."""
        mean, low, high = (
            f"{x:.2f}" if abs(x) >= 0.1 else f"{x:.2g}" for x in (self.mean, *self.interval)
        )
        interval = f" (95% interval {low} to {high})" if math.isfinite(self.error) else ""
        return f"{mean} in log-likelihood per bag{interval}"


def gain(log_p: Tensor, bags: Bags, rate: Any = None) -> Gain:
    """Compare a model's log-likelihoods of bags with those of a constant rate.

    Only unseen bags can show whether the model learned something: a flexible model explains its
    training bags better than a constant rate even if their counts were shuffled. Bags without a
    count are left out, and, unless there are no others, bags whose log-likelihood is approximate.

    Args:
        log_p: The model's log-likelihood of every bag, ``(B,)``.
        bags: The bags.
        rate: The :func:`constant_rate` of the training bags.

    >>> import torch
    >>> bags = Bags(offsets=[0, 2, 4], counts=[0, 2])
    >>> round(gain(torch.tensor([-0.1, -0.2]), bags).mean, 3)
    1.236
    """
    usable = measurable(bags).cpu()
    exact = usable & tractability(bags.evidence, bags.sizes).exact.cpu()
    base = baseline_log_likelihood(bags, rate)
    log_p = log_p.detach().double().cpu()
    # An approximate value might favour the model.
    used = exact if bool(exact.any()) else usable & ~(log_p.isnan() | base.isnan())
    return Gain.of(log_p[used], base[used])


class Verdict(NamedTuple):
    """Whether a model has learned anything from the instances."""

    ok: bool | None
    """``None`` if it is unknown, without held-out bags."""
    text: str


def verdict(training: Gain | None, unseen: Gain | None = None, part: str = "held-out") -> Verdict:
    """Whether a model explains its bags better than a constant rate.

    The 95% interval of the gain on unseen bags must be above zero. Without unseen bags, all that
    can be shown is failure: no gain even on the training bags.

    Args:
        training: The gain on training bags.
        unseen: The gain on bags that the model was not fitted to.
        part: The name of the unseen bags in the text.
    """
    remedy = (
        "check that each count belongs to its bag; a network may also need more epochs, or another "
        "learning rate"
    )
    if unseen is not None:
        bags = several(unseen.number, f"{part} bag".strip())
        if unseen.better:
            return Verdict(True, f"the model beats a constant rate on {bags}, by {unseen.text}")
        amount = f"its gain is {unseen.text}"
        if unseen.better is False:
            text = f"the model is no better than a constant rate on {bags}: {amount}"
            return Verdict(False, f"{text}; {remedy}")
        text = f"{bags} cannot show that the model beats a constant rate: {amount}"
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
    """The comparison with a constant rate, as it is stored in the details of a model."""
    baseline: dict[str, Any] = {"rate": rate.tolist()}
    for name, gain in (("training", training), (part, unseen)):
        if gain is not None:
            baseline[name] = {"log_likelihood": gain.log_likelihood, "baseline": gain.baseline}
    return {"baseline": baseline, "verdict": verdict(training, unseen, part)._asdict()}
