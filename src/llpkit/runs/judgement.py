"""The judgement of a run: has the model learned anything, and does it explain the counts?

It is made once, after training, and kept with the model. The terminal, the page, ``evaluate`` and
``repr`` all show it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from llpkit import evaluation
from llpkit.bags import Bags
from llpkit.datasets import Inputs
from llpkit.evaluation import Verdict
from llpkit.runs.data import take
from llpkit.runs.measures import Measured
from llpkit.statistics import Goodness, goodness_of_fit
from llpkit.training import Fitted

_CLEAR = 0.01  # p-values below this are a problem


@dataclass(frozen=True)
class Judgement:
    """How a model explains the bags that judge it: unseen ones, if there are any."""

    part: str
    bags: Bags
    fit: Goodness
    verdict: Verdict


def part_of(parts: Mapping[str, object]) -> str:
    """The bags that judge a model."""
    return next(part for part in ("test", "held-out", "training") if part in parts)


def judge(
    model: Fitted,
    inputs: Inputs,
    parts: Mapping[str, Bags],
    measured: Mapping[str, Measured],
    seed: int,
) -> Judgement:
    """Judge a model by its measures and the spread of the counts; adds it to its details."""
    part = part_of(parts)
    bags = parts[part]
    if bool(bags.informative.any()):  # where nothing is known, any model fits
        bags = bags[bags.informative]
    sd = getattr(getattr(model, "estimator", None), "effect_sd_", 0.0)
    fit = goodness_of_fit(model.logits(take(inputs, bags.rows)), bags, seed=seed, effect_sd=sd)
    unseen = None if part == "training" else measured[part].gain
    rate = evaluation.constant_rate(parts["training"])
    model.details |= evaluation.compared(rate, measured["training"].gain, unseen, part)
    ok, text = model.details["verdict"].values()
    wrong = _problem(fit, part)
    if wrong is not None:
        verdict = Verdict(False, f"{text}. But {wrong}" if ok else f"{text}. Besides, {wrong}")
    else:
        verdict = Verdict(ok, f"no problems found: {text}" if ok else text)
    model.details["verdict"] = verdict._asdict()
    return Judgement(part, bags, fit, verdict)


def _problem(fit: Goodness, part: str) -> str | None:
    """What is wrong with the spread of the counts, if anything is."""
    if min(fit.dispersion_p, fit.pit_p) >= _CLEAR:
        return None
    if fit.dispersion_p >= _CLEAR:
        return f"in many {part} bags the model expects too many or too few of a class"
    if fit.dispersion > 1:
        return (
            f"the counts of {part} bags are further from the expected ones than the model allows: "
            "it is too sure, a column is missing, or the instances of a bag have something in "
            "common"
        )
    if part == "training":  # any flexible model does that
        return None
    return (
        f"the counts of {part} bags are closer to the expected ones than the model allows: it is "
        "not sure enough; train longer"
    )
