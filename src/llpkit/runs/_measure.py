"""Measures of a model: of bags always, of instances where their labels are known."""

import math

import torch
from torch import Tensor

from llpkit import evaluation
from llpkit.bags import Bags
from llpkit.config import Settings
from llpkit.datasets import Inputs
from llpkit.likelihood._best import best
from llpkit.runs._data import take
from llpkit.training import Fitted


def measure(
    model: Fitted,
    inputs: Inputs,
    bags: Bags | None,
    truth: Tensor | None,
    threshold: float = 0.5,
) -> Settings:
    """Measures of bags, and of their instances (of all, without bags) where the truth is known.

    ``approximated`` is the number of bags whose exact likelihood is out of reach, if there are any.
    """
    rows = torch.arange(len(inputs)) if bags is None else bags.rows
    logits = model.logits(take(inputs, rows))
    found: Settings = {}
    if bags is not None:
        log_p = evaluation.mean_log_likelihood(logits, bags)  # NaN if it cannot be had
        found["bags"] = {
            "number": len(bags),
            "log_likelihood": None if math.isnan(log_p) else log_p,
            "proportion_error": evaluation.proportion_error(probability_of(logits), bags),
        }
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
    return found


def probability_of(logits: Tensor) -> Tensor:
    """``(n,)`` of the positive class, or ``(n, K)``."""
    return logits.sigmoid() if logits.dim() == 1 else logits.softmax(1)


def posterior_of(logits: Tensor, bags: Bags) -> Tensor:
    """Label probabilities given the counts, one row a row of the table."""
    phi = probability_of(logits)
    phi[bags.rows] = best(logits[bags.rows], bags.evidence, bags.offsets, validate=True)[1]
    return phi
