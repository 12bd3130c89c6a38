"""Class probabilities with confidence intervals, by the delta method on log-odds."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.special import expit
from torch import Tensor

from llpkit._arrays import Array
from llpkit.losses import two_columns
from llpkit.statistics._text import as_records, frame
from llpkit.statistics.covariance import Estimated
from llpkit.statistics.effect import effect_mean
from llpkit.statistics.models import Adapter


@dataclass(frozen=True)
class Prediction:
    """Probabilities with confidence intervals."""

    probability: Array
    """``(N, K)``."""
    low: Array
    """``(N, K)``."""
    high: Array
    """``(N, K)``."""
    classes: Array

    def records(self) -> list[dict[str, float]]:
        """One mapping per instance; of two classes, only the second."""
        parts = {"probability": self.probability, "low": self.low, "high": self.high}
        if len(self.classes) == 2:
            return as_records({name: values[:, 1].tolist() for name, values in parts.items()})
        columns = {
            f"{name}_{label}": values[:, k].tolist()
            for k, label in enumerate(self.classes)
            for name, values in parts.items()
        }
        return as_records(columns)

    def to_frame(self) -> Any:
        """A pandas table with one row per instance."""
        return frame(self.records())


def predicted(
    adapter: Adapter, X: Any, derivatives: Estimated, kind: str, level: float
) -> Prediction:
    """Probabilities of the rows of ``X``; the interval is [0, 1] if undetermined."""
    z, jacobian = adapter.logits(X)
    p, centre, slope = _log_odds(adapter, z, jacobian)
    variance = derivatives.variance(kind, slope.reshape(-1, slope.shape[2])).reshape(p.shape)
    half = quantile(level) * np.sqrt(variance)
    low, high = (expit(centre + sign * half) for sign in (-1, 1))
    return Prediction(p, low, high, adapter.classes)


def _log_odds(adapter: Adapter, z: Tensor, jacobian: Tensor) -> tuple[Array, Array, Array]:
    """Probabilities and log-odds ``(N, K)``, and the derivative of the log-odds ``(N, K, P)``."""
    z2 = two_columns(z)
    j2 = torch.cat([torch.zeros_like(jacobian), jacobian], 1) if z.dim() == 1 else jacobian
    sd = adapter.sd
    if sd is None:
        p = z2.softmax(1)
        # d logit(p_k) / dz_j is 1 for j = k and -p_j / (1 - p_k) for the others.
        rest = -p[:, None, :] / (1 - p).clamp(min=1e-300)[:, :, None]
        eye = torch.eye(z2.shape[1], dtype=torch.bool)
        slope = torch.where(eye, 1.0, rest)  # (N, K, K)
        others = z2[:, None, :].masked_fill(eye, -torch.inf).logsumexp(2)
        return p.numpy(), (z2 - others).numpy(), (slope @ j2).numpy()
    z2 = z2.detach().clone().requires_grad_()
    log_sd = torch.full((len(z2),), math.log(sd), dtype=torch.float64, requires_grad=True)
    p = effect_mean(z2, log_sd.exp()[:, None, None])
    p = p.clamp(1e-15, 1 - 1e-15)  # so that the log-odds are finite
    slopes = []
    for k in range(z2.shape[1]):
        odds = (p[:, k].log() - (-p[:, k]).log1p()).sum()
        by_z, by_sd = torch.autograd.grad(odds, (z2, log_sd), retain_graph=True)
        row = (by_z[:, :, None] * j2).sum(1)
        row[:, -1] += by_sd
        slopes.append(row)
    centre = p.log() - (-p).log1p()
    return p.detach().numpy(), centre.detach().numpy(), torch.stack(slopes, 1).numpy()


def quantile(level: float) -> float:
    """How many standard deviations an interval of this level extends to each side."""
    return float(stats.norm.ppf((1 + level) / 2))
