"""Whether a model has learned anything, and whether it explains the counts.

This is assessed once, after training, and kept with the model. The terminal, the page, ``evaluate``
and ``repr`` all show it.
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

_SIGNIFICANT = 0.01  # p-values below this are a problem


@dataclass(frozen=True)
class Assessment:
    """How well a model explains its counts: of bags that it has not seen, if there are any."""

    part: str
    bags: Bags
    fit: Goodness
    verdict: Verdict


def assess(
    model: Fitted,
    inputs: Inputs,
    parts: Mapping[str, Bags],
    measured: Mapping[str, Measured],
    seed: int,
) -> Assessment:
    """Assess a model by its metrics and the spread of the counts; kept in the model's details."""
    part = next(part for part in ("test", "held-out", "training") if part in parts)
    bags = parts[part]
    if bool(bags.informative.any()):  # where nothing is known, any model fits
        bags = bags[bags.informative]
    sd = getattr(getattr(model, "estimator", None), "effect_sd_", 0.0)
    fit = goodness_of_fit(model.logits(take(inputs, bags.rows)), bags, seed=seed, effect_sd=sd)
    unseen = None if part == "training" else measured[part].gain
    rate = evaluation.constant_rate(parts["training"])
    model.details |= evaluation.compared(rate, measured["training"].gain, unseen, part)
    verdict = _with_problem(Verdict(**model.details["verdict"]), _problem(fit, part))
    model.details["verdict"] = verdict._asdict()
    return Assessment(part, bags, fit, verdict)


def _with_problem(verdict: Verdict, problem: str | None) -> Verdict:
    if problem is not None:
        link = "But" if verdict.ok else "Also,"
        return Verdict(False, f"{verdict.text}. {link} {problem}")
    return Verdict(verdict.ok, f"no problems found: {verdict.text}") if verdict.ok else verdict


def _problem(fit: Goodness, part: str) -> str | None:
    """What is wrong with the spread of the counts, if anything is."""
    if min(fit.dispersion_p, fit.pit_p) >= _SIGNIFICANT:
        return None
    if fit.dispersion_p >= _SIGNIFICANT:
        return f"in many {part} bags the model expects too many or too few of a class"
    if fit.dispersion > 1:
        return (
            f"the counts of {part} bags are further from the expected ones than the model allows: "
            "it is overconfident, a column is missing, or the instances of a bag have something in "
            "common"
        )
    if part == "training":  # any flexible model does that
        return None
    return (
        f"the counts of {part} bags are closer to the expected ones than the model allows: it is "
        "underconfident; train longer"
    )
