"""Measures of a model: always of bags, and of instances if their labels are known."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from llpkit import evaluation
from llpkit.bags import Bags
from llpkit.config import Values
from llpkit.datasets import Inputs
from llpkit.likelihood.budget import best_log_prob, best_posterior, tractability
from llpkit.runs.data import take
from llpkit.training import Fitted


class Measured(NamedTuple):
    """Measures by kind and name, and the gain over a constant rate where bags have a likelihood."""

    values: Values
    gain: evaluation.Gain | None


def measure(
    model: Fitted,
    inputs: Inputs,
    bags: Bags | None,
    truth: Tensor | None,
    threshold: float = 0.5,
) -> Measured:
    """Measures of bags, and of their instances (all instances without bags) if labels are known.

    ``without_counts`` is the number of bags whose count can be anything, which no measure includes,
    and ``approximated`` that of bags whose exact likelihood is intractable, if there are any.
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
        able = evaluation.measurable(bags)
        known = bool(able.any())
        gain = evaluation.gain(log_p, bags, rate) if known else None
        found["bags"] = {
            "number": len(bags),
            "log_likelihood": float(log_p[able].mean()) if known else None,
            "baseline_log_likelihood": mean_baseline(bags, rate) if known else None,
            "proportion_error": evaluation.proportion_error(probability_of(logits), bags),
        }
        unknown = int((~bags.informative & (bags.sizes > 0)).sum())
        if unknown:
            found["bags"]["without_counts"] = unknown
        far = evaluation.number_approximated(bags)
        if far:
            found["bags"]["approximated"] = far
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
    exact, near = (int(x.sum()) for x in tractability(bags.evidence, bags.sizes))
    parts = [f"exact for {exact:,}", f"approximate for {near:,}"]
    parts.append(f"not known for {len(bags) - exact - near:,}")
    shown = [text for text in parts if not text.endswith(" 0")]
    return "exact" if exact == len(bags) else f"{', '.join(shown)} of {len(bags):,} bags"


def probability_of(logits: Tensor) -> Tensor:
    """``(n,)`` of the positive class, or ``(n, K)``."""
    return logits.sigmoid() if logits.dim() == 1 else logits.softmax(1)


def posterior_of(logits: Tensor, bags: Bags) -> Tensor:
    """Label probabilities given the counts, one row per row of the table."""
    phi = probability_of(logits)  # rows in no bag keep it
    phi[bags.rows] = best_posterior(logits[bags.rows], bags.evidence, bags.offsets, validate=True)
    return phi
