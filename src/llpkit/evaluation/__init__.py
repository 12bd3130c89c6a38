"""Metrics of a model: always on bags, and on instances if there are labels.

Probabilities, logits and labels may be lists, NumPy arrays or tensors. Labels are ``0 … K - 1``.
"""

from llpkit.evaluation.bags import (
    approximation_note,
    bag_log_likelihood,
    baseline_log_likelihood,
    constant_rate,
    mean_log_likelihood,
    measurable,
    number_approximated,
    proportion_error,
    warn_of_approximation,
)
from llpkit.evaluation.comparison import Gain, Verdict, compared, gain, verdict
from llpkit.evaluation.instances import (
    Calibration,
    accuracy,
    auc,
    brier,
    calibration,
    labels_of,
    log_loss,
)

__all__ = [
    "Calibration",
    "Gain",
    "Verdict",
    "accuracy",
    "approximation_note",
    "auc",
    "bag_log_likelihood",
    "baseline_log_likelihood",
    "brier",
    "calibration",
    "compared",
    "constant_rate",
    "gain",
    "labels_of",
    "log_loss",
    "mean_log_likelihood",
    "measurable",
    "number_approximated",
    "proportion_error",
    "verdict",
    "warn_of_approximation",
]
