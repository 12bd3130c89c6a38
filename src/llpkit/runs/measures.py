"""Metrics of a model: always of bags, and of instances if their labels are known."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from llpkit import evaluation
from llpkit.bags import Bags
from llpkit.config import Values
from llpkit.datasets import Inputs
from llpkit.likelihood.budget import best_log_prob, tractability
from llpkit.probability import probability_of
from llpkit.runs.data import take
from llpkit.training import Fitted


class Measured(NamedTuple):
    """Metrics by kind and name, and the gain over a constant rate if any bag has a likelihood."""

    values: Values
    gain: evaluation.Gain | None


def measure(
    model: Fitted,
    inputs: Inputs,
    bags: Bags | None,
    truth: Tensor | None,
    threshold: float = 0.5,
) -> Measured:
    """Metrics of bags, and of their instances (all instances without bags) if labels are known.

    ``without_counts`` is the number of bags with unknown counts, which no metric includes, and
    ``approximated`` the number of bags with an intractable exact likelihood, if there are any.
    ``baseline_log_likelihood`` is the log-likelihood if every instance had the same probability:
    the constant rate of the model's training bags or, if it has none, of these bags.
    """
    rows = torch.arange(len(inputs)) if bags is None else bags.rows
    logits = model.logits(take(inputs, rows))
    found: Values = {}
    gain = None
    if bags is not None:
        rate = model.details.get("baseline", {}).get("rate")
        log_p = best_log_prob(logits, bags.evidence, bags.offsets)
        measurable = evaluation.measurable(bags)
        known = bool(measurable.any())
        gain = evaluation.gain(log_p, bags, rate) if known else None
        found["bags"] = {
            "number": len(bags),
            "log_likelihood": float(log_p[measurable].mean()) if known else None,
            "baseline_log_likelihood": mean_baseline(bags, rate) if known else None,
            "proportion_error": evaluation.proportion_error(probability_of(logits), bags),
        }
        unknown = int((~bags.informative & (bags.sizes > 0)).sum())
        if unknown:
            found["bags"]["without_counts"] = unknown
        approximated = evaluation.number_approximated(bags)
        if approximated:
            found["bags"]["approximated"] = approximated
    if truth is not None:
        p, y = probability_of(logits.double()), truth[rows]
        found["instances"] = {
            "number": len(y),
            "accuracy": evaluation.accuracy(p, y, threshold),
            "log_loss": evaluation.log_loss(p, y),
            "brier": evaluation.brier(p, y),
            "calibration_error": evaluation.calibration(p, y).error,
        }
        if p.dim() == 1:
            found["instances"]["auc"] = evaluation.auc(p, y)
    return Measured(found, gain)


def mean_baseline(bags: Bags, rate: Any = None) -> float:
    """The mean of :func:`llpkit.evaluation.baseline_log_likelihood` over bags that have it."""
    base = evaluation.baseline_log_likelihood(bags, rate)
    return float(base[evaluation.measurable(bags)].mean())


def how_measured(bags: Bags) -> str:
    """A phrase on how the log-likelihood of bags is measured; "exact" only if all bags are."""
    exact, approximate = (int(x.sum()) for x in tractability(bags.evidence, bags.sizes))
    if exact == len(bags):
        return "exact"
    unknown = len(bags) - exact - approximate
    numbers = {"exact": exact, "approximate": approximate, "not known": unknown}
    parts = [f"{kind} for {number:,}" for kind, number in numbers.items() if number]
    return f"{', '.join(parts)} of {len(bags):,} bags"
